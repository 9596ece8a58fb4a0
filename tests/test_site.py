"""The documentation site: it builds, is complete, and needs no network."""

import contextlib
import functools
import html.parser
import http.server
import importlib
import pathlib
import pkgutil
import re
import shutil
import subprocess
import sys
import threading
import urllib.parse
import zlib

import pytest

import condvendi_jax as cv

pytest.importorskip("material", reason="the extra `docs` is missing")
pytestmark = pytest.mark.slow
ROOT = pathlib.Path(__file__).parents[1]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
# The page of a report, not one of MkDocs; its own tests read it.
REPORT = "example_report.html"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", f"--site-dir={folder}"]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert built.returncode == 0, built.stderr
    return folder


class Page(html.parser.HTMLParser):
    """The links, what is loaded, and the anchors of a page."""

    def __init__(self, path):
        super().__init__()
        self.links, self.loaded, self.anchors, self.text = [], [], set(), []
        self.inside = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.anchors |= {given.get("id"), given.get("name")}
        if tag in ("script", "style", "pre", "code"):
            self.inside.append(tag)
        if tag == "a":
            self.links.append(given.get("href") or "")
        for name in ("src", "href", "srcset", "poster", "data"):
            if tag != "a" and given.get(name) and given.get("rel") != "canonical":
                self.loaded.append(given[name])

    def handle_endtag(self, tag):
        if self.inside and self.inside[-1] == tag:
            self.inside.pop()

    def handle_data(self, data):
        if "script" in self.inside:
            self.loaded += re.findall(r"""["'](https?:[^"']+)["']""", data)
        elif not self.inside:
            self.text.append(data)


@pytest.fixture(scope="module")
def pages(site):
    return {
        path: Page(path) for path in site.rglob("*.html") if path.name not in (REPORT, "404.html")
    }


def test_nothing_is_loaded_from_elsewhere(site, pages):
    assert len(pages) > 60
    for path, page in pages.items():
        foreign = [name for name in page.loaded if urllib.parse.urlsplit(name).netloc]
        assert not foreign, f"{path}: {foreign}"
    for path in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", path.read_text()), path


