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

from condvendi_jax import validation
from condvendi_jax.inference import _jackknife as uncertainty
from condvendi_jax.inference import _plan as plan
from experiments import records
from experiments.data import PairedEmbeddings
from experiments.lab import Bandwidths, Cell, Context, Run
from experiments.scaling import contests, engines, figures, reference, report, worker
from experiments.scaling import points as sets
from experiments.scaling.contests import CONTESTANTS, Entry
from experiments.scaling.points import Points
from experiments.scaling.records import Record, dataset
from experiments.scaling.study import Scaling
from experiments.scaling.worker import Contestant, Worker, WorkerError

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
        "features": 128,
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


def test_the_gradient_is_of_conditional_rke(cell, grams):
    found = called("order 2", "value and gradient", cell)
    exact = np.sum(grams["prompts"] ** 2) / np.sum(grams["joint"] ** 2)
    assert found["conditional"] == pytest.approx(exact, rel=1e-5)
    assert found["slope"] > 0


def test_the_limit_is_a_matrix_product(cell, monkeypatch):
    monkeypatch.setattr(engines, "_CPU_SIDE", 64)
    assert called("order 2", "matrix product", cell) == {"operations": 2 * 64**3}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Those of vendi_score.
@pytest.mark.parametrize("name", CONTESTANTS["exact"])
def test_every_exact_contestant_gives_the_entropy(name, cell, grams):
    found = called("exact", name, cell | {"n": FEW})["vendi"]
    rtol = 1e-10 if name == "float64" else 1e-5
    assert found == pytest.approx([entropy(grams["outputs"][:FEW, :FEW])] * 3, rel=rtol)


@pytest.fixture(scope="module")
def exact(cell):
    return called("measure", "exact", cell)


def test_exact_scores_are_the_oracles(exact, grams):
    for suffix, t in (("", None), ("-t10", 10)):
        x, y, joint = (entropy(grams[name], truncation=t) for name in grams)
        expected = {"vendi": x, "conditional": joint - y, "information": x + y - joint}
        for name, nats in (expected | {"joint": joint}).items():
            assert exact[name + suffix] == pytest.approx([nats] * 3, abs=2e-5)


@pytest.mark.parametrize(
    ("part", "name", "error"),
    [
        ("first call", "decompose", 5e-3),
        ("measure", "stored", 5e-3),
        ("measure", "matrix-free", 5e-3),
        ("features", "Fourier", 1.0),  # Coarse at order 1.
        ("features", "Nystroem", 1.0),
        ("features", "Fourier as they are", 1.0),
    ],
)
def test_decompose_is_asked_for_scores_with_intervals(part, name, error, cell, exact):
    found = called(part, name, cell)
    assert tuple(found) == SCORES
    for score, (value, low, high) in found.items():
        assert low <= value <= high
        assert value == pytest.approx(exact[score][0], abs=error)


@pytest.mark.parametrize("name", ["Fourier", "Nystroem", "Fourier as they are"])
def test_features_are_drawn_by_the_seed_and_more_of_them_are_nearer(name, cell, exact):
    first = called("features", name, cell)
    assert first != called("features", name, cell, seed=1)
    fewer, truth = called("features", name, cell | {"features": 32}), exact["vendi"][0]
    assert abs(fewer["vendi"][0] - truth) > 1.5 * abs(first["vendi"][0] - truth)


def test_the_jackknife_gives_the_errors_of_order_one(cell, points, grams):
    found = called("jackknife", "evaluate", cell | {"n": FEW}, seed=3)
    prompts = points[0][1][:FEW].astype(np.float32)
    kinds = validation.distinct_rows(prompts)[1]
    groups = uncertainty.group_rows(FEW, 20, key=plan.Keys(3).groups, kinds=kinds)
    deleted = []
    for group in range(20):
        kept = np.flatnonzero(groups.membership != group)
        x, y, joint = (entropy(grams[name][np.ix_(kept, kept)]) for name in grams)
        deleted.append(np.exp([x, joint - y, x + y - joint]))
    errors = np.std(deleted, axis=0) * np.sqrt(19)  # The groups are nearly of one size.
    assert tuple(found) == SCORES
    np.testing.assert_allclose(list(found.values()), errors, rtol=0.05)


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


