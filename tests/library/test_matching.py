"""Which prompts are the same, and what is said where models share few, or hold the same answers."""

import itertools
import re
import unicodedata

import numpy as np
import pytest
from answer_files import write

import condvendi_jax as cv
from condvendi_jax.records import matching

FLAGS = ("--similarity=fake_similarities:equal", "--order=2")
EQUAL = {"similarity": "fake_similarities:equal", "orders": [2]}
QUESTIONS = [f"Name the {place} café of guest {k}." for k, place in enumerate("abcdefgh")]
SYSTEM = {"role": "system", "content": "Be brief."}
TEMPLATE = "a system message or a template"


def answers(seed, count=4):
    return np.random.default_rng(seed).choice(["pear", "fig", "plum"], size=(8, count)).tolist()


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def chats(records, *, system=True):
    start = [SYSTEM] * system
    for question, said in zip(QUESTIONS, records, strict=True):
        asked = [*start, {"role": "user", "content": question}]
        yield {"messages": asked, "answers": said}


def turns(seed, system):
    for start in chats(answers(seed), system=system):
        for said in start.pop("answers"):
            yield {"messages": [*start["messages"], {"role": "assistant", "content": said}]}


def lm_eval(template, seed):
    for k, said in enumerate(answers(seed)):
        asked = {"gen_args_0": {"arg_0": template.format(QUESTIONS[k]), "arg_1": {}}}
        yield {"doc_id": k, "doc": {"id": k}, "arguments": asked, "resps": [said]}


def plain(seed=0, **more):
    for question, said in zip(QUESTIONS, answers(seed), strict=True):
        yield {"prompt": question, "answers": said} | more


def follow_ups(seed, *first):
    last = {"role": "user", "content": "And why?"}
    for chat in chats(answers(seed), system=False):
        yield chat | {"messages": [*first, *chat["messages"], last | {"role": "assistant"}, last]}


