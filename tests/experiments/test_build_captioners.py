"""The builder of captions without pictures, on small repositories."""

import io
import json

import numpy as np
import pytest
from scipy import io as matlab
from small_repositories import make, repository

from experiments.builders import captions


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
