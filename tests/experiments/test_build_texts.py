"""The builders of sets of texts, on small repositories."""

import csv
import io
import itertools
import json
import sys
import types
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special
from small_repositories import json_lines, make, repository

from experiments.builders import answers, human, similarities, stories

pytestmark = pytest.mark.slow

MODELS, NUMBERS = ("anthropic/a", "gemini/b"), [2, 3, 10]
PROMPTS = {3: "third question", 10: "tenth question", 2: "second question", 4: "of nobody"}


def answer(model, number, place):
    """Of a model, its answer to a prompt; those of model b are longer, the first two equal."""
    count = 3 + 4 * model.endswith("b")
    return " ".join([f"{model[-1]}{number}", *[f"word{max(place, 1)}"] * count])


def benchmark():
    """Two models, whose files are not in one order."""
    files = {"eval/day/wildchat/gemini/b/scores.jsonl": b"not read"}
    for model, numbers in zip(MODELS, ((3, 10, 2), (2, 3, 10)), strict=True):
        files[f"eval/day/curated/{model}/scores.jsonl"] = json_lines(
            {
                "id": f"curated-{number}",
                "prompt": PROMPTS[number],
                "model": model,
                "generations": [answer(model, number, place) for place in range(3)],
                "partition": [0, 0, number],
                "generation_scores": [number, 0, 1],
            }
            for number in numbers
        )
    return files


def test_the_answers_of_every_model_are_in_the_order_of_the_prompts(tmp_path):
    clone = repository(tmp_path / "clone", "o/r", benchmark())
    pairs, _, cut, _, texts = make(answers, tmp_path, clone, PERCENTILE=0.0)
    written = [answer(m, n, place) for m in MODELS for n in NUMBERS for place in range(3)]
    labels = pairs.labels
    assert labels["models"].tolist() == ["a"] * 9 + ["b"] * 9
    assert labels["vendors"].tolist() == ["Anthropic"] * 9 + ["Google"] * 9
    assert labels["prompt"].tolist() == np.repeat(NUMBERS, 3).tolist() * 2
    assert labels["classes"].tolist() == [c for n in NUMBERS for c in (0, 0, n)] * 2
    assert labels["rewards"].tolist() == [r for n in NUMBERS for r in (n, 0, 1)] * 2
    assert labels["words"].tolist() == [4] * 9 + [8] * 9
    assert cut["truncated"] == {"words": 4, "percentile": 0.0}
    np.testing.assert_allclose(pairs.outputs, texts.rows(written), atol=answers.STEP)
    asked = texts.rows([PROMPTS[n] for n in NUMBERS])
    np.testing.assert_allclose(pairs.prompts, np.tile(asked.repeat(3, axis=0), (2, 1)), atol=0.004)
    first = texts.rows([" ".join(text.split()[:4]) for text in written])
    np.testing.assert_allclose(pairs.further["truncated"], first, atol=answers.STEP)
    # Equal answers have equal embeddings: what is stored keeps the same apart from the different.
    assert np.array_equal(pairs.outputs[0], pairs.outputs[1])


def test_pairs_have_what_people_and_the_benchmark_say(tmp_path):
    def pair(model, number, places, similar):
        both = {f"generation_{k}": answer(model, number, place) for k, place in enumerate(places)}
        return {"model": model, "prompt": PROMPTS[number], "similar": similar, **both}

    first = [pair("x/a", 3, (0, 2), 0), pair("x/b", 10, (0, 1), 1), pair("x/b", 4, (0, 1), 1)]
    parts = {"train": first, "val": [pair("x/b", 2, (1, 2), 0)]}
    folder = "evals/novelty-bench/src/data/classifier"
    files = {f"{folder}/{name}.jsonl": json_lines(records) for name, records in parts.items()}
    given = {"o/p": files, "o/r": benchmark()}
    clones = [repository(tmp_path / name, name, of) for name, of in given.items()]
    pairs, _, _, _, texts = make(answers, tmp_path, *clones, name="same_answers")
    for place, table in enumerate((pairs.outputs, pairs.further["second"])):
        rows = texts.rows([r[f"generation_{place}"] for part in parts.values() for r in part])
        np.testing.assert_allclose(table, rows, atol=answers.STEP)
    labels = {"same": [0, 1, 1, 0], "train": [1, 1, 1, 0], "equal": [0, 1, 1, 0]}
    for name, values in (labels | {"classes": [0, 1, -1, 0]}).items():
        assert pairs.labels[name].tolist() == values
    assert len(set(pairs.labels["prompt"].tolist())) == 4


