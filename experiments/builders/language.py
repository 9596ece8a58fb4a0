"""Rebuild language.npz: answers of AlpacaEval's systems to the same instructions, embedded.

python -m experiments.builders.language --cache_dir=data-cache
"""

import json
import pathlib
import re
from collections.abc import Iterable, Sequence

import numpy as np

from condvendi_jax.encoders import load_minilm
from experiments.builders import common
from experiments.data.repository import Repository

REPOSITORY = ("tatsu-lab/alpaca_eval", "cd543a1")
VARIANTS = ("", "_concise", "_verbose")
SIZES = re.compile(r"Qwen1\.5-([\d.]+)B-Chat")
EVERY = 6  # Of the instructions that all systems answered, every so many are taken.


def chosen_systems(systems: Iterable[str]) -> list[str]:
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


def build(output: pathlib.Path, cache: pathlib.Path, repository: Repository) -> None:
    """Reads, embeds and writes.

    Raises:
      ValueError: the systems have no instruction in common, or as `read_answers`.
    """
    encoder = load_minilm()
    files = [path for path in repository.paths("results") if path.endswith("_outputs.json")]
    systems = chosen_systems(path.split("/")[1] for path in files)
    by_system = dict(zip(systems, read_answers(repository, systems), strict=True))
    first, *others = by_system.values()
    shared = [text for text in first if all(text in answers for answers in others)]
    if not shared:
        raise ValueError(f"{repository.name}: no instruction is answered by all of {systems}.")
    kept = np.arange(0, len(shared), EVERY)
    taken = [[by_system[system][shared[i]] for i in kept.tolist()] for system in systems]
    words, cut, length = common.cut_alike(taken)

    def embed(name: str, answers: Iterable[Sequence[str]]) -> np.ndarray:
        # A system at a time, so that an interrupted run loses little.
        return np.concatenate(
            [
                common.embed_texts(texts, encoder, cache=cache, name=f"{name}-{system}")
                for system, texts in zip(systems, answers, strict=True)
            ]
        )

    prompts = common.embed_texts(
        [shared[i] for i in kept.tolist()], encoder, cache=cache, name="instructions"
    )
    row = np.tile(np.arange(len(kept)), len(systems))
    common.write_set(
        output,
        "language",
        outputs=embed("answers", taken),
        prompts=(prompts, row),
        labels={"models": np.repeat(systems, len(kept)), "prompt": kept[row], "words": words},
        further={"truncated": embed("answers-cut", cut)},
        description=(
            f"answers of {len(systems)} language models to the same {len(kept)} instructions of "
            f"AlpacaEval; {encoder.name} answers (256 tokens at most) and instructions"
        ),
        provenance=common.origins(repository, common.MINILM, "tokenizers"),
        cut={
            "instructions": {"of": len(shared), "every": EVERY, "kept": len(kept)},
            "truncated": length,
        },
    )


RECIPES = {"language": common.Recipe(build, {"source": REPOSITORY})}

if __name__ == "__main__":
    common.run(RECIPES)
