"""Rebuild language.npz: answers of language models to the same instructions, embedded.

    python -m experiments.builders.language --cache_dir=data-cache

The answers of AlpacaEval's systems (tatsu-lab/alpaca_eval) are embedded by all-MiniLM-L6-v2, which
reads 256 tokens; so are the instructions, their prompts, and the answers cut to one number of
words. By default the systems are those that are there in a plain, a concise and a verbose variant,
and every size of Qwen1.5-Chat, the family of which most sizes are there.
"""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from absl import flags

from condvendi_jax.cli import command
from condvendi_jax.encoders import Encoder, load_minilm
from condvendi_jax.encoders.minilm import PACKAGE
from experiments.builders import common
from experiments.data import sets
from experiments.data.pairs import PairedEmbeddings
from experiments.data.repository import Repository

NAME, COMMIT = "tatsu-lab/alpaca_eval", "cd543a1"
LICENCE = "Apache-2.0 for the repository; the terms of the models, whose answers they are, vary"
VARIANTS = ("", "_concise", "_verbose")
SIZES = re.compile(r"Qwen1\.5-([\d.]+)B-Chat")
WHOLE = ("alpaca-7b", "gpt-3.5-turbo-1106_concise")  # Short answers, which embed fastest.
_BATCH = 4  # Long texts: what a layer makes of more of them leaves a core's cache.


def default_systems(systems: Iterable[str]) -> list[str]:
    """Systems with a concise and a verbose variant, and these; then the sizes of one family."""
    known = set(systems)
    plain = sorted(name for name in known if all(name + words in known for words in VARIANTS))
    sizes = [(float(found[1]), name) for name in known if (found := SIZES.fullmatch(name))]
    return [name + words for name in plain for words in VARIANTS] + [n for _, n in sorted(sizes)]


def read_answers(repository: Repository, systems: Sequence[str]) -> list[dict[str, str]]:
    """By system, its answer to each instruction, in the order of its file.

    Raises:
      ValueError: a system is not in the repository, or its file is not of the known form.
    """
    paths = [f"results/{system}/model_outputs.json" for system in systems]
    found = []
    for path, content in zip(paths, repository.read(paths), strict=True):
        try:
            entries = json.loads(content)
            found.append({entry["instruction"]: entry["output"] for entry in entries})
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}: no list of instructions with outputs: {error!r}") from error
    return found


def first_words(text: str, count: int) -> str:
    """The first words of a text, parted by single spaces; all of them where there are fewer."""
    return " ".join(text.split()[:count])


def equal_length(lengths: np.ndarray, percentile: float) -> int:
    """The number of words that answers are cut to: a percentile of their lengths, rounded down."""
    return max(1, int(np.percentile(lengths, percentile)))


def embed_answers(
    answers: Mapping[str, Sequence[str]], encoder: Encoder, *, cache: pathlib.Path, kind: str
) -> np.ndarray:
    """Unit-norm embeddings of each system's answers, one system after another, float32 `[n, d]`."""
    rows = [
        common.embed_texts(texts, encoder, cache=cache, name=f"{kind}-{system}")
        for system, texts in answers.items()
    ]
    return np.concatenate(rows)


