"""Builders that the default tests run, and encoders that builders alone have."""

import io
import json

import jax
import numpy as np
import pytest
from scipy import io as matlab
from small_repositories import json_lines, make, repository

from condvendi_jax.encoders import Encoder, efficientnet
from experiments.builders import answers, captions, common, t2i
from experiments.builders.common import UniversalEncoder


def record(cure, number):
    """Two answers of one class and one of another, whose rewards are the number and 9."""
    return {
        "id": f"curated-{number}",
        "prompt": f"question {number}",
        "generations": [f"{cure} {number}" + " word" * (place + 2) for place in range(3)],
        "partition": [1, 0, 1],
        "partition_scores": [number, 9],
    }


def stories(model):
    samples = [
        {"prompt": prompt, "sampler_name": sampler, "repetition": repetition}
        | {"generated_text": f"{model} {sampler} {prompt} {repetition}" + repetition * " word"}
        | {"judgment": {"overall_score": repetition + 0.5}}
        for repetition in (2, 1)  # The first story is short.
        for sampler in reversed(answers.SAMPLED)
        for prompt in ("b", "a")
    ]
    return json.dumps({"model_name": model, "samples": samples}).encode()


def test_answers_are_by_cure_and_prompt_with_the_reward_of_their_class(tmp_path):
    files = [{}, {}, {}]
    for cure, (_, place, path) in answers.FILES.items():
        files[place][path] = json_lines(
            record(cure, number) for number in ((2, 10) if place == 1 else (10, 2))
        )
    files.append({f"results/{model}_judged_1.json": stories(model) for model in "mn"})
    files[-1] |= dict.fromkeys(("results/mmlu/m_judged_1.json", "results/m_bench_1.json"), b"no")
    clones = [repository(tmp_path / str(n), f"o/{n}", of) for n, of in enumerate(files)]
    pairs, _, cut, _, texts = make(answers, tmp_path, *clones, name="interventions", LEAST=6)
    labels = pairs.labels
    each = [(arm, 6) for arm in answers.FILES] + [(arm, 8) for arm in answers.SAMPLED.values()]
    assert labels["models"].tolist() == [arm for arm, count in each for _ in range(count)]
    assert labels["source"].tolist() == ["prompts"] * 24 + ["training"] * 12 + ["samplers"] * 40
    assert labels["quality"].tolist() == [9, 2, 9, 9, 10, 9] * 6 + [0, 2.5] * 20
    # The prompts of two sources differ, and so do those of two models.
    prompt = labels["prompt"]
    assert len(np.unique(prompt)) == 2 + 2 + 4
    assert prompt[:6].tolist() == prompt[18:24].tolist() and prompt[0] == prompt[2] != prompt[3]
    whole = [t for n in (2, 10) for t in record("asked again", n)["generations"]]
    np.testing.assert_allclose(pairs.outputs[:6], texts.rows(whole), atol=answers.STEP)
    asked = texts.rows(["question 2", "question 10"])
    np.testing.assert_allclose(pairs.prompts[[24, 27]], asked, atol=1e-3)
    length = cut["truncated"]["training"]
    first = [" ".join(t.split()[:length]) for t in record("Llama 3.1 8B", 2)["generations"]]
    shorter = pairs.further["truncated"][24:27]
    np.testing.assert_allclose(shorter, texts.rows(first), atol=answers.STEP)


def struct(**columns):
    """An array of MATLAB's structures."""
    found = np.empty(len(next(iter(columns.values()))), [(name, object) for name in columns])
    for name, values in columns.items():
        for place, value in enumerate(values):
            found[name][place] = np.array(value, object) if isinstance(value, list) else value
    return found


def file_of(**arrays):
    content = io.BytesIO()
    matlab.savemat(content, arrays)
    return content.getvalue()


@pytest.fixture(scope="module")
def pascal(tmp_path_factory):
    """Two pictures of six captions and two judged pairs, one of them of two people's captions."""
    sentences = [[f" {noun} {k}" for k in range(6)] for noun in ("a dog", "two cats")]
    pairs = {
        "category": [1, 4, 1],
        "new_input": struct(name=["p", "p", "q"], sent1=["my dog", "a dog 1", " his cat "],
                            sent2=["dogs", "two cats", "cats"]),
        "result": struct(result=[[1, 1, -1], [-1, -1, -1], [1, 1, 1]]),
    }  # fmt: skip
    refs = file_of(refs=struct(image=["p", "q"], sent=sentences))
    files = {"data/pascal50S.mat": refs, "data/pair_pascal.mat": file_of(**pairs)}
    folder = tmp_path_factory.mktemp("pascal")
    return sentences, repository(folder / "r", "a/r", files)


def test_captioners_answer_the_prompts_of_pictures_that_all_have(tmp_path):
    said = {
        name: [{"image_id": k, "caption": f"{name} {k}"} for k in numbers]
        for name, numbers in (("beam", [1, 2, 3, 4]), ("nucleus", [4, 3, 2]))
    }
    files = {f"{name}.json": json.dumps(rows).encode() for name, rows in said.items()}
    people = ["yes\tfirst of 2\tf\t9\t2", "no\tof another\tf\t9\t4", "yes\tsplit\tin two", ""]
    tables = {"datasets/IC/ic_dev.tsv": "\n".join(people).encode()}
    tables["datasets/IC/ic_test.tsv"] = b"yes\tsecond of 2\tf\t9\t2\nyes\tof 4 \tf\t9\t4"
    clones = repository(tmp_path / "a", "a/a", files), repository(tmp_path / "b", "a/b", tables)
    files = {"captioners": {name: f"{name}.json" for name in said}}
    made = make(captions, tmp_path, *clones, name="captioners", FILES=files)
    found, texts = made.pairs, made.texts
    assert found.labels["models"].tolist() == ["beam"] * 2 + ["nucleus"] * 2
    assert found.labels["prompt"].tolist() == [0, 1] * 2
    expected = texts.rows(["beam 2", "beam 4", "nucleus 2", "nucleus 4"])
    np.testing.assert_allclose(found.outputs, expected, atol=2.0**-8)
    np.testing.assert_allclose(found.prompts[:2], texts.rows(["first of 2", "of 4"]), atol=2.0**-8)


