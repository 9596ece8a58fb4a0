"""What a result says of itself for a paper: the paragraph, the table in LaTeX, the citations."""

import re
import shutil
import subprocess

import jax
import numpy as np
import pytest
from oracles import draw_pairs

import condvendi_jax as cv
from condvendi_jax.cli import __main__
from condvendi_jax.results import evaluation as evaluations

N = 40
OUTPUTS, PROMPTS = draw_pairs(N, dtype=np.float32)
FEW = PROMPTS[np.arange(N) // 4]
KERNELS = {"output_kernel": cv.Gaussian(0.7), "prompt_kernel": cv.Gaussian(0.1)}
QUIET = {"orders": [2], "errors": False}
HOSTILE = ["a_b & 50%", "\\input{x}", "[1] #2", "*", "~^$|<>", "{"]
NAMED = {"backslash": "\\", "asciitilde": "~", "asciicircum": "^"}
NAMED |= {"less": "<", "greater": ">", "bar": "|"}
COMMANDS = {f"text{name}{{}}": sign for name, sign in NAMED.items()} | {c: c for c in "&%$#_{}"}
TOKEN = re.compile(r"\\(text\w+\{\}|[&%$#_{}])|\$\\pm\$|\{([\[*])\}|([^\\&%$#_{}~^<>|])")


def typeset(source):
    """What LaTeX prints, of the few commands that a report has; an error for any other."""
    assert re.fullmatch(f"(?:{TOKEN.pattern})*", source), f"LaTeX would not print: {source!r}"
    return TOKEN.sub(lambda m: COMMANDS[m[1]] if m[1] else m[2] or m[3] or "±", source)


def cells(table):
    """The rows of a `tabular`, as printed."""
    begin, columns, table = table[table.index("\\begin{tabular}") :].split("@{}", 2)
    columns = re.sub(r"p\{.*?\}", "p", columns)
    rules, lines = ("\\toprule", "\\midrule", "\\bottomrule"), table.split("\n")[1:]
    lines = [line for line in lines[: lines.index("\\end{tabular}")] if line not in rules]
    rows = [re.split(r"(?<!\\) & ", line.removesuffix(" \\\\")) for line in lines]
    assert {len(row) for row in rows} == {len(columns)} and begin == "\\begin{tabular}{"
    # A row that began with one of these would be an option of the row before it.
    assert not any(line[0] in "[*" for line in lines)
    return [[typeset(cell) for cell in row] for row in rows]


def prose(paragraph):
    """The paragraph as printed, and the keys that it cites."""
    keys = [key for group in re.findall(r" \\cite\{(.*?)\}", paragraph) for key in group.split(",")]
    return typeset(re.sub(r" \\cite\{.*?\}", "", paragraph)), keys


@pytest.mark.slow
def test_hostile_names_are_printed_as_they_are():
    models = {name: (1 + index) * OUTPUTS for index, name in enumerate(HOSTILE)}
    found = cv.compare(models, FEW, **KERNELS, orders=[2])
    report = cv.report.latex(found, encoder="clip_vit & co", long=True)
    heading, *rows = cells(report.latex)
    names = ["model", "n", "to one prompt", "RKE", "Conditional-RKE", "Information-RKE"]
    assert [name for name in heading if name not in ("plug-in", "alike")] == names
    assert [row[0] for row in rows] == list(found.main[0].values)
    for name, row in zip(found.main[0].values, rows, strict=True):
        known = [*zip(heading, row, strict=True)]
        by_name = [cell for place, cell in known if place in names[3:]]
        assert by_name == [str(ranking.estimate(name)) for ranking in found.rankings]
        shown = [float(cell) for place, cell in known if place == "plug-in"]
        assert shown == pytest.approx([r.plug_in[name] for r in found.rankings], rel=1e-3)
    words, _ = prose(report.paragraph)
    assert "We scored 40 outputs to 10 prompts from each of 6 models: the number" in words
    assert "The embeddings are those of clip_vit & co." in words
    assert all(f"{ranking.name}: {ranking.in_full()}" in words for ranking in found.rankings)
    assert "Models that share a letter cannot be told apart at" in words
    assert "matched row by row" in words


def test_the_paragraph_says_what_was_chosen():
    found = cv.evaluate(OUTPUTS, FEW, rule="median", prompt_kernel=cv.Cosine(), seed=3)
    words, keys = prose(cv.report.latex(found, long=True).paragraph)
    width = found.bandwidths["outputs"].bandwidth
    for part in (
        "We scored 40 outputs to 10 prompts: the number of different outputs to one prompt",
        "The embeddings are those of [name the encoder]",
        "Order 2: unbiased, for 10 prompts with any number of outputs to each; plug-in: ",
        f"The kernel of the outputs is Gaussian with bandwidth {width:.4g} (median distance).",
        "The kernel of the prompts is the cosine kernel.",
        "[low, high]: 95%, over other samples at these bandwidths; order 2",
        f"in {found.dtype} by condvendi_jax {cv.__version__} (seed 3).",
        "Saturated: different prompts count as alike (RKE",
    ):
        assert part in words
    assert keys == ["jalali2026conditional", "jalali2023rke", "condvendi-jax"]
    assert "--equal_prompts" not in words  # That is for the author, not for the reader.
    comment, table = cv.report.latex(found).latex.split("\\begin{table}")
    assert comment.startswith("% WARNING: ") and "--equal_prompts" in comment and table
    with pytest.raises(TypeError, match="encoder: expected its name, received 3"):
        cv.report.latex(found, encoder=3)
    classes = cv.Similarities.from_classes([0, 0, 1, 2] * 10, [*range(10)] * 4)
    assert "embeddings" not in cv.report.latex(cv.evaluate(classes, orders=[2])).paragraph


def test_outputs_alone_of_one_model_without_errors():
    """Weighted and truncated; order 1 needs no citation of the paper on order 2."""
    options = {"output_kernel": cv.Gaussian(0.7), "orders": [1], "errors": False}
    found = cv.compare({"a": OUTPUTS}, **options, truncation=5, weights=np.arange(1.0, N + 1))
    report = cv.report.latex(found, encoder="x", long=True)
    words, keys = prose(report.paragraph)
    start = "Different outputs: about 4.8, by Vendi, t = 5. We scored 40 weighted outputs by "
    assert words.startswith(f"{start}Vendi, t = 5: the number of different outputs.")
    assert "[low, high]" not in words
    assert keys == ["jalali2026conditional", "condvendi-jax"]
    assert cells(report.latex)[0] == ["model", "n", "Vendi, t = 5"]
    plain = cv.report.latex(cv.evaluate(OUTPUTS, **options), long=True)
    assert cells(plain.latex)[1][0] == "1 (Vendi)"
    assert ". We scored 40 outputs by Vendi" in prose(plain.paragraph)[0]
    method = cv.MatrixFree(jax.random.key(0))
    report = cv.report.latex(cv.evaluate(OUTPUTS, **options, method=method), long=True)
    words, _ = prose(report.paragraph)
    assert "[low, high] covers the scores that all eigenvalues would give" in words
    assert re.fullmatch(r"[\d.]+ \[[\d.]+, [\d.]+\]", cells(report.latex)[1][1])


def test_models_of_different_numbers_are_named_with_theirs():
    models = {"a": OUTPUTS, "b": OUTPUTS[:30]}
    own = {"a": FEW, "b": FEW[:30]}
    found = cv.compare(models, own, one_population=True, **KERNELS, **QUIET)
    words, _ = prose(cv.report.latex(found, long=True).paragraph)
    assert "We scored 30 to 40 outputs to 8 to 10 prompts from each of 2 models" in words
    assert "Differences are not tested: standard errors were not computed" in words
    assert "share a letter" not in words


def test_citations_are_those_of_the_project(pytestconfig):
    report = cv.report.latex(cv.evaluate(OUTPUTS, FEW, **KERNELS, **QUIET))
    cited = (pytestconfig.rootpath / "CITATION.cff").read_text(encoding="utf-8")
    entries = report.bibtex.split("\n\n")
    assert [entry.partition(",")[0] for entry in entries] == [
        "@inproceedings{jalali2026conditional",
        "@inproceedings{jalali2023rke",
        "@misc{condvendi-jax",
    ]
    for entry in entries[:2]:
        fields = dict(re.findall(r"^  (\w+) = \{+(.*?)\}+,$", entry, re.MULTILINE))
        (work,) = (part for part in cited.split("\n  - type") if f'"{fields["title"]}"' in part)
        named = re.findall(r"family-names: (.+?), given-names: (.+?)\}", work)
        assert fields["author"] == " and ".join(map(", ".join, named))
        assert f"year: {fields['year']}\n" in work
        assert f"name: {fields['booktitle']}\n" in work
    assert f"note = {{Version {cv.__version__}}}" in entries[2]
    assert str(report).split("\\endinput")[1].endswith(report.bibtex)


@pytest.mark.slow
def test_the_command_writes_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, array in {"x": OUTPUTS, "y": 2 * OUTPUTS, "t": FEW}.items():
        np.save(f"{name}.npy", array)
    options = ["--prompts=t.npy", "--order=2", "--output_bandwidth=0.7", "--prompt_bandwidth=0.1"]
    targets = "--latex=paper.tex", "--latex_details=long.tex"
    __main__.main(["", "compare", "x_&=x.npy", "y.npy", *options, *targets])
    found = cv.compare({"x_&": OUTPUTS, "y": 2 * OUTPUTS}, FEW, **KERNELS, orders=[2])
    for name, long in {"paper.tex": False, "long.tex": True}.items():
        report, written = cv.report.latex(found, long=long), (tmp_path / name).read_text()
        assert written.startswith(report.paragraph.partition("The emb")[0])
        assert report.latex in written


@pytest.mark.parametrize(("letters", "column"), [(28, "l"), (29, r"p{0.45\linewidth}")])
def test_names_of_more_than_28_letters_are_wrapped(letters, column):
    found = cv.compare({"a" * letters: OUTPUTS}, **QUIET, output_kernel=cv.Gaussian(0.7))
    for long in (False, True):
        assert f"{{@{{}}{column}l" in cv.report.latex(found, long=long).latex


ANSWERS = (OUTPUTS, np.repeat(np.arange(8), 5))
LONG = {f"{name}, a model with a long name": (1 + k) * OUTPUTS for k, name in enumerate("abcdefg")}
LAYOUTS = {
    "answers": lambda: cv.compare({"a": OUTPUTS, "b": 3 * OUTPUTS}, ANSWERS[1], orders=[2]),
    "near prompts": lambda: cv.compare({"a": OUTPUTS, "b": 3 * OUTPUTS}, PROMPTS),
    "outputs": lambda: cv.compare({"a": OUTPUTS, "b": OUTPUTS[:30]}, rule="median"),
    "one model": lambda: cv.evaluate(*ANSWERS),
    "order 1": lambda: cv.evaluate(OUTPUTS, orders=[1], errors=False),
    "long names": lambda: cv.compare(LONG, ANSWERS[1], orders=[2]),
    "hostile names": lambda: cv.compare(dict.fromkeys(HOSTILE, OUTPUTS), ANSWERS[1], orders=[2]),
    "saturated": lambda: cv.compare(
        {"a": OUTPUTS, "b": OUTPUTS + 1}, ANSWERS[1], output_kernel=cv.Gaussian(0.07), orders=[2]
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_short_report_has_80_words_and_the_numbers_of_the_figure(layout, tmp_path):
    found = LAYOUTS[layout]()
    report = cv.report.latex(found)
    assert len(report.paragraph.split()) <= 80 and report.paragraph.count("\\cite{") == 2
    alone = isinstance(found, cv.inference.Evaluation)
    bars = evaluations.bars({"": found}) if alone else found.bars
    (_, number, *more, _), *rows = cells(report.latex)
    assert number == (f"differ, of {bars.limit:g}" if bars.limit == 5 else bars.by or "number")
    expected = [[bar.model or "outputs", str(bar), bar.letters] for bar in bars.models]
    assert [[*row[:2], row[-1]] for row in rows] == expected
    # Letters are of the score beside them, where the first number has none of its own.
    near = layout == "near prompts"
    assert more == (["Conditional-RKE"] if bars.limit == 5 else ["near prompts"] * near)
    assert ("different outputs for prompts closer than" in report.latex) == near
    if more and alone:
        assert rows[0][2] == str(found.order(2).estimate("conditional", unbiased=True))
    elif more:
        assert [r[2] for r in rows] == [str(found.main[0].estimate(b.model)) for b in bars.models]
    assert (f"of {bars.limit:g}: Conditional-RKE (order 2) of these." in report.latex) == (
        bars.limit == 5
    )
    assert ("share a letter" in report.latex) == any(bar.letters for bar in bars.models)
    assert not any(bar.letters for bar in bars.models) or layout != "saturated"
    if shutil.which("pdflatex") is None:
        return
    head = "\\documentclass{article}\\usepackage{booktabs}\\usepackage[textwidth=3.3in]{geometry}"
    body = f"\\begin{{document}}\\sloppy {report.paragraph}\n\n{report.latex}\\end{{document}}"
    (tmp_path / "paper.tex").write_text(head + body)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "Overfull" not in done.stdout, done.stdout[-2000:]