def build(
    repository: Repository,
    encoder: Encoder,
    *,
    systems: Sequence[str],
    every: int,
    percentile: float,
    whole: Sequence[str],
    cache: pathlib.Path,
    output: pathlib.Path,
) -> None:
    """Reads, embeds, measures what leaving out instructions costs, and writes.

    Args:
      repository: AlpacaEval's.
      encoder: of answers and instructions.
      systems: whose answers are taken.
      every: of the instructions that all systems have, every so many are taken.
      percentile: of the taken answers' lengths, to which they are cut.
      whole: the systems whose answers to all instructions tell what leaving some out costs.
      cache: folder of what is embedded.
      output: the file.

    Raises:
      ValueError: the systems have no instruction in common, or as `read_answers`.
    """
    by_system = dict(zip(systems, read_answers(repository, systems), strict=True))
    first, *others = by_system.values()
    shared = [text for text in first if all(text in answers for answers in others)]
    if not shared:
        raise ValueError(f"{repository.name}: no instruction is answered by all of {systems}.")
    kept = np.arange(0, len(shared), every)
    taken = {
        system: [answers[shared[i]] for i in kept.tolist()] for system, answers in by_system.items()
    }
    words = np.array([len(text.split()) for texts in taken.values() for text in texts])
    length = equal_length(words, percentile)
    cut = {s: [first_words(text, length) for text in texts] for s, texts in taken.items()}

    prompts = common.embed_texts(shared, encoder, cache=cache, name="instructions")
    outputs = embed_answers(taken, encoder, cache=cache, kind="answers")
    truncated = embed_answers(cut, encoder, cache=cache, kind="answers-cut")
    every_answer = {s: [by_system[s][text] for text in shared] for s in whole}
    all_outputs = embed_answers(every_answer, encoder, cache=cache, kind="answers-whole")

    row = np.tile(np.arange(len(kept)), len(systems))
    names = np.repeat(list(systems), len(kept))
    pairs = PairedEmbeddings("language", outputs, prompts[kept][row], "")
    bandwidths, _ = common.bandwidths_by_rule(pairs)
    costs = {}
    for system, rows in zip(whole, np.split(all_outputs, len(whole)), strict=True):
        before = PairedEmbeddings("whole", rows, prompts, "")
        costs[system] = common.cost_of(before, _as_written(before.rows(kept)), bandwidths)

    common.write_set(
        output,
        outputs=outputs,
        prompts=(prompts[kept], row),
        labels={"models": names, "prompt": kept[row], "words": words},
        further={"truncated": truncated},
        description=(
            f"answers of {len(systems)} language models to the same {len(kept)} instructions of "
            f"AlpacaEval; {encoder.name} answers (256 tokens at most) and instructions"
        ),
        licence=LICENCE,
        provenance=[repository.reference, *common.versions(PACKAGE, "tokenizers")],
        cut={
            "instructions": {"of": len(shared), "every": every, "kept": len(kept)},
            "truncated": {"words": length, "percentile": percentile},
            "bandwidths": bandwidths,
            "cost": costs,
        },
    )


def _as_written(pairs: PairedEmbeddings) -> PairedEmbeddings:
    """The pairs as the file gives them back: rounded to half precision, of norm 1 again."""
    outputs, prompts = (
        common.unit_rows(rows.astype(np.float16).astype(np.float32))
        for rows in (pairs.outputs, pairs.prompts)
    )
    return PairedEmbeddings(pairs.name, outputs, prompts, pairs.description)


def main(argv: list[str]) -> None:
    """Read, embed and write."""
    command.no_words(argv[1:])
    values = flags.FLAGS
    cache, output = pathlib.Path(values.cache_dir), pathlib.Path(values.output)
    cache.mkdir(parents=True, exist_ok=True)
    common.check_output(sets.FOLDER / "language.npz")
    if values.every < 1:
        raise ValueError(f"--every: expected a positive whole number, received {values.every}.")
    if not 0 < values.percentile <= 100:
        raise ValueError(f"--percentile: expected one in (0, 100], received {values.percentile}.")
    repository = Repository.opened(NAME, COMMIT, source=values.source, cache=cache)
    known = [p.split("/")[1] for p in repository.paths("results") if p.endswith("_outputs.json")]
    systems = values.systems or default_systems(known)
    unknown = [name for name in [*systems, *values.whole] if name not in known]
    if unknown:
        raise ValueError(f"--systems: {NAME} has no system {unknown[0]!r}.")
    build(
        repository,
        load_minilm(batch_size=_BATCH),
        systems=systems,
        every=values.every,
        percentile=values.percentile,
        whole=values.whole,
        cache=cache,
        output=output,
    )


if __name__ == "__main__":
    common.define_flags(sets.FOLDER / "language.npz", source=NAME)
    flags.DEFINE_list("systems", None, "Folders of its results; by the rule above if unset.")
    flags.DEFINE_integer("every", 6, "Of the shared instructions, every so many are taken.")
    flags.DEFINE_float(
        "percentile", 25.0, "Of the answers' lengths in words: what they are cut to."
    )
    flags.DEFINE_list(
        "whole", list(WHOLE), "Systems that tell what leaving instructions out costs."
    )
    command.run(main)
