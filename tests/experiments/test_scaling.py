"""The benchmark: what its contestants compute, who takes part, what is derived, how it is run."""

import dataclasses
import importlib.metadata
import math
import os
import sys
import time
from functools import partial
from unittest import mock

import jax
import numpy as np
import pytest
from oracles import entropy, gaussian_gram
from processes import started

from condvendi_jax.inference import evaluations as scoring
from condvendi_jax.inference import jackknife as uncertainty
from experiments.cost.scaling import contests, engines, figures, reference, report, worker
from experiments.cost.scaling import points as sets
from experiments.cost.scaling.contests import CONTESTANTS, Entry
from experiments.cost.scaling.points import Points
from experiments.cost.scaling.records import Record, dataset
from experiments.cost.scaling.study import Scaling
from experiments.cost.scaling.worker import Contestant, Worker, WorkerError
from experiments.data import PairedEmbeddings
from experiments.lab import Bandwidths, Cell, Context, Run, records

pytestmark = pytest.mark.slow

# So many points that the measure samples what its Krylov space of 256 dimensions leaves.
N = 600
FEW = 150
WIDTHS = [0.8, 1.1]
SCORES = ("vendi", "conditional", "information")


@pytest.fixture(scope="module")
def points(tmp_path_factory):
    """A mixture as the benchmark writes it, in float64 and as files."""
    folder = tmp_path_factory.mktemp("points")
    sets.write_mixture(folder, "mixture", N, (24, 16), seed=3)
    paths = sets.paths(folder, "mixture")
    return [np.load(path).astype(np.float64) for path in paths], paths, folder


@pytest.fixture(scope="module")
def cell(points):
    _, (outputs, prompts), _ = points
    return {
        "outputs": str(outputs),
        "prompts": str(prompts),
        "n": N,
        "bandwidths": WIDTHS,
        "truncations": [10],
        "rtol": 2e-3,
        "budgets": {"88": {"block": 8, "sweeps": 4, "probes": 7, "steps": 8}},
        "splits": {"960": [(60, 16)]},
    }


@pytest.fixture(scope="module")
def grams(points):
    x, t = (gaussian_gram(p, w) for p, w in zip(points[0], WIDTHS, strict=True))
    return {"outputs": x, "prompts": t, "joint": x * t}


def called(part, name, cell, seed=0):
    """What a contestant gives in one call; skips the test where its package is not installed."""
    entry = CONTESTANTS[part][name]
    if entry.package is not None:
        pytest.importorskip(entry.package.replace("-", "_"))
    contestant = entry.function(cell)
    return contestant.read(contestant.ready(seed)())


NORMS = [n for n in CONTESTANTS["order 2"] if n not in ("value and gradient", "matrix product")]


@pytest.mark.parametrize("name", NORMS)
def test_every_contestant_of_order_two_gives_the_norms(name, cell, grams, monkeypatch):
    monkeypatch.setattr(reference, "_ROWS", 40)  # Several blocks, the last of them smaller.
    found = called("order 2", name, cell | {"n": FEW})
    roles = ("outputs",) if name == "rke-score" else ("outputs", "prompts", "joint")
    assert tuple(found) == roles
    exact = {role: np.mean(np.square(grams[role][:FEW, :FEW])) for role in roles}
    # rke-score adds the n^2 values one after the other in float32.
    rtol = {"float64": 1e-11, "rke-score": 1e-3}.get(name, 5e-6)
    assert found == pytest.approx(exact, rel=rtol)
    others = called("order 2", name, cell | {"bandwidths": [0.5, 0.4], "n": 90})
    assert all(others[role] != pytest.approx(exact[role], rel=1e-2) for role in roles)


def test_the_gradient_is_of_conditional_rke_and_the_limit_is_a_matrix_product(
    cell, grams, monkeypatch
):
    found = called("order 2", "value and gradient", cell)
    exact = np.sum(grams["prompts"] ** 2) / np.sum(grams["joint"] ** 2)
    assert found["conditional"] == pytest.approx(exact, rel=1e-5)
    assert found["slope"] > 0
    monkeypatch.setattr(engines, "_CPU_SIDE", 64)
    assert called("order 2", "matrix product", cell) == {"operations": 2 * 64**3}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Those of vendi_score.
