"""The benchmark: what its contestants compute, who takes part, what is derived, how it is run."""

import dataclasses
import importlib.metadata
import importlib.util
import os
import subprocess
import sys
import time
import types

import jax
import numpy as np
import pytest
from oracles import entropy, gaussian_gram
from processes import started

from condvendi_jax import validation
from condvendi_jax.inference import _jackknife as uncertainty
from condvendi_jax.inference import _plan as plan
from experiments import data, records
from experiments.data import PairedEmbeddings
from experiments.lab import Bandwidths, Cell, Context, Run
from experiments.scaling import contests, engines, figures, peers, reference, report, worker
from experiments.scaling import points as sets
from experiments.scaling.contests import Entry, Limits
from experiments.scaling.points import Points
from experiments.scaling.records import Record, dataset
from experiments.scaling.study import Scaling
from experiments.scaling.worker import Contestant, Worker, WorkerError

pytestmark = pytest.mark.slow

# So many that the default Krylov space, of 256 dimensions, leaves the measure something to sample.
N = 600
FEW = 150
WIDTHS = [0.8, 1.1]
BUDGET = {"88": {"block": 8, "sweeps": 4, "probes": 7, "steps": 8}}


@pytest.fixture(scope="module")
def points(tmp_path_factory):
    """A mixture as the benchmark writes it, in float64 and as files."""
    folder = tmp_path_factory.mktemp("points")
    paths = sets.write_mixture(folder, "mixture", N, (24, 16), seed=3)
    return [np.load(path).astype(np.float64) for path in paths], paths, folder


@pytest.fixture(scope="module")
def cell(points):
    _, (outputs, prompts), folder = points
    return {
        "outputs": str(outputs),
        "prompts": str(prompts),
        "n": N,
        "bandwidths": WIDTHS,
        "truncations": [10],
        "rtol": 2e-3,
        "features": 64,
        "budgets": BUDGET,
        "splits": {"88": [(11, 8)]},
        "eigenvalues": str(folder / "eigenvalues.npy"),
    }


@pytest.fixture(scope="module")
def grams(points):
    x, t = (gaussian_gram(p, w) for p, w in zip(points[0], WIDTHS, strict=True))
    return {"outputs": x, "prompts": t, "joint": x * t}


def called(contestant, seed=0):
    return contestant.read(contestant.ready(seed)())


def without(package):
    return pytest.mark.skipif(
        importlib.util.find_spec(package) is None, reason=f"{package} is not installed"
    )


@pytest.mark.parametrize(
    "make",
    [
        engines.library_norms,
        engines.order_two_call,
        engines.tile_norms,
        engines.all_prefixes,
        engines.many_bandwidths,
        engines.dense_norms,
        reference.norms,
        pytest.param(peers.torch_norms, marks=without("torch")),
        pytest.param(peers.rke_score, marks=without("rke_score")),
    ],
)
def test_every_contestant_of_order_two_gives_the_norms(make, cell, grams, monkeypatch):
    monkeypatch.setattr(reference, "_ROWS", 40)  # Several blocks, the last of them smaller.
    found = called(make(cell | {"n": FEW}))
    names = ("outputs",) if make is peers.rke_score else ("outputs", "prompts", "joint")
    assert tuple(found) == names
    exact = {name: np.mean(np.square(grams[name][:FEW, :FEW])) for name in names}
    # rke-score adds the n^2 values one after the other in float32.
    rtol = {reference.norms: 1e-11, peers.rke_score: 1e-3}.get(make, 5e-6)
    assert found == pytest.approx(exact, rel=rtol)
    others = called(make(cell | {"bandwidths": [0.5, 0.4], "n": 90}))
    assert all(others[name] != pytest.approx(exact[name], rel=1e-2) for name in names)


def test_the_gradient_is_of_conditional_rke(cell, grams):
    found = called(engines.value_and_gradient(cell))
    exact = np.sum(grams["prompts"] ** 2) / np.sum(grams["joint"] ** 2)
    assert found["conditional"] == pytest.approx(exact, rel=1e-5)
    assert found["slope"] > 0


def test_the_limit_is_a_matrix_product(cell, monkeypatch):
    monkeypatch.setattr(engines, "_CPU_SIDE", 64)
    assert called(engines.matrix_product(cell)) == {"operations": 2 * 64**3}


@pytest.mark.parametrize(
    "make",
    [
        engines.spectrum,
        engines.eigvalsh,
        reference.eigenvalues,
        pytest.param(peers.torch_eigvalsh, marks=without("torch")),
        pytest.param(
            peers.vendi_score,
            marks=[
                without("vendi_score"),
                pytest.mark.filterwarnings("ignore::DeprecationWarning"),
            ],
        ),
    ],
)
def test_every_exact_contestant_gives_the_entropy(make, cell, grams):
    found = called(make(cell | {"n": FEW}))["vendi"]
    rtol = 1e-10 if make is reference.eigenvalues else 1e-5
    assert found == pytest.approx([entropy(grams["outputs"][:FEW, :FEW])] * 3, rel=rtol)


