"""Good and different outputs: against enumeration in NumPy, and populations of known classes."""

import itertools
import json
import math

import jax
import numpy as np
import pytest
from oracles import assert_close, gaussian_gram
from pairs_of_errors import minus, p_value
from scipy import stats

import condvendi_jax as cv
from condvendi_jax.data.pairs import Pairs
from condvendi_jax.inference import quality as module
from condvendi_jax.inference.errors import Units
from condvendi_jax.results import plots
from condvendi_jax.results.estimate import Estimate, undominated
from condvendi_jax.spectra import exact
from condvendi_jax.statistics import intervals
from condvendi_jax.statistics.influences import Error

SIZES = (4, 5, 6, 4, 6, 5, 4, 5)
PROMPT = np.random.default_rng(1).permutation(np.repeat(np.arange(len(SIZES)), SIZES))
N, AT_LEAST, DRAWS = PROMPT.size, 0.0, 4
RNG = np.random.default_rng(0)
POINTS = RNG.normal(size=(N, 2)).astype(np.float32)
QUALITY = RNG.normal(size=N)
KERNEL = {"output_kernel": cv.Gaussian(1.0)}


def of(outputs=POINTS, prompts=PROMPT, quality=QUALITY, at_least=AT_LEAST, draws=DRAWS, **options):
    """The result for one model, as `evaluate` makes it; the `diversity` takes a program more."""
    kernel, diversity = options.pop("kernel", cv.Gaussian(1.0)), options.pop("diversity", False)
    pairs = {"": Pairs(outputs, prompts, output_kernel=kernel, **options)}
    with pytest.MonkeyPatch.context() as patch:
        if not diversity:
            patch.setattr(module, "_diversity", lambda *_: (Estimate(math.nan, 0, None), 0))
        asked = module.Asked.of(pairs, quality, at_least, draws)
        return asked.scored(pairs, Units.of(pairs, None, jax.random.key(0)))[""]


def enumerated(same, good, draws):
    """The expected number of good and new outputs over all ordered draws."""
    total, orders = 0.0, list(itertools.permutations(range(len(good)), draws))
    for order in orders:
        for place, i in enumerate(order):
            total += good[i] * math.prod(1 - good[j] * same[i, j] for j in order[:place])
    return total / len(orders)


def by_prompt(points=POINTS, good=QUALITY >= AT_LEAST, draws=DRAWS):
    rows = [np.flatnonzero(PROMPT == p) for p in range(len(SIZES))]
    return np.array(
        [enumerated(gaussian_gram(points[r], 1.0) ** 2, good[r] * 1.0, draws) for r in rows]
    )


def test_number_and_share_are_those_of_all_ordered_draws():
    found, expected = of(), by_prompt()
    share = np.array([np.mean(QUALITY[PROMPT == p] >= AT_LEAST) for p in range(len(SIZES))])
    for mean, values in ((found.share, share), (found.number, expected)):
        assert_close(np.float32(mean[:2]), [values.mean(), stats.sem(values)])
        most = DRAWS if mean is found.number else 1
        changes, equal = (values - values.mean()) / (values.size - 1) / most, values * 0 + 1 / 8
        moments = values.mean() / most, stats.sem(values) / most, changes, equal
        assert mean.ends == pytest.approx(most * np.array(intervals.prompt_mean(*moments)(0.05)))
    assert found.prompts == len(SIZES) and found.left_out == 0
    assert of(draws=None).number == found.number  # Four outputs are the most common number.
    assert_close(np.float32(of(draws=1).number.value), share.mean())


def test_at_most_a_hundred_draws_are_chosen():
    pairs = {"": Pairs(np.float32(np.arange(240)[:, None]), np.repeat([0, 1], 120), **KERNEL)}
    assert module.Asked.of(pairs, np.ones(240), AT_LEAST, None).draws == 100


def test_diversity_is_that_of_the_good_outputs_of_prompts_with_two():
    found = of(at_least=0.5, diversity=True)
    good = QUALITY >= 0.5
    good &= np.bincount(PROMPT, good)[PROMPT] > 1
    pairs = Pairs(POINTS[good], PROMPT[good], **KERNEL)
    alone = cv.decompose(pairs, order=2, unbiased=True)
    assert found.diversity.value == pytest.approx(float(alone.conditional), rel=1e-5)
    assert found.diverse_prompts == np.unique(PROMPT[good]).size < len(SIZES)
    low, high = found.diversity.ends
    assert low < found.diversity.value < high