@pytest.mark.parametrize("name", CONTESTANTS["exact"])
def test_every_exact_contestant_gives_the_entropy(name, cell, grams):
    found = called("exact", name, cell | {"n": FEW})["vendi"]
    rtol = 1e-10 if name == "float64" else 1e-5
    assert found == pytest.approx([entropy(grams["outputs"][:FEW, :FEW])] * 3, rel=rtol)


@pytest.fixture(scope="module")
def exact(cell, grams):
    """What is compared with: all eigenvalues, which are the oracle's."""
    found = called("measure", "exact", cell)
    for suffix, t in (("", None), ("-t10", 10)):
        x, y, joint = (entropy(grams[name], truncation=t) for name in grams)
        expected = {"vendi": x, "conditional": joint - y, "information": x + y - joint}
        for name, nats in (expected | {"joint": joint}).items():
            assert found[name + suffix] == pytest.approx([nats] * 3, abs=2e-5)
    return found


@pytest.mark.parametrize(
    ("part", "name", "error"),
    [
        ("first call", "decompose", 5e-3),
        ("measure", "stored", 5e-3),
        ("measure", "matrix-free", 5e-3),
    ],
)
def test_decompose_is_asked_for_scores_with_intervals(part, name, error, cell, exact):
    found = called(part, name, cell)
    assert tuple(found) == SCORES
    for score, (value, low, high) in found.items():
        assert low <= value <= high
        assert value == pytest.approx(exact[score][0], abs=error)


def deleted_errors(grams, membership):
    """The jackknife's errors at order 1, of groups of nearly one size."""
    deleted = []
    for group in np.unique(membership):
        kept = np.flatnonzero(membership != group)
        x, y, joint = (entropy(grams[name][np.ix_(kept, kept)]) for name in grams)
        deleted.append(np.exp([x, joint - y, x + y - joint]))
    return np.std(deleted, axis=0) * np.sqrt(len(deleted) - 1)


def test_the_jackknife_gives_the_errors_of_order_one(cell, points, grams):
    few = cell | {"n": FEW}
    others = ("scores", "select", "every candidate scored")
    names = [n for n in CONTESTANTS["jackknife"] if n not in others]
    found = {name: called("jackknife", name, few, seed=3) for name in names}
    found["evaluate"] = called("first call", "evaluate", few)
    of_rows = deleted_errors({n: g[:FEW, :FEW] for n, g in grams.items()}, np.arange(FEW))
    groups = uncertainty.group_rows(FEW, 20, key=scoring.Keys(3).groups)
    of_groups = deleted_errors({n: g[:FEW, :FEW] for n, g in grams.items()}, groups.membership)
    for name, errors in found.items():
        assert tuple(errors) == SCORES
        expected = of_groups if name == "20 deletions" else of_rows
        rtol = 0.3 if name == "contributions" else 0.05  # Derivatives give smaller errors here.
        np.testing.assert_allclose(list(errors.values()), expected, rtol=rtol)
    exact = called("measure", "exact", few)
    expected = {name: np.exp(exact[name][0]) for name in SCORES}
    assert called("jackknife", "scores", few) == pytest.approx(expected, rel=1e-4)


def test_rows_are_chosen_as_by_scoring_every_candidate(cell):
    quick, slow = (called("jackknife", n, cell) for n in ("select", "every candidate scored"))
    assert quick == pytest.approx(slow, rel=1e-4)


def test_the_measure_comes_near_the_exact_scores_and_obeys_its_tolerance(cell, exact):
    found = called("measure", "by tolerance", cell)
    assert set(found) == {name for name in exact if not name.startswith("joint")}
    for name in SCORES:
        value, low, high = found[name]
        assert value == pytest.approx(exact[name][0], abs=5e-3)
        assert (high - low) / 2 <= cell["rtol"]


