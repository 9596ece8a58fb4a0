"""Each guarantee in documents, docstrings and printed sentences has its claim and its premise."""

import re
from pathlib import Path

from theory_checks import statements

ROOT = Path(__file__).parents[2]
# Promises about probabilities, all looks or samples, or the best choice.
PROMISE = re.compile(
    r"confidence(?!.interval)|probability (?:of any|(?:of )?at most|about|1 -)|rate of false"
    r"|(?:hold|right)\S* (?:jointly|together|at once|at every|at any n|at all|for all bandwidths)"
    r"|valid at any n|in (?:at most |about )*(?:\d+|{.*?})% of (?:samples|studies|runs)|guarantee"
    r"|probability at least"
    r"|\[best sh|cannot exceed|at most (?:the geometric|this far)|whose interval misses|unbiased if"
)
TABLE = r"""
# Files, a pattern of the sentence, its claim, and the premise that stands beside it.
docs/acts.md | this end holds at all numbers | cv-new-answers | If answers are independent
docs/acts.md, inference/mixing.py | \[best sh|same with prob | cv-shares | independent answers
docs/acts.md, inference/selection.py | a \[guarantee|this far | cv-greedy | with(out)? prompts
docs/acts.md | needs a significant test | cv-all-encoders | under each
docs/bandwidths.md | most that to one\] | cv-order-2-identity | independent given their prompts
docs/command_line.md, cli/options.toml | with 95% conf | cv-new-answers | if answers are independent
docs/decisions.md | good and differ from all good ones | cv-good-and-different | k draws
docs/faq.md | it \[at least 1\] | cv-early-eq-6-nonnegative | order 1 without truncation
docs/how_many_samples.md, inference/population.py | unbiased(\]| if) | cv-order-2-designs | indepen
docs/how_many_samples.md | within a factor of | cv-minimax | independent pairs
docs/how_many_samples.md | With confidence 0.95 | cv-theorem-1-any-n | pairs, at a fixed bandwidth
docs/how_many_samples.md | holds at any n | cv-interval-any-n | independent rows or prompts, at a
docs/which_encoder.md | is a wider kernel | cv-encoder-noise | Gaussian noise
docs/training_loops.md | level holds. | cv-alarms | independent .*bandwidth that no rule
inference/asked_once.py | bounds the simil | cv-order-2-identity | independent given their prompts
inference/finite_sample.py | this conf|confidence(: t|, u| 0) | cv-interval-any-n | indep
inference/finite_sample.py | valid at any n | cv-interval-any-n | kernels must not be chosen
inference/monitoring.py | probability of at most `level` | cv-alarms | independent, and no rule
inference/monitoring.py | false alarms in at most {.*}% of | cv-alarms | below
inference/stopping.py | probability 1 - level | cv-new-answers | answers are drawn independently
inference/stopping.py | every look at a prompt | cv-new-answers | if answers are independent
results/comparison.py | at most about {.*}% of studies | cv-all-encoders | under all
results/one_prompt.py | no less | cv-order-2-identity | independent outputs
scores/clusters.py | most the geometric | cv-concave | A mixture's entropy
statistics/asked_once.py | at most the mean of s | cv-order-2-identity | Independent outputs
statistics/sequential.py | hold at once with probability | cv-new-answers | independent answers
statistics/sequential.py | probability (of )?at most | cv-alarms | answers are independent
# What was measured, or proved elsewhere: the page, and words that say how sure it is.
docs/bandwidths.md, inference/profiles.py | (hold|right) (for|at) | bandwidths.md | about
docs/decisions.md, docs/leaderboard.md | ranks are right | studies/intervals.md | about|each test
docs/command_line.md, cli/options.toml, inference/comparisons.py | rate of false | errors.md | bout
results/comparison.py, results/ranking.py | family-wise rate of false | errors.md | about
results/evaluation.py, results/one_prompt.py | 95% conf | studies/asked_once.md | with about
results/one_prompt.py, results/plots.py | about 95% of samples | studies/asked_once.md | about
results/profile.py | hold (at once|jointly) | bandwidths.md | about
statistics/intervals.py | share of samples whose | errors.md | about
statistics/multiplicity.py | probability of any false | errors.md | If each p-value is valid
"""
ROWS = [line.split(" | ") for line in TABLE.splitlines() if " | " in line]


def units(path):
    """The paragraphs of a document or strings of a module, and whether each can name a claim."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        parts = re.findall(r'(?s)"""(.*?)"""|"((?:[^"\\\n]|\\.)+)"', text)
        return {" ".join("".join(part).split()): bool(part[0]) for part in parts}
    text = re.sub(r"(?ms)^```.*?^```$", "", text)  # What is printed comes from the modules.
    parts = re.split(r"\n\s*\n|\n(?=[-|]|\w+ = )", text)
    return {" ".join(part.split()): path.suffix == ".md" for part in parts}


GLOBS = "README.md", "docs/*.md", "condvendi_jax/**/*.py", "condvendi_jax/**/*.toml"
PATHS = {path for pattern in GLOBS for path in ROOT.glob(pattern)}
PATHS -= {ROOT / "docs/theory.md", ROOT / "docs/proofs.md"}
SAID = {str(path.relative_to(ROOT)).removeprefix("condvendi_jax/"): units(path) for path in PATHS}


def test_guarantee_names_its_claim_and_premise():
    for names, piece, source, premise in ROWS:
        page = source.endswith(".md")
        assert source in statements.texts() or (ROOT / "docs" / source).exists()
        for name in names.split(", "):
            held = {unit: named for unit, named in SAID[name].items() if re.search(piece, unit)}
            assert held, (name, piece)
            for unit, named in held.items():
                assert re.search(premise, unit), (name, piece)
                assert page or not named or source in unit, (name, piece)


def test_every_promise_is_listed():
    for name, parts in SAID.items():
        listed = [piece for names, piece, *_ in ROWS if name in names.split(", ")]
        for sentence in (sentence for unit in parts for sentence in unit.split(". ")):
            if PROMISE.search(sentence) and sentence.count(" ") > 5:
                missing = f"a row of TABLE, and its premise in the paragraph: {name}: {sentence}"
                assert any(re.search(piece, sentence) for piece in listed), missing
