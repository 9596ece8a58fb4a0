"""Records of Every Eval Ever, and models compared by their records alone."""

import copy
import hashlib
import json
import pathlib
import uuid

import numpy as np
import pytest
from oracles import gaussian_gram
from processes import write_lines

import condvendi_jax as cv
from condvendi_jax import inference
from condvendi_jax.cli import __main__
from condvendi_jax.encoders import embedding
from condvendi_jax.inference import leaderboards
from condvendi_jax.results import record as records

WIDTH, PROMPTS = 1.0, [f"prompt {k}" for k in range(12)]
ENCODER = {"text_encoder": "fake", "text_encoder_revision": "1"}
ANSWERS = {"few": 4, "some": 6, "many": 5}  # To each prompt.
SPREADS = {"few": 0.2, "some": 0.25, "many": 1.0}
METRIC = "condvendi_jax.conditional_rke.unbiased"


KERNEL = {"output_kernel": cv.Gaussian(WIDTH), "orders": [2]}


def outputs(model, prompts=12):
    rng = np.random.default_rng([*model.encode()])
    shape = prompts, ANSWERS[model], 3
    centres = 3.0 * np.arange(prompts)[:, None, None]
    return (centres + SPREADS[model] * rng.normal(size=shape)).astype(np.float32)


def asked(model, prompts=PROMPTS):
    return [prompt for prompt in prompts for _ in range(ANSWERS[model])]


def evaluated(model="few", prompts=PROMPTS, **options):
    rows = outputs(model, len(prompts)).reshape(-1, 3)
    return cv.evaluate(rows, asked(model, prompts), **{**KERNEL, **options})


def compared(**options):
    rows = {m: outputs(m).reshape(-1, 3) for m in ANSWERS}
    return cv.compare(rows, {m: asked(m) for m in ANSWERS}, **{**KERNEL, **options}, profile=False)


@pytest.fixture(scope="module")
def whole():
    return compared()


@pytest.fixture(scope="module")
def made(whole):
    """As a file would keep them."""
    return json.loads(json.dumps(whole.record(encoder=ENCODER), allow_nan=False))


def result_of(record, metric=METRIC):
    by_metric = {r["metric_config"]["metric_id"]: r for r in record["evaluation_results"]}
    return by_metric[metric]


def parameters_of(record):
    return result_of(record)["metric_config"]["metric_parameters"]


def details_of(record):
    return json.loads(result_of(record)["score_details"]["details"]["similarity_by_prompt"])


def test_a_record_has_the_similarity_of_each_prompt(made):
    """By float64: the mean squared kernel of two different answers; and the score of their mean."""
    for model, record in made.items():
        k, found = ANSWERS[model], details_of(record)
        means = []
        for prompt, points in zip(PROMPTS, outputs(model).astype(np.float64), strict=True):
            squares = gaussian_gram(points, WIDTH) ** 2
            means.append((squares.sum() - k) / (k * (k - 1)))
            name = hashlib.sha256(prompt.encode()).hexdigest()[:16]
            assert found[name] == [k, pytest.approx(means[-1], rel=1e-4)]
        scored = result_of(record)["score_details"]
        assert scored["score"] == pytest.approx(1 / np.mean(means), rel=1e-4)
        interval = scored["uncertainty"]["confidence_interval"]
        assert interval["lower"] < scored["score"] < interval["upper"]
        assert scored["uncertainty"]["num_samples"] == 12  # Prompts, of which the error is.
        assert not any(prompt in json.dumps(record) for prompt in PROMPTS)


def test_a_record_says_what_it_belongs_to(made, whole):
    parameters = parameters_of(made["few"])
    assert (parameters["encoder"], parameters["encoder_revision"]) == ("fake", "1")
    assert (parameters["order"], parameters["unbiased"]) == (2, True)
    assert (parameters["outputs_bandwidth"], parameters["outputs"]) == (WIDTH, 48)
    assert (parameters["least_answers"], parameters["most_answers"]) == (4, 4)
    library = made["few"]["eval_library"]
    assert (library["name"], library["version"]) == ("condvendi_jax", cv.__version__)
    plug_in = result_of(made["few"], METRIC.removesuffix(".unbiased"))["score_details"]["score"]
    few = whole.evaluations["few"]
    assert plug_in == pytest.approx(float(few.order(2).decomposition.conditional), rel=1e-6)
    alone = few.record("lab/few", name="mine", organization="us")
    assert alone["model_info"]["id"] == "lab/few" and alone["model_info"]["developer"] == "lab"
    assert alone["evaluation_id"].startswith("mine/lab/few/")
    assert alone["source_metadata"]["source_organization_name"] == "us"
    assert parameters_of(few.record("few", encoder="mine"))["encoder"] == "mine"
    for model in (None, 5, "", "/", "lab/ "):
        with pytest.raises(ValueError, match="model: expected a name such as developer/model"):
            few.record(model)
    for about, revision in (  # Of an encoder: that of its weights.
        ({"package": "numpy"}, f"numpy {np.__version__}"),
        ({"details": {"revision": "abc", "weights": "def"}}, "abc"),
        ({"details": {"weights": "def"}}, "def"),
        ({"package": "no-such-package"}, None),
        ({}, None),
    ):
        loaded = embedding.as_loaded(type("Encoder", (), {"name": "mine", **about})())
        record = few.record("few", encoder=loaded.described("texts"))
        assert parameters_of(record)["encoder_revision"] == revision


