"""Records of answers on the command line: what is embedded, scored, compared and said of them."""

import csv
import types

import fake_encoders
import numpy as np
import pytest
from answer_files import read, write

import condvendi_jax as cv
from condvendi_jax.cli import inputs, verbs

OPTIONS = ("--text_encoder=fake_encoders:Means", "--cache=cache", "--order=2")
OPTIONS += ("--output_bandwidth=99", "--prompt_bandwidth=90")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.fixture
def run(run_command):
    answers = {"x": ["a", "bb", "ccc"], "y": ["ba", "b", "x" * 4], "z": ["u", "aau", "vvvv"]}
    for name, texts in answers.items():
        records = [{"prompt": f"p{k}", "answers": [t + "a" * k for t in texts]} for k in range(4)]
        records.append({"prompt": "p0", "answer": "<think>why</think>last"})
        write(f"{name}.jsonl", *records)
    return lambda *arguments: run_command(*arguments, *OPTIONS)


def embedded(name):
    columns = zip(*read(f"{name}.jsonl")[0], strict=True)
    return [fake_encoders.Means().encode(list(texts)) for texts in list(columns)[1:]]


KERNELS = {"output_kernel": cv.Gaussian(99.0), "prompt_kernel": cv.Gaussian(90.0)}


def test_records_of_one_model_are_scored(run):
    report, out = run("score", "x.jsonl", "--by_prompt=by.csv")
    prompts, outputs = embedded("x")
    expected = cv.decompose(outputs, prompts, **KERNELS, order=2)
    score = report["scores"][0]["conditional"]
    assert score == pytest.approx(float(expected.conditional), rel=1e-5)
    assert "x: 13 answers, 4 prompts, 3 to 4 answers a prompt" in out
    cut = "cut: reasoning from 1 answers"
    assert f"13 answers (fields 'answers' and 'answer') to 4 prompts (field 'prompt'); {cut}" in out
    assert report["inputs"]["answers"] == {"x": {"n": 13, "prompts": 4, "least": 3, "most": 4}}
    assert report["inputs"]["fields"] == {"prompts": ["prompt"], "answers": ["answers", "answer"]}
    with open("by.csv") as stream:
        assert [row["prompt"] for row in csv.DictReader(stream)] == ["p0", "p1", "p2", "p3"]
    with pytest.warns(UserWarning, match="kept, since clean is false: reasoning from 1"):
        kept, _ = run("score", "x.jsonl", "--noclean")
    assert kept["scores"][0]["conditional"] != score


class Starts:
    """The first letters of texts: prompts that begin alike have one embedding."""

    name = "starts"

    def __init__(self):
        self.seen = []

    def encode(self, items):
        self.seen += items
        return np.array([[ord(letter) for letter in f"{x:16}"[:16]] for x in items], np.float32)


@pytest.fixture
def starts(monkeypatch):
    encoder = Starts()
    monkeypatch.setattr(fake_encoders, "STARTS", encoder, raising=False)
    return encoder


PROMPTS = [f"You are a helpful assistant. Question {p}" for p in range(8)]
SAID = [[f"{k**2 % 7} {p}" for k in range(4)] for p in range(8)]


@pytest.mark.filterwarnings("ignore:.* the Gram is numerically")
def test_prompts_that_are_equal_or_different_are_not_embedded(run_command, starts):
    """Encoders cut long prompts: those that begin alike would have one embedding."""
    write("m.jsonl", *({"prompt": p, "answers": a} for p, a in zip(PROMPTS, SAID, strict=True)))
    words = ("score", "m.jsonl", "--text_encoder=fake_encoders:STARTS", "--order=2")
    words += ("--cache=cache", "--output_bandwidth=3")
    report, out = run_command(*words)
    assert not {*PROMPTS} & {*starts.seen}
    assert "prompts (field 'prompt') embedded" not in out
    assert report["bandwidths"]["prompts"]["rule"].endswith("because prompts repeat")
    kernel = cv.Gaussian(3.0)
    expected = cv.evaluate(SAID, PROMPTS, encoder=starts, output_kernel=kernel, orders=[2])
    score = report["scores"][0]["unbiased"]["conditional"]
    assert score == pytest.approx(expected.order(2).unbiased.conditional, rel=1e-6)
    with pytest.warns(UserWarning, match="different texts have the embedding of another"):
        report, out = run_command(*words, "--prompt_bandwidth=9")
    assert {*PROMPTS} <= {*starts.seen} and "prompts (field 'prompt') embedded by starts" in out
    assert not report["bandwidths"]["prompts"]["rule"].endswith("because prompts repeat")


def read_by_command(*words, **flags):
    bar = types.SimpleNamespace(add_task=lambda *_, **__: 0, update=lambda *_, **__: None)
    given = verbs.Score(text_encoder="fake_encoders:STARTS", cache="cache", **flags)
    return inputs.read(given, inputs.models_of(words, given), bar)