STAGES = "results/rlhf_experiment"
ASKED = {"nbcurated": ["curated-1", "curated-0"], "alpacaeval": ["alpacaeval-000"]}


def told(stage, prompt, place, cut=False):
    """Of a stage, its answer to a prompt: longer later; the first of base is empty."""
    words = [f"{prompt} by {stage}", *["word"] * (place + len(stage))]
    return "" if (stage, place) == ("base", 0) else " ".join(words[:1] if cut else words)


def test_the_stages_are_in_order_whole_and_then_matched(tmp_path):
    """Every file is in the reverse of the order of the set; one prompt alone is matched."""
    files = {}
    for cut, stage, short in itertools.product((False, True), answers.STAGE_NAMES, ASKED):
        kind = "generations_length_matched" if cut else "generations"
        files[f"{STAGES}/{kind}/{stage}_{short}.jsonl"] = json_lines(
            {"prompt_id": prompt, "prompt": f"question {prompt}", "sample_idx": place}
            | {"response": told(stage, prompt, place, cut)}
            for prompt in (ASKED[short][:1] if cut else ASKED[short])
            for place in (1, 0)
        )
    files[f"{STAGES}/baseline_metrics.jsonl"] = json_lines(
        {"stage": stage, "prompt_id": prompt, "ead": len(stage) + len(prompt) / 100}
        for stage in answers.STAGE_NAMES
        for prompt in itertools.chain(*ASKED.values())
    )
    clone = repository(tmp_path / "clone", "o/r", files)
    pairs, _, _, _, texts = make(answers, tmp_path, clone, name="post_training")
    # By set of prompts, stage and prompt, whose numbers stay those of the whole answers.
    wanted = [
        (stage, short, prompt, cut, place)
        for cut in (False, True)
        for short, prompts in ASKED.items()
        for stage in answers.STAGE_NAMES
        for prompt in (prompts[:1] if cut else sorted(prompts))
        for place in (0, 1)
    ]
    written = [told(stage, prompt, place, cut) for stage, _, prompt, cut, place in wanted]
    numbers = {"curated-0": 0, "curated-1": 1, "alpacaeval-000": 2}
    labels = pairs.labels
    assert labels["models"].tolist() == [answers.STAGE_NAMES[stage] for stage, *_ in wanted]
    assert labels["benchmark"].tolist() == [answers.PROMPT_SETS[of] for _, of, *_ in wanted]
    assert labels["prompt"].tolist() == [numbers[prompt] for _, _, prompt, *_ in wanted]
    assert labels["matched"].tolist() == [int(cut) for *_, cut, _ in wanted]
    assert labels["words"].tolist() == [len(of.split()) for of in written]
    distinct = [np.nan if cut else len(of) + len(p) / 100 for of, _, p, cut, _ in wanted]
    np.testing.assert_allclose(labels["distinct"], distinct, rtol=1e-6)
    np.testing.assert_allclose(pairs.outputs, texts.rows(written), atol=answers.STEP)
    asked = texts.rows([f"question {prompt}" for _, _, prompt, *_ in wanted])
    np.testing.assert_allclose(pairs.prompts, asked, atol=answers.STEP)
    assert labels["words"].min() == 0 and "" in texts.given  # An empty answer stays.


