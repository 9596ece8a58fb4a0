"""The video study on clips of models whose diversity is known."""

import numpy as np
import pytest
import studies
from small import small_run, write_neighbourhoods
from studies import execute

from experiments import lab
from experiments.conditional_vendi import video
from experiments.conditional_vendi.video import Video
from experiments.lab import models

pytestmark = pytest.mark.slow

KNOWN = {"few": 2, "many": 4}
WIDTHS = ("--output_bandwidth=1", "--prompt_bandwidth=1", "--scales=1")

finished = studies.finished(Video)


def test_the_scores_are_the_known_numbers_of_each_embedding(finished):
    study, found = finished.study, finished.found
    part = study.parts["all"]
    assert (part.prompts, part.clips, study.embeddings) == (80, 2, ("clips", "means"))
    for embedding, known in (("clips", [2, 4]), ("means", [4, 2])):
        for name, count in zip(KNOWN, known, strict=True):
            scores = found.value.sel(source="all", embedding=embedding, model=name)
            np.testing.assert_allclose(scores, [[count, 5, 5 * count] * 2] * 2, rtol=5e-3)
    all_clips = found.by_clips.sel(clips=2, start=1)
    np.testing.assert_allclose(all_clips, found.value, rtol=1e-4)


def test_clips_are_fewer_in_each_prompt():
    """Three clips of each far prompt: two alike, the third another."""
    far = 12**0.5 * np.repeat(np.eye(8, dtype=np.float32), 3, axis=0)
    third = np.tile(np.array([[0], [0], [12**0.5]], np.float32), (8, 1))
    outputs = np.concatenate([far, third], axis=1)
    widths = lab.Bandwidths(1.0, 1.0, 1.0, "given")
    # A prompt's clips need not stand together.
    order = np.arange(24).reshape(8, 3).T.ravel()
    found = video.fewer_clips(outputs[order], far[order], 3, widths)
    conditional = found[models.SCORES.index(("conditional", 2.0))]
    np.testing.assert_allclose(conditional[0], 1, rtol=1e-4)
    np.testing.assert_allclose(conditional[1], [1, 2, 2], rtol=1e-3)
    np.testing.assert_allclose(conditional[2], 9 / 5, rtol=1e-3)
    vendi = found[models.SCORES.index(("conditional", 1.0))]
    np.testing.assert_allclose(vendi[2], 3 / 2 ** (2 / 3), rtol=1e-3)


def test_sources_are_compared_by_themselves(tmp_path):
    flags = write_neighbourhoods(tmp_path, 0, {"few": 2, "many": 8, "alone": 4})
    names = (tmp_path / "models.txt").read_text().split()
    sources = ["one" if name == "alone" else "two" for name in names]
    np.save(tmp_path / "source.npy", sources)
    own = (f"--source={tmp_path / 'source.npy'}", "--groups=8")
    run = execute(Video, tmp_path, *flags, *own, *WIDTHS)
    assert run.study.parts["one"].models == ("alone",)
    assert set(run.study.parts["two"].models) == set(KNOWN)
    found = run.found.sel(embedding="clips", scale=1)
    alone, both = found.sel(source="one", model="alone"), found.sel(source="two")
    np.testing.assert_allclose(alone.value, [4, 5, 20] * 2, rtol=1e-2)
    assert (alone.error > 0).all() and both.value.sel(model="alone").isnull().all()
    assert found.groups.values.tolist() == [8, 8]
    both = both.sel(score="Conditional-RKE")
    assert both.p_value.sel(model="few", other="many") < 0.05
    assert len(set(both.letters.sel(model=list(KNOWN)).values)) == 2
    # One clip a prompt: there is nothing to draw against their number.
    assert set(Video.figures([run])) == {"video", "video_bandwidth"}


def test_titles_and_captions_say_what_is_shown(finished):
    figure = Video.figures([finished])["video"]
    assert "many is highest, told apart from 1 of 1" in figure.axes[0].get_title()
    caption = figure._supxlabel.get_text().replace("\n", " ")
    assert "80 prompts, 2 of each a model" in caption


def test_what_cannot_be_compared_is_refused(tmp_path):
    flags = small_run(Video, tmp_path, 0)
    with pytest.raises(ValueError, match="--groups"):
        execute(Video, tmp_path, *flags, "--groups=1")
    np.save(tmp_path / "t.npy", np.ones((320, 4), np.float32))
    with pytest.raises(ValueError, match="--prompts: expected at least 3 different prompts"):
        execute(Video, tmp_path, *flags)