@pytest.fixture(scope="module")
def exact(cell):
    return called(engines.exact(cell))


def test_exact_scores_are_the_oracles(exact, grams):
    for suffix, t in (("", None), ("-t10", 10)):
        x, y, joint = (entropy(grams[name], truncation=t) for name in grams)
        expected = {"vendi": x, "conditional": joint - y, "information": x + y - joint}
        for name, nats in (expected | {"joint": joint}).items():
            assert exact[name + suffix] == pytest.approx([nats] * 3, abs=2e-5)


@pytest.mark.parametrize("make", [engines.decompose, engines.stored, engines.matrix_free])
def test_decompose_is_asked_for_scores_with_intervals(make, cell, exact):
    found = called(make(cell))
    assert set(found) == {"vendi", "conditional", "information"}
    for name, (value, low, high) in found.items():
        assert low <= value <= high
        assert value == pytest.approx(exact[name][0], abs=5e-3)


@pytest.mark.parametrize("make", [engines.fourier_features, engines.nystroem_features])
def test_features_give_scores_of_their_own_draw(make, cell, exact):
    contestant = make(cell | {"features": 128})
    first, other = called(contestant, 0), called(contestant, 1)
    assert set(first) == {"vendi", "conditional", "information"}
    assert first != other
    for name, (value, low, high) in first.items():
        assert low <= value <= high
        assert value == pytest.approx(exact[name][0], abs=1.0)  # Coarse at order 1.
    fewer = called(make(cell | {"features": 32}), 0)
    assert abs(fewer["vendi"][0] - exact["vendi"][0]) > abs(first["vendi"][0] - exact["vendi"][0])


def test_plain_features_lose_the_small_eigenvalues(cell, exact):
    found = called(engines.plain_features(cell | {"features": 128}), 0)
    lost = {name: exact[name][0] - value for name, (value, *_) in found.items()}
    assert 0 < lost["vendi"] < 1
    assert 0 < lost["conditional"] < 1
    more = called(engines.plain_features(cell | {"features": 1024}), 0)
    assert exact["vendi"][0] - more["vendi"][0] < lost["vendi"] / 2
    assert len({*found["vendi"]}) == 1
    assert found != called(engines.plain_features(cell | {"features": 128}), 1)


def test_the_jackknife_gives_the_errors_of_order_one(cell, points, grams):
    found = called(engines.jackknife(cell | {"n": FEW}), seed=3)
    prompts = points[0][1][:FEW].astype(np.float32)
    kinds = validation.distinct_rows(prompts)[1]
    groups = uncertainty.group_rows(FEW, 20, key=plan.Keys(3).groups, kinds=kinds)
    deleted = []
    for group in range(20):
        kept = np.flatnonzero(groups.membership != group)
        x, y, joint = (entropy(grams[name][np.ix_(kept, kept)]) for name in grams)
        deleted.append(np.exp([x, joint - y, x + y - joint]))
    errors = np.std(deleted, axis=0) * np.sqrt(19)  # The groups are nearly of one size.
    assert list(found) == ["vendi", "conditional", "information"]
    np.testing.assert_allclose(list(found.values()), errors, rtol=0.05)


def test_the_measure_comes_near_the_exact_scores_and_obeys_its_tolerance(cell, exact):
    contestant = engines.by_tolerance(cell)
    found = called(contestant)
    assert set(found) == {name for name in exact if not name.startswith("joint")}
    for name in ("vendi", "conditional", "information"):
        value, low, high = found[name]
        assert value == pytest.approx(exact[name][0], abs=5e-3)
        assert (high - low) / 2 <= cell["rtol"]


def test_a_budget_names_its_products(cell, exact):
    found = called(engines.by_budget(cell))
    assert set(found) == {"joint 88", "joint-t10 88"}
    for name in ("joint", "joint-t10"):
        assert found[f"{name} 88"][0] == pytest.approx(exact[name][0], abs=0.05)


@without("matfree")
def test_plain_quadrature_estimates_the_same_entropies(cell, exact):
    # The package promotes dtypes, which the tests' settings forbid.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        contestant = peers.plain_quadrature(cell | {"splits": {"960": [(60, 16)]}})
        found = [called(contestant, seed) for seed in range(4)]
    for name in ("joint", "joint-t10"):
        values = [f[f"{name} 960 60x16"][0] for f in found]
        assert len(set(values)) == 4
        assert np.mean(values) == pytest.approx(exact[name][0], abs=0.2)


def test_the_first_points_of_a_mixture_do_not_depend_on_n(tmp_path, points):
    (tmp_path / "a").mkdir()
    longer = sets.write_mixture(tmp_path / "a", "mixture", N + 50, (24, 16), seed=3)
    for path, shorter in zip(longer, points[0], strict=True):
        np.testing.assert_array_equal(np.load(path)[:N], shorter)
    (tmp_path / "b").mkdir()
    others = sets.write_mixture(tmp_path / "b", "mixture", N, (24, 16), seed=4)
    assert (np.load(others[0]) != points[0][0]).any()


