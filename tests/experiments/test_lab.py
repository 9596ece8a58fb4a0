"""The lab on a study of its own: whose results are shown, flags, labels, keys, drawing, the cache.

The defects that the store was built against are tried here one by one; `test_studies.py` tries
every study of the project in the same ways.
"""

import contextlib
import dataclasses
import os
import re
import unittest.mock
from typing import ClassVar

import jax
import numpy as np
import pytest
import xarray as xr
from small import write_pairs
from studies import changed

import condvendi_jax as cv
from condvendi_jax.cli import command
from experiments import lab
from experiments.lab import checking, figures, registry, runner, sizes, store, style, tables


class Toy(lab.Study):
    """What is the mean?"""

    name = "toy"
    control = "Nothing is compared."
    needs = ("types",)

    kind: str = lab.flag("mean", "What is taken.", choices=("mean", "sum"))
    powers: tuple[int, ...] = lab.flag((1, 2), "Of the outputs.")
    scale: float | None = lab.flag(None, "Of the mean.", needs={"kind": "mean"}, above=0)
    loud: bool = lab.flag(False, "Nothing.")
    noise: float = lab.flag(0.0, "Nothing.")

    def prepare(self, load, seed):
        pairs = load()
        return self.ready(pairs, state=pairs)

    def axes(self):
        return {"kind": [self.kind], "power": self.powers}

    def compute(self, state, context, *, kind, power):
        powers = state.outputs.astype(float) ** power
        types = np.unique(state.labels["types"])
        return xr.Dataset(
            {
                "value": getattr(np, kind)(powers) * (self.scale or 1.0),
                "by_type": ("type", [powers[state.labels["types"] == t].sum() for t in types]),
                "noise": float(jax.random.uniform(context.key)),
            },
            {"type": types},
        )

    def tables(self, run):
        yield tables.table(run.found, rows=("kind", "power"))

    @classmethod
    def figures(cls, runs):
        figure, (axes,) = style.panels(1)
        for run in runs:
            axes.plot(run.found.value.values.ravel(), label="values")
        style.label_lines(axes)
        return {"toy": figures.caption(figure, runs)}

    def variant(self):
        return self.kind


def place(power, kind="mean"):
    return lab.Cell((("kind", kind), ("power", power)))


@pytest.fixture
def own(tmp_path):
    """The flags of data written into the folder."""

    def write(folder=tmp_path):
        folder.mkdir(exist_ok=True)
        return [*write_pairs(folder), f"--types={folder / 'types.txt'}"]

    return write


def execute(tmp_path, *flags, study=Toy, drawn=False):
    """Runs the study; figures take most of the time, and few tests look at them."""
    study = study if drawn else changed(study, figures=lambda runs: {})
    runner.execute(study, ["toy", *flags, f"--output={tmp_path / 'results'}"])
    return store.read_run(tmp_path / "results" / "toy-mean", study)


REFUSING = changed(Toy, compute=None)


def test_a_finished_run_is_read_back_typed_with_its_origin(tmp_path, own):
    run = execute(tmp_path, *own())
    outputs = np.load(tmp_path / "x.npy").astype(float)
    assert list(run.results) == [place(1), place(2)] and run.missing == []
    found = run.results[place(2)]
    assert found.value == np.mean(outputs**2)
    assert found.by_type.sum() == pytest.approx(np.sum(outputs**2))
    assert vars(run.study) == vars(Toy(description="x: 150 pairs from x.npy and t.npy"))
    origin = run.provenance[place(1)]
    assert origin["dtype"] == "float32"
    assert origin["versions"]["jax"] == jax.__version__
    assert set(origin) >= {"device", "date", "seconds", "platform"}
    # The same data again compute nothing, whatever their folder.
    again = execute(tmp_path, *own(folder=tmp_path / "another"), study=REFUSING)
    assert again.results[place(1)].identical(run.results[place(1)])


