"""Similarities in place of embeddings, against float64 oracles and against their vectors."""

import functools
import json
import re

import fake_similarities
import jax
import numpy as np
import pandas as pd
import pytest
import scipy.linalg
from oracles import assert_close, cosine_gram
from oracles import weighted_entropy as entropy

import condvendi_jax as cv
from condvendi_jax.inference import datasets
from condvendi_jax.report import webpage
from condvendi_jax.statistics import reasons

SIZES = (4, 2, 5, 3, 4, 2, 5, 3, 4, 4, 3, 5)
NAMES = [f"prompt {k}" for k in range(len(SIZES))]
PROMPTS = np.repeat(NAMES, SIZES)
N = len(PROMPTS)
MIXED = np.random.default_rng(1).permutation(N)
INDEFINITE = np.array([[1, 1, 0], [1, 1, 1], [0, 1, 1]], float)  # Eigenvalues 1 and 1 +- sqrt(2).
TEXTS = ["a b", "a c", "a b", "d", "d e", "a", "b", "b c", "b c d"]
ASKED = ["x"] * 5 + ["y"] * 4
WORDS = fake_similarities.words


def close(actual, expected, **options):
    """Equal within the tolerance of float32, in which kernels are computed."""
    assert_close(np.float32(actual), expected, **options)


def vectors(seed=0, d=3):
    return np.random.default_rng(seed).normal(size=(N, d)).astype(np.float32)


def blocks(points):
    """The matrix of each prompt, by its name."""
    return {name: cosine_gram(points[PROMPTS == name]) for name in NAMES}


def conditional(matrices, order):
    """Conditional-*: of rows in equal shares at order 2, as the papers; else of prompts in such."""
    sizes = [*map(len, matrices)]
    numbers = np.repeat(np.arange(len(sizes)), sizes)
    shares = np.ones(numbers.size) if order == 2 else 1 / np.repeat(sizes, sizes)
    joint, prompts = scipy.linalg.block_diag(*matrices), np.equal.outer(numbers, numbers)
    return np.exp(entropy(joint, shares, order) - entropy(prompts, shares, order))


def unbiased(matrices):
    """One over the mean over prompts of the similarity of two different outputs."""
    return 1 / np.mean([(np.sum(of**2) - len(of)) / (len(of) * (len(of) - 1)) for of in matrices])


@pytest.fixture
def seen():
    """The pairs that functions were called with."""
    fake_similarities.SEEN.clear()
    return fake_similarities.SEEN


@pytest.fixture
def words(seen, tmp_path):
    """The similarities of the texts by their words, with a cache of the test's own."""
    made = functools.partial(cv.Similarities.from_function, cache=tmp_path / "kept")
    return lambda function=WORDS, texts=TEXTS, asked=ASKED: made(function, texts, asked)


def gram_of(similarities, rows=slice(None)):
    return similarities.vectors[rows] @ similarities.vectors[rows].T


def jaccard(texts):
    sets = [set(of.split()) for of in texts]
    return np.array([[len(a & b) / len(a | b) for b in sets] for a in sets])


def test_scores_are_those_of_the_matrices_block_by_block():
    matrices = blocks(vectors())
    found = cv.evaluate(cv.Similarities(matrices), errors=False)
    each = [*matrices.values()]
    for order in (1, 2):
        close(found.order(order).decomposition.conditional, conditional(each, order))
    close(found.order(2).unbiased.conditional, unbiased(each))
    assert found.names == ("conditional",)
    assert "Outputs: similarities: given" in str(found) and "negative" not in str(found)
    # Outputs of different prompts count as different.
    kinds = np.sum(np.square(SIZES)) / N**2
    close(found.order(2).decomposition.information, 1 / kinds)
    pairs = cv.Pairs(cv.Similarities(matrices))
    (rows, _), (kernel, _) = pairs.arrays, pairs.kernels
    gram = jax.vmap(jax.vmap(kernel, in_axes=(None, 0)), in_axes=(0, None))(rows, rows)
    close(gram, kernel.cross(rows, rows))
    # One matrix without prompts gives the scores of outputs alone.
    gram = cosine_gram(vectors())
    alone = cv.evaluate(cv.Similarities(gram), errors=False)
    assert alone.names == ("vendi",)
    for order in (1, 2):
        close(alone.order(order).decomposition.vendi, np.exp(entropy(gram, np.ones(N), order)))