def test_an_output_and_its_prompt_are_of_one_kind(points):
    nearest = [np.argsort(((p[:, None] - p[None]) ** 2).sum(-1), axis=1)[:, 1:4] for p in points[0]]
    distances = ((points[0][0][:, None] - points[0][0][None]) ** 2).sum(-1)
    of_neighbours = np.take_along_axis(distances, nearest[1], axis=1).mean()
    assert of_neighbours < 0.6 * distances.mean()


def test_own_points_are_shuffled_together(tmp_path):
    rows = np.arange(50, dtype=np.float32)[:, None]
    pairs = PairedEmbeddings("own", rows, -rows, "own")
    first, second = (
        [np.load(p) for p in sets.write_points(tmp_path, "own", pairs, None, seed)]
        for seed in (0, 1)
    )
    np.testing.assert_array_equal(first[0], -first[1])
    np.testing.assert_array_equal(np.sort(first[0], axis=0), rows)
    assert (first[0] != rows).any()
    assert (first[0] != second[0]).any()
    few = [np.load(p) for p in sets.write_points(tmp_path, "few", pairs, 7, 0)]
    np.testing.assert_array_equal(few[0], first[0][:7])
    assert len(np.load(tmp_path / "own-outputs.npy")) == 50


def test_emoji_have_photographs_and_captions_beside_them(monkeypatch):
    def named(name):
        return PairedEmbeddings(name, np.ones((3, 2)), np.ones((3, 2)), "pairs")

    monkeypatch.setattr(sets.data_sets, "load", named)

    def found(name, beside=None):
        return {n: p.name for n, p in sets.load_sets(lambda: named(name), beside).items()}

    both = {"photographs": "captions", "captions": "captioning"}
    assert found("emoji") == {"emoji": "emoji"} | both
    assert found("own") == {"own": "own"}
    assert found("own", ("photographs",)) == {"own": "own", "photographs": "captions"}
    assert found("emoji", ("none",)) == {"emoji": "emoji"}
    # A name that is taken stands for one set only.
    assert found("mixture") == {"mixture (set)": "mixture"}
    assert found("photographs", ("photographs",)) == {
        "photographs (set)": "photographs",
        "photographs": "captions",
    }
    with pytest.raises(ValueError, match="--beside=captions: --data=captioning is the same set"):
        found("captioning", ("captions",))


@pytest.mark.parametrize(("name", "pairs"), [("photographs", 8091), ("captions", 11_500)])
def test_what_is_beside_emoji_is_what_it_is_called(name, pairs):
    of_set = data.load(sets.BESIDE[name])
    assert len(of_set) == pairs
    # Captions are embedded in 384 dimensions, photographs in more.
    assert (of_set.outputs.shape[1] == 384) == (name == "captions")
    assert (of_set.prompts.shape[1] == 384) == (name == "photographs")


def test_sizes_double_and_end_at_the_largest():
    assert sets.sizes("order 2", 4000) == [500, 1000, 2000, 4000]
    assert sets.sizes("order 2", 3000) == [500, 1000, 3000]
    assert sets.sizes("measure", 8000) == [2000, 4000, 8000]
    assert sets.sizes("exact", 64) == [64]
    assert sets.truncations(4000) == [10, 200, 1600]


def place(part, data, n):
    return Cell((("part", part), ("data", data), ("n", n)))