def reversed_rows(folder):
    for name in ("x", "t"):
        np.save(folder / f"{name}.npy", np.load(folder / f"{name}.npy")[::-1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: write_pairs(folder, 1), "outputs: .*float32 .* there, .* --output"),
        (reversed_rows, "outputs: .*float32 .* there"),
        (
            lambda folder: (folder / "types.txt").write_text("one\n" * 150),
            "types: .<U6 .* there, .<U3 .* asked for",
        ),
    ],
)
def test_other_data_under_the_same_names_are_refused(tmp_path, own, change, message):
    flags = own()
    execute(tmp_path, *flags)
    change(tmp_path)
    with pytest.raises(ValueError, match=message):
        execute(tmp_path, *flags, study=REFUSING)


def test_another_configuration_or_version_is_refused_with_both_shown(tmp_path, own):
    execute(tmp_path, *own())
    words = r"seed: 0 there, 3 asked for; powers: \[1, 2\] there, \[1, 4\] asked for; scale: null "
    with pytest.raises(ValueError, match=words + r"there, 2\.0 asked for\)") as caught:
        execute(tmp_path, *own(), "--seed=3", "--scale=2", "--powers=1,4")
    assert "\n" not in str(caught.value)
    newer = changed(Toy, version=2)
    with pytest.raises(ValueError, match="version: 1 there, 2 asked for"):
        execute(tmp_path, *own(), study=newer)
    with pytest.raises(ValueError, match="version: 1 there, 2 asked for"):
        store.read_run(tmp_path / "results" / "toy-mean", newer)


def test_cells_say_whose_they_are(tmp_path, own):
    """Where one is of another run, and where run.json is deleted."""
    folder = execute(tmp_path, *own()).folder
    other = execute(tmp_path / "other", *own(), "--seed=1").folder
    (folder / "mean-2.nc").write_bytes((other / "mean-2.nc").read_bytes())
    for read in (lambda: store.read_run(folder, Toy), lambda: execute(tmp_path, *own())):
        with pytest.raises(ValueError, match=r"mean-2\.nc: of another run \(seed: 1 there, 0"):
            read()
    (folder / "run.json").unlink()
    with pytest.raises(ValueError, match=r"mean-1\.nc: of another run \(seed: 0 there, 1 asked"):
        execute(tmp_path, *own(), "--seed=1")
    # Found out before anything was written over them.
    assert not (folder / "run.json").exists()


@pytest.mark.parametrize("content", [None, b"", b"{}", b"[]", b"{damaged", b"\xff"])
def test_a_run_without_its_description_is_resumed_where_all_cells_match(
    tmp_path, own, content, capsys
):
    path = execute(tmp_path, *own()).folder / "run.json"
    before = path.read_bytes()
    path.unlink() if content is None else path.write_bytes(content)
    execute(tmp_path, *own(), study=REFUSING)
    state = "missing" if content is None else "damaged"
    assert f"run.json: {state}; 2 cells match and are kept." in capsys.readouterr().err
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("run.json", b'{"configuration": {"seed": 0}}', "holds results of another program"),
        ("run.json", b"mine", "toy-mean: holds run.json, but no results of toy"),
        ("mean-1.nc", b"mine", "toy-mean: holds mean-1.nc, but no results of toy"),
        ("mine.png", b"mine", "toy-mean: holds mine.png, but no results of toy"),
    ],
)
def test_files_of_others_are_left_alone(tmp_path, own, name, content, message):
    folder = tmp_path / "results" / "toy-mean"
    folder.mkdir(parents=True)
    (folder / name).write_bytes(content)
    (tmp_path / "notes").write_text("mine")
    (folder / ".lock").symlink_to(tmp_path / "notes")
    with pytest.raises(ValueError, match=message):
        execute(tmp_path, *own())
    assert (folder / name).read_bytes() == content
    assert (tmp_path / "notes").read_text() == "mine"
    assert {path.name for path in folder.iterdir()} == {".lock", name}