@pytest.mark.slow
def test_models_may_answer_the_prompts_in_another_order():
    classes = np.random.default_rng(0).integers(3, size=N)
    given = np.r_[classes, classes[MIXED]], np.r_[PROMPTS, PROMPTS[MIXED]]
    models = cv.Similarities.from_classes(*given).split(["A"] * N + ["B"] * N)
    found = cv.compare(models, orders=[2])
    for ranking in found.rankings:
        close(ranking.values["A"], ranking.values["B"])
        assert ranking.letters["A"] == ranking.letters["B"]
    # What all say is known across models only if they are of one split.
    of_split = webpage.outputs_behind(found.pairs)
    alone = {name: cv.Similarities.from_classes(classes, PROMPTS) for name in "AB"}
    of_each = webpage.outputs_behind(cv.compare(alone, orders=[2]).pairs)
    assert of_split.shared(3) and not of_each.shared(3)


def test_everything_follows_as_for_the_vectors_whose_products_they_are():
    points = {"A": vectors(0), "B": vectors(1, d=2) @ np.eye(2, 3, dtype=np.float32)}
    both = np.concatenate([*points.values()])[np.r_[MIXED, MIXED + N]]
    asked = np.tile(PROMPTS[MIXED], 2)
    whole = cosine_gram(both) * np.equal.outer(asked, asked)
    models = cv.Similarities(whole, prompts=asked).split(["A"] * N + ["B"] * N)
    given = {name: of[MIXED] for name, of in points.items()}
    kernels = {"output_kernel": cv.Cosine(), "profile": False}
    found = cv.compare(models)
    wanted = cv.compare(given, PROMPTS[MIXED], **kernels)
    for ranking in found.rankings:
        expected = wanted.ranking(ranking.score, ranking.order)
        assert ranking.letters == expected.letters
        assert ranking.values == pytest.approx(expected.values, rel=1e-4)
        assert ranking.standard_errors == pytest.approx(expected.standard_errors, rel=1e-3)
        p_values = [of.differences[0].p_value for of in (ranking, expected)]
        assert p_values[0] == pytest.approx(p_values[1], rel=1e-2)
    assert [ranking.score for ranking in found.rankings] == ["conditional"] * 2
    assert found.between.overlaps == pytest.approx(wanted.between.overlaps, rel=1e-3)
    assert found.between.number == pytest.approx(wanted.between.number, rel=1e-4)
    rows, options = (given["A"], PROMPTS[MIXED]), {"order": 2, "kernel": cv.Cosine()}
    table = cv.prompt_table(models["A"], order=2).prompts
    for one, other in zip(table, cv.prompt_table(*rows, **options).prompts, strict=True):
        assert (one.n, one.row) == (other.n, other.row)
        close(one.similarity, other.similarity)
        close(one.contributions.conditional, other.contributions.conditional, loosened=10)
    contributions = cv.contributions(models["A"], order=2)
    expected = cv.contributions(*rows, **options).influences.conditional
    close(contributions.influences.conditional, expected, loosened=10)
    assert "Information" not in str(contributions)


def test_classes_are_labels_that_mean_nothing_across_prompts():
    classes = np.random.default_rng(0).integers(3, size=N)
    found = cv.evaluate(cv.Similarities.from_classes(classes, PROMPTS))
    wanted = cv.evaluate(classes, PROMPTS)
    for order in (1, 2):
        one, other = found.order(order), wanted.order(order)
        close(one.decomposition.conditional, other.decomposition.conditional)
        errors = (of.standard_errors.conditional for of in (one, other))
        close(*errors, loosened=10)
    moved = [f"{prompt} {c}" for prompt, c in zip(PROMPTS, classes, strict=True)]
    again = cv.Similarities.from_classes(moved, PROMPTS)
    assert {*np.unique(again.vectors)} == {0, 1}
    assert cv.evaluate(again).order(2).unbiased == found.order(2).unbiased


def test_negative_eigenvalues_count_as_zero_and_are_said_or_refused():
    name, place = NAMES[-2], slice(-8, -5)  # Of three rows, before the last five.
    matrices = blocks(vectors()) | {name: INDEFINITE}
    share = (np.sqrt(2) - 1) / N  # Of the trace, which is 1 of each row.
    found = cv.Similarities(matrices)
    assert found.negative == pytest.approx(share)
    values, basis = np.linalg.eigh(INDEFINITE)
    projected = basis * np.maximum(values, 0) @ basis.T
    norms = np.sqrt(np.diagonal(projected))
    projected /= np.outer(norms, norms)
    close(np.linalg.norm(found.vectors, axis=1), np.ones(len(found)))
    close(gram_of(found, place), projected)
    result = cv.evaluate(found, errors=False)
    each = [*(blocks(vectors()) | {name: projected}).values()]
    close(result.order(2).unbiased.conditional, unbiased(each))
    assert f"negative eigenvalues, {share:.2g} of the trace, count as zero" in str(result)
    assert cv.Similarities([INDEFINITE], limit=0.2).negative == pytest.approx((2**0.5 - 1) / 3)