KINDS = {
    "mixture": (20_000, "mixture"),
    "own": (6000, "real"),
    "own, narrow": (6000, "narrow"),
    "photographs": (9000, "real"),
    "small mixture": (50_000, "few dimensions"),
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


def test_cells_follow_the_settings():
    found = settings(parts=("exact", "features", "first", "jackknife")).cells()
    assert found == [
        place("exact", "mixture", 500),
        place("exact", "own", 500),
        place("features", "small mixture", 4000),
        place("features", "small mixture", 50_000),
        place("features", "own", 4000),
        place("features", "photographs", 4000),
        place("first call", "mixture", 2000),
        place("jackknife", "mixture", 1000),
    ]
    assert settings(parts=("start",)).cells() == [place("cold start", "none", 0)]


@pytest.mark.parametrize(
    ("part", "name", "full", "sizes"),
    [
        ("measure", "mixture", False, [2000, 4000, 8000]),
        ("measure", "own", False, [4000, 6000]),
        ("measure", "own", True, [2000, 6000]),
        ("measure", "own, narrow", False, [4000]),
        ("measure", "photographs", False, [4000, 9000]),
        ("order2", "photographs", False, [1000, 4000, 9000]),
        ("order2", "photographs", True, [500, 1000, 2000, 4000, 9000]),
        ("order2", "own, narrow", False, []),
        ("exact", "photographs", False, []),
        ("exact", "small mixture", False, []),
    ],
)
def test_real_data_are_measured_at_a_middle_size_and_whole(part, name, full, sizes):
    found = settings(parts=(part,), full=full).cells()
    assert [c.values["n"] for c in found if c.values["data"] == name] == sizes


LIMITS = Limits(repeats=3, seeds=5, patience=10.0, enough=8.0, memory=10**9)


@pytest.mark.parametrize(
    ("missing", "limits", "reason"),
    [
        ([], {}, None),
        (["torch"], {}, "torch is not there"),
        ([], {"memory": 10**6}, "needs about 0 GiB"),
        ([], {"patience": 7.0}, "a call would take about 8 s"),
    ],
)
def test_who_takes_part(missing, limits, reason):
    entries = {
        "peer": Entry("peers", "torch_norms", 2, arrays=1, package="torch"),
        "at the largest": Entry("engines", "all_prefixes", 2, largest_only=True),
        "small only": Entry("engines", "by_budget", 2, up_to=500),
    }
    # Twice the n in four times the time; the first call, of 50 s, does not count.
    times = dataset((), {"peer": timed(50.0, 2.0, 2.0)}, {})
    earlier = [Record("order 2", "mixture", 500, times)]
    limits = LIMITS._replace(**limits)
    of = {"real": False, "missing": missing}
    found = contests.choose(entries, 1000, limits, earlier, largest=False, **of)
    assert found == (([], {"peer": reason}) if reason else (["peer"], {}))
    names, _ = contests.choose(entries, 500, LIMITS, [], largest=True, real=False, missing=[])
    assert names == list(entries)


def test_who_takes_part_on_real_data_and_beside_whom():
    entries = {
        "exact": Entry("engines", "exact", 3, arrays=1),
        "made data only": Entry("engines", "matrix_free", 2, mixture_only=True),
        "compared with it": Entry("engines", "by_tolerance", 2, calls="errors"),
    }

    def chosen(*, real, memory=10**9):
        limits = LIMITS._replace(memory=memory)
        return contests.choose(entries, 800, limits, [], largest=False, real=real, missing=[])

    assert chosen(real=False) == (list(entries), {})
    assert chosen(real=True) == (["exact", "compared with it"], {})
    names, left_out = chosen(real=True, memory=10**6)
    assert names == []
    assert left_out["compared with it"] == "nothing without exact"


@pytest.mark.parametrize(
    ("entry", "seconds", "due"),
    [
        (Entry("", "", 2), [], True),
        (Entry("", "", 2), [1.0, 1.0, 1.0], True),
        (Entry("", "", 2), [1.0, 1.0, 1.0, 1.0], False),
        (Entry("", "", 2), [8.0], False),
        (Entry("", "", 2, calls="rounds after compiling"), [8.0], True),
        (Entry("", "", 2, calls="rounds after compiling"), [8.0, 0.1], False),
        (Entry("", "", 2, calls="rounds after compiling"), [7.0, 1.0], True),
        (Entry("", "", 2), [0.01] * 12, True),  # Milliseconds: four times the rounds.
        (Entry("", "", 2), [0.01] * 13, False),
        (Entry("", "", 2), [0.01, *[0.2] * 3], False),
        (Entry("", "", 2), [1.0, 8.0], False),
        (Entry("", "", 2, calls="once"), [0.1], False),
        (Entry("", "", 2, calls="seed"), [20.0, *[0.1] * 3], True),
        (Entry("", "", 2, calls="seed"), [0.1] * 5, False),
        (Entry("", "", 2, calls="seed"), [6.0, 8.0], False),
    ],
)
def test_who_is_called_again(entry, seconds, due):
    assert contests._due(entry, seconds, LIMITS) == due


def test_an_absent_peer_is_one_line(monkeypatch, capsys):
    def version(name):
        if name == "torch":
            raise importlib.metadata.PackageNotFoundError
        return "1.0"

    monkeypatch.setattr(importlib.metadata, "version", version)
    assert contests.peer_versions(["torch", "rke_score"]) == {"rke-score": "1.0"}
    assert capsys.readouterr().err == (
        "torch is not installed, left out: dense torch, torch.linalg.eigvalsh; "
        "pip install -e '.[bench]' installs it.\n"
    )


def test_contestants_are_called_in_turn_each_in_its_process(cell):
    entries = {
        "norms": Entry("reference", "norms", 2),
        "once": Entry("reference", "eigenvalues", 3, calls="once"),
        "wrong": Entry("reference", "no_such_function", 2),
        "ended": Entry("no_such_module", "norms", 2),
    }
    turns = []
    results, failed = contests.run_cell(entries, cell, LIMITS._replace(repeats=2), turns.append)
    # Of milliseconds each: four times the two rounds after the first.
    assert len(results["norms"]["seconds"]) == len(results["norms"]["values"]) == 9
    assert len(results["once"]["seconds"]) == 1
    assert set(results["norms"]) >= {"memory_bytes", "idle_share"}
    assert set(failed) == {"wrong", "ended"}
    assert "no_such_function" in failed["wrong"]
    assert "its process ended (status 1)" in failed["ended"]
    assert "no_such_module" in failed["ended"]
    assert [t for t in turns if t.endswith("run")][:3] == ["norms: run", "once: run", "norms: run"]


def test_first_calls_are_of_fresh_processes_and_second_ones_follow(monkeypatch):
    events = []

    class Fresh:
        def __init__(self, module):
            events.append(module)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def request(self, do, **arguments):
            events.append(do)
            if do == "prepare" and arguments["function"] == "wrong":
                raise WorkerError("failed")
            return {
                "run": {"seconds": float(len(events)), "values": {"v": 1.0}},
                "finish": {"memory_bytes": 5},
            }.get(do)

    monkeypatch.setattr(contests, "Worker", Fresh)
    entries = {"mine": Entry("engines", "decompose", 3), "other": Entry("peers", "wrong", 2)}
    found, failed = contests.first_calls(entries, {"n": 9}, 3, lambda words: None)
    once = ["engines", "prepare", "run", "run", "finish"]
    assert events == [*once, "peers", "prepare", *once, *once]
    assert failed == {"other": "failed"}
    of_each = {"values": [{"v": 1.0}] * 3, "memory_bytes": 5}
    assert found == {
        "mine": {"seconds": [3.0, 10.0, 15.0], **of_each},
        "mine, again": {"seconds": [4.0, 11.0, 16.0], **of_each},
    }


def test_a_first_call_compiles(tmp_path):
    """What a user keeps of compiled programs on disk has no part in it."""
    code = "import jax; print(jax.config.jax_enable_compilation_cache)"
    environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(tmp_path)} | worker._ENVIRONMENT
    run = [sys.executable, "-c", code]
    assert subprocess.run(run, env=environment, capture_output=True).stdout == b"False\n"


