"""What is cut from around answers: by what they share, with marks made up by a generator."""

import random

import pytest
from fake_similarities import equal

import condvendi_jax as cv
from condvendi_jax.records.cleaning import cleaned

THOUGHT = "Let me think about the map, and so"
CITIES = ["Paris", "Rome", "Bonn"]
PROMPT = "Which city is the capital of France?"
AROUND = {  # A text around the answer "Paris", and what is said to be cut.
    "<think>{t}</think>\n\n{a}": "reasoning",
    "<think>{t}</think><think></think> {a}": "reasoning",
    "[THINK]{t}[/THINK]{a}": "reasoning",
    "◁think▷{t}◁/think▷{a}": "reasoning",
    "<seed:think>{t}</seed:think>{a}": "reasoning",
    '<details type="reasoning">{t}</details>{a}': "reasoning",
    "Thinking...\n{t}\n...done thinking.\n\n{a}": "reasoning",
    "analysis{t}assistantfinal{a}": "reasoning",
    "Thought: {t}\nFinal Answer: {a}": "reasoning",
    "{t}</think>{a}": "reasoning",
    "<|channel|>analysis<|message|>{t}<|end|><|start|>assistant<|channel|>final<|message|>{a}": (
        "tokens of a template"
    ),
    "<|begin_of_thought|>{t}<|end_of_thought|>{a}": "tokens of a template",
    "<|im_start|>assistant\n{a}<|im_end|>": "tokens of a template",
    "<start_of_turn>model\n{a}<end_of_turn>": "tokens of a template",
    "[INST] {p} [/INST] {a} </s>": "tokens of a template",
    "<answer>{a}</answer>": "'<answer>'",
    "{t} <answer>{a}</answer>": "'<answer>'",
    "<plan>{t}</plan>{a}": "'<plan>'",
    "### Response:\n{a}": "'### Response:'",
    "{p} {a}": "the prompt",
    "Below is a task.\n\n### Task:\n{p}\n\n### Response:\n{a}\n\n### End": "'### End'",
    "User: {p}\nAssistant: {a}": "the prompt",
    "[BEGIN THOUGHTS]\n{t}\n[END THOUGHTS]\n{a}": "reasoning",
    "<Reasoning>{t}</reasoning>{a}": "reasoning",
    "{t}\n</think>\n{a}": "reasoning",
    "<s> [INST] <<SYS>>\nYou are kind.\n<</SYS>>\n\n{p} [/INST] {a} </s>": "tokens of a template",
}
KEPT = ["<p>Paris</p><p>Lyon</p>", "so <think> and </think> are tags", "    return 1", "1 < 2 > 0"]
SHARED = [  # What answers share as a part of them.
    *("<!DOCTYPE html>\n<html><body><p>{}</p></body></html>", "SELECT name FROM boats ORDER BY {}")
]
BRACKETS = ["<>", "[]", "◁▷", "⟨⟩", "【】"]


@pytest.mark.parametrize("around", AROUND)
def test_what_stands_around_answers_is_cut(around):
    said = [around.format(t=THOUGHT, a=city, p=PROMPT) for city in ("Paris", "Lyon")]
    result = cleaned(said, [PROMPT] * 2)
    assert result.texts == ["Paris", "Lyon"]
    assert str(result).startswith(f"{AROUND[around]} from 2 answers")


@pytest.mark.parametrize(("letters", "cut"), [(360, True), (440, False)])
def test_a_template_before_the_prompt_has_at_most_400_characters(letters, cut):
    said = [f"{'Be brief. ' * (letters // 10)}{PROMPT} Rome"] * 4
    assert cleaned(said, [PROMPT] * 4).texts == (["Rome"] * 4 if cut else said)


def test_ends_of_sentences_that_were_padded_are_cut():
    texts = [f"{city} of {k}" for k, city in enumerate(CITIES * 4)]
    padded = [text + "<｜end▁of▁sentence｜>" * (1 + k % 5) for k, text in enumerate(texts)]
    assert cleaned(padded, [None] * 12).texts == texts