def test_a_function_compares_every_two_different_outputs_of_a_prompt_once(words, seen):
    found = words()
    for rows in (slice(5), slice(5, 9)):
        close(gram_of(found, rows), jaccard(TEXTS[rows]))
    # "a b" is there twice; ten pairs are tried in both orders, and the first texts with themselves.
    assert len({frozenset(pair) for pair in seen if len({*pair}) == 2}) == 6 + 6
    assert len(seen) == 6 + 6 + 3 * 10
    in_batches = words(fake_similarities.InBatches())
    assert in_batches.name == "in batches"
    close(in_batches.vectors, found.vectors)


def test_values_are_kept_by_content(words, seen):
    first = words()
    seen.clear()
    order = [5, 6, 7, 8, 4, 3, 2, 1, 0]
    again = words(texts=[TEXTS[k] for k in order], asked=[ASKED[k] for k in order])
    assert not seen
    for rows in (range(5), range(5, 9)):
        close(gram_of(again, [order.index(row) for row in rows]), gram_of(first, rows))
    words(texts=[*TEXTS, "f"], asked=[*ASKED, "y"])
    assert {other for pair in seen for other in pair} == {"a", "b", "b c", "b c d", "f"}
    seen.clear()


def inside(power):
    return lambda one, other: WORDS(one, other) ** power


def executed(power):
    """A function whose code no file has."""
    made = {"words": WORDS, "power": power}
    exec("def to_the(one, other): return words(one, other) ** power", made)
    return made["to_the"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (functools.partial(WORDS), functools.partial(fake_similarities.equal)),
        (np.vectorize(WORDS), np.vectorize(fake_similarities.equal)),
        (fake_similarities.powered(1), fake_similarities.powered(3)),
        (fake_similarities.Powered(1), fake_similarities.Powered(3)),
        (fake_similarities.PoweredSlots(1), fake_similarities.PoweredSlots(3)),
        (fake_similarities.powered_object(1), fake_similarities.powered_object(3)),
        (inside(1), inside(3)),
        (executed(1), executed(3)),
    ],
)
def test_values_of_what_may_depend_on_more_than_its_file_are_not_kept(one, other, words):
    assert not np.allclose(gram_of(words(one)), gram_of(words(other)))


def test_paths_are_known_by_the_content_of_their_files(words, seen, tmp_path):
    paths = [tmp_path / f"{k}.txt" for k in range(len(TEXTS))]
    for path, text in zip(paths, TEXTS, strict=True):
        path.write_text(text)
    found = words(fake_similarities.of_files, paths)
    close(gram_of(found, slice(5)), jaccard(TEXTS[:5]))
    paths[0].write_text("z")
    seen.clear()
    found = words(fake_similarities.of_files, paths)
    assert seen and all("z" in pair or len({*pair}) == 1 for pair in seen)
    close(found.vectors[0] @ found.vectors[2], 0)


@pytest.mark.parametrize("function", [fake_similarities.failing, fake_similarities.InBatches()])
def test_a_pair_that_fails_is_named_and_those_before_it_are_kept(function, words, seen):
    texts = [f"w{k}" for k in range(14)] + ["broken"]
    with pytest.raises(ValueError, match="failed for .*no such word") as caught:
        words(function, texts, ["x"] * 15)
    left, kept = map(int, re.findall(r"(\d+) (?:of 105|are kept)", str(caught.value)))
    assert left + kept == 105 and kept > 0
    seen.clear()
    words(function, texts[:-1], ["x"] * 14)
    assert len({frozenset(pair) for pair in seen if len({*pair}) == 2}) == 91 - kept
    with pytest.raises(ValueError, match="None is kept"):
        words(lambda one, other: function([one], ["broken"]))


def of_texts(function, texts=TEXTS, asked=ASKED):
    return cv.Similarities.from_function(function, texts, asked)


INDEXED = pd.Series(TEXTS)[::-1], pd.Series(ASKED)
SIMILAR, BY = cv.Similarities, {"similarity": WORDS}
GIVEN = SIMILAR(blocks(vectors()))
TWO = {name: SIMILAR(blocks(vectors(k))) for k, name in enumerate("AB")}
INDEX = "prompts: expected the index of"
BESIDE = "received similarities, which hold prompts and a kernel"