def test_a_budget_and_plain_quadrature_name_their_products(cell, exact):
    found = called("measure", "by budget", cell)
    assert set(found) == {"joint 88"}
    assert found["joint 88"][0] == pytest.approx(exact["joint"][0], abs=0.05)
    # The package promotes dtypes, which the tests' settings forbid.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        plain = [called("measure", "plain SLQ", cell, seed) for seed in range(4)]
    values = [of["joint 960 60x16"][0] for of in plain]
    assert len(set(values)) == 4
    assert np.mean(values) == pytest.approx(exact["joint"][0], abs=0.2)


def test_an_output_and_its_prompt_are_of_one_kind(points):
    outputs, prompts = (((p[:, None] - p[None]) ** 2).sum(-1) for p in points[0])
    nearest = np.argsort(prompts, axis=1)[:, 1:4]
    assert np.take_along_axis(outputs, nearest, axis=1).mean() < 0.6 * outputs.mean()


def test_emoji_have_photographs_and_captions_beside_them(monkeypatch):
    def named(name):
        return PairedEmbeddings(name, np.ones((3, 2)), np.ones((3, 2)), "pairs")

    monkeypatch.setattr(sets.data_sets, "load", named)

    def found(name, *beside):
        return {n: p.name for n, p in sets.load_sets(lambda: named(name), beside or None).items()}

    both = {"photographs": "captions", "captions": "captioning"}
    assert found("emoji") == {"emoji": "emoji"} | both
    assert found("own", "photographs") == {"own": "own", "photographs": "captions"}
    assert found("emoji", "none") == {"emoji": "emoji"}
    # A name that is taken stands for one set only.
    assert found("mixture") == {"mixture (set)": "mixture"}
    with pytest.raises(ValueError, match="--beside=captions: --data=captioning is the same set"):
        found("captioning", "captions")


def place(part, data, n):
    return Cell((("part", part), ("data", data), ("n", n)))


def settings(**changes):
    """Settings of a run on a mixture and an own set of points."""
    widths = Bandwidths("given", 0.7, 0.9, "given")
    kinds = {"mixture": (20_000, "mixture"), "own": (6000, "real")}
    found = Scaling(
        device="1 x cpu (cpu)",
        platform="cpu",
        cores=2,
        points={k: Points("points", n, widths, of, ("", "")) for k, (n, of) in kinds.items()},
        order_two_n=20_000,
        repeats=3,
        seeds=3,
        patience=10.0,
        enough=8.0,
        versions={"torch": "2.13"},
    )
    return dataclasses.replace(found, **changes)


def timed(*seconds, **values):
    return {"seconds": seconds, "values": [values] * len(seconds), "memory_bytes": 3 * 2**20}


ENTRIES = {
    "exact": Entry(engines.exact, 2, arrays=1, package="a"),
    "at the largest": Entry(engines.all_prefixes, 2, on="largest"),
    "small only": Entry(engines.by_budget, 2, up_to=500),
    "made data only": Entry(engines.value_and_gradient, 2, on="mixture"),
    "compared with it": Entry(engines.by_tolerance, 2, calls="errors"),
}


@pytest.mark.parametrize(
    ("data", "n", "memory", "versions", "names", "reason"),
    [
        ("mixture", 1000, 10**9, {"a": "1"}, [0, 3, 4], None),
        ("mixture", 500, 10**9, {"a": "1"}, [0, 2, 3, 4], None),
        ("mixture", 200, 10**9, {"a": "1"}, [0, 1, 2, 3, 4], None),
        ("own", 200, 10**9, {"a": "1"}, [0, 2, 4], None),
        ("mixture", 1000, 10**9, {}, [3], "a is not there"),
        ("mixture", 1000, 10**6, {"a": "1"}, [3], "needs about 0 GiB"),
        # Three times the n in nine times the time; the first call, of 50 s, does not count.
        ("mixture", 1500, 10**9, {"a": "1"}, [3], "a call would take about 18 s"),
    ],
)
def test_who_takes_part(data, n, memory, versions, names, reason, monkeypatch):
    monkeypatch.setitem(CONTESTANTS, "measure", ENTRIES)
    study = settings(measure_n=200, versions=versions)
    times = dataset((), {"exact": timed(50.0, 2.0, 2.0)}, {})
    earlier = [Record("measure", "mixture", 500, times), Record("exact", "mixture", 10, times)]
    found, left_out = contests.choose(study, "measure", data, n, memory, earlier)
    assert [*found] == [[*ENTRIES][index] for index in names]
    absent = {"exact": reason, "compared with it": "nothing without exact"}
    assert left_out == (absent if reason else {})