@pytest.mark.filterwarnings("ignore:.* the Gram is numerically the identity")
def test_only_texts_that_are_compared_meet_the_encoder_and_are_told(starts):
    write("m.jsonl", *({"task_id": f"id {k}", "completion": f"a{k}"} for k in range(4)))
    pairs = read_by_command("m.jsonl").pairs()[""]
    assert starts.seen == [f"a{k}" for k in range(4)] and pairs.prompt_kinds[0] == 4
    with pytest.raises(ValueError, match="expected embeddings for similar_prompts"):
        read_by_command("m.jsonl", similar_prompts=True).pairs()
    np.save("x.npy", np.arange(8.0).reshape(4, 2))
    for prompts, told in (("ppqq", {}), ("pqrs", {"text_encoder": "starts"})):
        found = read_by_command("x.npy", prompts=str(write("p.txt", *prompts)))
        assert {k: v for k, v in found.described.items() if k == "text_encoder"} == told
        assert found.encoders() == ("starts (texts)" if told else None)
        assert ("prompts embedded by starts" in found.notes) == bool(told)


def test_pairs_of_one_batch_are_left_out_of_the_score_of_one_model(run):
    answers, batches = ["a", "bb", "ccc", "dd"] * 3, [k // 2 for k in range(12)]
    records = [
        {"prompt": f"p{k // 4}", "answer": text, "call": str(batch)}
        for k, (text, batch) in enumerate(zip(answers, batches, strict=True))
    ]
    write("calls.jsonl", *records)
    report, _ = run("score", "calls.jsonl", "--batch_field=call")
    prompts, outputs = embedded("calls")
    expected = cv.evaluate(outputs, prompts, **KERNELS, orders=[2], batches=batches)
    score = report["scores"][0]["unbiased"]["conditional"]
    assert score == pytest.approx(expected.order(2).unbiased.conditional, rel=1e-5)
    alone = cv.evaluate(outputs, prompts, **KERNELS, orders=[2])
    assert score != pytest.approx(alone.order(2).unbiased.conditional, rel=1e-3)


@pytest.mark.filterwarnings("ignore:means.* have the embedding of another")
def test_records_of_several_models_are_compared(run):
    with open("z.jsonl", "a") as stream:
        stream.write("\n{")
    with pytest.warns(UserWarning, match="z.jsonl, line 6: is not JSON"):
        report, out = run("compare", "x.jsonl", "y.jsonl", "z.jsonl")
    (skipped,) = report["inputs"]["skipped"]
    assert skipped.rpartition("z.jsonl, ")[2].startswith("line 6")
    models = {name: embedded(name) for name in "xyz"}
    prompts, outputs = ({name: pair[k] for name, pair in models.items()} for k in range(2))
    expected = cv.compare(outputs, prompts, **KERNELS, orders=[2])
    for got, wanted in zip(report["rankings"], expected.rankings, strict=True):
        assert got["values"] == pytest.approx(dict(wanted.values), rel=1e-5)
    assert "z: 13 answers, 4 prompts, 3 to 4 answers a prompt" in out
    named = run("compare", "x.jsonl", "y.jsonl", "--prompt_field=prompt")[0]
    assert list(named["inputs"]["answers"]) == ["x", "y"]
    assert named["inputs"]["records"] == "x.jsonl,y.jsonl"


BAD_INPUTS = {
    "score x.jsonl y.jsonl": "expected answers of one model, .* received those of x, y",
    "score x.jsonl --prompts_key=a": "--prompts_key=a: has no effect",
    "score x.txt --model_field=a": "--model_field=a: has no effect",
    "score x.txt --noclean": "--clean=False: has no effect",
    "score x.jsonl --latex=x.jsonl": "would replace x.jsonl",
    "score x.jsonl --answer_field=prompt": "outputs of x and their prompts are equal",
    "score -": "Save what comes from a pipe as a file: .* > x.jsonl",
}


@pytest.mark.parametrize("words", BAD_INPUTS)
def test_flags_of_records_that_contradict_are_refused(run, words):
    with pytest.raises(ValueError, match=BAD_INPUTS[words]):
        run(*words.split())


def test_stated_probabilities_are_scored_as_a_distribution(run_command):
    """Equal to one over the sum of squares, which the correction for samples would exceed."""
    shares = (0.4, 0.3, 0.2, 0.1)
    texts = [{"text": t, "probability": w} for t, w in zip("afmz", shares, strict=True)]
    write("m.jsonl", *({"prompt": p, "responses": texts} for p in "pqr"))
    report, out = run_command("score", "m.jsonl", *OPTIONS[:3], "--output_bandwidth=1")
    assert "answers are weighed by their 'probability'" in out
    assert "unbiased" not in out
    score = report["scores"][0]["conditional"]
    assert score == pytest.approx(1 / np.square(shares).sum(), rel=1e-4)


@pytest.mark.slow
def test_prompts_that_are_known_by_ids_are_equal_or_different(run_command):
    """Embedded ids would have a meaning that they do not have."""
    answers = [[letter + "x" * k for letter in "ab"] for k in range(8)]
    write("m.jsonl", *({"task_id": k, "solution": a} for k, two in enumerate(answers) for a in two))
    words = ("score", "m.jsonl", *OPTIONS[:3], "--output_bandwidth=1")
    report, out = run_command(*words)
    assert "prompts are known by 'task_id' alone" in out
    assert report["bandwidths"]["prompts"]["bandwidth"] is None
    write("p.txt", *(f"prompt {k}" for k in range(8)))
    with pytest.raises(ValueError, match="p.txt: expected a file ending in .jsonl"):
        run_command(*words, "--prompts=p.txt")