def test_the_language_set_holds_the_shared_instructions_of_systems_with_variants_and_sizes(
    tmp_path,
):
    """Every system answers all but one instruction of one."""
    systems = ["b", "b_concise", "b_verbose", "lone", "a_verbose"]
    systems += [f"Qwen1.5-{size}B-Chat" for size in ("1.8", "14")]
    instructions = [f"{chr(97 + number)} question {'e' * number}" for number in range(17)]

    def said(system, number):
        count = 2 + number % 5 + 10 * ("verbose" in system)
        return " \n ".join([chr(65 + number), *[system[0] + "e" * number] * count])

    files = {}
    for system in systems:
        records = [
            {"instruction": text, "output": said(system, number), "generator": system}
            for number, text in enumerate(instructions)
            if (system, number) != ("b_concise", 3)
        ]
        files[f"results/{system}/model_outputs.json"] = json.dumps(records).encode()
    chosen = answers.chosen_systems(sorted(systems))
    assert chosen == ["b", "b_concise", "b_verbose", "Qwen1.5-1.8B-Chat", "Qwen1.5-14B-Chat"]
    clone, knobs = repository(tmp_path / "clone", "o/r", files), {"EVERY": 2, "PERCENTILE": 50.0}
    pairs, _, cut, _, texts = make(answers, tmp_path, clone, name="language", **knobs)
    # Of 16 that all answered (number 3 is missing), every second.
    numbers = [n for n in range(17) if n != 3][::2]
    assert cut["instructions"] == {"of": 16, "every": 2, "kept": 8}
    assert pairs.labels["prompt"].tolist() == list(range(0, 16, 2)) * 5
    assert pairs.labels["models"].tolist() == np.repeat(chosen, 8).tolist()
    written = [said(system, number) for system in chosen for number in numbers]
    assert pairs.labels["words"].tolist() == [len(text.split()) for text in written]
    np.testing.assert_allclose(pairs.outputs, texts.rows(written), atol=1e-3)
    asked = texts.rows([instructions[n] for n in numbers])
    np.testing.assert_allclose(pairs.prompts, np.tile(asked, (5, 1)), atol=1e-3)
    length = int(np.median(pairs.labels["words"]))
    assert cut["truncated"] == {"words": length, "percentile": 50.0}
    shorter = texts.rows([" ".join(text.split()[:length]) for text in written])
    np.testing.assert_allclose(pairs.further["truncated"], shorter, atol=1e-3)


WORDS = ["<end>", "a", "cat", "sat", "down"]
CONSTANTS = {"TEMPERATURES": (0.5, 2.0), "MAX_TOKENS": 5, "_BATCH": 5, "SEED": 3}
SUBJECTS = [text for _, text in stories.prompts_of(1)]


class Model:
    """Stands for the model of transformers and its tokenizer; logits depend on the step alone."""

    eos_token_id = 0
    logits = np.random.default_rng(0).normal(size=(CONSTANTS["MAX_TOKENS"], len(WORDS)))

    def __init__(self):
        self.seeds, self.knobs = [], []

    def apply_chat_template(self, chats, **knobs):
        assert knobs["add_generation_prompt"] and knobs["padding"]
        assert all(message["role"] == "user" for (message,) in chats)
        return {"input_ids": np.full((len(chats), 3), 9)}

    def generate(self, input_ids, **knobs):
        self.knobs.append(knobs)
        rows = np.repeat(input_ids, knobs["num_return_sequences"], axis=0)
        generator = np.random.default_rng(self.seeds[-1])
        shares = special.softmax(self.logits / knobs["temperature"], axis=1)
        drawn = [generator.choice(len(WORDS), size=len(rows), p=share) for share in shares]
        logits = tuple(np.tile(of, (len(rows), 1)) for of in self.logits)
        return types.SimpleNamespace(sequences=np.hstack([rows, np.array(drawn).T]), logits=logits)

    def batch_decode(self, rows, skip_special_tokens):
        return [" ".join(WORDS[token] for token in row) for row in rows]


@pytest.fixture
def tell(monkeypatch, tmp_path):
    for name, value in CONSTANTS.items():
        monkeypatch.setattr(stories, name, value)

    def run(model, draws=3):
        seeded = types.SimpleNamespace(set_seed=model.seeds.append)
        monkeypatch.setitem(sys.modules, "transformers", seeded)
        return stories.tell(model, model, SUBJECTS, draws=draws, cache=tmp_path)

    return run


def test_stories_are_plain_draws_with_their_likelihood_and_are_not_told_again(tell):
    model, again, more = Model(), Model(), Model()
    found = tell(model)
    assert list(found) == [0.5, 2.0] and len(set(model.seeds)) == 4
    assert all((k["top_k"], k["top_p"], k["do_sample"]) == (0, 1.0, True) for k in model.knobs)
    logs = special.log_softmax(Model.logits, axis=1)
    ended = 0
    for told in found.values():
        assert told.text.shape == (10, 3)
        for text, tokens, finished, likelihood in zip(*map(np.ravel, told), strict=True):
            words = [WORDS.index(word) for word in text.split()] + [0] * bool(finished)
            assert tokens == len(words) and 0 not in words[:-1]
            assert likelihood == pytest.approx(logs[np.arange(len(words)), words].sum())
            ended += finished
    assert 0 < ended < 60
    assert found[0.5].log_likelihood.mean() > found[2.0].log_likelihood.mean()
    kept = tell(again)
    assert again.seeds == [] and (kept[2.0].text == found[2.0].text).all()
    tell(more, draws=2)
    assert more.seeds == model.seeds