def test_own_points_are_shuffled_together(tmp_path):
    rows = np.arange(50, dtype=np.float32)[:, None]
    pairs = PairedEmbeddings("own", rows, -rows, "own")

    def written(seed):
        sets.write_pairs(tmp_path, "own", pairs, seed)
        return [np.load(path) for path in sets.paths(tmp_path, "own")]

    outputs, prompts = written(0)
    np.testing.assert_array_equal(outputs, -prompts)
    np.testing.assert_array_equal(np.sort(outputs, axis=0), rows)
    assert (outputs != rows).any()
    assert (outputs != written(1)[0]).any()


def test_emoji_have_photographs_and_captions_beside_them(monkeypatch):
    def named(name):
        return PairedEmbeddings(name, np.ones((3, 2)), np.ones((3, 2)), "pairs")

    monkeypatch.setattr(sets.data_sets, "load", named)

    def found(name, *beside):
        return {n: p.name for n, p in sets.load_sets(lambda: named(name), beside or None).items()}

    both = {"photographs": "captions", "captions": "captioning"}
    assert found("emoji") == {"emoji": "emoji"} | both
    assert found("own") == {"own": "own"}
    assert found("own", "photographs") == {"own": "own", "photographs": "captions"}
    assert found("emoji", "none") == {"emoji": "emoji"}
    # A name that is taken stands for one set only.
    assert found("mixture") == {"mixture (set)": "mixture"}
    taken = {"photographs (set)": "photographs", "photographs": "captions"}
    assert found("photographs", "photographs") == taken
    with pytest.raises(ValueError, match="--beside=captions: --data=captioning is the same set"):
        found("captioning", "captions")


def place(part, data, n):
    return Cell((("part", part), ("data", data), ("n", n)))


KINDS = {
    "mixture": (20_000, "mixture"),
    "own": (6000, "real"),
    "narrow": (6000, "narrow"),
    "other": (9000, "real"),
    "few": (50_000, "few dimensions"),
}


def settings(**changes):
    """Settings of a run on mixtures, an own set of points under two bandwidths, and another."""
    widths = Bandwidths("given", 0.7, 0.9, "given")
    digests = ("float32 [9, 3] sha256 0123456789", "float32 [9, 2] sha256 abcdefghij")
    found = Scaling(
        device="1 x cpu (cpu)",
        platform="cpu",
        cores=2,
        points={k: Points("a mixture", n, widths, of, digests) for k, (n, of) in KINDS.items()},
        parts=("order2", "measure"),
        order_two_n=20_000,
        exact_n=500,
        measure_n=8000,
        features_n=50_000,
        features=64,
        repeats=3,
        seeds=3,
        patience=10.0,
        enough=8.0,
        versions={"torch": "2.13"},
    )
    return dataclasses.replace(found, **changes)


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("measure", "mixture 2000 4000 8000, own 4000 6000, narrow 4000, other 4000 9000"),
        ("order2", "mixture 500 1000 3000, own 1000 3000, other 1000 3000"),
        ("exact", "mixture 500, own 500"),
        ("features", "few 4000 50000, own 4000, other 4000"),
        ("first", "mixture 2000"),
        ("jackknife", "mixture 1000"),
        ("start", "none 0"),
    ],
)
def test_cells_follow_the_settings(part, expected):
    """Sizes double; real data are taken at a middle size and whole."""
    found = settings(parts=(part,), order_two_n=3000)
    cells = [(name, int(n)) for name, *of in map(str.split, expected.split(",")) for n in of]
    (part,) = found.measured
    assert found.cells() == [place(part, name, n) for name, n in cells]


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
        ("seed", [[20.0, *[0.1] * 3]], [[0.1] * 5, [6.0, 8.0]]),
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
        "ended": Entry(sys.exit, 2),
    }
    turns = []
    results, failed = contests.run_cell(entries, cell, settings(repeats=2), turns.append)
    # Of milliseconds each: four times the two rounds after the first.
    assert len(results["norms"]["seconds"]) == len(results["norms"]["values"]) == 9
    assert len(results["once"]["seconds"]) == 1
    assert results["norms"]["memory_bytes"] > 0
    assert set(failed) == {"wrong", "ended"}
    assert failed["wrong"].startswith("TypeError: must be real number")
    assert failed["ended"] == "its process ended with status 1"
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