MERGED = {  # A field of the question alone would make one prompt of many, or is the field itself.
    "follow-ups": (lambda: follow_ups(0), lambda: follow_ups(1, SYSTEM)),
    "plain texts": (plain, lambda: ({**r, "prompt": f"[B] {r['prompt']}"} for r in plain(1))),
    "two fields": (lambda: plain(0, instruction="Do."), lambda: plain(1, instruction="Go.")),
}
FILES = MERGED | {  # Two models that share no prompt as they are.
    "a system message": (plain, lambda: chats(answers(1))),
    "chats and longer chats": (lambda: chats(answers(0), system=False), lambda: chats(answers(1))),
    "answers in messages": (lambda: turns(0, system=False), lambda: turns(1, system=True)),
    "a field beside": (plain, lambda: plain(1, system="Be brief.")),
    "templates": (
        lambda: lm_eval("[INST] {} [/INST]", 0),
        lambda: lm_eval("<|user|>\n{}<|end|>\n", 1),
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_models_that_share_no_prompt_say_so_with_a_flag_that_mends_it(name):
    for file, rows in zip("ab", FILES[name], strict=True):
        write(f"{file}.jsonl", *rows())
    read = cv.read_records(["a.jsonl", "b.jsonl"])
    ((finding, why, remedy),) = matching.few(read.prompts, read.fields)
    assert finding == "a shares 0 of its 8 prompts with b"
    assert why == "a system message or a template stands around equal questions"
    (field,) = re.findall(r"--prompt_field=(\S+)(?=, or)", remedy)
    if name in MERGED:
        assert field == "NAME"
        return
    mended = cv.read_records(["a.jsonl", "b.jsonl"], prompt_field=field)
    assert matching.few(mended.prompts, mended.fields) == []
    assert {len(counts) for counts in mended.counts.values()} == {8}


def test_the_sentence_stands_before_the_scores_on_the_page_and_in_print(run_command):
    for name, system in (("a", False), ("b", False), ("c", True)):
        write(f"{name}.jsonl", *chats(answers(ord(name)), system=system))
    files = ("a.jsonl", "b.jsonl", "c.jsonl")
    report, _ = run_command("report", *files, *FLAGS, "--output=page.html")
    words = "c shares 0 of its 8 prompts with a and b"
    advice = report["advice"][0]
    assert (advice["code"], advice["sentence"][: len(words)]) == ("models", words)
    with open("page.html") as page:
        text = page.read()
    assert 0 < text.index(words) < text.index("<main>")  # On the first screen.
    report, _ = run_command("compare", *files, *FLAGS, "--prompt_field=messages[-1]")
    assert report["shared_prompts"] is None and report["advice"] == []


TEXTS = {  # The prompts of two models, what is said, and the cause.
    "none": (["a b", "c d"], ["e f", "g h"], "0 of its 2 prompts", "their texts show no cause"),
    "capitals": (["Who am I", "Where"], ["who am i", "where"], "0 of its 2", "in capitals alone"),
    "other samples": (["q1", "q2"], ["q1-s1", "q2-s9"], "0 of its 2", "numbers of samples"),
    "fewer than half": (list("abcde"), list("devwx"), "2 of its 5 prompts", "show no cause"),
    "a smaller set": (list("abcde"), list("de"), "2 of its 5 prompts", "show no cause"),
    "two of four": (["A B", "c d", "e", "f"], ["a b", "C d", "g", "h"], "0 of its 4", "capitals"),
    "a template": (["is 3 odd", "is 4 odd"], ["<s>3</s>", "<s>4</s>"], "0 of its 2", TEMPLATE),
}


@pytest.mark.parametrize("name", TEXTS)
def test_causes_are_seen_in_the_texts(name):
    one, two, number, cause = TEXTS[name]
    ((finding, why, remedy),) = matching.few({"m": one, "o": two}, {})
    assert finding.startswith("m shares") and number in finding and cause in why
    assert "prompt_ids" in remedy and "--" not in remedy


def test_models_that_share_half_of_their_prompts_are_not_reported():
    assert matching.few({"m": list("abcd"), "o": list("cdef")}, {}) == []
    of_many = {"m": list("abcd"), "o": list("cdef"), "p": list("uvwd"), "q": list("abxy")}
    ((finding, _, _),) = matching.few(of_many, {})
    assert finding == "p shares 0 to 1 of its 4 prompts with m, o and q"


FORMS = {
    "NFD": lambda text: unicodedata.normalize("NFD", text),
    "blanks": lambda text: f" {text}\t",
    "line ends": lambda text: text.replace(" ", "\r\n") + "\r\n",
    "inner blanks": lambda text: text.replace(" ", "\n \u00a0"),
}


@pytest.mark.parametrize("name", FORMS)
def test_prompts_of_other_forms_are_the_same_and_counted(name):
    texts = [text.replace(" ", "\n") for text in QUESTIONS] if name == "line ends" else QUESTIONS
    other = [text.replace("\n", " ") for text in texts]
    other = list(map(FORMS[name], other))
    models = {"a": answers(0), "b": answers(1)}
    expected = cv.compare(models, texts, **EQUAL)
    found = cv.compare(models, {"a": texts, "b": other}, **EQUAL)
    mixed = cv.compare(models, {"a": texts, "b": [*texts[:4], *other[4:]]}, **EQUAL)
    for result in (found, mixed):
        assert result.ranking("conditional", 2).values == expected.ranking("conditional", 2).values
        assert result.shared_prompts is None and result.evaluations["b"].distinct_prompts == 8
    assert "8 prompts differ in blanks, line ends or Unicode form alone" in found.read
    assert "4 prompts differ" in mixed.read and "differ" not in expected.read
    halves = [text for k, text in enumerate(texts) for text in (text, text, other[k], other[k])]
    alone = cv.evaluate(list(itertools.chain(*models["a"])), halves, **EQUAL)
    assert alone.distinct_prompts == 8 and alone.answers == (4, 4) and "8 prompts" in alone.read
    outputs = dict.fromkeys("ab", np.arange(16) % 3)
    pairs = cv.Pairs.of_models(outputs, {"a": texts * 2, "b": other * 2})
    np.testing.assert_array_equal(pairs["a"].prompt_ids, pairs["b"].prompt_ids)


def test_forms_in_files_are_one_prompt_with_one_weight(run_command):
    rows = [text for asked in QUESTIONS for text in (asked, FORMS["NFD"](asked), f"{asked}\r\n")]
    said = [text for of in answers(0, 3) for text in of]
    records = zip(rows, said, strict=True)
    write("a.jsonl", *[{"prompt": p, "answer": a, "probability": 0.5} for p, a in records])
    read = cv.read_records("a.jsonl")
    assert len(read.counts["a"]) == 8 and sum(read.weights["a"]) == pytest.approx(8)
    report, out = run_command("score", "a.jsonl", *FLAGS)
    assert report["distinct_prompts"] == 8 and "to 8 prompts" in report["read"]
    assert "8 prompts differ in blanks" in report["read"]


def grid(mark, names=("q1", "q2"), count=4):
    return [f"{name}{mark}{k}" for name in names for k in range(count)]


IDS = {  # Ids, and the prompts that they are; None where they may be either.
    "s": (grid("-s"), ["q1"] * 4 + ["q2"] * 4),
    "sample": (grid("_sample_"), ["q1"] * 4 + ["q2"] * 4),
    "seed=": (grid("/seed="), ["q1"] * 4 + ["q2"] * 4),
    "without a sign": (grid("S"), ["q1"] * 4 + ["q2"] * 4),
    "one lost": (grid("-s")[:-1], ["q1"] * 4 + ["q2"] * 3),
    "numbers": (grid("-"), None),
    "numbers with _": (grid("_", names=("maths_1", "maths_2")), None),
    "one name": (grid("/", names=["HumanEval"]), grid("/", names=["HumanEval"])),
    "one number": (["q1-s1", "q2-s1"], ["q1-s1", "q2-s1"]),
    "other numbers": (["a-1", "a-2", "b-3", "b-4"], ["a-1", "a-2", "b-3", "b-4"]),
    "repeated": (grid("-s") * 2, grid("-s") * 2),
    "sentences": (["Do it s1", "Do it s2", "Go s1", "Go s2"],) * 2,
}


@pytest.mark.parametrize("name", IDS)
@pytest.mark.filterwarnings("ignore:prompts. ids such as .* of samples. the names count")
def test_numbers_of_samples_are_no_part_of_an_id(name):
    ids, prompts = IDS[name]
    if prompts is None:
        words = r"of samples or of prompts\. If of samples, --prompts=FILE"
        with pytest.raises(ValueError, match=words):
            matching.without_samples({"m": ids}, refuse=True)
        with pytest.warns(UserWarning, match=words):
            assert matching.without_samples(ids, refuse=False) == ids
    else:
        assert matching.without_samples({"m": ids}, refuse=True) == {"m": prompts}


def batch(ids):
    for name, text in zip(ids, itertools.chain(*answers(0)), strict=True):
        said = {"body": {"choices": [{"message": {"role": "assistant", "content": text}}]}}
        yield {"custom_id": name, "response": said}


def test_ids_of_samples_in_files_and_in_python(run_command):
    pandas = pytest.importorskip("pandas")
    names = [f"q{k}" for k in range(8)]
    write("a.jsonl", *batch(grid("-s", names)))
    with pytest.warns(UserWarning, match=r"'q0-s0' are 8 names with 4 numbers each, of samples"):
        report, _ = run_command("score", "a.jsonl", *FLAGS)
    assert report["distinct_prompts"] == 8 and report["answers"] == [4, 4]
    assert " to 8 prompts " in report["read"] and report["inputs"]["answers"]["a"]["prompts"] == 8
    write("a.jsonl", *batch(grid("-", names)))
    with pytest.raises(ValueError, match=r"name the field of the ids, --prompt_field=NAME"):
        run_command("score", "a.jsonl", *FLAGS)
    with (
        pytest.warns(UserWarning, match="prompts: under Indicator"),
        pytest.warns(UserWarning, match="ids such as 'q0-0' are 8 names with 4 numbers each"),
    ):
        report, _ = run_command("score", "a.jsonl", *FLAGS, "--prompt_field=custom_id")
    assert report["distinct_prompts"] == 32
    asked = {name: [{"role": "user", "content": f"Ask {name[:2]}."}] for name in grid("-", names)}
    requests = [{"custom_id": k, "body": {"messages": text}} for k, text in asked.items()]
    write("requests.jsonl", *requests)
    report, _ = run_command("score", "a.jsonl", *FLAGS, "--prompts=requests.jsonl")
    assert report["distinct_prompts"] == 8
    said, ids = list(itertools.chain(*answers(0))), pandas.Series(grid("_", names), range(1, 33))
    with pytest.raises(ValueError, match="pass prompt_ids=prompts"):
        cv.evaluate(pandas.Series(said, ids.index), ids, similarity=EQUAL["similarity"])
    with pytest.warns(UserWarning, match="prompts: under Indicator"):
        found = cv.evaluate(np.arange(32) % 3, [*ids], prompt_ids=[*ids], orders=[2])
    assert found.distinct_prompts == 32


def test_labels_of_other_types_are_said_to_differ():
    said, texts = {name: ["fig", "pear"] * 6 for name in "ab"}, ["0", "1", "2"] * 4
    with pytest.warns(UserWarning, match="prompts: 0 is int in one model and str in another"):
        cv.compare(said, {"a": [0, 1, 2] * 4, "b": texts}, **EQUAL)


def test_copies_are_named_by_their_answers(run_command):
    records = list(plain())
    write("a.jsonl", *records)
    write("copy.jsonl", *[dict(reversed(record.items())) for record in records[::-1]])
    write("b.jsonl", *chats(answers(1), system=False))
    report, _ = run_command("compare", "a.jsonl", "copy.jsonl", "b.jsonl", *FLAGS)
    words = "a and copy have the same answers to the same prompts (all 32). Leave one out"
    assert [item["sentence"][: len(words)] for item in report["advice"]] == [words]
    models = {name: answers(seed) for name, seed in {"a": 0, "b": 1, "same": 0}.items()}
    found = cv.compare(models, QUESTIONS, **EQUAL)
    assert str(found).startswith("WARNING: a and same have the same answers")
    for name in ("a", "copy"):
        write(f"{name}.jsonl", *[record | {"model": "m"} for record in records])
    with pytest.warns(UserWarning, match=r"a\.jsonl and .*copy\.jsonl have the same answers"):
        cv.read_records(["a.jsonl", "copy.jsonl"])