def test_every_link_leads_to_a_page_and_its_heading(site, pages):
    for path, page in pages.items():
        for link in page.links + page.loaded:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (
                (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            )
            assert target.exists(), f"{path.relative_to(site)}: {link}"
            if parts.fragment and target in pages:
                assert parts.fragment in pages[target].anchors, f"{path.relative_to(site)}: {link}"


def test_every_public_name_has_an_entry(site):
    _, _, _, _, body = (site / "objects.inv").read_bytes().split(b"\n", 4)
    entries = {line.split(" ")[0] for line in zlib.decompress(body).decode().splitlines()}
    names = {f"condvendi_jax.{name}" for name in cv.__all__}
    for found in pkgutil.walk_packages(cv.__path__, "condvendi_jax."):
        if "._" not in found.name and ".__" not in found.name:
            with contextlib.suppress(ModuleNotFoundError):  # Of a tool that is not installed.
                module = importlib.import_module(found.name)
                names |= {f"{found.name}.{name}" for name in getattr(module, "__all__", ())}
    assert len(names) > 100
    assert names - entries == set()


def test_formulas_are_rendered(site, pages):
    assert (site / "proofs.html").read_text(encoding="utf-8").count("<math") > 500
    for path, page in pages.items():
        assert not re.search(r"\\\(|\\\[|\\frac|\$[A-Za-z\\]", "".join(page.text)), path


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@contextlib.contextmanager
def served(folder):
    handler = functools.partial(Quiet, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


# The class of what is wider than its place, and how it overflows.
WIDER = """[...document.querySelectorAll(".formula, .md-content pre, .md-content pre > code")]
    .filter(of => of.scrollWidth > of.clientWidth + 1)
    .map(of => [of.className, getComputedStyle(of).overflowX])"""


QUESTIONS = {  # What a reader types, and the page that answers it.
    "samples for a 10% difference": "decisions",
    "scores near n": "faq",
    "bandwidth CLIP": "bandwidths",
    "pytorch": "inputs",
    "bibtex": "what_to_report",
    "weights": "errors",
    "GPU": "many_devices",
    "NoveltyBench distinct": "studies/answers",
    "what to write in the paper": "what_to_report",
    "jsonl": "command_line",
    "pandas": "inputs",
    "precomputed similarity": "inputs",
    "old score changed": "what_changed",
    "mode collapse training": "training_loops",
    "reward GRPO": "integrations",
    "which encoder for images": "which_encoder",
    "redundant outputs": "contributions",
    "theorem 5 false": "theory",
    "guidance stable diffusion": "guidance",
    "confidence interval coverage": "errors",
    "LaTeX table": "what_to_report",
    "significant": "errors",
    "temperature": "studies/temperature",
    "compare two image folders": "command_line",
    "RLHF collapse": "training_loops",
    "refusals": "what_to_report",
    "wandb": "training_loops",
    "tensorboard": "training_loops",
    "paraphrases": "which_encoder",
    "chat messages system prompt": "command_line",
    "how many prompts do I need": "decisions",
    "dog breeds ablation": "studies/type_ablation",
    "figure 5 of the paper": "studies/type_ablation",
    "CLIP offline": "which_encoder",
    "plot in notebook": "what_to_report",
    "self-BLEU": "coming_from",
    "score larger than the number of answers": "faq",
    "Mac install": "faq",
    "maths and code answers": "which_encoder",
    "other languages than English": "which_encoder",
    "sentence-transformers": "which_encoder",
    "DINOv2 bandwidth": "bandwidths",
    "out of memory": "faq",
    "nan": "faq",
    "near duplicates": "contributions",
    "stable diffusion seeds": "contributions",
    "FID precision recall": "which_score",
    "quality of diverse answers": "decisions",
    "confidence interval": "errors",
    "vllm": "command_line",
}


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
def test_a_search_answers_the_question(site):
    """The page is the first or the second."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="the extra `browser` is missing")
    with served(site) as address, sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        for question, answer in QUESTIONS.items():
            # The search box takes what its address asks.
            page.goto(f"{address}/index.html?q={urllib.parse.quote(question)}")
            page.locator(".md-search-result__item").first.wait_for(timeout=20_000)
            items = page.locator(".md-search-result__item").all()[:2]
            links = [item.locator("a").first.get_attribute("href") or "" for item in items]
            found = [urllib.parse.urlsplit(urllib.parse.urljoin(page.url, of)) for of in links]
            assert f"/{answer}.html" in [parts.path for parts in found], question
        browser.close()


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
def test_a_reader_searches_and_nothing_is_requested_from_elsewhere(site):
    sync_api = pytest.importorskip("playwright.sync_api", reason="the extra `browser` is missing")
    with served(site) as address, sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page, heard = browser.new_page(), []
        page.on("console", lambda message: heard.append(message.text))
        page.on("pageerror", lambda error: heard.append(str(error)))
        page.on(
            "request",
            lambda r: None if r.url.startswith((address, "data:")) else heard.append(r.url),
        )
        for name in (
            "index",
            "proofs",
            "theory",
            "studies/index",
            "tutorials/llm_answers",
            "reference/scores",
        ):
            for width in (390, 1300):
                page.set_viewport_size({"width": width, "height": 900})
                page.goto(f"{address}/{name}.html", wait_until="networkidle")
                assert page.evaluate("document.documentElement.scrollWidth") <= width, (name, width)
                wider = page.evaluate(WIDER)  # What is wider than its place can be scrolled.
                assert {how for _, how in wider} <= {"auto", "scroll"}, (name, width)
                assert width < 1000 or "formula" not in [kind for kind, _ in wider], name
        page.locator("input[data-md-component=search-query]").click()
        page.keyboard.type("conditional_rke", delay=20)
        found = page.locator(".md-search-result__item").first
        found.wait_for(timeout=20_000)
        assert "conditional" in found.inner_text().lower()
        browser.close()
    assert heard == []