DAMAGE = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-20]),
    "another cell": lambda path: path.write_bytes((path.parent / "mean-2.nc").read_bytes()),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_cell_is_named_and_computed_anew(tmp_path, own, damage, capsys):
    first = execute(tmp_path, *own())
    path, other = (first.folder / f"mean-{k}.nc" for k in (1, 2))
    DAMAGE[damage](path)
    why = "it is the cell .*'power': 2" if damage == "another cell" else "its content is not"
    with pytest.raises(ValueError, match=rf"mean-1\.nc: damaged \({why}"):
        store.read_run(path.parent, Toy)
    kept = other.stat().st_mtime_ns
    capsys.readouterr()
    again = execute(tmp_path, *own())
    (line,) = [x for x in capsys.readouterr().err.splitlines() if not x.startswith("[")]
    assert "mean-1.nc: damaged (" in line and line.endswith("computed anew.")
    assert other.stat().st_mtime_ns == kept
    assert all(again.results[cell].identical(of) for cell, of in first.results.items())


def test_the_state_of_a_run_is_read_without_its_study_and_its_cells(tmp_path, own):
    folder = execute(tmp_path, *own()).folder
    (first, *_), run = sorted(folder.glob("*.nc")), folder / "run.json"
    first.write_bytes(b"")  # Only names count.
    assert registry.state(Toy, folder) == "complete"
    assert registry.state(changed(Toy, version=2), folder).startswith("of version 1;")
    first.unlink()
    assert registry.state(Toy, folder) == "1 of 2 cells"
    run.write_text("{}")
    assert registry.state(Toy, folder) == "unreadable"


def test_no_bit_of_a_cell_can_change_unseen(tmp_path, own):
    path = execute(tmp_path, *own()).folder / "mean-1.nc"
    content = path.read_bytes()
    for at in range(0, len(content), 7):
        changed = bytearray(content)
        changed[at] ^= 1
        path.write_bytes(bytes(changed))
        with pytest.raises(store.DamagedError):
            store.read(path)


class Ruled(Toy):
    """What does a rule give?"""

    width: float = lab.resolved(0.0)
    ruled: ClassVar[float] = 0.8

    def prepare(self, load, seed):
        study = dataclasses.replace(self, width=self.ruled)
        return dataclasses.replace(super().prepare(load, seed), study=study)


def test_last_digits_of_what_a_rule_computes_are_no_other_run(tmp_path, own):
    for width in (0.8, 0.8 * (1 + 1e-6)):
        run = execute(tmp_path, *own(), study=changed(Ruled, ruled=width))
        assert run.study.width == 0.8
    with pytest.raises(ValueError, match=r"width: 0\.8 there, 0\.81 asked for"):
        execute(tmp_path, *own(), study=changed(Ruled, ruled=0.81))


def test_a_check_computes_again_and_names_what_differs(tmp_path, monkeypatch):
    committed = tmp_path / "committed"
    monkeypatch.setattr(runner, "COMMITTED", committed)
    own = changed(Toy, data="mixture", needs=(), runs=(("--powers=1,2,3",),), prepare=None)

    class Typed(own):
        offset: ClassVar[float] = 0.0

        def prepare(self, load, seed):
            pairs = load()
            types = np.arange(len(pairs)) % 3
            typed = dataclasses.replace(pairs, labels={"types": types.astype(str)})
            return self.ready(typed, arrays={"outputs": pairs.outputs}, state=typed)

        def compute(self, state, context, **cell):
            found = super().compute(state, context, **cell)
            return found.assign(by_type=found.by_type + self.offset * (cell["power"] == 2))

    undrawn = changed(Typed, figures=lambda runs: {})
    runner.execute(undrawn, ["toy", "--powers=1,2,3", f"--output={committed}"])
    far = {"offset": 1e9}
    for name, attributes, count, expected in (
        ("same", {}, None, ("3 of 3", "-", "yes")),
        ("one", far, 1, ("1 of 3", "-", "yes")),
        ("other", far, None, ("3 of 3", "by_type of mean-2", "NO")),
        ("clock", {**far, "unrepeated": ("by_type",)}, None, ("3 of 3", "-", "yes")),
        ("part", {**far, "checked": lambda *_: {"type": []}}, None, ("3 of 3", "-", "yes")),
    ):
        grid, agrees = checking.check(changed(Typed, **attributes), tmp_path / name, count)
        cells = [column._cells[0] for column in grid.columns]
        assert (cells[1], *cells[4:6]) == expected and agrees is (cells[5] == "yes")

    def growing(state, context, *, kind, power):
        rke = cv.rke(state.outputs[: 10 * power], kernel=cv.Gaussian(1.0))
        return xr.Dataset({"value": float(rke)})

    with pytest.raises(ValueError, match="Typed scores different numbers of rows"):
        checking.check(changed(Typed, compute=growing), tmp_path / "growing")