def test_a_worker_that_is_killed_says_so():
    with Worker() as process:
        process.process.kill()
        with pytest.raises(WorkerError, match="ended with status -9; out of memory?"):
            process.request("ask", time.time)


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


def by_target(run):
    """Target, what was measured, and whether it is met, by the words of the target."""
    return {row["what"]: tuple(row.values())[1:] for row in report.rows(run)}


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


def test_truncated_scores_are_judged_apart_and_the_worst_counts():
    values = {"vendi": [0.01, 0, 0.02], "information": [0, 0, 0], "vendi-t9": [0.1, 0, 0.02]}
    measured = {"exact": given(dict.fromkeys(values, [0.0] * 3)), "by tolerance": given(values)}
    (record,) = report.records(fabricated({place("measure", "own", 9): measured}))
    assert report.worst(record) == {
        "seeds": 1,
        "error at 95%": pytest.approx(np.expm1(0.01)),
        "mean half interval": pytest.approx(np.expm1(0.01)),
        "truncated: error at 95%": pytest.approx(np.expm1(0.1)),
        "coverage": 1.0,
    }


def test_targets_stand_beside_what_was_measured():
    rows = by_target(fabricated())
    torch = rows["order 2, n >= 20,000: dense torch / tiles"]
    assert torch == (">= 3x", "3.5x (mixture, n = 20,000)", "yes")
    assert rows["measure: error at 95%"][1:] == ("0.285% (mixture, n = 14,000)", "no")
    assert rows["measure: coverage"][1:] == ("50% (mixture, n = 14,000)", "no")
    assert rows["measure, n = 8,000 ... 13,999: stored / exact"][1:] == ("not measured", "")
    splits = rows["measure: rms error at 448 products, plain SLQ / ours"]
    assert splits == (">= 25x", "19.8x (mixture, n = 14,000)", "no")
    assert rows["order 2: relative error against float64"][2] == "yes"
    assert rows["order 2, n >= 20,000: share of the peak"][1] == "4.92% (mixture, n = 20,000)"
    cells = {place("order 2", "mixture", n): ORDER_TWO for n in (25_000, 40_000)}
    worst = by_target(fabricated(cells))["order 2, n >= 20,000: dense torch / tiles"]
    assert worst[1] == "3.5x (mixture, n = 25,000; worst of 2)"


@pytest.mark.parametrize(
    ("what", "data", "n", "bound"),
    [
        ("order 2, n = 500 ... 4,000: dense JAX / library", "own", 500, 1),
        ("order 2, n >= 8,000: 16 bandwidths / tiles", "mixture", 20_000, 2),
        ("exact, n = 500 ... 4,000: torch.linalg.eigvalsh / spectrum", "mixture", 4000, 1),
        ("measure, own, n = 4,000: stored / exact", "own", 4000, 0.6),
        ("measure, other, n >= 8,000: stored / exact", "other", 9000, 0.15),
        ("measure, n >= 14,000: stored / exact", "mixture", 14_000, 0.1),
        ("first call, n = 2,000: decompose", "mixture", 2000, 3),
        ("jackknife, n = 1,000: evaluate, again", "mixture", 1000, 5),
        ("cold start: import condvendi_jax / import jax", "none", 0, 1.2),
    ],
)
def test_a_target_is_met_at_its_bound_and_missed_beyond(what, data, n, bound):
    place_, _, names = what.partition(": ")
    part = place_.partition(",")[0]
    one, _, other = names.partition(" / ")

    def met(seconds, data=data, n=n):
        times = {one: timed(9.0, seconds), other: timed(7.0, 1.0)}
        return by_target(fabricated({place(part, data, n): times}))[what]

    target, _, at_bound = met(bound)
    beyond = bound * (0.9 if target.startswith(">=") else 1.1)
    assert (at_bound, met(beyond)[2]) == ("yes", "no")
    assert met(beyond)[1].endswith(f" ({data}, n = {n:,})")
    if n:  # Targets are of their n and data.
        assert met(beyond, "narrow", 5000)[1:] == ("not measured", "")