@pytest.mark.parametrize(
    ("calls", "due", "done"),
    [
        # The first call warms up; calls of milliseconds have four times the rounds.
        (
            "rounds",
            [[], [1.0] * 3, [0.01] * 12],
            [[1.0] * 4, [8.0], [0.01] * 13, [0.01, *[0.2] * 3], [1.0, 8.0]],
        ),
        ("rounds after compiling", [[8.0], [7.0, 1.0]], [[8.0, 0.1]]),
        ("once", [[]], [[0.1]]),
        ("errors", [[20.0, *[0.1] * 3]], [[0.1] * 5, [6.0, 8.0]]),
    ],
)
def test_who_is_called_again(calls, due, done):
    entry, study = Entry(reference.norms, 2, calls=calls), settings(seeds=5)
    assert all(contests.is_due(entry, seconds, study) for seconds in due)
    assert not any(contests.is_due(entry, seconds, study) for seconds in done)


def test_contestants_are_called_in_turn_each_in_its_process(cell):
    entries = {
        "norms": Entry(reference.norms, 2),
        "once": Entry(reference.eigenvalues, 3, calls="once"),
        "wrong": Entry(math.sqrt, 2),
        "ended": Entry(partial(exec, "__import__('os')._exit(1)"), 2),
    }
    turns = []
    results, failed = contests.run_cell(entries, cell, settings(repeats=2), turns.append)
    # The first warms up; of milliseconds each there are four times the two rounds.
    assert 3 <= len(results["norms"]["seconds"]) == len(results["norms"]["values"]) <= 9
    assert len(results["once"]["seconds"]) == 1
    assert results["norms"]["memory_bytes"] > 0
    assert set(failed) == {"wrong", "ended"}
    assert failed["wrong"].startswith("TypeError: must be real number")
    assert failed["ended"] == "its process ended; out of memory?"
    assert [t for t in turns if t.endswith("run")][:3] == ["norms: run", "once: run", "norms: run"]


def test_first_calls_are_of_fresh_processes_and_second_ones_follow(monkeypatch):
    requests, seconds = [], iter(range(9))

    def request(do, *arguments):
        requests.append((do, arguments))
        if arguments[:1] == (reference.norms,):
            raise WorkerError("failed")
        if do == "run":
            return {"seconds": next(seconds), "values": {}}
        return {"memory_bytes": 5} if do == "finish" else None

    fresh = mock.MagicMock()
    fresh.return_value.__enter__.return_value.request = request
    monkeypatch.setattr(contests, "Worker", fresh)
    mine = Entry(reference.eigenvalues, 3, calls="twice")
    entries = {"mine": mine, "other": Entry(reference.norms, 2, calls="twice")}
    found, failed = contests.first_calls(entries, {"n": 9}, settings(repeats=2), lambda words: None)
    assert fresh.call_count == 4
    assert [arguments for do, arguments in requests if do == "run"] == [(0,)] * 6
    assert failed == {"other": "failed"}
    of_each = {"values": [{}] * 3, "memory_bytes": 5}
    assert found == {
        "mine": {"seconds": [0, 2, 4], **of_each},
        "mine, again": {"seconds": [1, 3, 5], **of_each},
    }


def test_a_first_call_compiles_and_a_process_holds_the_runtime_of_its_contestant_only(
    cell, monkeypatch, tmp_path
):
    """JAX's cache on disk, which a user may have, is not used."""
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path))
    with Worker() as process:
        process.request("prepare", reference.norms, cell)
        assert not process.request("ask", partial(eval, "'jax' in __import__('sys').modules"))
        cache = "__import__('jax').config.jax_enable_compilation_cache"
        assert not process.request("ask", partial(eval, cache))


