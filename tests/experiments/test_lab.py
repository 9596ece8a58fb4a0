"""The lab on a study of its own: whose results are shown, flags, labels, keys, drawing, the cache.

The defects that the store was built against are tried here one by one; `test_studies.py` tries
every study of the project in the same ways.
"""

import ast
import contextlib
import dataclasses
import json
import math
import os
import pathlib
import re
import unittest.mock
from typing import Any, ClassVar

import jax
import numpy as np
import pytest
import xarray as xr
from rich.table import Table
from small import write_pairs
from studies import changed

import condvendi_jax as cv
from condvendi_jax.base import files
from condvendi_jax.cli import command
from condvendi_jax.cli.flags import parse
from experiments import lab
from experiments.data import PairedEmbeddings
from experiments.lab import (
    Rules,
    Scales,
    checking,
    figures,
    printing,
    records,
    registry,
    runner,
    scales,
    sizes,
    store,
    style,
    tables,
)


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
        return [*write_pairs(folder, 0), f"--types={folder / 'types.txt'}"]

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


def test_types_that_netcdf_lacks_grow_and_what_has_no_labels_is_left_out(tmp_path):
    values = {
        "half": np.array([0.5, 2], "f2"),
        "byte": np.array([7, 255], "u1"),
        "yes": [True, False],
    }
    found = xr.Dataset({name: ("x", of) for name, of in values.items()}, {"x": ["ä", "b|c"]})
    store.write(tmp_path / "a.nc", found.assign(none=(("x", "empty"), np.ones((2, 0)))), {})
    record, again = store.read(tmp_path / "a.nc")
    assert record == {} and again.equals(found)
    assert [again[name].dtype.name for name in values] == ["float32", "int16", "bool"]


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


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--kind=median"], "kind.*mean.*sum"),
        (["--powers=1,x"], "--powers: expected a whole number, received '1,x'"),
        (["--powers="], "--powers: received nothing"),
        (["--kind=sum", "--scale=2"], "--scale means nothing with --kind=sum.*--kind=mean"),
        (["--data=emoji"], "--data and --outputs: give a data set or your own files"),
        (["--output="], "--output: received nothing"),
        (["--powers=1", "--powers=2"], "--powers: is given 2 times; give it once"),
        (["--powers", "1", "-powers=2"], "--powers: is given 2 times; give it once"),
        (3 * ["--seed=1"], "--seed: is given 3 times; give it once"),
        (2 * ["--noise=1"], "--noise: is given 2 times; give it once"),
        (["--loud", "--noloud"], "--loud: is given 2 times; give it once"),
        (["--flagfile=x"], "unknown flag --flagfile"),
        (["--models=m.txt"], "unknown flag --models; --help"),
        (["--seed=-1"], "seed"),
        (["--seed=99999999999999999999"], "seed"),
        (["--scales=4"], r"unknown flag --scales; did you mean --scale\? --help"),
        (["word"], "unexpected argument 'word'"),
        (["--prompts_key=a"], "t.npy: a .npy file holds one array"),
    ],
)
def test_flags_that_are_wrong_or_would_be_ignored_are_refused(tmp_path, own, flags, message):
    with pytest.raises(ValueError, match=message) as caught:
        output = [] if "--output=" in flags else [f"--output={tmp_path / 'results'}"]
        runner.execute(Toy, ["toy", *own(), *output, *flags])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--outputs=x.npy"], "--prompts: one's own data need a file of outputs and one of"),
        (["--types=types.txt"], "--outputs: one's own data need"),
        (["--outputs_key=x"], "--outputs_key without --outputs"),
        (["--outputs=x.npy", "--prompts=t.npy"], "--types: the study toy needs types for each row"),
        (["--data=mixture"], "--types: the study toy needs types"),
    ],
)
def test_data_that_are_not_whole_are_refused(tmp_path, own, flags, message, monkeypatch):
    own()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        runner.execute(Toy, ["toy", *flags])


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


def pairs_of(outputs=None):
    rng = np.random.default_rng(1)
    outputs = rng.normal(size=(200, 3)).astype(np.float32) if outputs is None else outputs
    prompts = rng.normal(size=(len(outputs), 2)).astype(np.float32)
    return PairedEmbeddings("own", outputs, prompts, "own")


def widths(found):
    return [(b.outputs, b.prompts) for b in found.axis]


def test_bandwidths_are_the_rules_and_multiples_of_them():
    pairs = pairs_of()
    for rule in ("variance", "median"):
        ruled: Any = scales.by_rule(pairs, rule, 0)
        found = Scales(rule=rule).resolve(pairs, 0)
        assert widths(found) == [(s * ruled.outputs, s * ruled.prompts) for s in (0.5, 1.0, 2.0)]
        assert found.described == ruled.rule and found.shown == 1
        assert Rules(rules=(rule,)).resolve(pairs, 0).axis == (ruled,)
        assert [str(b) for b in found.axis] == ["0.5", "1", "2"]
    assert Scales().resolve(pairs, 0).axis == Scales(rule="variance").resolve(pairs, 0).axis
    assert str(*Rules().resolve(pairs, 0).axis) == "variance"
    own: Any = {"output_bandwidth": 2.0, "prompt_bandwidth": 3.0}
    given = Scales(**own, scales=(0.25, 0.5)).resolve(pairs, 0)
    assert widths(given) == [(0.5, 0.75), (1.0, 1.5)] and given.shown == 0.25
    assert widths(Rules(**own).resolve(pairs, 0)) == [(2.0, 3.0)]
    assert widths(Scales(kernel="cosine").resolve(pairs, 0)) == [(None, None)]