def same(one, two):
    """Two comparisons by Conditional-RKE: order, letters, numbers and tests."""
    one, two = (result.ranking("conditional", 2) for result in (one, two))
    assert [*one.values] == [*two.values] and one.letters == two.letters
    assert one.rank_sets == two.rank_sets
    for model in one.values:
        assert one.values[model] == pytest.approx(two.values[model], rel=1e-5)
        assert one.intervals[model] == pytest.approx(two.intervals[model], rel=1e-5)
    for a, b in zip(one.differences, two.differences, strict=True):
        assert a[:2] == b[:2] and a.reason == b.reason
        assert a[2:8] == pytest.approx(b[2:8], rel=1e-3, abs=1e-9, nan_ok=True)


@pytest.mark.parametrize("options", [{}, {"level": 0.4, "equal_ratio": 2.0}])
def test_records_alone_give_the_comparison_of_the_answers(made, options):
    found, expected = inference.leaderboard(made, **options), compared(**options)
    same(found, expected)
    assert {*found.ranking("conditional", 2).letters.values()} > {"a"}
    assert "by Conditional-RKE." in str(found) and "3 of 3 records" in str(found)


def test_models_are_compared_on_the_prompts_that_they_share(made):
    rows = {"few": outputs("few").reshape(-1, 3), "many": outputs("many")[:8].reshape(-1, 3)}
    names = {"few": asked("few"), "many": asked("many", PROMPTS[:8])}
    alone = cv.evaluate(rows["many"], names["many"], **KERNEL).record("many", encoder=ENCODER)
    found = inference.leaderboard({"few": made["few"], "many": alone})
    same(found, cv.compare(rows, names, **KERNEL, profile=False))
    assert found.shared_prompts.all == 8
    other = evaluated("many", [f"other {p}" for p in PROMPTS]).record("many", encoder=ENCODER)
    apart = {"few": made["few"], "many": other}
    assert "few and many (0) share fewer than 7 prompts" in str(inference.leaderboard(apart))
    assert inference.leaderboard(apart, one_population=True).main[0].tested


def changed(record, **parameters):
    record = copy.deepcopy(record)
    parameters_of(record).update(parameters)
    return record


def test_what_is_not_comparable_is_left_out_with_the_reason(made):
    others = {
        "other encoder": changed(made["few"], encoder="another"),
        "other revision": changed(made["few"], encoder_revision="2"),
        "other width": changed(made["few"], outputs_bandwidth=2.0),
        "no encoder": changed(made["few"], encoder=None),
    }
    without = copy.deepcopy(made["few"])
    without["evaluation_results"].remove(result_of(without))
    others["order 1"] = without
    found = inference.leaderboard(made | others)
    same(found, inference.leaderboard(made))
    told = {advice.finding.removesuffix(" is left out"): advice.evidence for advice in found.advice}
    assert told == {
        "other encoder": "encoder: another, others have fake",
        "other revision": "revision of the encoder: 2, others have 1",
        "other width": "kernel: Gaussian, bandwidth 2, others have Gaussian, bandwidth 1",
        "no encoder": "its record does not name the encoder",
        "order 1": leaderboards.NO_SCORE,
    }
    with pytest.raises(ValueError, match="none can be compared, as it has no unbiased"):
        inference.leaderboard({"order 1": without})