def test_memory_is_that_of_the_calls(points, cell):
    # 1,000 rows of kernel values of 2,000 points take 16 MB, and only a few such arrays exist.
    path = str(points[2] / "many.npy")
    np.save(path, np.random.default_rng(0).normal(size=(2000, 8)).astype(np.float32))
    larger = cell | {"outputs": path, "prompts": path, "n": 2000}
    with Worker() as process:
        process.request("prepare", reference.norms, larger)
        before = process.request("finish")["memory_bytes"]
        process.request("run", 0)
        after = process.request("finish")["memory_bytes"]
    assert before < 5e6
    assert 16e6 < after < 160e6


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="the peak stays")
def test_memory_of_loading_and_compiling_does_not_count_and_that_of_the_device_does(monkeypatch):
    def make(cell):
        np.ones(10**7).sum()
        return Contestant(ready=lambda seed: lambda: None, read=lambda result: {})

    server = worker.Server()
    server.prepare(make, {})
    assert server.finish()["memory_bytes"] < 40e6
    cuda = mock.Mock(memory_allocated=lambda: 10, max_memory_allocated=lambda: 70)
    monkeypatch.setitem(sys.modules, "torch", mock.Mock(cuda=cuda))
    server.prepare(make, {})
    assert server.finish()["memory_bytes"] == 60


def test_getting_ready_and_reading_are_not_timed(monkeypatch):
    events = []
    contestant = Contestant(
        ready=lambda seed: events.append(("ready", seed)) or (lambda: events.append("call")),
        read=lambda result: events.append("read") or {"value": 1.0},
    )
    counted = iter([100.0, 103.0, 200.0, 202.0])
    monkeypatch.setattr(time, "perf_counter", lambda: events.append("clock") or next(counted))
    server = worker.Server()
    server.prepare(lambda cell: contestant, {})
    assert server.run(3) == {"seconds": 3.0, "values": {"value": 1.0}}
    assert events == [("ready", 3), "clock", "call", "clock", "read"]
    assert server.run(4)["seconds"] == 2.0


def test_short_calls_after_the_first_are_repeated_and_the_median_counts(monkeypatch):
    counted = iter(np.cumsum([0, 0.01, 1, 0.09, 1, 0.08, 1, 0.2]))
    monkeypatch.setattr(time, "perf_counter", lambda: next(counted))
    server = worker.Server()
    server.prepare(lambda cell: Contestant(lambda seed: lambda: None, lambda result: {}), {})
    assert server.run(0)["seconds"] == pytest.approx(0.01)
    assert server.run(0)["seconds"] == pytest.approx(0.09)


def given(*values):
    """What a contestant gave in each of its calls."""
    return {"seconds": [1.0] * len(values), "values": values, "memory_bytes": 3 * 2**20}


ORDER_TWO = {
    "tiles": timed(9.0, 1.0, 2.0, 3.0, joint=1.0),
    "dense torch": timed(9.0, 4.0, 6.0, joint=1.0),
    "matrix product": timed(1.0, 0.5, operations=2.6e12),
    "float64": timed(1.0, joint=1 + 1e-7),
    "value and gradient": timed(4.0),
}
MEASURE = {
    "exact": timed(10.0, 100.0, vendi=[0.0] * 3, joint=[0.0] * 3),
    "stored": timed(30.0, 20.0),
    "by tolerance": given(
        {"vendi": [0.001, -0.001, 0.002]},
        {"vendi": [-0.001, -0.003, 0.0005]},
        {"vendi": [0.003, 0.001, 0.004]},
        {"vendi": [-0.002, -0.004, -0.001]},
    ),
    "by budget": given({"joint 448": [0.001] * 3}),
    "plain SLQ": given({"joint 448 56x8": [0.05] * 3, "joint 448 28x16": [-0.02] * 3}),
}
CELLS = {
    place("order 2", "mixture", 20_000): ORDER_TWO,
    place("measure", "mixture", 14_000): MEASURE,
}


