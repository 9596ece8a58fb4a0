"""The study of prompt clusters on prompts whose clusters, and what k does to them, are known."""

import numpy as np
import pytest
from oracles import gaussian_gram, scores
from small import small_run
from studies import execute

from experiments import prompt_clusters

pytestmark = pytest.mark.slow

STUDY = prompt_clusters.STUDY
GROUPS, MEMBERS = 4, 5


def write_groups(folder, *, models=2):
    """Four groups of five prompts that the kernel cannot tell apart, an output each of its own.

    The last model has too few of the prompts.
    """
    n = GROUPS * MEMBERS
    group = np.repeat(np.arange(GROUPS), MEMBERS)
    prompts = np.stack([10.0 * group, 1e-3 * np.arange(n)], 1)
    # Well apart under a bandwidth of 0.35, and not so far that the kernel would say nothing.
    outputs = np.arange(n)[:, None] * np.ones(3)
    rows = np.r_[np.tile(np.arange(n), models), :3]
    names = [f"model {i}" for i in np.repeat(np.arange(models), n)] + ["small"] * 3
    np.save(folder / "x.npy", outputs[rows].astype(np.float32))
    np.save(folder / "t.npy", prompts[rows].astype(np.float32))
    (folder / "models.txt").write_text("\n".join(names) + "\n")
    flags = [f"--{k}={folder / v}" for k, v in {"outputs": "x.npy", "prompts": "t.npy"}.items()]
    return [*flags, "--output_bandwidth=0.35", "--prompt_bandwidth=1", "--scales=1"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("groups")
    flags = write_groups(folder)
    models = f"--models={folder / 'models.txt'}"
    return execute(STUDY, folder, *flags, models, "--counts=2,4,20", "--repeats=2")


def test_scores_against_k_are_those_of_the_population(run):
    """Up to the true clusters the answer is a function of them: Conditional is 1, Information k.

    Beyond, Information stays and Conditional rises to the five outputs of each cluster.
    """
    assert run.settings.models == ("model 0", "model 1")
    assert run.settings.left_out == ("small",)
    assert run.settings.prompts == GROUPS * MEMBERS
    for found in run.results.values():
        vendi, conditional, information = np.moveaxis(found.scores, 1, 0)
        for order in (0, 1):
            np.testing.assert_allclose(conditional[order, 0], 1, rtol=1e-3)
            np.testing.assert_allclose(information[order, 1], GROUPS, rtol=1e-3)
            np.testing.assert_allclose(conditional[order, 1], 1, rtol=1e-3)
            np.testing.assert_allclose(conditional[order, 2], MEMBERS, rtol=1e-3)
            np.testing.assert_allclose(information[order, 2], GROUPS, rtol=1e-3)
            assert (information[order, 0] <= 2.001).all()
        np.testing.assert_allclose(vendi, conditional * information, rtol=1e-4)
        assert found.agreement[1:] == pytest.approx(1)


def test_a_prompt_gets_the_output_of_the_member_nearest_to_its_centre():
    prompts = np.array([[0.0], [1.0], [5.0], [9.0], [10.0], [20.0]])
    found = prompt_clusters.answers(prompts, np.array([0, 0, 1, 0, 1, 1]))
    # Centres 10/3 and 35/3.
    assert found.tolist() == [1, 1, 4, 1, 4, 4]


def test_at_k_of_all_prompts_the_scores_are_the_oracles(tmp_path):
    flags = small_run(STUDY, tmp_path, 0)[:2]
    widths = ("--output_bandwidth=0.9", "--prompt_bandwidth=0.8", "--scales=0.5,1")
    run = execute(STUDY, tmp_path, *flags, *widths, "--repeats=2")
    outputs, prompts = (np.load(flag.partition("=")[2]).astype(float) for flag in flags)
    prompts, first = np.unique(prompts, axis=0, return_index=True)
    assert run.settings.counts == (2, 3, 4, 5, 7, 10)
    assert run.settings.prompts == len(prompts) == 10
    assert [cell.scale for cell in run.results] == ["0.5", "1"]
    # The outputs are drawn, one a prompt, and differ between repeats; so does their Vendi score.
    for found in run.results.values():
        assert (found.scores[:, 0, -1, 0] != found.scores[:, 0, -1, 1]).all()
    single = np.unique(np.load(flags[1].partition("=")[2]), axis=0, return_index=True)[1]
    for role, rows in (("x", outputs), ("t", np.load(flags[1].partition("=")[2]))):
        np.save(tmp_path / f"{role}.npy", rows[single].astype(np.float32))
    alone = tmp_path / "alone"
    run = execute(STUDY, alone, *flags, *widths, "--repeats=2")
    for scale, found in zip((0.5, 1), run.results.values(), strict=True):
        pairs = zip((outputs[single], prompts), (0.9, 0.8), strict=True)
        grams = [gaussian_gram(p.astype(float), scale * b) for p, b in pairs]
        for order in (1, 2):
            expected = list(scores(*grams, order=order).values())
            got = found.scores[order - 1, :, -1]
            np.testing.assert_allclose(got, np.tile(expected, (2, 1)).T, rtol=1e-4)


def test_a_figure_has_the_panels_of_the_paper_and_says_what_it_shows(run):
    figure = prompt_clusters.draw([run])["prompt_clusters"]
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == list(prompt_clusters._PANELS)
    caption = figure._supxlabel.get_text().replace("\n", " ")
    for part in ("20 prompts that every model has", "2 starts", "seed 0", "Left out", "small"):
        assert part in caption
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["model 0", "model 1"]


def test_the_table_has_a_row_a_score(run):
    grid = prompt_clusters.table(run)
    columns = [list(column.cells) for column in grid.columns]
    assert columns[2] == list(prompt_clusters._PANELS) * 2
    assert columns[-1][0].startswith("5 +-") or columns[-1][0].startswith("4.99")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--counts=2,30",), "between 1 and the 20 prompts"),
        (("--counts=0",), "between 1 and the 20 prompts"),
        (("--repeats=1",), "--repeats: expected an integer of at least 2"),
        (("--largest=1",), "--largest"),
    ],
)
def test_bad_flags_are_refused(tmp_path, flags, message):
    with pytest.raises(ValueError, match=message):
        execute(STUDY, tmp_path, *write_groups(tmp_path), *flags)


def test_fewer_prompts_are_drawn_where_asked(tmp_path):
    run = execute(STUDY, tmp_path, *write_groups(tmp_path), "--largest=8", "--counts=4")
    assert run.settings.prompts == 8
    assert run.settings.models == (prompt_clusters._ALL,)


def test_models_without_common_prompts_are_refused(tmp_path):
    flags = write_groups(tmp_path)
    names = ["a" if i % 2 else "b" for i in range(43)]
    (tmp_path / "models.txt").write_text("\n".join(names) + "\n")
    with pytest.raises(ValueError, match="prompts in common; at least 4"):
        execute(STUDY, tmp_path, *flags, f"--models={tmp_path / 'models.txt'}", "--largest=20")