def test_memory_is_that_of_the_calls(points, cell):
    # 1,000 rows of kernel values of 2,000 points take 16 MB, and only a few such arrays exist.
    folder = points[2]
    many = np.random.default_rng(0).normal(size=(2000, 8)).astype(np.float32)
    np.save(folder / "many.npy", many)
    larger = cell | {"outputs": str(folder / "many.npy"), "prompts": str(folder / "many.npy")}
    with Worker("reference") as process:
        process.request("prepare", function="norms", cell=larger | {"n": 2000})
        before = process.request("finish")["memory_bytes"]
        process.request("run", seed=0)
        after = process.request("finish")["memory_bytes"]
    assert before < 5e6
    assert 16e6 < after < 160e6


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="the peak stays")
def test_what_loading_and_compiling_took_does_not_count():
    def make(cell):
        np.ones(10**7).sum()
        return Contestant(ready=lambda seed: lambda: None, read=lambda result: {})

    server = worker.Server(types.SimpleNamespace(make=make))
    server.prepare("make", {})
    assert server.finish()["memory_bytes"] < 40e6


def test_waiting_and_getting_ready_are_not_timed(monkeypatch):
    # The wall clock, and the seconds that all threads used: at the end of `prepare`, at the start
    # and at the end of each call. Between the calls 10 s pass, and 1 s of a core is used.
    clocks = iter([(0.0, 0.0), (10.0, 1.0), (70.0, 61.0), (80.0, 62.0), (90.0, 72.0)])
    monkeypatch.setattr(worker, "_clocks", lambda: np.array(next(clocks)))
    events = []
    contestant = Contestant(
        ready=lambda seed: events.append(("ready", seed)) or (lambda: events.append("call")),
        read=lambda result: events.append("read") or {"value": 1.0},
    )
    counted = iter([100.0, 103.0, 200.0, 202.0])
    monkeypatch.setattr(time, "perf_counter", lambda: events.append("clock") or next(counted))
    server = worker.Server(types.SimpleNamespace(make=lambda cell: contestant))
    server.prepare("make", {})
    assert server.run(3) == {"seconds": 3.0, "values": {"value": 1.0}}
    assert events == [("ready", 3), "clock", "call", "clock", "read"]
    assert server.run(4)["seconds"] == 2.0
    assert server.finish()["idle_share"] == pytest.approx(2 / 20)


def test_a_process_holds_the_runtime_of_its_contestant_only():
    imports = "import sys, experiments.scaling.worker, experiments.scaling.peers"
    code = f"{imports}; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_worker_that_is_killed_says_so():
    with Worker("reference") as process:
        process._process.kill()
        with pytest.raises(WorkerError, match="killed by signal 9"):
            process.request("ask", function="norms")


def timed(*seconds, **values):
    return {"seconds": seconds, "values": [values] * len(seconds), "memory_bytes": 3 * 2**20}


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


def fabricated(cells=None, left_out=None, **changes):
    """Results with errors, ratios and coverage that can be read off."""
    cells = cells or {
        place("order 2", "mixture", 20_000): ORDER_TWO,
        place("measure", "mixture", 14_000): MEASURE,
    }
    results = {cell: dataset((768, 512), of, left_out or {}) for cell, of in cells.items()}
    origin = {
        "platform": "Linux x86_64",
        "dtype": "float32",
        "date": "2026-11-21T00:00:00",
        "versions": {"jax": "0.10"},
    }
    origins = dict.fromkeys(results, origin)
    return Run(settings(**changes), None, {"seed": 5}, results, origins, [])


def by_target(run):
    return {row.what: row for row in report.rows(run)}