def test_no_good_output_leaves_no_diversity_but_may_be_chance():
    found = of(at_least=9.0, diversity=True)
    assert found.share.value == found.number.value == found.diverse_prompts == 0
    assert math.isnan(found.diversity.value) and found.number.ends[0] == 0 < found.number.ends[1]
    assert "diversity among good outputs - (0 prompts" in str(found)
    assert undominated({"none": found, "some": of(diversity=True)}) == ["some"]


@pytest.mark.slow
def test_prompts_with_too_few_outputs_are_left_out_and_counted():
    kept = np.isin(PROMPT, np.flatnonzero(np.array(SIZES) > 4))
    found = of(draws=5, diversity=True)
    same = of(POINTS[kept], PROMPT[kept], QUALITY[kept], draws=5, diversity=True)
    assert (found.prompts, found.left_out) == (5, 3) and "3 prompts with fewer" in str(found)
    assert found.number[:2] == pytest.approx(same.number[:2])
    assert found.diversity[:2] == pytest.approx(same.diversity[:2], rel=1e-5)


@pytest.mark.slow
def test_prompts_that_do_not_fit_at_once_come_in_parts(monkeypatch):
    whole = of()
    monkeypatch.setattr(exact, "_ENTRIES", 3 * 6 * (6 + 2 + 4))  # Three prompts, of eight.
    assert_close(np.float32(of().error.influences), whole.error.influences)


@pytest.mark.slow
def test_outputs_of_prompts_without_repeats_have_one_draw():
    with pytest.warns(UserWarning, match="numerically the identity"):
        found = of(POINTS, np.arange(N), draws=None)
    assert found.draws == 1 and found.number == found.share
    assert found.number.error == pytest.approx(stats.sem(QUALITY >= AT_LEAST))


def test_labels_make_prompts_dependent():
    labels = PROMPT // 2
    found, values = of(groups=labels), by_prompt() - by_prompt().mean()
    sums = np.bincount(np.arange(len(SIZES)) // 2, values) / len(SIZES)
    assert_close(np.float32(found.number.error), math.sqrt(4 / 3 * np.sum(sums**2)))
    assert found.error.freedom == 3
    assert math.isnan(of(groups=np.arange(N) % 3).number.error)  # They split prompts.


def test_threshold_has_the_dtype_of_the_quality():
    rounded = np.full(N, 0.7, np.float32)
    assert of(quality=rounded, at_least=0.7).share.value == 1


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"quality": [math.nan, *QUALITY[1:-1], None]}, "received nan in row 0, and 1 more"),
        ({"quality": QUALITY[1:]}, f"expected {N} numbers, one for each row"),
        ({"quality": [1.5, *["good"] * (N - 1)]}, "expected real numbers, not 'good'"),
        ({"at_least": None}, "received no at_least"),
        ({"quality": None}, "received no quality"),
        ({"draws": 7}, "draws: expected at most 6, the largest number of outputs .*, received 7"),
        ({"draws": 0}, "draws: expected an integer of at least 1"),
        ({"weights": np.arange(N)}, "weights: received some"),
        ({"prompts": None}, "quality: expected the prompt of each output"),
    ],
)
def test_quality_that_cannot_be_used_is_refused(changed, words):
    with pytest.raises((TypeError, ValueError), match=words):
        of(**changed)


MODELS = {"a": POINTS, "b": 0.3 * POINTS, "c": POINTS + 0.0}
QUALITIES = {"a": QUALITY, "b": QUALITY + 0.2, "c": QUALITY[::-1].copy()}


@pytest.fixture(scope="module")
def compared():
    rated = {"quality": QUALITIES, "at_least": AT_LEAST, "draws": DRAWS}
    return cv.compare(MODELS, PROMPT, **KERNEL, orders=[2], profile=False, **rated)