def test_people_s_captions_have_another_person_s_as_prompt(pascal, tmp_path):
    sentences, clone = pascal
    found, *_, texts = make(captions, tmp_path, clone, name="fifty_captions")
    assert found.labels["prompt"].tolist() == [0] * 6 + [1] * 6
    written = [text.strip() for own in sentences for text in own]
    np.testing.assert_allclose(found.outputs, texts.rows(written), atol=2.0**-8)
    np.testing.assert_allclose(found.prompts[::6], texts.rows(["my dog", "his cat"]), atol=2.0**-8)


def test_a_judged_pair_is_two_rows_with_votes_and_scores(pascal, tmp_path):
    sentences, clone = pascal
    found, *_, texts = make(captions, tmp_path, clone, name="judged_pairs")
    labels = found.labels
    assert labels["task"].tolist() == ["HC", "HC", "MM", "MM", "HC", "HC"]
    assert labels["people"].tolist() == [2, 1, 0, 3, 3, 0]
    assert labels["photograph"].tolist() == [0, 0, 0, 0, 1, 1]
    assert labels["metric_length"].tolist() == [2, 1, 3, 2, 2, 1]
    # A caption that is judged is no reference: five are left.
    others = texts.rows([text.strip() for text in sentences[0] if text != " a dog 1"])
    nearest = (others @ texts.rows(["a dog 1"])[0]).max()
    assert labels["metric_reference"][2] == pytest.approx(nearest, abs=1e-5)


def test_cider_is_the_mean_cosine_of_weighted_word_sequences():
    frequency = captions.Counter({("dog",): 1, ("runs",): 2, ("cat",): 1, ("dog", "runs"): 1})
    found = captions.cider("Dog runs", ["the dog", "dog runs"], frequency, 4)
    rare, common = np.log(4), np.log(2)
    # Of single words, "the" is in no picture's captions: as rare as one that is in one.
    one = rare**2 / np.sqrt((rare**2 + common**2) * 2 * rare**2)
    assert found == pytest.approx(np.mean([[one, 0, 0, 0], [1, 1, 0, 0]]))


class Lengths:
    """Rows of norm 3 whose direction says how long the text is; keeps the sizes of its batches."""

    def __init__(self):
        self.batches = []

    def encode(self, texts):
        self.batches.append(len(texts))
        rows = np.zeros((len(texts), 512))
        rows[np.arange(len(texts)), [len(text) for text in texts]] = 3
        return rows


def test_rows_are_unit_vectors_in_the_order_of_the_texts(monkeypatch):
    monkeypatch.setattr(common, "UNIVERSAL_BATCH", 2)
    encoder = UniversalEncoder(Lengths())
    rows = encoder.encode(np.array(["abc", "a", "ab", "", "abcd"]))
    assert isinstance(encoder, Encoder)
    assert rows.dtype == np.float32
    assert rows.shape == (5, encoder.dimension)
    assert rows.argmax(axis=1).tolist() == [3, 1, 2, 0, 4]
    np.testing.assert_array_equal(rows.max(axis=1), 1)
    assert encoder.model.batches == [2, 2, 1]
    assert encoder.encode([]).shape == (0, 512)


def published(blocks):
    """Tensors of a small network of so many blocks, as the packages have them."""
    rng, tensors = np.random.default_rng(0), {}

    def add(convolution, norm, shape):
        tensors[f"{convolution}.weight"] = rng.normal(size=shape).astype(np.float32)
        for part in ("weight", "bias", "running_mean", "running_var"):
            tensors[f"{norm}.{part}"] = rng.uniform(0.5, 1, shape[0]).astype(np.float32)

    add("_conv_stem", "_bn0", (4, 3, 3, 3))
    for k in range(blocks):
        at = f"_blocks.{k}"
        add(f"{at}._depthwise_conv", f"{at}._bn1", (4, 1, 3, 3))
        add(f"{at}._project_conv", f"{at}._bn2", (4, 4, 1, 1))
    add("_conv_head", "_bn1", (6, 4, 1, 1))
    return tensors


def test_lite2_is_lite0s_network_with_strides_of_its_own():
    strides = t2i.Lite2Encoder.strides
    assert strides == (1, 2, 1, 1, 2, 1, 1, *(2, 1, 1, 1), *[1] * 4, *(2, 1, 1, 1, 1), 1)
    folded = efficientnet.fold_batch_norms(published(21), strides)
    wanted = published(21)["_blocks.20._depthwise_conv.weight"][:, 0].transpose(1, 2, 0)
    ratio = np.asarray(folded["blocks"][20]["depthwise"][0]) / wanted
    assert len(folded["blocks"]) == 21
    np.testing.assert_allclose(ratio, np.broadcast_to(ratio[0, 0], ratio.shape), rtol=1e-5)
    small = efficientnet.fold_batch_norms(published(4))
    small["head"] = jax.tree.map(lambda of: np.tile(of, 320)[..., :1280], small["head"])
    pictures = np.random.default_rng(1).integers(0, 256, (1, 260, 260, 3), np.uint8)
    found = t2i.Lite2Encoder(small).encode(pictures)
    np.testing.assert_allclose(found, efficientnet.features(small, pictures, strides), rtol=1e-5)
    assert np.abs(found - efficientnet.features(small, pictures)).max() > 1e-3