def test_ratios_are_of_pairs_and_the_first_round_warms_up():
    record = report.records(fabricated())[0]
    assert record.seconds("tiles") == 2.0
    assert record.ratio("dense torch", "tiles") == 3.5  # The median of 4 and 3.
    # A first call that was the last counts, and stands beside the others that warmed up.
    assert record.ratio("value and gradient", "tiles") == pytest.approx(4 / 2)
    assert np.isnan(record.ratio("rke-score", "tiles"))
    assert record.mebibytes("tiles") == 3
    assert report.norm_errors(record)["tiles"] == pytest.approx(1e-7, rel=1e-3)
    assert report.share_of_peak(record) == {"": pytest.approx(20_000**2 * 1280 / 2 / 5.2e12)}


def test_errors_and_coverage_are_counted_over_seeds():
    record = report.records(fabricated())[1]
    found = report.accuracies(record, "by tolerance")["vendi"]
    assert found.seeds == 4
    assert found.rms == pytest.approx((15e-6 / 4) ** 0.5, rel=2e-3)
    assert found.within == pytest.approx(0.00285, rel=2e-3)
    assert found.half_width == pytest.approx(0.0015625, rel=1e-3)
    assert found.coverage == pytest.approx(1 / 2)
    assert report.accuracies(record, "matrix-free") == {}
    # The better split of plain quadrature counts.
    assert report.plain_over_ours(record) == pytest.approx(19.8, rel=1e-2)


def test_targets_stand_beside_what_was_measured():
    rows = by_target(fabricated())
    torch = rows["order 2, n >= 20k: dense torch / ours"]
    assert torch[1:] == (">= 3x", "3.5x (mixture, n = 20,000)", "yes")
    error = rows["Vendi, Conditional- and Information-Vendi: error at 95%"]
    assert (error.met, "vendi, 4 seeds" in error.measured) == ("no", True)
    coverage = rows["intervals of 95%: coverage"]
    assert coverage[2:] == ("50% (mixture, n = 14,000, 4 intervals)", "no")
    assert rows["measure, n >= 14k: share of the exact time"].measured.startswith("20%")
    assert rows["measure, n = 8k: share of the exact time"][2:] == ("not measured", "")
    assert rows["rms error at 448 products, the default budget: plain SLQ / ours"].met == "no"
    assert not any("1,000,000" in what for what in rows)
    device = "1 x gpu (NVIDIA H200)"
    on_gpu = by_target(fabricated({place("order 2", "mixture", 25_000): ORDER_TWO}, device=device))
    fast = on_gpu["Conditional-RKE, n = 25,000"]
    assert (fast.measured, fast.met) == ("2 s (mixture, n = 25,000)", "no")


def against(other, **ours):
    """What makes results: so many times the time of another, and a second more where worse."""
    ((name, bound),) = ours.items()
    return lambda worse: {name: timed(9.0, bound + worse), other: timed(9.0, 1.0)}


@pytest.mark.parametrize(
    ("what", "cell", "results", "measured"),
    [
        (
            "order 2, n = 500 ... 4,000: dense JAX / ours",
            place("order 2", "own", 500),
            against("dense JAX", library=1.0),
            "0.5x (own, n = 500)",
        ),
        (
            "exact spectrum, n = 500 ... 4,000: torch.linalg.eigvalsh / ours",
            place("exact", "mixture", 4000),
            against("torch.linalg.eigvalsh", spectrum=1.0),
            "0.5x (mixture, n = 4,000)",
        ),
        (
            "exact spectrum, n = 500 ... 4,000: jnp.linalg.eigvalsh / ours",
            place("exact", "mixture", 500),
            against("jnp.linalg.eigvalsh", spectrum=1.0),
            "0.5x (mixture, n = 500)",
        ),
        (
            "order 2, n >= 8k: 16 bandwidths / one evaluation",
            place("order 2", "mixture", 20_000),
            against("tiles", **{"16 bandwidths": 2.0}),
            "3x (mixture, n = 20,000)",
        ),
        (
            "own, n = 4,000, intervals of 0.2%: share of the exact time",
            place("measure", "own", 4000),
            lambda worse: {"exact": timed(9.0, 5.0), "stored": timed(9.0, 3.0 + worse)},
            "80% (own, n = 4,000)",
        ),
        (
            "photographs, n >= 8k, intervals of 0.2%: share of the exact time",
            place("measure", "photographs", 9000),
            # All eigenvalues were called once; ours warmed up before.
            lambda worse: {"exact": timed(100.0), "stored": timed(90.0, 15.0 + worse)},
            "16% (photographs, n = 9,000)",
        ),
        (
            "first call of decompose, n = 2,000, beyond the import",
            place("first call", "mixture", 2000),
            lambda worse: {"decompose": timed(99.0, 2.0, 3.0 + worse, 5.0)},
            "4 s (mixture, n = 2,000)",
        ),
        (
            "order 1 with standard errors, n = 1,000: first call",
            place("jackknife", "mixture", 1000),
            lambda worse: {"evaluate": timed(99.0, 5 + worse), "evaluate, again": timed(1.0)},
            "6 s (mixture, n = 1,000)",
        ),
        (
            "order 1 with standard errors, n = 1,000: second call",
            place("jackknife", "mixture", 1000),
            lambda worse: {"evaluate": timed(99.0), "evaluate, again": timed(99.0, 5 + worse)},
            "6 s (mixture, n = 1,000)",
        ),
    ],
)
def test_a_target_is_met_at_its_bound_and_missed_beyond(what, cell, results, measured):
    rows = [by_target(fabricated({cell: results(worse)}))[what] for worse in (0, 1)]
    assert [row.met for row in rows] == ["yes", "no"]
    assert rows[1].measured == measured
    # Targets are of their n and data.
    elsewhere = place(cell.values["part"], "own, narrow", 5000)
    assert by_target(fabricated({elsewhere: results(1)}))[what].met == ""