def test_a_study_that_names_no_control_is_refused():
    with pytest.raises(TypeError, match="Toy: set `control` to one sentence"):
        changed(Toy, control=" ")


@pytest.mark.parametrize(
    ("rows", "grows", "message"),
    [
        (lambda power: [20], (), None),
        (lambda power: [20, 22], (), None),
        (lambda power: [10 * power], ("power",), None),
        (lambda power: [10 * power], (), "from 10 in one cell to 20 in another"),
        (lambda power: [10 * power], ("n",), "from 10 in one cell to 20 in another"),
        (lambda power: [10, 20], ("n",), None),
        (lambda power: [10, 20], ("power",), r"\(mean-1: 10 to 20\): hold the number, or name in"),
        (lambda power: [20], ("k",), "grows: its results have no 'k'"),
    ],
)
def test_where_samples_grow_has_to_be_said(tmp_path, own, rows, grows, message):
    def compute(state, context, *, kind, power):
        kernel = cv.Gaussian(1.0)
        scores = [float(cv.rke(state.outputs[:n], kernel=kernel)) for n in rows(power)]
        return xr.Dataset({"value": ("n", scores)}, {"n": range(len(scores))})

    run = execute(
        tmp_path, *own(), study=changed(Toy, compute=compute, grows=grows, tables=lambda run: ())
    )
    with pytest.raises(ValueError, match=message) if message else contextlib.nullcontext():
        sizes.refuse_unsaid(run)


def test_the_bar_moves_by_what_steps_were_expected_to_cost(tmp_path, own, monkeypatch):
    """Two cells of equal cost, of two steps each: nothing moves before the second step begins."""
    bar = unittest.mock.MagicMock()
    bar.__enter__.return_value = bar
    monkeypatch.setattr(command, "progress_bar", lambda: bar)

    class Stepped(Toy):
        """What is the mean, in steps?"""

        def costs(self, **_):
            return [1, 3]

        def compute(self, state, context, **where):
            for step in ("first", "second"):
                context.say(step)
            return super().compute(state, context, **where)

    execute(tmp_path, *own(), study=Stepped)
    assert [call.args[1] for call in bar.advance.call_args_list][1:] == [0, 0.25, 0.75] * 2


def test_a_half_written_cell_never_appears(tmp_path, own, monkeypatch):
    # run.json is there by then.
    full = unittest.mock.Mock(side_effect=[None, OSError(28, "No space left on device")])
    with monkeypatch.context() as patched, pytest.raises(OSError, match="No space left"):
        patched.setattr(os, "fsync", full)
        execute(tmp_path, *own())
    folder = tmp_path / "results" / "toy-mean"
    assert sorted(path.name for path in folder.iterdir()) == [".lock", "run.json"]
    assert not execute(tmp_path, *own()).missing


def test_two_runs_on_one_folder_do_not_mix(tmp_path, own):
    run = execute(tmp_path, *own())
    with store.locked(run.folder), pytest.raises(ValueError, match="another run is writing here"):
        execute(tmp_path, *own())
    execute(tmp_path, *own())


