"""The benchmark: what its contestants compute, who takes part, how it is run, what is derived."""

import sys
import time
from functools import partial
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from oracles import entropy, gaussian_gram
from processes import started

import condvendi_jax as cv
from experiments.cost import contests, engines, guides, peers, scaling, timing
from experiments.cost.contests import CONTESTANTS, Entry, dataset
from experiments.cost.scaling import Points, Scaling
from experiments.data import mixture
from experiments.lab import Bandwidths, Cell

pytestmark = pytest.mark.slow

# So many points that the measure samples what its Krylov space of 256 dimensions leaves.
N, FEW = 600, 150
WIDTHS = [0.8, 1.1]
SCORES = ("vendi", "conditional", "information")


@pytest.fixture(scope="module")
def cell(tmp_path_factory):
    """A mixture as the benchmark writes it to files."""
    folder = tmp_path_factory.mktemp("points")
    scaling.save(folder, "mixture", *mixture.draw(N, (24, 16), seed=3))
    paths = zip(("outputs", "prompts"), map(str, scaling.paths(folder, "mixture")), strict=True)
    return dict(paths) | {"n": N, "bandwidths": WIDTHS, "truncations": [10], "rtol": 2e-3}


@pytest.fixture(scope="module")
def grams(cell):
    points = (np.load(cell[role]) for role in ("outputs", "prompts"))
    x, t = map(gaussian_gram, points, WIDTHS)
    return {"outputs": x, "prompts": t, "joint": x * t}


def called(part, name, cell, seed=0):
    """What a contestant gives in one call; skips the test where its package is not installed."""
    entry = CONTESTANTS[part][name]
    if entry.package is not None:
        pytest.importorskip(entry.package.replace("-", "_"))
    contestant = entry.function(cell)
    return contestant.read(contestant.call(seed))


@pytest.mark.parametrize("name", CONTESTANTS["order 2"])
def test_every_contestant_of_order_two_gives_the_norms(name, cell, grams, monkeypatch):
    monkeypatch.setattr(peers, "_ROWS", 40)  # Several blocks, the last of them smaller.
    found = called("order 2", name, cell | {"n": FEW})
    roles = ("outputs",) if name == "rke-score" else ("outputs", "prompts", "joint")
    assert tuple(found) == roles
    exact = {role: np.mean(np.square(grams[role][:FEW, :FEW])) for role in roles}
    # rke-score adds the n^2 values one after the other in float32.
    rtol = {"float64": 1e-11, "rke-score": 1e-3}.get(name, 5e-6)
    assert found == pytest.approx(exact, rel=rtol)
    others = called("order 2", name, cell | {"bandwidths": [0.5, 0.4], "n": 90})
    assert all(others[role] != pytest.approx(exact[role], rel=1e-2) for role in roles)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Those of vendi_score.
@pytest.mark.parametrize("name", CONTESTANTS["exact"])
def test_every_exact_contestant_gives_the_entropy(name, cell, grams):
    found = called("exact", name, cell | {"n": FEW})["vendi"]
    assert found == pytest.approx(entropy(grams["outputs"][:FEW, :FEW]), rel=1e-5)


def test_estimates_come_near_the_exact_scores_and_obey_their_tolerance(cell, grams):
    """What is compared with are all eigenvalues, which are the oracle's."""
    exact = called("measure", "exact", cell)
    for suffix, t in (("", None), ("-t10", 10)):
        x, y, joint = (entropy(grams[name], truncation=t) for name in grams)
        expected = {"vendi": x, "conditional": joint - y, "information": x + y - joint}
        for name, nats in (expected | {"joint": joint}).items():
            assert exact[name + suffix] == pytest.approx(nats, abs=2e-5)
    for name, cut in (("stored", []), ("by tolerance", [f"{score}-t10" for score in SCORES])):
        found = called("measure", name, cell)
        assert set(found) == {*SCORES, *cut}
        for score in SCORES:
            value, low, high = found[score]
            assert low <= value <= high and (high - low) / 2 <= cell["rtol"]
            assert value == pytest.approx(exact[score], abs=5e-3)
    # A budget and plain quadrature name their products.
    found = called("measure", "by budget", cell)
    assert set(found) == {"joint 448"}
    assert found["joint 448"][0] == pytest.approx(exact["joint"], abs=0.05)
    # The package promotes dtypes, which the tests' settings forbid.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        plain = [called("measure", "plain SLQ", cell, seed) for seed in range(4)]
    values = [of["joint 448 28x16"] for of in plain]
    assert len(set(values)) == 4
    assert np.mean(values) == pytest.approx(exact["joint"], abs=0.2)