def test_what_is_the_answer_stays():
    for page in SHARED:
        said = [page.format(city) for city in CITIES]
        assert cleaned(said, [PROMPT] * 3) == (said, {})
    assert cleaned(KEPT, [PROMPT] * 4) == (KEPT, {})
    for text in KEPT:
        assert cleaned([text] * 3, [PROMPT] * 3) == ([text] * 3, {})
    text = "The answer: Paris, which is the final result: no other city"
    assert cleaned([f"<|begin_of_text|>{text}"] * 3, [None] * 3).texts == [text] * 3
    for said in (
        ["[Yes] it is"] * 7 + ["[No] it is not"] * 3,
        ["Answer: a"] * 6 + ["Result: b"] * 4,
        ["Answer: a"] * 7 + ["Answer:"] * 3,  # Too many would be empty.
        ["Answer: a", "b"],  # One, and half, are not most.
        ["Answer: a", "Answer: b", "c", "d"],
    ):
        assert cleaned(said, [None] * len(said)) == (said, {})
    page = [
        '<div class="reasons">a</div><p>b</p>',
        "Reasons:\n- one\nResult: two",
        "</think> is a tag",
    ]
    assert cleaned([*page, "a"], [None] * 4).texts[:2] == page[:2]
    assert cleaned(["Paris <b>x</b>", "<plan>a</plan>b", "c"], [None] * 3).cut == {}


@pytest.mark.parametrize("unfinished", ["<think>so", "<|channel|>analysis<|message|>so"])
def test_of_reasoning_that_was_cut_off_nothing_is_left(unfinished):
    assert cleaned([unfinished, "Paris", "Lyon"], [None] * 3).texts == ["", "Paris", "Lyon"]


@pytest.mark.parametrize("seed", range(40))
def test_marks_that_nobody_knows_are_cut_where_most_answers_share_them(seed):
    rng = random.Random(seed)
    word = "".join(rng.choice("bdfgklmnprstvz") + rng.choice("aeiou") for _ in range(3))
    start, end = rng.choice(BRACKETS)
    opened, closed, token = f"{start}{word}{end}", f"{start}/{word}{end}", f"<|{word}|>"
    forms = {
        "block": lambda text: f"{opened}{rng.random()} is it{closed}\n{text}",
        "wrapper": lambda text: f"{opened}\n{text}\n{closed}",
        "open": lambda text: f"{opened} {text}",
        "end": lambda text: f"{text}{closed}",
        "token": lambda text: f"{token}{text}{token}",
    }
    texts = [f"answer {rng.randrange(5)} of {k}" for k in range(8)]
    for name, dressed in forms.items():
        assert cleaned([*map(dressed, texts)], [None] * 8).texts == texts, name
        few = [dressed(texts[0]), *texts[1:]]
        if name != "token":  # No model says these.
            assert cleaned(few, [None] * 8).texts[1:] == texts[1:], name


def test_texts_from_python_are_cut_as_those_of_files_are():
    prompts = [f"Name a city, number {k}." for k in range(8)]
    echoed = [[f"{prompt} {city}" for city in CITIES] for prompt in prompts]
    options = {"similarity": equal, "orders": [2], "errors": False}
    with pytest.warns(UserWarning, match=r"cut the prompt from 24 answers; pass clean=False"):
        result = cv.evaluate(echoed, prompts, **options)
    assert "Read: 24 texts; cut: the prompt from 24 answers" in str(result)
    assert result.as_dict()["read"] == result.read
    with pytest.warns(UserWarning, match="the prompt from 24 answers stands around answers"):
        kept = cv.evaluate(echoed, prompts, **options, clean=False)
    assert not kept.read
    for odd, words in (("", "8 of 32 are empty"), ("None", "8 of 32 look like errors")):
        with pytest.warns(UserWarning, match=words):
            cv.evaluate([[*CITIES, odd]] * 8, prompts, **options)