def test_a_wider_tolerance_meets_no_target_of_real_data():
    times = {"exact": timed(9.0, 5.0), "stored": timed(9.0, 0.1)}
    cells = {place("measure", "own", 4000): times}
    what = "own, n = 4,000, intervals of 0.2%: share of the exact time"
    for rtol, met in ((2e-3, "yes"), (1e-3, "yes"), (5e-3, "")):
        assert by_target(fabricated(cells, rtol=rtol))[what].met == met
    # A set of 6,000 pairs has no row of 8,000.
    assert not any(what.startswith("own, n >= 8k") for what in by_target(fabricated(cells)))


def test_the_report_says_whose_numbers_and_what_features_give():
    features = {
        "Fourier": given({"vendi": [0.03, -1, 1]}, {"vendi": [-0.03, -1, 1]}),
        "Nystroem": given({"vendi": [0.1, 0.01, 0.21]}),
        "Fourier as they are": given({"vendi": [-0.2] * 3}),
        "exact": timed(1.0, vendi=[0.0] * 3),
    }
    cells = {
        place("features", "small mixture", 4000): features,
        place("features", "small mixture", 50_000): {"Fourier": features["Fourier"]},
        place("jackknife", "mixture", 1000): {"evaluate, again": timed(9.0, 2.0)},
    }
    text = report.markdown(fabricated(cells))
    assert "| photographs: a mixture | 9,000 | 0.7, 0.9 | 01234567, abcdefgh |" in text
    assert "| small mixture | 4,000 | Fourier, 64 | 1 | 3 | 3% | 172% | 100% |" in text
    assert "| small mixture | 4,000 | Nystroem, 64 | 1 | 3 | 10.5% | 10.5% | 0% |" in text
    assert "| small mixture | 4,000 | Fourier as they are, 64 | 1 | 3 | 18.1% |  |  |" in text
    assert "| small mixture | 50,000 | Fourier, 64 | 1 | 3 |  |  |  |" in text
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
    for name in ("scaling_error", "scaling_real"):
        caption = drawn[name]._supxlabel.get_text().replace("\n", " ")
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
    labels = [line.get_label() for line in drawn["memory"].axes[0].get_lines()]
    assert labels == ["dense torch"]
    assert "not resolved" in drawn["memory"]._supxlabel.get_text().replace("\n", " ")


def test_the_table_says_who_was_left_out_and_on_what_machine():
    cells = {place("order 2", "mixture", 20_000): {"tiles": timed(1.0) | {"idle_share": 0.25}}}
    run = fabricated(cells, left_out={"rke-score": "is not there"})
    (grid,) = run.study.tables(run)
    assert "left out: rke-score (order 2, mixture, n = 20,000): is not there" in grid.caption
    assert "waiting took a process at most 25.0% of a core" in grid.caption
    assert "2 processor cores" in grid.caption


def test_a_cell_tells_the_contests_what_it_is_about(tmp_path, monkeypatch):
    """Packages that were not found are left out, and earlier cells say how long a call takes."""
    paths = sets.write_mixture(tmp_path, "mixture", 500, (24, 16), seed=3)
    state = {"mixture": paths}, 10**9
    asked = {}

    def run_cell(entries, request, limits, advance):
        asked.update(request=request, entries=list(entries), limits=limits)
        return {"spectrum": timed(1.0)}, {"float64": "failed"}

    monkeypatch.setattr(contests, "run_cell", run_cell)
    slow = dataset((), {"jnp.linalg.eigvalsh": timed(0.1, 100.0)}, {})
    earlier = {place("exact", "mixture", 400): slow, place("order 2", "mixture", 400): slow}
    context = Context(None, None, earlier, lambda words: None)
    found = settings().compute(state, context, part="exact", data="mixture", n=500)
    assert asked["entries"] == ["spectrum", "torch.linalg.eigvalsh", "float64"]
    assert asked["request"]["bandwidths"] == [0.7, 0.9]
    assert asked["request"]["features"] == 64
    assert asked["request"]["outputs"] == str(paths[0])
    assert asked["limits"] == Limits(3, 3, 10.0, 8.0, 10**9)
    assert found.dimensions.values.tolist() == [24, 16]
    assert found.left_out.to_series().to_dict() == {
        "spectrum": "",
        "vendi_score": "vendi_score is not there",
        "jnp.linalg.eigvalsh": "a call would take about 195 s",
        "float64": "failed",
    }