def test_the_set_holds_the_stories_with_what_is_known_of_each(tell, tmp_path, monkeypatch):
    model = Model()
    drawn = tell(model, draws=2)
    monkeypatch.setattr(stories, "load_teller", lambda: (model, model))
    knobs = {"flag_values": {"full": False}, "SIZE": (1, 2), **CONSTANTS}
    pairs, stored, cut, _, texts = make(stories, tmp_path, **knobs)
    assert pairs.labels["models"].tolist() == ["0.5"] * 20 + ["2"] * 20
    assert pairs.labels["prompt"].tolist() == list(np.repeat(np.arange(10), 2)) * 2
    assert pairs.labels["types"][2] == list(stories.SUBJECTS)[1]
    np.testing.assert_allclose(pairs.prompts[:20:2], texts.rows(SUBJECTS), atol=1e-3)
    for name in ("tokens", "finished", "log_likelihood"):
        found = getattr(drawn[2.0], name).ravel()
        np.testing.assert_allclose(pairs.rows(np.arange(20, 40)).labels[name], found, rtol=1e-5)
    written = [text for told in drawn.values() for text in told.text.ravel()]
    shorter = [" ".join(text.split()[: cut["truncated"]["words"]]) for text in written]
    for role, given in (("outputs", written), ("further_truncated", shorter)):
        np.testing.assert_allclose(stored[role], texts.rows(given), atol=cut["step"])
    shown = (tmp_path / "stories.txt").read_text()
    assert shown.startswith(SUBJECTS[0])
    assert shown.count("T = 2: ") == 3 and drawn[2.0].text[1, 0] in shown


METRICS = ("metric_SentBert", "metric_BertScore")
LONG = 'with "quotes", and\nlines'
STORY = [("cab, a", ("ab", "bc", LONG), 1.0, 4.5), ("cab, a", ("ab", "ab", "ab"), 0.0, 1.5)]
REPLIES = [("de", ("ab", "cc", "dd", "a"), 0.7, 3.25)]


def task(label_name, rows):
    """A task's file."""
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    names = ["sample_id", "context", "label_value", "label_name"]
    names += [f"resp_{k}" for k in range(len(rows[0][1]))]
    writer.writerow([*names, "metric_abs_hds_mean", "metric_abs_hds_std", *METRICS])
    for context, texts, value, judged in rows:
        writer.writerow(["id", context, value, label_name, *texts, judged, 9, judged / 5, -1])
    return file.getvalue().encode("utf-8-sig")


def lengths_alike(texts, encoder):
    lengths = np.array([len(text) for text in texts])
    return {"length_similarity": np.minimum.outer(lengths, lengths) / lengths.max()}