@pytest.mark.parametrize(
    ("call", "given", "options", "says"),
    [
        (SIMILAR, {"q": 1 - np.eye(3)}, {}, "prompt 'q': expected the unit .*distances.*row 0"),
        (SIMILAR, {"q": np.eye(3) * np.nan}, {}, "prompt 'q': .*finite.*row 0"),
        (SIMILAR, {"q": [[1, 0.5], [0.1, 1]]}, {}, "prompt 'q': expected a symmetric matrix"),
        (SIMILAR, {"q": [[1, 1.5], [1.5, 1]]}, {}, r"prompt 'q': expected entries in \[-1, 1\]"),
        (SIMILAR, {"q": np.ones((3, 2))}, {}, r"prompt 'q': expected a matrix \[k, k\].*\(3, 2\)"),
        (SIMILAR, {"q": np.eye(3)}, {"prompts": ["q"] * 2}, "prompt 'q': .*its 2 rows.*one of 3"),
        (SIMILAR, {"q": np.eye(2)}, {"prompts": [*"qqr"]}, "prompt 'r': .*its 1 rows.*one of 0"),
        (SIMILAR, {"q": INDEFINITE}, {"limit": 0.1}, "0.14 of the trace, 0.14 for prompt 'q'.*0.1"),
        (SIMILAR, {}, {}, "a matrix for each prompt, received none"),
        (SIMILAR, np.eye(3), {"prompts": ["q"] * 4}, "prompts: expected 3 labels"),
        (SIMILAR, np.zeros((4, 3)), {}, r"expected a matrix \[k, k\]"),
        (SIMILAR, [[[1, "a"], ["a", 1]]], {}, "prompt 0: expected real numbers"),
        (cv.evaluate, GIVEN, {"output_kernel": cv.Cosine()}, BESIDE),
        (cv.evaluate, GIVEN, {"prompts": PROMPTS[MIXED]}, BESIDE),
        (cv.compare, {"A": GIVEN, "B": vectors()}, {}, "pass those of all models"),
        (cv.between_models, TWO, {}, r"outputs of different models.*Similarities.split"),
        (cv.compare, {"A": TEXTS}, {"prompts": {"B": ASKED}, **BY}, r"expected those of \['A'\]"),
        (cv.evaluate, TEXTS, {"prompts": ASKED, "encoder": "x:y", **BY}, "one beside encoder"),
        (of_texts, WORDS, {"texts": INDEXED[0], "asked": INDEXED[1]}, INDEX),
        (cv.evaluate, INDEXED[0], {"prompts": INDEXED[1], **BY}, INDEX),
        (SIMILAR.from_classes, INDEXED[0], {"prompts": INDEXED[1]}, INDEX),
        (of_texts, fake_similarities.distance, {}, "1 for an output and itself, received 0"),
        (of_texts, fake_similarities.one_sided, {}, "one value for both orders .* mean of both"),
        (of_texts, lambda *_: 3.0, {}, r"for '.*' and '.*': .* 0 to 1, received 3.*value\. None"),
        (of_texts, lambda a, b: [np.nan, 1][a == b], {}, r"'.*' and '.*': .* 0 to 1.* nan"),
        (of_texts, lambda *_: [1.0, 1.0], {}, "expected 1 numbers, received 2"),
        (of_texts, lambda *_: "alike", {}, "could not convert string to float: 'alike'"),
        (of_texts, 3, {}, "expected a function of two outputs, received 3"),
        (of_texts, "fake_similarities:none", {}, "cannot be imported"),
    ],
)
def test_what_is_no_similarity_or_does_not_fit_is_refused(
    call, given, options, says, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises((ValueError, TypeError), match=says) as error:
        call(given, **options)
    assert not hasattr(error.value, "caused_by_users_code")  # Which has raised nothing.


def test_outputs_of_several_models_are_compared_across_them():
    models, asked = {"A": TEXTS, "B": TEXTS[:3]}, {"A": ASKED, "B": ASKED[:3]}
    made = datasets.compare_pairs(WORDS, models, asked, across=True)
    assert len(made["B"]) == 3
    close(made["A"].vectors[:5] @ made["B"].vectors.T, jaccard(TEXTS[:5])[:, :3])


def test_texts_are_compared_by_a_function_in_place_of_an_encoder(monkeypatch, tmp_path, seen):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    rng = np.random.default_rng(0)
    draw = {name: rng.choice(list("abcd"), (12, 4, 2)).tolist() for name in "AB"}
    answers = {m: [[" ".join(t) for t in each] for each in of] for m, of in draw.items()}
    asked = [f"question {k}" for k in range(12)]
    found = cv.compare(answers, asked, similarity="fake_similarities:words", orders=[2])
    for model, of in answers.items():
        of_model = found.evaluations[model].order(2).unbiased.conditional
        close(of_model, unbiased([*map(jaccard, of)]))
    within = len(seen)
    # Models are compared with each other where that is asked for.
    between = cv.between_models(answers, asked, similarity=WORDS)
    assert len(seen) > within
    squares = np.array([jaccard(a + b) ** 2 for a, b in zip(*answers.values(), strict=True)])
    own = np.mean([(of.sum() - 4) / 12 for k in squares for of in (k[:4, :4], k[4:, 4:])])
    close(between.number, 2 * own / (own + squares[:, :4, 4:].mean()), loosened=10)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Records of two models with the classes of a judge, where the command runs."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for model, count in (("few", 2), ("many", 4)):
        lines = []
        for k in range(12):
            kinds = rng.integers(count, size=4)
            answers = [f"{'abcd'[kind]} {k % 3}" for kind in kinds]
            record = {"prompt": f"question {k}", "answers": answers}
            lines.append(json.dumps(record | {"judge": {"kind": kinds.tolist()}}))
        (tmp_path / f"{model}.jsonl").write_text("\n".join(lines))
    return tmp_path


@pytest.mark.slow
def test_the_command_takes_a_function_or_the_classes_of_a_judge(folder, run_command):
    records = cv.read_records("many.jsonl", beside=["judge.kind"])
    classes = records.beside["judge.kind"]["many"]
    by_class = cv.evaluate(cv.Similarities.from_classes(classes, records.prompts["many"]))
    rows = records.answers["many"], records.prompts["many"]
    of_words = cv.Similarities.from_function(WORDS, *rows, cache="kept")
    for flags, wanted in (
        (["--class_field=judge.kind"], by_class),
        (["--similarity=fake_similarities:words", "--cache=kept"], cv.evaluate(of_words)),
    ):
        report, out = run_command("compare", "few.jsonl", "many.jsonl", *flags)
        (ranking,) = (of for of in report["rankings"] if of["order"] == 2)
        assert ranking["values"]["many"] == pytest.approx(wanted.order(2).unbiased.conditional)
        assert {"class_field", "similarity"} & {*report["inputs"]}
        assert "Conditional-RKE" in out and "Information" not in out
    texts = [text for text, asked in zip(*rows, strict=True) if asked != "question 0"]
    (folder / "texts.txt").write_text("\n".join(texts))
    (folder / "asked.txt").write_text("\n".join(of for of in rows[1] if of != "question 0"))
    report, _ = run_command("score", "texts.txt", "--prompts=asked.txt", *flags, "--order=2")
    asked = (folder / "asked.txt").read_text().splitlines()
    expected = cv.Similarities.from_function(WORDS, texts, asked, cache="kept")
    wanted = cv.evaluate(expected, orders=[2], errors=False).order(2).unbiased.conditional
    assert report["scores"][0]["unbiased"]["conditional"] == pytest.approx(wanted)
    run_command("report", "few.jsonl", "many.jsonl", *flags, "--output=page.html")
    assert "fake_similarities:words" in (folder / "page.html").read_text()


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--class_field=kinds"], "has no 'kinds' for 'answers'"),
        (["--class_field=judge.kind", "--kernel=cosine"], "--kernel=cosine: has no effect"),
        (["--similarity=fake_similarities:words", "--rule=median"], "--rule=median: has no effect"),
        (["--similarity=fake_similarities:distance", "--cache=kept"], "of a distance return"),
        (["--similarity=a:b", "--class_field=judge.kind"], "give one or the other"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(flags, says, folder, run_command):
    with pytest.raises(ValueError, match=says):
        run_command("score", "few.jsonl", *flags)


def test_models_that_are_compared_within_alone_have_no_overlap():
    assert cv.compare(TWO, orders=[2]).between is None


def test_items_that_are_tuples_of_texts_are_single_outputs():
    items, prompts = [("do not know", "x"), ("other", "y")] * 6, list("aabbccddeeff")
    same = {"similarity": lambda one, two: float(one == two), "orders": [2], "errors": False}
    assert cv.evaluate(items, prompts, **same).n == 12


def test_models_whose_outputs_repeat_alike_are_not_said_to_have_the_same_outputs():
    models = {"A": [["yes", "yes", "no"]] * 12, "B": [["oui", "oui", "non"]] * 12}
    asked = [f"q{k}" for k in range(12)]
    result = cv.compare(models, asked, similarity="exact", orders=[2], profile=False)
    (difference,) = result.ranking("conditional", 2).differences
    assert difference.value == 0 and difference.reason == reasons.EQUAL
    said = str(result) + result.details() + str(result.as_dict()["errors_cover"])
    assert said.count("over other samples; ") == 2 and "at these bandwidths" not in said