def test_imports_are_timed_in_fresh_processes():
    found = contests.cold_starts(1)
    assert set(found) == {"import jax", "import condvendi_jax"}
    assert all(len(times["seconds"]) == 2 for times in found.values())
    assert min(t for times in found.values() for t in times["seconds"]) > 0


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """The benchmark made ready on own points."""
    folder = tmp_path_factory.mktemp("prepared")
    pairs = PairedEmbeddings(
        "own",
        *(np.load(p) for p in sets.write_mixture(folder, "of mine", 80, (5, 4), 1)),
        "own pairs",
    )
    options = Scaling(
        parts=("exact", "measure", "features"),
        exact_n=64,
        features_n=90,
        real_n=70,
        peers=("none",),
        output_dimension=6,
        bandwidth=0.5,
    )
    setup = options.prepare(lambda: pairs, 7)
    yield setup, pairs
    setup.close()


def test_the_settings_follow_the_options_and_the_device(prepared):
    setup, pairs = prepared
    found = setup.study
    assert found.platform == "cpu"
    assert found.device.startswith("1 x cpu")
    assert (found.seeds, found.patience) == (10, 30)
    assert found.largest == {
        "order 2": 20_000,
        "exact": 64,
        "measure": 4000,
        "features": 90,
        "first call": 2000,
        "jackknife": 1000,
    }
    few = "mixture, d = 64 and 48"
    assert [(name, of.kind, of.n) for name, of in found.points.items()] == [
        ("mixture", "mixture", 4000),
        ("own", "real", 70),
        ("own, narrow", "narrow", 70),
        (few, "few dimensions", 90),
    ]
    assert found.points["mixture"].bandwidths.outputs == 0.5
    narrow, wide = (found.points[name].bandwidths.outputs for name in ("own, narrow", "own"))
    assert narrow == pytest.approx(0.65 * wide)
    assert found.versions == {}
    assert setup.provenance["device"] == found.device


def test_the_points_that_enter_are_hashed_whole(prepared):
    setup, pairs = prepared
    few = "mixture, d = 64 and 48"
    assert list(setup.arrays) == [
        f"{name} {role}" for name in ("mixture", "own", few) for role in ("outputs", "prompts")
    ]
    assert setup.arrays[f"{few} prompts"].shape == (90, 48)
    assert setup.arrays["mixture outputs"].shape == (4000, 6)
    assert {tuple(row) for row in setup.arrays["own prompts"]} < {tuple(r) for r in pairs.prompts}


def test_the_settings_say_whose_numbers_a_row_has(prepared):
    """The digests of the identity, by data; what is narrow has those of the set."""
    setup, _ = prepared
    identity = records.identify("scaling", 2, setup.study, setup.arrays, 7)
    for name, points in setup.study.points.items():
        whose = name.removesuffix(", narrow")
        expected = [identity["arrays"][f"{whose} {role}"] for role in ("outputs", "prompts")]
        assert list(points.digests) == expected
    assert len({points.digests for points in setup.study.points.values()}) == 3


def test_a_worker_ends_with_its_parent_in_a_call_even(tmp_path):
    """The parent is killed while a contestant computes for minutes: nothing computes on alone."""
    code = (
        "import sys, time\n"
        "from experiments.scaling.worker import Worker\n"
        "with Worker('reference') as worker:\n"
        "    print(worker._process.pid, flush=True)\n"
        "    cell = dict.fromkeys(['outputs', 'prompts'], sys.argv[1])\n"
        "    cell |= {'n': 12000, 'bandwidths': [1, 1]}\n"
        "    worker.request('prepare', function='eigenvalues', cell=cell)\n"
        "    print('ready', flush=True)\n"
        "    worker.request('run', seed=0)\n"
    )
    path = tmp_path / "x.npy"
    np.save(path, np.random.default_rng(0).normal(size=(12000, 4)).astype(np.float32))
    with started([sys.executable, "-c", code, str(path)]) as parent:
        child = int(parent.stdout.readline())
        assert parent.stdout.readline() == "ready\n"
        time.sleep(0.5)
    deadline = time.monotonic() + 90
    while _computes(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _computes(child)


def _computes(process):
    """Whether it exists and has not ended."""
    try:
        with open(f"/proc/{process}/stat") as stream:
            return stream.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parts": ("exact",), "measure_n": 9}, "--measure_n means nothing without measure"),
        ({"parts": ("start",), "rtol": 0.1}, "--rtol means nothing without measure"),
        ({"parts": ("exact",), "seeds": 3}, "--seeds means nothing without measure or features"),
        ({"parts": ("exact",), "first_n": 9}, "--first_n means nothing without first"),
        ({"features": 40}, "--features: expected a multiple of 16, received 40"),
    ],
)
def test_options_that_are_wrong_or_would_be_ignored_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Scaling(**options).prepare(lambda: None, 0)