def test_one_bandwidth_alone_is_refused():
    with pytest.raises(ValueError, match="give both"):
        Scales(output_bandwidth=1.0).resolve(pairs_of(), 0)


@pytest.mark.parametrize(
    ("kind", "flags", "message"),
    [
        (Scales, "--rule=std --kernel=cosine", "--rule means nothing with --kernel=cosine"),
        (Scales, "--rule=std --output_bandwidth=1", "--rule and --output_bandwidth: give one"),
        (Rules, "--rules=std --prompt_bandwidth=1", "--rules and --prompt_bandwidth: give one"),
        (Scales, "--scales=1,1", "--scales: 1 is given twice; give it once"),
        (Scales, "--scales=1,0", r"--scales: expected a number above 0, received 0\.0"),
        (Scales, "--output_bandwidth=inf", "--output_bandwidth: expected a number above 0"),
    ],
)
def test_bandwidths_that_make_no_sense_are_refused(kind, flags, message):
    with pytest.raises(ValueError, match=message):
        parse(kind, flags.split())


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


@dataclasses.dataclass(frozen=True)
class Inner:
    a: float | None
    b: tuple[int, str]


@dataclasses.dataclass(frozen=True)
class Outer:
    many: tuple[float, ...]
    by_name: dict[str, Inner]


@pytest.mark.parametrize("x", [1.5, math.inf, -math.inf])
def test_what_is_written_is_read_back_equal(x, tmp_path):
    outer = Outer((1.0, x), {"one": Inner(None, (1, "b")), "two": Inner(x, (2, ""))})
    files.write_json(tmp_path / "record.json", {"result": records.plain(outer)})
    assert "Infinity" not in (content := (tmp_path / "record.json").read_text())
    assert records.typed(Outer, json.loads(content)["result"]) == outer


def test_a_hash_tells_order_dtype_shape_and_contents_apart():
    base = np.arange(6, dtype=np.float32)
    long = np.random.default_rng(0).normal(size=(9000, 300))  # More than one block.
    assert long.nbytes > 1 << 24
    changed, near = long.copy(), base.copy()
    changed[-1, -1] += 1
    near[-1] = 5.0000005
    others = [long, changed, near, base[::-1], base.astype(np.float64), base.reshape(2, 3)]
    others += map(np.array, (["a", "b"], ["b", "a"], 1.0))
    hashes = [records.hash_array(array) for array in (base, *others, np.zeros((0, 3)))]
    assert len(set(hashes)) == len(hashes)
    assert records.hash_array(base.copy()) == hashes[0]
    for strided in (np.tile(base, 2)[::2], np.asfortranarray(long)):
        assert records.hash_array(strided) == records.hash_array(strided.copy(order="C"))
    with pytest.raises(TypeError, match="no contents"):
        records.hash_array(np.array([{}], object))


def test_what_is_dear_is_made_once_an_identity(tmp_path, capsys):
    made = []

    def get(version=1, width=2, points=(1.0, 2.0)):
        def build():
            made.append(1)
            return {"embeddings": np.array(points) * width}

        identity = {"settings": {"width": width}, "arrays": {"points": np.array(points)}}
        found = records.cached(tmp_path, "embeddings", version=version, build=build, **identity)
        return found["embeddings"].tolist()

    assert get() == get() == [2.0, 4.0] and len(made) == 1
    assert get(width=3) == [3.0, 6.0]
    assert get(points=(2.0, 1.0)) == [4.0, 2.0]
    assert get(version=2) == [2.0, 4.0] and len(made) == 4
    for path in tmp_path.glob("*.npz"):
        path.write_bytes(path.read_bytes()[:-9])
    assert get() == [2.0, 4.0] and len(made) == 5
    assert "made anew" in capsys.readouterr().err


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


def test_a_package_imports_only_what_is_below_it_and_a_study_no_benchmark():
    order = ["data", "lab", "generators", "builders"]
    for path in pathlib.Path(lab.__file__).parents[1].rglob("*.py"):
        package, names = path.parent.name, []
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom | ast.Import):
                before = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
                names += [before + of.name for of in node.names]
        layers = {name.split(".")[1] for name in names if name.startswith("experiments.")}
        if package in order:
            assert layers <= {*order[: order.index(package) + 1]}, path
        if package != "cost":
            assert "cost" not in layers, path
        if path.stem != "theorems":
            assert "theory_checks" not in " ".join(names), path


def test_no_cell_of_a_table_is_cut_or_broken(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "18")
    grid = Table("model", "Conditional-Vendi", title="a title")
    grid.add_row("first one", "12.3456 ± 0.0012")
    printing.print_table(grid)
    text = capsys.readouterr().out
    (line,) = [line for line in text.splitlines() if "first one" in line]
    assert "12.3456 ± 0.0012" in line and "Conditional-Vendi" in text and "a title" in text