def test_an_output_that_cannot_be_written_is_found_out_before_anything_is_read(tmp_path, own):
    (tmp_path / "results").write_text("a file")
    with pytest.raises(OSError, match="results"):
        execute(tmp_path, *own(), study=changed(Toy, prepare=None))


OWN = ("--outputs=x.npy", "--prompts=t.npy", "--types=types.txt")


@pytest.mark.parametrize(
    ("given", "flags", "message"),
    [
        (OWN, "--kind=median", "kind.*mean.*sum"),
        (OWN, "--powers=1,x", "--powers: expected a whole number, received '1,x'"),
        (OWN, "--powers=", "--powers: received nothing"),
        (OWN, "--kind=sum --scale=2", "--scale means nothing with --kind=sum.*--kind=mean"),
        (OWN, "--data=emoji", "--data and --outputs: give a data set or your own files"),
        (OWN, "--output=", "--output: received nothing"),
        (OWN, "--powers=1 --powers=2", "--powers: is given 2 times; give it once"),
        (OWN, "--powers 1 -powers=2", "--powers: is given 2 times; give it once"),
        (OWN, "--seed=1 --seed=1 --seed=1", "--seed: is given 3 times; give it once"),
        (OWN, "--noise=1 --noise=1", "--noise: is given 2 times; give it once"),
        (OWN, "--loud --noloud", "--loud: is given 2 times; give it once"),
        (OWN, "--flagfile=x", "unknown flag --flagfile"),
        (OWN, "--models=m.txt", "unknown flag --models; --help"),
        (OWN, "--seed=-1", "seed"),
        (OWN, "--seed=99999999999999999999", "seed"),
        (OWN, "--scales=4", r"unknown flag --scales; did you mean --scale\? --help"),
        (OWN, "word", "unexpected argument 'word'"),
        (OWN, "--prompts_key=a", "t.npy: a .npy file holds one array"),
        (OWN[:1], "", "--prompts: one's own data need a file of outputs and one of"),
        (OWN[2:], "", "--outputs: one's own data need"),
        ((), "--outputs_key=x", "--outputs_key without --outputs"),
        (OWN[:2], "", "--types: the study toy needs types for each row"),
        ((), "--data=mixture", "--types: the study toy needs types"),
    ],
)
def test_flags_that_are_wrong_or_would_be_ignored_are_refused(
    tmp_path, monkeypatch, given, flags, message
):
    write_pairs(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message) as caught:
        runner.execute(Toy, ["toy", *given, *flags.split()])
    assert "\n" not in str(caught.value)


def test_flags_reach_the_study_in_their_types(tmp_path, own):
    run = execute(tmp_path, *own(), "--powers=3", "--scale=0.5", "--noloud")
    assert (run.study.powers, run.study.scale) == ((3,), 0.5)
    outputs = np.load(tmp_path / "x.npy").astype(float)
    assert run.results[place(3)].value == pytest.approx(np.mean(outputs**3) / 2)
    runner.execute(Toy, ["toy", *own(), "--kind=sum", f"--output={tmp_path / 'results'}"])
    sums = store.read_run(tmp_path / "results" / "toy-sum", Toy)
    assert sums.results[place(1, "sum")].value == pytest.approx(outputs.sum())


def test_a_named_data_set_has_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "run", unittest.mock.Mock(side_effect=OSError))
    for flags, name in ((["--data=mixture"], "toy-mixture-mean"), ([], "toy-mean")):
        with pytest.raises(OSError):
            runner.execute(Toy, ["toy", *flags, f"--output={tmp_path}"])
        assert runner.run.call_args.args[3] == tmp_path / name


