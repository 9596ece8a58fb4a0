"""Runs of agents as sequences of tool calls: how alike two are, and the logs that hold them."""

import itertools
import json
import sys
from types import SimpleNamespace as Space

import numpy as np
import pytest

import condvendi_jax as cv
from condvendi_jax.cli.__main__ import main
from condvendi_jax.encoders.similarity import calls

TASKS, N = [f"task {k}" for k in range(30)], 12


def test_similarity_is_the_share_of_calls_in_one_order():
    def common(one, other):  # A call is a tool and its arguments.
        if not (one and other):
            return 0.0
        (tool, given), (second, too) = one[-1], other[-1]
        both = common(one[:-1], other[:-1]) + (tool == second) * (1 + (given == too)) / 2
        return max(common(one[:-1], other), common(one, other[:-1]), both)

    rng = np.random.default_rng(0)
    runs = [(*map(tuple, rng.integers(0, 3, (k % 6, 2)).tolist()),) for k in range(16)]
    for two in itertools.product(runs, runs):
        size, shared = sum(map(len, two)), common(*two)
        texts = ["\n".join(map("{0[0]}({0[1]})".format, run)) for run in two]
        assert calls(*texts) == pytest.approx(shared / (size - shared) if size else 1)
    assert calls('{"name": "s"}', '{"name": "t"}') == 0  # These name no tool.
    short = ["\n".join(rng.choice([*"abc"], rng.integers(1, 6))) for _ in range(50)]
    assert 0 < cv.Similarities.from_function("calls", short).negative < 0.03


def scored(runs):
    order = cv.evaluate(runs, TASKS, similarity="calls", orders=[2]).order(2)  # Nothing is cut.
    return order.unbiased.conditional, order.population.intervals.conditional


def drawn(ways, seed, runs=10):
    return np.random.default_rng(seed).choice(ways, size=(len(TASKS), runs)).tolist()


@pytest.mark.parametrize("runs", [10, pytest.param(40, marks=pytest.mark.slow)])
@pytest.mark.parametrize("count", [2, 4, 8])
def test_ways_are_counted(count, runs):
    """Those of disjoint tools; others, of the same tools in other orders, by their similarity."""
    apart = [f"answer\nfind\nend\n{way}".replace("\n", f"{way}\n") for way in range(count)]
    others = ["\n".join(tools) for tools in itertools.islice(itertools.permutations("abcd"), count)]
    for ways, seed in itertools.product((apart, others)[: 1 + (runs > 10)], range(3)):
        number = 1 / np.mean([calls(*two) ** 2 for two in itertools.product(ways, repeat=2)])
        low, high = scored(drawn(ways, seed, runs))[1]
        assert low < (count if ways is apart else number) < high


def test_noisy_copies_count_as_more_ways_up_to_a_bound():
    """One of N calls is left out, repeated or has other arguments: copies share (N - 2) / N."""
    rng = np.random.default_rng(0)

    def noisy(way):
        place, run = rng.integers(N), way.split("\n")
        changed = [], [run[place]] * 2, [run[place].replace("1", f"{rng.integers(2, 9)}")]
        return "\n".join([*run[:place], *changed[rng.integers(3)], *run[place + 1 :]])

    exact = drawn(["\n".join(f"{way}{'x' * k} (1)" for k in range(N)) for way in "abcd"], 1)
    number, changed = scored(exact)[0], scored([[*map(noisy, row)] for row in exact])[0]
    assert number < changed < number / (1 - 2 / N) ** 2


def test_a_run_as_a_list_of_its_calls_is_said():
    with pytest.warns(UserWarning, match="all runs have one call; a run is one text"):
        cv.enough([["search", "read", "edit"]] * 3, similarity="calls")