def test_models_are_ranked_by_a_paired_test_over_prompts(compared):
    ranking = compared.ranking("quality", 0)
    numbers = {m: by_prompt(MODELS[m], QUALITIES[m] >= AT_LEAST) for m in MODELS}
    for one, two in itertools.combinations(ranking.values, 2):
        found, expected = ranking.difference(one, two), numbers[one] - numbers[two]
        assert_close(np.float32(found.value), expected.mean())
        assert_close(np.float32(found.standard_error), stats.sem(expected))
        qualities = [compared.qualities[name].error for name in (one, two)]
        assert found.p_value == p_value(minus(*qualities, matched=True))
    assert list(ranking.values) == sorted(numbers, key=lambda m: -numbers[m].mean())
    assert all(ranking.letters.values())


def test_table_text_and_data_show_the_good_and_different_outputs(compared):
    name, summary = "good and different, of 4 draws", compared.summary()
    assert summary.heading[3] == "share good" and summary.heading[-1] == name
    assert summary.rows[0][3] == str(compared.qualities[summary.rows[0][0]].share)
    assert len(str(compared).splitlines()) <= 15 and f"Good{name[4:]}: " in str(compared)
    data = json.loads(json.dumps(compared.as_dict(), default=str))
    assert data["rankings"][-1]["draws"] == 4 and "error" not in data["quality"]["a"]
    number = compared.qualities["a"].number
    assert data["quality"]["a"]["number"]["low"] == number.ends[0] < number.value
    assert [line for line in compared.lines() if line["score"] == "quality"][0]["order"] == 0
    assert "good and different" in str(cv.report.latex(compared, long=True))
    assert f"a: {compared.qualities['a']}" in compared.details()


def test_quality_of_other_models_or_indices_is_refused():
    with pytest.raises(ValueError, match=r"quality: expected those of \['a', 'b', 'c'\]"):
        cv.compare(MODELS, PROMPT, **KERNEL, quality={"a": 1}, at_least=1)
    pandas = pytest.importorskip("pandas")
    outputs, asked = pandas.Series(["a", "b"] * 8), pandas.Series([0, 0, 1, 1] * 4)
    given = {"similarity": lambda one, other: float(one == other), "at_least": 0}
    quality = pandas.Series(np.arange(16.0))[::-1]
    for call in (cv.evaluate, lambda of, *rest, **of_call: cv.compare({"a": of}, *rest, **of_call)):
        with pytest.raises(ValueError, match="quality: expected the index of outputs"):
            call(outputs, asked, quality=quality, **given)


def test_models_that_nobody_dominates_are_best_in_one():
    shares = {"low": (9.0, 2.0), "high": (2.0, 9.0), "under": (1.0, 9.0), "twin": (9.0, 2.0)}
    models = {
        m: cv.inference.Quality(
            *(1, 1, Estimate(s, 0, None), Estimate(0, 0, None), Estimate(d, 0, None)),
            *(0, 0, 0, Error(0.0, np.zeros((1, 1)))),
        )
        for m, (s, d) in shares.items()
    }
    assert undominated(models) == ["low", "high", "twin"]


def write(tmp_path, *records):
    path = tmp_path / "m.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_quality_is_read_beside_each_answer(tmp_path):
    path = write(
        tmp_path,
        {"prompt": "p", "answers": ["a", "b"], "score": {"reward": [1, 2.5]}},
        {"prompt": "q", "answers": ["c"], "score": {"reward": -3}},
        {"prompt": "r", "answer": "d", "score": {"reward": True}},
    )
    read = cv.read_records(path, beside=["score.reward"])
    assert read.beside == {"score.reward": {"m": [1, 2.5, -3, 1]}}
    assert cv.read_records(path).beside == {}


def test_answers_without_quality_are_left_out_by_name(tmp_path):
    path = write(
        tmp_path,
        {"prompt": "p", "answers": ["a", "b"], "reward": [1, None]},
        {"prompt": "q", "answers": ["c", "d"], "reward": 4},
        {"prompt": "r", "answer": "e"},
        {"prompt": "s", "answer": "f", "reward": math.nan},
    )
    with pytest.warns(UserWarning, match=r"left out \(5\)"):
        read = cv.read_records(path, beside=["reward"])
    assert read.answers == {"m": ["a"]} and read.beside["reward"] == {"m": [1]}
    lines = list(map(str, read.skipped))
    assert "line 1: has no 'reward' for 'answers'[1]" in lines[0]
    assert "line 2: expected 2 values in 'reward', one for each answer" in lines[1]
    assert "line 4: has no 'reward'" in lines[-1]