def test_every_response_knows_its_set_its_texts_and_what_people_said(tmp_path):
    tasks = "data/with_metrics"
    files = {
        f"{tasks}/decTest/x_200_with_hds_resp_gen.csv": task("temp", REPLIES),
        f"{tasks}/conTest/x_200_with_hds_story_gen.csv": task("content_diversity", STORY),
        f"{tasks}/conTest/con_test_1000_prompt_gen.csv": b"x",
    }
    clone = repository(tmp_path / "clone", "me/it", files)
    knobs = {"DIMENSIONS": (9, 3), "of_responses": lengths_alike}
    pairs, _, _, _, texts = make(human, tmp_path, clone, **knobs)
    labels = pairs.labels
    assert labels["sets"].tolist() == [0] * 3 + [1] * 3 + [2] * 4
    assert labels["task"].tolist() == ["conTest story"] * 6 + ["decTest response"] * 4
    np.testing.assert_array_equal(labels["people"], [4.5] * 3 + [1.5] * 3 + [3.25] * 4)
    np.testing.assert_array_equal(labels["label"], [1] * 3 + [0] * 3 + [np.nan] * 4)
    np.testing.assert_allclose(labels["temperature"], [np.nan] * 6 + [0.7] * 4)
    np.testing.assert_allclose(labels["metric_SentBert"], labels["people"] / 5)
    np.testing.assert_array_equal(labels["metric_BertScore"], -1)
    known = {"task", "sets", "prompt", "people", "label", "temperature", *METRICS}
    assert set(labels) == known | {f"text_{name}" for name in similarities.OF_TEXTS}
    # "ab" three times has two different n-grams (of one word) of six.
    np.testing.assert_allclose(labels["text_distinct-n"][[0, 3, 6]], [1, 1 / 3, 1])
    assert "3 sets" in pairs.description and "2 contexts" in pairs.description
    # Equal texts have equal rows, and angles are those of the encoder.
    responses = ["ab", "bc", LONG, *["ab"] * 3, "ab", "cc", "dd", "a"]
    rows = texts.rows([*responses, *["cab, a"] * 6, *["de"] * 4])
    found = np.concatenate([pairs.outputs, pairs.prompts])
    np.testing.assert_allclose(found @ found.T, rows @ rows.T, atol=2e-3)  # float16.
    np.testing.assert_array_equal(pairs.outputs[0], pairs.outputs[6])
    assert labels["prompt"].tolist() == [0] * 6 + [1] * 4
    # Similarities of a set are rows that zeros fill up: of texts of length 2, 2 and 24, and so on.
    with np.load(tmp_path / "human_similarities.npz") as stored:
        ((name, rows),) = stored.items()
    assert name == "length_similarity" and rows.dtype == np.float16
    first, second = np.full((3, 3), 2 / 24), np.ones((3, 3))
    first[2, 2], third = 1, np.ones((4, 4))
    third[3] = third[:, 3] = 0.5
    np.testing.assert_allclose(rows[:6, :3], np.vstack([first, second]), rtol=1e-3)
    np.testing.assert_allclose(rows[6:], third)
    assert not rows[:6, 3].any()


def test_texts_are_compared_by_words_characters_and_tokens(monkeypatch):
    """Of "a b", "A  b" and "c": the marks around the tokens of a text have no part in it."""
    table, numbers = np.eye(6, dtype=np.float32), {"a": 2, "b": 3, "c": 4}
    monkeypatch.setattr(similarities, "token_vectors", lambda table, tokens, mask: table[tokens])

    def encode_batch(texts):
        of_texts = [[0, *map(numbers.get, text.casefold().split()), 1] for text in texts]
        return [types.SimpleNamespace(ids=ids) for ids in of_texts]

    tokenizer = types.SimpleNamespace(encode_batch=encode_batch)
    encoder: Any = types.SimpleNamespace(parameters=jnp.asarray(table), tokenizer=tokenizer)
    found = similarities.of_responses(["a b", "A  b", "c", "b a c"], encoder)
    for name in ("edit_similarity", "trigram_similarity", "token_similarity"):
        np.testing.assert_allclose(
            found[name][:3, :3], [[1, 1, 0], [1, 1, 0], [0, 0, 1]], atol=1e-6
        )
        np.testing.assert_array_equal(found[name], found[name].T)
    np.testing.assert_allclose(found["edit_similarity"][3], [1 / 3, 1 / 3, 1 / 3, 1])
    # All tokens of the first are in the last, and two of three the other way round.
    np.testing.assert_allclose(found["token_similarity"][3], [0.8, 0.8, 0.5, 1], atol=1e-6)
    # " a ", "a b", " b " and " b ", "b a", " a ", "a c", " c ": two of six.
    assert found["trigram_similarity"][3, 0] == pytest.approx(2 / 6)


def test_scores_of_texts_are_those_by_hand():
    """Of "a b c" and "a b d": two words and a pair of words in common."""
    texts = ["a b c", "A b, d"]
    # Four words of six, three pairs of four, two triples of two.
    assert similarities.distinct_n(texts) == pytest.approx((4 / 6 + 3 / 4 + 1) / 3)
    # Two of three words, (1 + 1) of (2 + 1) pairs, (0 + 1) of (1 + 1) triples; as long.
    assert similarities.self_bleu(texts) == pytest.approx(-((2 / 3 * 2 / 3 * 1 / 2) ** (1 / 3)))
    # All words of a text of two in one of three, which is longer by half.
    assert similarities.bleu(["a", "b"], [["a", "b", "c"]]) == pytest.approx(np.exp(1 - 3 / 2))
    assert similarities.self_bleu(["a", "b"]) == 0
    assert similarities.compression(["ab" * 50] * 2) < similarities.compression(["ab", "cd"])