def test_a_record_that_was_changed_is_refused(made):
    record = copy.deepcopy(made["few"])
    result_of(record)["score_details"]["score"] *= 1.1
    refused = [(made | {"few": record}, r"few: is no valid record.*by its prompts")]
    for k in (0, 1, 2.5, 1e6):  # Of 0, no prompts.
        broken = copy.deepcopy(made["few"])
        rows = {name: [k, u] for name, (_, u) in details_of(broken).items() if k}
        result_of(broken)["score_details"]["details"]["similarity_by_prompt"] = json.dumps(rows)
        refused.append(({"x": broken}, "x: is no valid record.*expected 2 to 1,000 answers"))
    for broken in ({}, {"evaluation_results": [{}]}, {"evaluation_results": None}, [], "x.json"):
        refused.append(({"x": broken}, "x: is no valid record"))
    for broken in ({}, [made["few"]], None):
        refused.append((broken, "records: expected the record of each model"))
    for records_of_models, words in refused:
        with pytest.raises(ValueError, match=words):
            inference.leaderboard(records_of_models)


def test_a_record_of_records_has_the_same_prompts(made):
    again = inference.leaderboard(made).record(encoder=ENCODER)
    for model, record in again.items():
        assert details_of(record).keys() == details_of(made[model]).keys()


def test_prompts_stand_in_a_record_only_where_they_give_the_score():
    rng, texts = np.random.default_rng(0), asked("few")
    points = np.repeat(rng.normal(size=(12, 2)).astype(np.float32), 4, axis=0)
    for prompts, options in (
        (texts, {"weights": np.repeat(rng.random(12) + 0.5, 4)}),
        (texts, {"groups": np.repeat(np.arange(6), 8)}),
        (points, {"prompt_kernel": cv.Gaussian(1.0), "prompt_ids": texts}),
        (np.repeat(np.arange(1, 13), 4).tolist(), {}),  # Numbers.
    ):
        found = cv.evaluate(outputs("few").reshape(-1, 3), prompts, **KERNEL, **options)
        result = result_of(found.record("few", encoder=ENCODER))
        assert "details" not in result["score_details"]