@pytest.mark.slow
def test_evaluation_and_report_show_quality(compared, tmp_path):
    given = {"quality": QUALITY, "at_least": AT_LEAST, "orders": [2]}
    result = cv.evaluate(POINTS, PROMPT, **KERNEL, **given)
    assert result.quality.number == of(draws=4).number
    assert str(result.quality) in str(result) and result.as_dict()["quality"]["draws"] == 4
    assert len(str(result).splitlines()) <= 15
    figure = plots.qualities(compared.qualities, compared.n.values(), compared.first)
    assert all(words in figure.get_supxlabel() for words in ("n = ", "bandwidth 1", "seed 0"))
    cv.report.html(compared, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    best = undominated(compared.qualities)
    assert 'id="quality"' in page and f"diversity among them: {best[0]}" in page
    assert str(compared.qualities["a"]) in page


@pytest.mark.slow
def test_intervals_of_the_number_hold():
    """Half of the outputs are good, in three equal classes: 3 (1 - (1 - 1/6)^4) of four draws."""
    rng, outside = np.random.default_rng(3), 0
    for _ in range(300):
        drawn, good = rng.integers(3, size=80), rng.integers(2, size=80)
        low, high = of(drawn, np.repeat(np.arange(20), 4), good, 1, kernel=None).number.ends
        outside += not low <= 3 * (1 - (5 / 6) ** 4) <= high
    assert 0.01 < outside / 300 < 0.08


def test_command_takes_quality_of_records(tmp_path, monkeypatch, run_command):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rewards, records = rng.normal(size=(8, 4)), []
    for p, reward in enumerate(rewards.tolist()):
        said = [f"word {w}" for w in rng.integers(9, size=4)]
        grades = [1, 2, 3, "good" if p == 2 else 4]
        records.append({"prompt": f"{p}", "answers": said, "reward": reward, "grade": grades})
    write(tmp_path, *records)
    words = ("m.jsonl", "--order=2", "--text_encoder=fake_encoders:Means", "--cache=kept")
    report, out = run_command("score", *words, "--quality_field=reward", "--at_least=0")
    assert report["quality"]["share"]["value"] == pytest.approx(np.mean(rewards >= 0))
    assert "of 4 draws" in out
    for flags, says in (
        (["--quality_field=reward"], "expected --at_least"),
        (["--draws=2"], "--draws=2: has no effect"),
        (["--quality_field=grade", "--at_least=2"], r"m\.jsonl, line 3: .* received .*'good'"),
    ):
        with pytest.raises(ValueError, match=says):
            run_command("score", *words, *flags)


@pytest.mark.slow
def test_many_outputs_to_a_prompt_keep_their_digits():
    """Of 2,000 outputs in 10 equal classes, 100 draws: hypergeometric shares."""
    classes = np.tile(np.arange(10), 200)
    found = of(classes, np.zeros(2000, int), np.ones(2000), 1, 100, kernel=None)
    missed = math.comb(1800, 100) / math.comb(2000, 100)
    assert found.number.value == pytest.approx(10 * (1 - missed), rel=1e-4)


def test_models_are_rated_on_the_prompts_of_which_all_have_enough_outputs():
    """All answers of one prompt are the same, of the other all differ; b lost one of the latter."""
    prompts = np.repeat(np.arange(16), 4)
    outputs = np.where(prompts % 2, np.arange(64), prompts)
    kept = (prompts % 2 == 0) | (prompts > 8) | (np.arange(64) % 4 > 0)
    kept &= prompts > 0  # One prompt is of a alone.
    models, asked = {"a": outputs, "b": outputs[kept]}, {"a": prompts, "b": prompts[kept]}
    rated = {name: np.ones(of.size) for name, of in models.items()}
    found = cv.compare(models, asked, quality=rated, at_least=1, draws=4, orders=[2], profile=False)
    for of in found.qualities.values():  # Seven prompts of one kind, and four of four.
        assert of.number.value == pytest.approx((7 * 1 + 4 * 4) / 11)
        assert (of.prompts, of.left_out) == (11, 4)
    assert found.ranking("quality", 0).differences[0].value == pytest.approx(0, abs=1e-6)