def test_the_report_says_whose_numbers_and_what_features_give():
    features = {
        "Fourier": given({"vendi": [0.03, -1, 1]}, {"vendi": [-0.03, -1, 1]}),
        "Nystroem": given({"vendi": [0.1, 0.01, 0.21]}),
        "Fourier as they are": given({"vendi": [-0.2] * 3}),
        "exact": timed(1.0, vendi=[0.0] * 3),
    }
    cells = {
        place("features", "few", 4000): features,
        place("features", "few", 50_000): {"Fourier": features["Fourier"]},
        place("jackknife", "mixture", 1000): {"evaluate, again": timed(9.0, 2.0)},
    }
    text = report.markdown(fabricated(cells))
    assert "| other: a mixture | 9,000 | 0.7, 0.9 | 01234567, abcdefgh |" in text
    assert "| few | 4,000 | Fourier, 64 | 1 | 3 | 3% | 172% | 100% |" in text
    assert "| few | 4,000 | Nystroem, 64 | 1 | 3 | 10.5% | 10.5% | 0% |" in text
    assert "| few | 4,000 | Fourier as they are, 64 | 1 | 3 | 18.1% |  |  |" in text
    assert "| few | 50,000 | Fourier, 64 | 1 | 3 |  |  |  |" in text
    assert "| mixture | 1,000 | 2 (3) |" in text


def test_markdown_and_figures_come_out_of_a_saved_result():
    run = fabricated()
    text = report.markdown(run)
    assert "1 x cpu (cpu), 2 processor cores, Linux x86_64, float32, 2026-11-21" in text
    assert "torch 2.13" in text
    assert "| mixture | 20,000 | 2 (3) |" in text
    drawn = Scaling.figures([run])
    assert set(drawn) == {"scaling_time", "scaling_memory", "scaling_real", "scaling_error"}
    elsewhere = dataclasses.replace(run, study=settings(platform="accelerator", device="1 x gpu"))
    assert set(Scaling.figures([elsewhere])) == {name + "_1-x-gpu" for name in drawn}
    caption = drawn["scaling_error"]._supxlabel.get_text().replace("\n", " ")
    for part in ("Bandwidths of outputs, prompts: mixture 0.7, 0.9", "seed 5", "float32"):
        assert part in caption
    shares = drawn["scaling_real"].axes[0].get_lines()[0]
    assert shares.get_xdata() == pytest.approx([20.0])
    first = drawn["scaling_time"].axes[0].get_lines()[0]
    assert first.get_ydata().tolist() == [2.0]
    assert first.get_linestyle() == "-"


