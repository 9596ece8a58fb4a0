"""Rebuild language.npz: answers of AlpacaEval's systems to the same instructions, embedded.

python -m experiments.builders.language --cache_dir=data-cache
"""

import json
import pathlib
import re
from collections.abc import Iterable

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


def build(output: pathlib.Path, cache: pathlib.Path, repository: Repository) -> None:
    """Reads, embeds and writes."""
    encoder = load_minilm()
    files = [path for path in repository.paths("results") if path.endswith("_outputs.json")]
    systems = chosen_systems(path.split("/")[1] for path in files)
    contents = repository.read([f"results/{system}/model_outputs.json" for system in systems])
    by_system = [
        {entry["instruction"]: entry["output"] for entry in json.loads(content)}
        for content in contents
    ]
    shared = [text for text in by_system[0] if all(text in answers for answers in by_system)]
    kept = np.arange(0, len(shared), EVERY)
    taken = [[answers[text] for text in shared[::EVERY]] for answers in by_system]
    words, cut, length = common.cut_alike(taken)
    # A system at a time, so that an interrupted run loses little.
    whole, truncated = (
        np.concatenate(
            [
                common.embed_texts(texts, encoder, cache=cache, name=f"{name}-{system}")
                for system, texts in zip(systems, answers, strict=True)
            ]
        )
        for name, answers in (("answers", taken), ("answers-cut", cut))
    )
    prompts = common.embed_texts(shared[::EVERY], encoder, cache=cache, name="instructions")
    row = np.tile(np.arange(len(kept)), len(systems))
    common.write_set(
        output,
        "language",
        outputs=whole,
        prompts=(prompts, row),
        labels={"models": np.repeat(systems, len(kept)), "prompt": kept[row], "words": words},
        further={"truncated": truncated},
        description=f"answers of {len(systems)} language models to the same {len(kept)} "
        f"instructions of AlpacaEval; {encoder.name} answers (256 tokens at most) and instructions",
        provenance=common.origins(repository, common.MINILM, "tokenizers"),
        cut={
            "instructions": {"of": len(shared), "every": EVERY, "kept": len(kept)},
            "truncated": length,
        },
    )


RECIPES = {"language": common.Recipe(build, {"source": REPOSITORY})}

if __name__ == "__main__":
    common.run(RECIPES)
