"""The page of a comparison in a real browser: sorting, outputs, keyboard, no request."""

import pathlib
import shutil

import numpy as np
import pytest

import condvendi_jax as cv
from condvendi_jax.report import webpage

sync_api = pytest.importorskip("playwright.sync_api", reason="the extra `browser` is missing")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
if CHROMIUM is None:
    pytest.skip("there is no Chromium", allow_module_level=True)

pytestmark = pytest.mark.slow

P, K = 6, 4
RNG = np.random.default_rng(0)
PROMPTS = np.repeat(RNG.normal(size=(P, 3)), K, axis=0).astype(np.float32)
MODELS = {
    name: (PROMPTS + scale * RNG.normal(size=PROMPTS.shape)).astype(np.float32)
    for name, scale in (("few", 0.05), ("many", 1.0))
}
HOSTILE = (
    "</script><img src=https://example.org/x onerror='window.hacked=1'><script>hacked=1</script>"
)


@pytest.fixture(scope="module")
def found():
    kernels = {"output_kernel": cv.Gaussian(0.8), "prompt_kernel": cv.Gaussian(0.7)}
    return cv.compare(MODELS, PROMPTS, **kernels, orders=[2])


@pytest.fixture(scope="module")
def path(found, tmp_path_factory):
    target = tmp_path_factory.mktemp("page") / "page.html"
    outputs = {name: [f"{name} {row} {HOSTILE}" for row in range(P * K)] for name in MODELS}
    prompts = [f"prompt {row // K} {HOSTILE}" for row in range(P * K)]
    cv.report.html(found, target, outputs=outputs, prompts=prompts)
    return target


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def page(browser, path):
    """The page, of which the test fails if it asks for anything, or writes to the console."""
    yield from opened(browser, path)


def opened(browser, path, **options):
    context = browser.new_context(**options)
    tab, heard = context.new_page(), []
    tab.on("console", lambda message: heard.append(message.text))
    tab.on("pageerror", lambda error: heard.append(str(error)))
    tab.on("request", lambda request: heard.append(request.url))
    tab.goto(pathlib.Path(path).as_uri())
    tab.locator("#prompts > summary").click()
    yield tab
    assert heard in ([], [pathlib.Path(path).as_uri()])
    context.close()


def column(page, number):
    cells = page.locator(f".heat tbody tr > :nth-child({number})")
    return cells.evaluate_all("cells => cells.map(cell => +cell.dataset.v)")


def test_every_column_sorts_both_ways(page):
    for number in range(1, 6):
        button = page.locator(f".heat thead th:nth-child({number}) button")
        for direction in ("ascending", "descending"):
            button.click()
            values = column(page, number)
            assert values == sorted(values, reverse=direction == "descending")
            assert page.locator(f".heat th[aria-sort={direction}]").count() == 1
    assert sorted(column(page, 1)) == [*range(P)]


def test_search_sort_and_steps_reach_all_prompts(browser, found, tmp_path, monkeypatch):
    target = tmp_path / "many.html"
    outputs = {name: [f"{name} <{row}> & so on" for row in range(P * K)] for name in MODELS}
    prompts = [f"prompt {row // K}" for row in range(P * K)]
    monkeypatch.setattr(webpage, "_PROMPTS", 2)
    cv.report.html(found, target, outputs=outputs, prompts=prompts)
    for page in opened(browser, target):
        assert column(page, 1) == [0, 1]
        page.locator("#after").click()
        assert column(page, 1) == [2, 3]
        for words, prompts in (("PROMPT 5", [5]), ("<8> &", [2]), ("lt;", [])):
            page.fill("#search", words)
            assert column(page, 1) == prompts
        page.fill("#search", "")
        button = page.locator(".heat thead th:nth-child(2) button")
        button.click()
        values = []
        for _ in range(P // 2):
            values += column(page, 2)
            if len(values) < P:
                page.locator("#after").click()
        assert len(values) == P and values == sorted(values)
        page.locator(".heat tbody tr:nth-child(2) a").click()
        page.locator("#previous").click()
        page.locator("#previous").click()
        numbers = column(page, 1)
        assert column(page, 2) == values[2:4]
        assert page.locator(f".prompt:visible #p{numbers[1]}").count() == 1
        assert page.locator(".heat tr.current").count() == 1


def test_a_click_shows_the_outputs_of_all_models_or_of_one(page):
    assert page.locator(".prompt:visible").count() == 0
    page.locator(".heat tbody tr:nth-child(3) td:nth-child(2)").click()
    assert page.locator(".prompt:visible").count() == 1
    panel = page.locator("#p2")
    assert panel.locator("section:visible h4").all_inner_texts() == ["few", "many"]
    assert f"few {2 * K} </script>" in panel.inner_text()
    page.locator("#next").click()
    assert page.locator(".prompt:visible #p3").count() == 1
    page.locator("#previous").click()
    page.locator("#previous").click()
    assert page.locator(".prompt:visible #p1").count() == 1
    assert page.evaluate("window.hacked") is None
    link = page.locator(".bars tbody a").first
    model, name = link.inner_text(), link.get_attribute("href")[1:]
    page.locator("#prompts > summary").click()  # Closed.
    link.click()
    section = page.locator(f"#{name}")
    assert section.locator("h4").inner_text() == model and section.is_visible()
    assert "found" in section.get_attribute("class")


def test_the_keyboard_alone_is_enough(page):
    button = page.locator(".heat thead th:nth-child(2) button")
    button.focus()
    page.keyboard.press("Enter")
    assert column(page, 2) == sorted(column(page, 2))
    link = page.locator(".heat tbody tr:nth-child(1) a")
    name = link.get_attribute("href")[1:]
    link.focus()
    page.keyboard.press("Enter")
    assert page.locator(f"#{name}:visible").count() == 1
    assert page.evaluate("document.activeElement.id") == name
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.hash") == f"#{name}"


def test_a_copy_says_that_it_is_made(browser, path):
    for page in opened(browser, path, permissions=["clipboard-read", "clipboard-write"]):
        for link in page.locator(".copy").all():
            link.click()
            page.locator("#copied", has_text=f"{link.inner_text()} is copied.").wait_for()
        assert page.evaluate("navigator.clipboard.readText()").startswith("score,order")


def test_a_phone_shows_all_without_a_scroll_to_the_side(browser, path):
    for page in opened(browser, path, viewport={"width": 360, "height": 700}):
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        for cell in page.locator(".bars tbody td").all():
            assert cell.bounding_box()["width"] > 0