def fabricated(cells=CELLS, left_out=None, **changes):
    """Results with errors, ratios and coverage that can be read off."""
    results = {cell: dataset((768, 512), of, left_out or {}) for cell, of in cells.items()}
    origin = {"platform": "Linux x86_64", "dtype": "float32", "date": "2026-11-21T00:00:00"}
    origins = dict.fromkeys(results, origin | {"versions": {"jax": "0.10"}})
    return Run(settings(**changes), None, {"seed": 5}, results, origins, [])


def test_ratios_are_of_pairs_and_the_first_round_warms_up():
    record, _ = report.records(fabricated())
    assert record.seconds("tiles") == 2.0
    assert record.ratio("dense torch", "tiles") == 3.5  # The median of 4 and 3.
    # A first call that was the last counts, and stands beside the others that warmed up.
    assert record.ratio("value and gradient", "tiles") == pytest.approx(4 / 2)
    assert np.isnan(record.ratio("rke-score", "tiles"))
    assert record.mebibytes("tiles") == 3
    assert report.norm_error(record) == pytest.approx(1e-7, rel=1e-3)
    assert report.share_of_peak(record) == pytest.approx(20_000**2 * 1280 / 2 / 5.2e12)


def test_errors_and_coverage_are_counted_over_seeds():
    _, record = report.records(fabricated())
    found = report.accuracy(record, "by tolerance").sel(quantity="vendi")
    assert found.seeds == 4
    assert found.rms == pytest.approx((15e-6 / 4) ** 0.5, rel=2e-3)
    assert found.within == pytest.approx(0.00285, rel=2e-3)
    assert found.half_width == pytest.approx(0.0015625, rel=1e-3)
    assert found.coverage == pytest.approx(1 / 2)
    assert not report.accuracy(record, "matrix-free").quantity.size
    # The better split of plain quadrature counts.
    assert report.plain_over_ours(record) == pytest.approx(19.8, rel=1e-2)


def test_figures_show_shares_and_memory_that_is_resolved_and_name_an_accelerator():
    tiny = timed(9.0, 1.0) | {"memory_bytes": 1000}
    cells = CELLS | {place("order 2", "mixture", 20_000): ORDER_TWO | {"tiles": tiny}}
    drawn = figures.draw(fabricated(cells))
    assert drawn["real"].axes[0].get_lines()[0].get_xdata() == pytest.approx([20.0])
    assert [line.get_label() for line in drawn["memory"].axes[0].get_lines()] == ["dense torch"]
    elsewhere = fabricated(platform="accelerator", device="1 x gpu")
    assert set(Scaling.figures([elsewhere])) == {f"scaling_{name}_1-x-gpu" for name in drawn}


def test_the_table_says_who_was_left_out_and_on_what_machine():
    cells = {place("order 2", "mixture", 20_000): {"tiles": timed(1.0)}}
    run = fabricated(cells, left_out={"rke-score": "is not there"})
    (grid,) = run.study.tables(run)
    assert "left out: rke-score (order 2, mixture, n = 20,000): is not there" in grid.caption
    assert "2 processor cores" in grid.caption


def test_a_cell_tells_the_contests_what_it_is_about(points, monkeypatch):
    """Packages that are missing are left out, and earlier cells say how long a call takes."""
    asked = {}

    def run_cell(entries, request, study, advance):
        asked.update(request, entries=list(entries))
        return {"spectrum": timed(1.0)}, {"float64": "failed"}

    monkeypatch.setattr(contests, "run_cell", run_cell)
    slow = dataset((), {"jnp.linalg.eigvalsh": timed(0.1, 100.0)}, {})
    earlier = {place("exact", "mixture", 400): slow, place("order 2", "mixture", 400): slow}
    context, state = Context(None, None, earlier, lambda words: None), (points[2], 9e8)
    found = settings().compute(state, context, part="exact", data="mixture", n=500)
    assert asked["entries"] == ["spectrum", "torch.linalg.eigvalsh", "float64"]
    assert asked["bandwidths"] == [0.7, 0.9]
    assert asked["truncations"] == [10, 25, 200]
    assert asked["outputs"] == points[1][0]
    assert found.dimensions.values.tolist() == [24, 16]
    reasons = found.left_out.to_series()
    assert reasons["vendi_score"] == "vendi-score is not there"
    assert reasons["jnp.linalg.eigvalsh"] == "a call would take about 195 s"
    assert (reasons["float64"], reasons["spectrum"]) == ("failed", "")


