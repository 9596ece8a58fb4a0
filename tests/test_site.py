"""The documentation site: it builds, is complete, and needs no network."""

import contextlib
import functools
import html.parser
import http.server
import importlib
import itertools
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
    paths = (path for path in site.rglob("*.html") if path.name not in (REPORT, "404.html"))
    return {path: Page(path) for path in paths}


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
            below = path.parent / urllib.parse.unquote(parts.path)
            target = below.resolve() if parts.path else path
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


QUESTIONS = {  # A page, and what readers type who need it.
    "decisions": (
        "samples for a 10% difference; how many prompts do I need; quality of diverse answers"
    ),
    "faq": (
        "scores near n; score larger than the number of answers; Mac install; out of memory; nan"
    ),
    "bandwidths": "bandwidth CLIP; DINOv2 bandwidth",
    "inputs": "pytorch; pandas; precomputed similarity",
    "what_to_report": "bibtex; what to write in the paper; LaTeX table; refusals; plot in notebook",
    "errors": "weights; confidence interval coverage; significant; confidence interval",
    "many_devices": "GPU",
    "studies/answers": "NoveltyBench distinct",
    "command_line": "jsonl; compare two image folders; chat messages system prompt; vllm",
    "what_changed": "old score changed",
    "training_loops": "mode collapse training; RLHF collapse; wandb; tensorboard",
    "integrations": "reward GRPO",
    "which_encoder": (
        "which encoder for images; paraphrases; CLIP offline; maths and code answers; "
        "other languages than English; sentence-transformers"
    ),
    "contributions": "redundant outputs; near duplicates; stable diffusion seeds",
    "theory": "theorem 5 false",
    "guidance": "guidance stable diffusion",
    "studies/temperature": "temperature",
    "studies/type_ablation": "dog breeds ablation; figure 5 of the paper",
    "coming_from": "self-BLEU",
    "which_score": "FID precision recall",
}


@pytest.fixture
def browsed(site):
    """The address of the site, and a page of a browser."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium")
    sync_api = pytest.importorskip("playwright.sync_api", reason="the extra `browser` is missing")
    with served(site) as address, sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield address, browser.new_page()
        browser.close()


def test_a_search_answers_the_question(browsed):
    """The page is the first or the second."""
    address, page = browsed
    for answer, question in ((a, q) for a, qs in QUESTIONS.items() for q in qs.split("; ")):
        # The search box takes what its address asks.
        page.goto(f"{address}/index.html?q={urllib.parse.quote(question)}")
        page.locator(".md-search-result__item").first.wait_for(timeout=20_000)
        items = page.locator(".md-search-result__item").all()[:2]
        links = [item.locator("a").first.get_attribute("href") or "" for item in items]
        found = [urllib.parse.urlsplit(urllib.parse.urljoin(page.url, of)) for of in links]
        assert f"/{answer}.html" in [parts.path for parts in found], question


def test_a_reader_searches_and_nothing_is_requested_from_elsewhere(browsed):
    (address, page), heard, requested = browsed, [], []
    page.on("console", lambda message: heard.append(message.text))
    page.on("pageerror", lambda error: heard.append(str(error)))
    page.on("request", lambda request: requested.append(request.url))
    names = "index proofs theory studies/index tutorials/llm_answers reference/scores"
    for name, width in itertools.product(names.split(), (390, 1300)):
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
    assert heard == [] and all(url.startswith((address, "data:")) for url in requested)