def test_further_embeddings_and_labels_are_taken_where_given(tmp_path, own):
    seen = []

    def prepare(load, seed):
        seen.append(load())
        return Toy().prepare(lambda: seen[-1], seed)

    looking = changed(Toy, further=("second_prompts",), takes=("models",), prepare=prepare)
    flags = own()
    execute(tmp_path, *flags, study=looking)
    assert seen[-1].further == {} and set(seen[-1].labels) == {"types"}
    second = np.random.default_rng(0).normal(size=(150, 3)).astype(np.float32)
    np.save(tmp_path / "second.npy", second)
    more = [f"--second_prompts={tmp_path / 'second.npy'}", f"--models={tmp_path / 'models.txt'}"]
    execute(tmp_path / "more", *flags, *more, study=looking)
    np.testing.assert_array_equal(seen[-1].further["second_prompts"], second)
    assert seen[-1].labels["models"][0].startswith("model ")
    np.save(tmp_path / "second.npy", second[:9])
    with pytest.raises(ValueError, match="150 prompts and 9 second_prompts"):
        execute(tmp_path, *flags, *more, study=looking)


def test_a_package_that_a_study_needs_is_named_before_its_data_are_read(tmp_path, capsys):
    lacking = changed(Toy, packages={"clusters": "no-such-package"}, prepare=None)
    words = r"the study toy needs no-such-package.*: pip install -e '\.\[clusters\]'"
    with pytest.raises(ValueError, match=words):
        execute(tmp_path, "--outputs=absent.npy", study=lacking)
    assert not list(tmp_path.iterdir())
    with pytest.raises(SystemExit):
        runner.execute(lacking, ["toy", "--help"])
    assert "pip install -e '.[clusters]'" in capsys.readouterr().out


def test_a_cell_has_its_own_key_whatever_was_computed_before(tmp_path, own):
    both = execute(tmp_path, *own())
    noises = [result.noise.item() for result in both.results.values()]
    alone = execute(tmp_path / "alone", *own(), "--powers=2")
    assert alone.results[place(2)].noise.item() == noises[1]
    other = execute(tmp_path / "seed", *own(), "--seed=1")
    assert len({*noises, other.results[place(1)].noise.item()}) == 3


def test_an_interrupted_run_keeps_its_cells_and_resumes(tmp_path, own, capsys):
    def compute(state, context, **cell):
        if cell["power"] == 3:
            raise KeyboardInterrupt
        return Toy().compute(state, context, **cell)

    with pytest.raises(KeyboardInterrupt):
        execute(tmp_path, *own(), "--powers=1,2,3,4", study=changed(Toy, compute=compute))
    partial = store.read_run(tmp_path / "results" / "toy-mean", Toy)
    assert partial.missing == [place(3), place(4)]
    with pytest.raises(ValueError, match="2 of 4 cells are missing; repeat the command"):
        runner.draw(Toy, [partial], tmp_path)
    capsys.readouterr()
    execute(tmp_path, *own(), "--powers=1,2,3,4")
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in lines] == ["[3/4] mean-3", "[4/4] mean-4"]


def test_an_error_of_a_cell_says_where_it_was_raised(tmp_path, own):
    def compute(*_, **__):
        raise ValueError("no number")

    with pytest.raises(ValueError, match="no number") as caught:
        execute(tmp_path, *own(), study=changed(Toy, compute=compute))
    (note,) = caught.value.__notes__
    assert re.search(r"test_lab\.py:\d+: where mean-1 was computed", note)


def test_figures_are_redrawn_from_the_results_alone(tmp_path, own):
    run = execute(tmp_path, *own(), drawn=True)
    paths = runner.draw(Toy, [run], tmp_path / "figures")
    assert [path.name for path in paths] == ["toy.png", "toy.pdf"]
    first = [path.read_bytes() for path in paths]
    assert all(len(content) > 3000 for content in first)
    with pytest.raises(ValueError, match=r"\.png: exists already\. .* --overwrite"):
        runner.draw(Toy, [run], tmp_path / "figures", overwrite=False)
    assert runner.draw(REFUSING, [run], tmp_path / "figures") == paths
    for folder in (run.folder, tmp_path / "figures"):
        assert [(folder / path.name).read_bytes() for path in paths] == first