def test_imports_are_timed_in_fresh_processes():
    found = contests.cold_starts(1)
    assert set(found) == {"import jax", "import condvendi_jax"}
    assert all(len(times["seconds"]) == 2 for times in found.values())
    assert min(t for times in found.values() for t in times["seconds"]) > 0


def test_the_settings_and_arrays_follow_the_options_and_the_device(points, monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1.0")
    pairs = PairedEmbeddings("own", *(np.load(p)[:70] for p in points[1]), "own pairs")
    options = Scaling(parts=("exact", "measure"), exact_n=64, peers=("rke-score",))
    setup = options.prepare(lambda: pairs, 7)
    found = setup.study
    assert (found.platform, found.seeds, found.patience) == ("cpu", 10, 30)
    assert found.versions == {"rke-score": "1.0"}
    assert setup.provenance["device"] == found.device
    largest = {"order 2": 20_000, "exact": 64, "measure": 4000}
    assert found.largest == largest | {"first call": 2000, "jackknife": 1000}
    assert [(name, of.kind, of.n) for name, of in found.points.items()] == [
        ("mixture", "mixture", 4000),
        ("own", "real", 70),
        ("own, narrow", "narrow", 70),
    ]
    narrow, wide = (found.points[name].bandwidths.outputs for name in ("own, narrow", "own"))
    assert narrow == pytest.approx(0.65 * wide)
    # What is narrow has the arrays of the set.
    assert {name: array.shape for name, array in setup.arrays.items()} == {
        "mixture outputs": (4000, 768),
        "mixture prompts": (4000, 512),
        "own outputs": (70, 24),
        "own prompts": (70, 16),
    }
    rows = (setup.arrays["own outputs"], setup.arrays["own prompts"])
    shuffled, own = np.hstack(rows), np.hstack([pairs.outputs, pairs.prompts])
    assert not np.array_equal(shuffled, own)
    assert {tuple(row) for row in shuffled} == {tuple(row) for row in own}
    for name, of in found.points.items():
        whose = name.removesuffix(", narrow")
        arrays = (setup.arrays[f"{whose} {role}"] for role in ("outputs", "prompts"))
        assert of.digests == tuple(map(records.hash_array, arrays))
    setup.close()


def test_a_worker_ends_with_its_parent_even_during_a_call(tmp_path):
    """When the parent is killed, a contestant that computes for minutes ends at once."""
    path = str(tmp_path / "x.npy")
    np.save(path, np.random.default_rng(0).normal(size=(12_000, 4)).astype(np.float32))
    code = (
        "from experiments.cost.scaling import reference, worker\n"
        f"cell = dict(outputs={path!r}, prompts={path!r}, n=12_000, bandwidths=[1, 1])\n"
        "with worker.Worker() as process:\n"
        "    process.request('prepare', reference.eigenvalues, cell)\n"
        "    print('ready', flush=True)\n"
        "    process.request('run', 0)\n"
    )
    with started([sys.executable, "-c", code]) as parent:
        assert parent.stdout.readline() == "ready\n"
        time.sleep(0.5)
        parent.kill()
        parent.communicate(timeout=90)  # The worker holds the other end of this pipe.


def test_a_size_of_a_part_that_is_not_measured_is_refused():
    with pytest.raises(ValueError, match="--measure_n means nothing without measure among --parts"):
        Scaling(parts=("exact",), measure_n=9).prepare(lambda: None, 0)