@pytest.mark.parametrize("name", CONTESTANTS["guided step"])
def test_a_guided_step_is_one_of_a_batch_with_a_full_window(name, tmp_path, monkeypatch):
    pairs, widths = guides.random_pairs(FEW + 16, 0)
    gaps = [of[:, None].astype(float) - of for of in pairs]
    rms = [np.sqrt(np.mean(np.sum(of**2, axis=2))) for of in gaps]
    assert [widths.outputs, widths.prompts] == pytest.approx(np.divide(rms, 2).tolist(), rel=1e-5)
    scaling.save(tmp_path, "latents", *pairs)
    asked: list[Any] = []
    monkeypatch.setattr(contests, "run_cell", lambda *given: asked.extend(given) or ({}, {}))
    study = settings(points={"latents": Points("points", FEW + 16, widths, "latents")})
    context: Any = SimpleNamespace(say=print)
    study.compute((tmp_path, 1e12), context, part="guided step", data="latents", n=FEW)
    entries, cell, *_ = asked
    monkeypatch.setattr(engines, "compiled", lambda *given: given)
    step, read, inputs = entries[name].function(cell)
    (found,) = read(step(*inputs)).values()
    if name == "the sampler's step":
        assert found > 0 and inputs[1].shape == (16, 8, 8, 8)
        return
    state, *batch = inputs
    assert state.filled.shape == (FEW,) and state.filled.all()
    for kept, fresh, of in zip(state.rows, batch, pairs, strict=True):
        np.testing.assert_array_equal(np.concatenate([kept, fresh]), of)
    kernels = widths.kernels | {"prompt_size": batch[1].shape[1], "window": FEW}
    guide = cv.guidance.conditional_rke(**kernels)
    if name == "Conditional-Vendi guide":
        guide = cv.guidance.conditional_vendi(**kernels, truncation=FEW // 10)
    expected: Any = guide.update(batch[0], state, batch[0], prompts=batch[1])[0]
    assert found == pytest.approx(float(np.linalg.norm(expected)), rel=1e-3)


def settings(**changes):
    widths = Bandwidths("given", 0.7, 0.9, "given")
    kinds = {"mixture": "mixture", "latents": "latents", "own": "real", "own, narrow": "narrow"}
    points = {name: Points("points", 6000, widths, kind) for name, kind in kinds.items()}
    given = {"device": "cpu", "platform": "cpu", "points": points, "versions": {"torch": "2.13"}}
    return Scaling(**(given | changes))


def test_order_one_is_measured_on_all_data_and_the_rest_on_sizes_that_grow():
    study = settings(exact_n=1100, measure_n=5000, guidance_n=700)
    assert [tuple(cell.values.values()) for cell in study.cells()] == [
        *(("order 2", "mixture", n) for n in (500, 1000, 2000, 4000, 8000, 20_000)),
        *(("exact", "mixture", n) for n in (500, 1100)),
        *(("measure", "mixture", 5000), ("measure", "own", 4000), ("measure", "own, narrow", 4000)),
        *(("guided step", "latents", n) for n in (100, 300, 700)),
    ]


ENTRIES = {
    "exact": Entry(engines.exact, arrays=1, package="a"),
    "small only": Entry(engines.by_budget, up_to=500),
    "ours elsewhere": Entry(engines.stored, cpu=True),
    "compared with it": Entry(engines.by_tolerance, calls="seeds"),
}


@pytest.mark.parametrize(
    ("n", "memory", "changes", "names", "reasons"),
    [
        (500, 1e9, {}, [0, 1, 2, 3], []),
        (501, 1e9, {}, [0, 2, 3], []),
        (501, 1e9, {"versions": {}}, [2], ["a is not there", "nothing without exact"]),
        (501, 1e6, {}, [2], ["needs about 0 GiB", "nothing without exact"]),
        (501, 1e9, {"platform": "accelerator"}, [0, 3], ["the same program as ours here"]),
    ],
)
def test_who_takes_part(n, memory, changes, names, reasons, monkeypatch):
    monkeypatch.setitem(CONTESTANTS, "measure", ENTRIES)
    study = settings(**({"versions": {"a": "1"}} | changes))
    found, left_out = contests.choose(study, "measure", n, memory)
    assert [*found] == [[*ENTRIES][index] for index in names]
    assert [*left_out.values()] == reasons


def test_contestants_are_called_in_turn_each_in_its_process(cell):
    wrong: Any = int
    ends: Any = partial(exec, "__import__('os')._exit(1)")
    entries = {"norms": Entry(peers.float64), "once": Entry(peers.float64, calls="once")}
    entries |= {"wrong": Entry(wrong), "ended": Entry(ends)}
    turns = []
    results, failed = contests.run_cell(entries, cell | {"n": FEW}, settings(), turns.append)
    assert [len(calls) for calls in results.values()] == [4, 1]
    assert failed.pop("wrong").startswith("TypeError: int() argument")
    assert failed == {"ended": "its process ended; out of memory?"}
    assert turns[:2] == ["norms: call 1", "once: call 1"] and turns[4] == "norms: call 2"


def measured_of(part, each, **left_out):
    """What a run says of a cell with these seconds and values; another has fewer calls."""
    calls = {
        name: [{"seconds": s, "values": of, "memory_bytes": 1} for s, of in given]
        for name, given in each.items()
    }
    cells = [Cell((("part", part), ("data", "mixture"), ("n", n))) for n in (500, 5000)]
    found = [dataset(calls, left_out).isel(call=slice(most)) for most in (3, 4)]
    run: Any = SimpleNamespace(results=dict(zip(cells, found, strict=True)), study=settings())
    return scaling.of_run(run).sel(data="mixture", n=5000)


def test_two_calls_are_no_number_and_three_have_a_spread():
    late = [0.5, 4.0, 6.0]
    seconds = {"library": [9.0, 1.0, 2.0, 4.0], "dense torch": [*late, 8.0], "dense JAX": late}
    calls = {name: [(taken, {"joint": 1}) for taken in of] for name, of in seconds.items()}
    found = measured_of("order 2", calls, vendi_score="is not there").sel(part="order 2")
    spreads = timing.spread(found.seconds, "call")
    assert spreads.sel(contestant="library").values.tolist() == [2, 1, 4]
    words = timing.in_words(612.3 * spreads, 2)
    assert words.sel(contestant="library") == "1200 (610-2400)"
    assert scaling.ratio(found, "dense torch", "library").values.tolist() == [3, 2, 4]
    with pytest.raises(ValueError, match="library is compared with itself"):
        scaling.ratio(found, "library", "library")
    # Two calls count of dense JAX, and none of a contestant that is not there.
    for name in ("dense JAX", "vendi_score"):
        assert words.sel(contestant=name).isnull()
        assert scaling.ratio(found, name, "library").isnull().all()
        assert found.mebibytes.sel(contestant=name).isnull()


def test_errors_and_coverage_are_counted_over_seeds():
    """Estimates of 0 with the ends of their intervals, the last of which does not hold it."""
    estimates = [[0.001, -0.001, 0.002], [-0.001, -0.003, 0.0005], [0.003, 0.001, 0.004]]
    values = {"exact": [0.0] * 3, "by tolerance": estimates}
    calls = {name: [(1, {"vendi": of}) for of in each] for name, each in values.items()}
    of = scaling.errors(measured_of("measure", calls), "by tolerance").sel(quantity="vendi")
    np.testing.assert_allclose(of.error, [0.001, 0.001, 0.003], rtol=2e-3)
    np.testing.assert_allclose(of.half, [0.0015, 0.00175, 0.0015], rtol=2e-3)
    assert of.held.values.tolist() == [1, 1, 0]


def test_a_worker_ends_with_its_parent_even_during_a_call(tmp_path):
    """When the parent is killed, a contestant that computes for minutes ends at once."""
    path = str(tmp_path / "x.npy")
    np.save(path, np.random.default_rng(0).normal(size=(12_000, 4)).astype(np.float32))
    code = (
        "from experiments.cost import peers, worker\n"
        f"cell = dict(outputs={path!r}, prompts={path!r}, n=12_000, bandwidths=[1, 1])\n"
        "with worker.processes() as pool:\n"
        "    pool.submit(abs, 0).result()\n"
        "    print('ready', flush=True)\n"
        "    pool.submit(worker.run, peers.float64, cell, 0).result()\n"
    )
    with started([sys.executable, "-c", code]) as parent:
        assert parent.stdout and parent.stdout.readline() == "ready\n"
        time.sleep(0.5)
        parent.kill()
        parent.communicate(timeout=90)  # The worker holds the other end of this pipe.