def test_memory_that_is_not_resolved_is_not_drawn():
    tiny = timed(1.0) | {"memory_bytes": 1000}
    drawn = figures.draw(fabricated({place("order 2", "mixture", 9): ORDER_TWO | {"tiles": tiny}}))
    assert [line.get_label() for line in drawn["memory"].axes[0].get_lines()] == ["dense torch"]


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
        asked.update(request=request, entries=list(entries))
        return {"spectrum": timed(1.0)}, {"float64": "failed"}

    monkeypatch.setattr(contests, "run_cell", run_cell)
    slow = dataset((), {"jnp.linalg.eigvalsh": timed(0.1, 100.0)}, {})
    earlier = {place("exact", "mixture", 400): slow, place("order 2", "mixture", 400): slow}
    context, state = Context(None, None, earlier, lambda words: None), (points[2], 9e8)
    found = settings().compute(state, context, part="exact", data="mixture", n=500)
    assert asked["entries"] == ["spectrum", "torch.linalg.eigvalsh", "float64"]
    assert asked["request"]["bandwidths"] == [0.7, 0.9]
    assert asked["request"]["truncations"] == [10, 25, 200]
    assert asked["request"]["features"] == 64
    assert asked["request"]["outputs"] == str(points[1][0])
    assert found.dimensions.values.tolist() == [24, 16]
    assert found.left_out.to_series().to_dict() == {
        "spectrum": "",
        "vendi_score": "vendi-score is not there",
        "jnp.linalg.eigvalsh": "a call would take about 195 s",
        "float64": "failed",
    }


def test_imports_are_timed_in_fresh_processes():
    found = contests.cold_starts(1)
    assert set(found) == {"import jax", "import condvendi_jax"}
    assert all(len(times["seconds"]) == 2 for times in found.values())
    assert min(t for times in found.values() for t in times["seconds"]) > 0


def test_the_settings_and_arrays_follow_the_options_and_the_device(points, monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1.0")
    pairs = PairedEmbeddings("own", *(np.load(p)[:70] for p in points[1]), "own pairs")
    options = Scaling(
        parts=("exact", "measure", "features"),
        exact_n=64,
        features_n=90,
        peers=("rke-score",),
        output_dimension=6,
        bandwidth=0.5,
    )
    setup = options.prepare(lambda: pairs, 7)
    found, few = setup.study, "mixture, d = 64 and 48"
    assert (found.platform, found.seeds, found.patience) == ("cpu", 10, 30)
    assert found.versions == {"rke-score": "1.0"}
    assert found.device.startswith("1 x cpu")
    assert setup.provenance["device"] == found.device
    largest = {"order 2": 20_000, "exact": 64, "measure": 4000, "features": 90}
    assert found.largest == largest | {"first call": 2000, "jackknife": 1000}
    assert [(name, of.kind, of.n) for name, of in found.points.items()] == [
        ("mixture", "mixture", 4000),
        ("own", "real", 70),
        ("own, narrow", "narrow", 70),
        (few, "few dimensions", 90),
    ]
    assert found.points["mixture"].bandwidths.outputs == 0.5
    narrow, wide = (found.points[name].bandwidths.outputs for name in ("own, narrow", "own"))
    assert narrow == pytest.approx(0.65 * wide)
    assert list(setup.arrays) == [
        f"{name} {role}" for name in ("mixture", "own", few) for role in ("outputs", "prompts")
    ]
    assert setup.arrays[f"{few} prompts"].shape == (90, 48)
    assert setup.arrays["mixture outputs"].shape == (4000, 6)
    whole = {tuple(row) for row in pairs.prompts}
    assert {tuple(row) for row in setup.arrays["own prompts"]} == whole
    # The digests of the identity, by data; what is narrow has those of the set.
    identity = records.identify("scaling", 2, found, setup.arrays, 7)
    for name, of in found.points.items():
        whose = name.removesuffix(", narrow")
        expected = [identity["arrays"][f"{whose} {role}"] for role in ("outputs", "prompts")]
        assert list(of.digests) == expected
    setup.close()


def test_a_worker_ends_with_its_parent_even_during_a_call(tmp_path):
    """When the parent is killed, a contestant that computes for minutes ends at once."""
    path = str(tmp_path / "x.npy")
    np.save(path, np.random.default_rng(0).normal(size=(12_000, 4)).astype(np.float32))
    code = (
        "from experiments.scaling import reference, worker\n"
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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parts": ("exact",), "measure_n": 9}, "--measure_n means nothing without measure"),
        ({"parts": ("start",), "features_n": 9}, "--features_n means nothing without features"),
    ],
)
def test_options_that_are_wrong_or_would_be_ignored_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Scaling(**options).prepare(lambda: None, 0)