def test_answers_of_one_batch_are_left_out_of_a_record_too():
    """The mean over pairs of two batches, and integer weights as copies, by float64."""
    points = outputs("few").astype(np.float64)
    found = evaluated(batches=np.arange(48) // 2)
    rows = details_of(found.record("few", encoder=ENCODER)).values()
    expected = [(gaussian_gram(p, WIDTH) ** 2)[:2, 2:].mean() for p in points]
    assert [u for _, u in rows] == pytest.approx(expected, rel=1e-4)
    found = evaluated(weights=np.tile([2, 1, 1, 1], 12))
    rows = details_of(found.record("few", encoder=ENCODER)).values()
    squares = [gaussian_gram(np.vstack([p[:1], p]), WIDTH) ** 2 for p in points]
    assert [k for k, _ in rows] == [5] * 12
    assert [u for _, u in rows] == pytest.approx([(s.sum() - 5) / 20 for s in squares], rel=1e-4)


def test_an_evaluation_by_a_frozen_protocol_is_named_by_it(tmp_path, monkeypatch):
    digests = [records.digest(prompt) for prompt in PROMPTS]
    compared_by = {"encoder": "fake", "encoder_revision": "1", "outputs_bandwidth": WIDTH}
    protocol = {"version": 3, "compared": compared_by, "least_answers": 4, "prompts": digests}
    monkeypatch.setattr(records, "PROTOCOLS", tmp_path / "protocols.json")

    def write():
        (tmp_path / "protocols.json").write_text(json.dumps({"small": protocol}))

    def name(model="few", width=WIDTH, prompts=PROMPTS, **encoder):
        found = evaluated(model, prompts, output_kernel=cv.Gaussian(width))
        return result_of(found.record(model, encoder=ENCODER | encoder))["evaluation_name"]

    write()
    by_digest = [f"sha256:{digest}" for digest in digests]
    assert name() == name("many") == name(prompts=by_digest) == "small, version 3"
    other = [*PROMPTS[:-1], "another"]
    names = [name(width=2.0), name(prompts=other), name(prompts=PROMPTS[:-1])]
    names.append(name(text_encoder_revision="2"))
    protocol["least_answers"] = 5
    write()
    assert {*names, name()} == {"diversity of answers"}
    monkeypatch.undo()
    (shipped,) = json.loads(records.PROTOCOLS.read_text(encoding="utf-8")).values()
    assert len({*shipped["prompts"]}) == 100 and shipped["least_answers"] == 5


@pytest.mark.slow
def test_a_score_that_is_not_finite_is_no_result():
    x = 100.0 * np.arange(48, dtype=np.float32)[:, None]
    with pytest.warns(UserWarning, match="numerically the identity"):
        found = cv.evaluate(x, asked("few"), **KERNEL)
    record = json.loads(json.dumps(found.record("few", encoder=ENCODER), allow_nan=False))
    metrics = [r["metric_config"]["metric_id"] for r in record["evaluation_results"]]
    assert METRIC not in metrics and METRIC.removesuffix(".unbiased") in metrics


FLAGS = ("--text_encoder=fake_encoders:Means", "--output_bandwidth=60", "--order=2")


@pytest.mark.slow
def test_the_command_writes_records_and_compares_them(tmp_path, monkeypatch, run_command):
    monkeypatch.chdir(tmp_path)
    for model, count in (("a", 1), ("b", 3)):
        said = ([f"{'b' * (k % count)} is {n}!" for k in range(4)] for n in range(12))
        rows = [{"prompt": p, "answers": a} for p, a in zip(PROMPTS, said, strict=True)]
        write_lines(tmp_path / f"{model}.jsonl", rows)
    report, _ = run_command("compare", "a.jsonl", "b.jsonl", *FLAGS, "--record=r.json")
    again, found = run_command("compare", "r-a.json", "r-b.json")
    for name in ("letters", "rank_sets", "best"):
        one, *_ = (r for r in report["rankings"] if (r["score"], r["order"]) == ("conditional", 2))
        assert again["rankings"][0][name] == one[name]
    assert "Conditional-RKE" in found
    run_command("score", "b.jsonl", *FLAGS, "--record=b.json")
    record, other = (json.loads(pathlib.Path(f).read_text()) for f in ("b.json", "r-b.json"))
    assert record["model_info"]["id"] == "unknown/b"
    assert details_of(record) == details_of(other)
    assert parameters_of(record)["encoder"] == "means"
    two = "a.jsonl", "b.jsonl", *FLAGS
    (tmp_path / "again.json").write_bytes((tmp_path / "r-a.json").read_bytes())
    record = json.loads((tmp_path / "r-a.json").read_text())
    (tmp_path / "sorted.json").write_text(json.dumps(record | {"model_info": "a"}, sort_keys=True))
    (tmp_path / "cut.json").write_text(json.dumps(record)[:900])
    for words, why in {
        ("compare", "r-a.json", "sorted.json"): "sorted.json: a record without model_info.id",
        ("compare", "r-a.json", "cut.json"): "cut.json: is no whole record of scores",
        ("compare", "r-a.json", "r-a.json"): "r-a.json: a second record of 'a'",
        ("compare", "r-a.json", "absent.json"): "absent.json: is no record of scores",
        ("compare", "r-a.json", "b.jsonl"): "b.jsonl: is no record of scores",
        ("compare", "r-a.json", "again.json"): "again.json: a second record of 'a'; name it",
        ("compare", "r-a.json", "r-b.json", "--order=2"): "--order: has no effect on records",
        ("score", "r-a.json"): "r-a.json: is a record of scores, which condvendi compare takes",
        ("compare", *two, "--record=r.json"): "r-a.json exists",
        ("compare", "x y=a.jsonl", "x_y=b.jsonl", *FLAGS, "--record=q.json"): "are the same file",
    }.items():
        with pytest.raises(ValueError, match=why.replace(".", r"\.")):
            __main__.main(["condvendi", *words])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Those of its own dependencies.
def test_every_eval_ever_finds_records_valid(tmp_path, whole):
    """By its own package, with its checks of contents and of places."""
    reason = "every-eval-ever is not installed"
    validator = pytest.importorskip("every_eval_ever.validator.validation_core", reason=reason)
    spectral = compared(orders=[2, 1, 3, 0.5, np.inf]).evaluations.items()
    for model, evaluation in [*whole.evaluations.items(), *spectral]:
        record = evaluation.record(f"lab/{model}", encoder=ENCODER)
        metrics = [r["metric_config"]["metric_id"] for r in record["evaluation_results"]]
        assert len({*metrics}) == len(metrics)  # Of every order its own.
        place = f"data/condvendi/lab/{model}/{uuid.uuid4()}.json"
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(json.dumps(record, allow_nan=False))
        told = {"repo_path": place, "available_files": [place], "run_semantic_checks": True}
        report = validator.validate_aggregate(tmp_path / place, **told)
        assert report.valid and not report.errors and not report.warnings
    record["evaluation_results"][0]["score_details"]["score"] = "many"
    (tmp_path / place).write_text(json.dumps(record))
    assert not validator.validate_aggregate(tmp_path / place).valid