MADE, RUN = [("search", {"q": "a", "n": 2}), ("read", {})], ['search {"n": 2, "q": "a"}', "read"]
ASKED = [{"role": "system", "content": "s"}, {"role": "user", "content": "p"}]
LAST = [{"role": "assistant", "content": "done"}, {"role": "tool", "content": "x"}]
PLAIN = [{"name": tool, "arguments": json.dumps(given)} for tool, given in MADE]
OPENAI = [{"role": "assistant", "tool_calls": [{"type": "function", "function": c} for c in PLAIN]}]
OLDER = [{"role": "assistant", "content": None, "function_call": call} for call in PLAIN]
USED = [{"type": "tool_use", "name": tool, "input": given} for tool, given in MADE]
PARTS = [{"role": "assistant", "content": [{"type": "thinking"}, {"type": "text"}, "z", *USED]}]
NAMED = [{"id": "1", "name": tool, "arguments": given or None} for tool, given in MADE]
SCHEMA = {"evaluation_id": "e", "output": None, "input": {"raw": "system: s\n\nuser: p"}}
GEMINI = [{"text": "z"}, *({"functionCall": {"name": t, "args": given}} for t, given in MADE)]
CHATS = {"OpenAI": OPENAI, "older": OLDER, "Anthropic": PARTS, "none": []}
CHATS |= {"Gemini": [{"role": "model", "parts": GEMINI}]}
CHATS["LangChain"] = [{"role": "assistant", "tool_calls": [p["functionCall"] for p in GEMINI[1:]]}]
LOGS = {name: {"messages": ASKED + said + LAST, "answer": "y"} for name, said in CHATS.items()}
LOGS |= {
    "EEE": SCHEMA | {"messages": [*ASKED, {"role": "assistant", "tool_calls": NAMED}, *LAST]},
    "lists": {"prompt": ASKED, "tool_calls": [USED, PLAIN], "answer": "y"},
    "names": {"prompt": ASKED, "tool_calls": json.dumps(RUN)},
    "choices": {"response": {"choices": [{"message": OPENAI[0]}]}, "request": {"messages": ASKED}},
}
BAD = {"a list of tool calls": "search", "received None": None, "{'type'": [{"type": "x"}]}
BAD |= {"'x'": [LAST[0] | {"tool_calls": "x"}], "JSON .*{q": [{"name": "s", "arguments": "{q"}]}


def test_logs_hold_runs(tmp_path, monkeypatch):
    def read(*rows, name="m.jsonl"):
        (tmp_path / name).write_text("\n".join(map(json.dumps, rows)))
        records = cv.read_records(tmp_path / name, answer_field="tool_calls")
        assert {*records.prompts["m"]} >= {"system: s\n\nuser: p"}
        return [run.split("\n") for run in records.answers["m"]]

    for name, row in LOGS.items():
        if name == "none":
            with pytest.warns(UserWarning, match="1 of 1 runs have no tool call that is read"):
                assert read(row) == [["(no calls)"]]
        else:
            assert read(row) == [RUN] * (1 + (name == "lists")), name
    for words, bad in BAD.items():
        with pytest.warns(UserWarning, match=f"line 2: expected .*{words}"):
            read(LOGS["OpenAI"], {"prompt": "p", "tool_calls": bad})
    made = {"tool_calls": [Space(function=tool, arguments=given) for tool, given in MADE]}
    asked = [Space(source="input", role="", model_dump=lambda t=t: t, **made) for t in ASKED]
    turns = [Space(source="generate", role="assistant", **made)]
    said = [Space(completion=text, choices=[]) for text in ("", "y", "")]
    runs = [Space(id=1, messages=asked + turns * (k < 1), output=said[k]) for k in range(3)]
    log = Space(eval=Space(model="m"), results=None, samples=runs)
    for module in ("inspect_ai", "inspect_ai.log"):
        monkeypatch.setitem(sys.modules, module, Space(read_eval_log=lambda *_, **__: log))
    with pytest.warns(UserWarning, match="line 3: expected a list"):  # It said and did nothing.
        assert read(name="m.eval") == [RUN, ["(no calls)"]]


def test_the_command_compares_tool_calls_by_itself(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    runs = [[*["answer\nfind"] * 3, f"find ({task})"] for task in TASKS]  # Answers would be cut.
    said = [(task, run) for task, row in zip(TASKS, runs, strict=True) for run in row]
    rows = [{"prompt": t, "tool_calls": r.split("\n"), "answer": f"{t} {r}"} for t, r in said]
    (tmp_path / "m.jsonl").write_text("\n".join(map(json.dumps, rows)))
    main(["", "score", "m.jsonl", "--answer_field=tool_calls", "--order=2", "--json=r.json"])
    assert capsys.readouterr().err.count("note: runs are compared by their tool calls") == 1
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["inputs"]["similarity"] == "calls" and not report["advice"]
    number = report["scores"][0]["unbiased"]["conditional"]
    assert number == scored(runs)[0] == pytest.approx(6 / (3 + 3 * (0.5 / 2.5) ** 2))
    assert cv.read_records("m.jsonl").fields["answers"] == ["answer"]  # As without tool calls.
