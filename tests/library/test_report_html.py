"""The page of a comparison: what it holds, that it is safe, and that it needs no network."""

import base64
import html.parser
import io
import pathlib
import re
import tempfile

import numpy as np
import pytest
from oracles import gaussian_gram
from processes import write_lines

import condvendi_jax as cv
from condvendi_jax.cli import __main__
from condvendi_jax.report import webpage

EXAMPLE = pathlib.Path(__file__).parents[2] / "docs" / "example_report.html"
P, K = 8, 5  # Prompts, and answers of each.
RNG = np.random.default_rng(0)
CENTRES = RNG.normal(size=(P, 3)).astype(np.float32)
PROMPTS = np.repeat(CENTRES, K, axis=0)
MODELS = {
    name: (PROMPTS + scale * RNG.normal(size=PROMPTS.shape)).astype(np.float32)
    for name, scale in (("few", 0.05), ("many", 1.0))
}
MODELS["few"][1] = MODELS["few"][0]  # A duplicate within a model, and one across both.
MODELS["many"][7] = MODELS["few"][6]
MODELS["few"][12] = MODELS["few"][10] + np.float32([0.305, 0, 0])  # The kernel is 0.93.
KERNELS = {"output_kernel": cv.Gaussian(0.8), "prompt_kernel": cv.Gaussian(0.7), "orders": [2]}
OUTPUTS = {name: [f"{name} answer {row}" for row in range(P * K)] for name in MODELS}
TEXTS = [f"prompt {row // K}" for row in range(P * K)]
HOSTILE = [
    "</script><script>window.hacked = 1</script>",
    "<img src=https://example.org/x.png onerror=alert(1)>",
    "\"quotes\" 'and' `ticks` & &amp; </details></li></section>",
    "\u202eright to left\u202c \u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \u2028 \u2029 \x00 \x1b \ud800",
    "]]> --> <!-- {{ answer }} {% raw %} {#",
]


def page_of(comparison, **given):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "page.html")
        cv.report.html(comparison, path, **given)
        return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def found():
    return cv.compare(MODELS, PROMPTS, **KERNELS)


@pytest.fixture(scope="module")
def content(found):
    told = {"encoder": "an encoder", "command": "condvendi report x"}
    return page_of(found, outputs=OUTPUTS, prompts=TEXTS, **told)


@pytest.fixture(scope="module")
def page(content):
    return Parsed(content)


class Parsed(html.parser.HTMLParser):
    """The elements of a page, with their attributes and the text inside each id."""

    VOID = {"meta", "img", "input", "br"}

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.inside, self.rows = [], [], {}, []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag not in self.VOID and not self.get_starttag_text().endswith("/>"):
            self.open.append((tag, dict(attrs).get("id")))

    def handle_endtag(self, tag):
        if tag not in ("path", "use"):
            assert self.open.pop()[0] == tag

    def handle_data(self, data):
        for _, name in self.open:
            if name:
                self.inside[name] = self.inside.get(name, "") + data
        if any(tag in ("td", "th") for tag, _ in self.open):
            self.rows[-1][-1] += data

    def ids(self):
        return [attributes["id"] for _, attributes in self.elements if "id" in attributes]


def test_a_page_of_many_prompts_holds_every_prompt_and_output(found, page, monkeypatch):
    monkeypatch.setattr(webpage, "_PROMPTS", 3)
    content = page_of(found, outputs=OUTPUTS, prompts=TEXTS)
    start = Parsed(content)
    texts = re.findall('(?s)<script type="text/plain".*?>(.*?)</script>', content)
    rows, rest = map(Parsed, texts)
    assert "p2" in start.ids() and "p3" not in start.ids()
    assert {*start.ids(), *rows.ids(), *rest.ids()} == {"rows", "rest", *page.ids()}
    shown = start.inside | rest.inside
    for name, words in page.inside.items():
        if re.match(r"[po]\d", name):
            assert shown[name] == words
    of_prompts = [row for row in start.rows + rows.rows if row[0].startswith("prompt ")]
    assert of_prompts == [row for row in page.rows if row[0].startswith("prompt ")]


@pytest.mark.parametrize("committed", [False, True])
def test_the_page_is_well_formed_and_needs_no_other_file(content, committed):
    content = EXAMPLE.read_text() if committed else content
    page = Parsed(content)
    assert page.open == []
    ids = page.ids()
    assert len(set(ids)) == len(ids)
    assert {f"p{k}" for k in range(P)} | {f"o1-{k}" for k in range(P * K)} <= set(ids)
    for _, attributes in page.elements:
        if "download" in attributes:
            assert attributes["href"].startswith("data:")
        elif "href" in attributes:
            assert attributes["href"].startswith("#") and attributes["href"][1:] in ids
        assert not any(name.startswith("on") for name in attributes)
        assert attributes.get("src", "data:").startswith("data:")
    assert "default-src 'none'" in content
    if not committed:
        outside = r"https?://|//\w+\.\w|@import|url\(|fetch\(|XMLHttp|WebSocket"
        assert not re.search(outside, content)


def test_the_numbers_are_those_of_float64(found, page):
    heat = {row[0]: row[1:] for row in page.rows if row[0].startswith("prompt ") and len(row) == 5}
    assert len(heat) == P
    behind = webpage.outputs_behind(found.pairs)
    for k in range(P):
        rows = slice(k * K, (k + 1) * K)
        alike = [gaussian_gram(MODELS[m][rows], 0.8) ** 2 for m in MODELS]
        own = [(squares.sum() - K) / (K * (K - 1)) for squares in alike]
        assert [of[k].similarity for of in behind.prompts] == pytest.approx(own, rel=1e-4)
        shrunken = [of[k].shrunken for of in behind.prompts]
        expected = [*shrunken, np.mean(shrunken), np.ptp(shrunken)]
        assert [float(cell) for cell in heat[f"prompt {k}"]] == pytest.approx(expected, rel=6e-3)
        assert all(of[k].in_words() in page.inside[f"p{k}"] for of in behind.prompts)
    alone = gaussian_gram(PROMPTS, 0.7) ** 2
    for index, (name, outputs) in enumerate(MODELS.items()):
        assert f"{name}: {behind.tables[index].sentence()}." in page.inside["prompts"]
        # d log(joint / prompts) in the weight of a row, times the score (docs/contributions.md).
        both = gaussian_gram(outputs, 0.8) ** 2 * alone
        score = alone.mean() / both.mean()
        influence = -2 * score * (both.mean(1) / both.mean() - alone.mean(1) / alone.mean())
        assert found.ranking("conditional", 2).plug_in[name] == pytest.approx(score, rel=1e-4)
        for row in range(P * K):
            words = page.inside[f"o{index}-{row}"]
            shown = float(re.match(r"[+−][\d.e−-]+", words)[0].replace("−", "-"))
            assert shown == pytest.approx(influence[row], rel=0.06, abs=2e-5 * score)


def test_near_duplicates_are_joined_within_and_across_models(found, page):
    behind = webpage.outputs_behind(found.pairs)
    few, many = behind.group[: P * K], behind.group[P * K :]
    assert few[0] == few[1]
    assert few[6] == many[7]
    x, prompt = np.concatenate([*MODELS.values()]), np.tile(np.repeat(np.arange(P), K), 2)
    near, leaders = gaussian_gram(x, 0.8) >= 0.9, []
    for group in np.unique(behind.group):
        members = np.flatnonzero(behind.group == group)
        assert near[members[0], members].all()  # All are near the first,
        assert len(set(prompt[members])) == 1  # and answer one prompt.
        leaders.append(members[0])
    apart = near[np.ix_(leaders, leaders)] & (prompt[leaders][:, None] == prompt[leaders])
    assert apart.sum() == len(leaders)
    first = np.flatnonzero(few == few[6])[0]
    assert "also many" in page.inside[f"o0-{first}"]
    assert f"few answer {first}" in page.inside["alike"]


def test_the_first_screen_has_bars_numbers_and_copies_and_says_what_was_scored(
    found, content, page
):
    assert [bar.model for bar in found.bars.models] == ["many", "few"]
    cells = {row[0]: row[2:] for row in page.rows if len(row) == 4}
    for bar in found.bars.models:
        assert cells[bar.model] == [str(bar), bar.letters]
        one = found.evaluations[bar.model].one_prompt
        assert bar[1:4] == (one.value, one.low, one.high)
    style = re.search(r'<i style="left:([\d.]+)%;right:calc\(100% - ([\d.]+)%', content)
    many, bars = found.bars.models[0], found.bars
    places = [100 * (x - 1) / (bars.end - 1) for x in (many.low, many.high)]
    assert [*map(float, style.groups())] == pytest.approx(places, abs=0.01)
    assert page.inside["answer"] == found.verdict()
    assert re.fullmatch(
        r"many leads: it is .*\] times as diverse as few(, by .*)?\.", found.verdict()
    )
    links = [a["href"] for tag, a in page.elements if tag == "a" and a["href"].startswith("#m")]
    assert len(links) == 2 and {link[1:] for link in links} <= set(page.ids())
    sections = [a for tag, a in page.elements if tag == "details" and "id" in a]
    assert len(sections) == 6 and not any("open" in attributes for attributes in sections)
    copies = {a["download"]: a["href"] for _, a in page.elements if "download" in a}
    files = {name: base64.b64decode(link.partition(",")[2]) for name, link in copies.items()}
    assert files["diversity.png"].startswith(b"\x89PNG") and b"<svg" in files["diversity.svg"]
    assert files["diversity.latex"].decode() == cv.report.latex(found).latex
    assert files["diversity.csv"].decode() == found.comma_separated()
    for words in ("40 of each model", "an encoder", "condvendi report x", cv.__version__, "0.8"):
        assert words in page.inside["scores"]


def test_the_header_says_how_many_answers_look_like_refusals(found, content):
    refused = {"few": [*OUTPUTS["few"]], "many": OUTPUTS["many"]}
    for row in range(0, P * K, K):
        refused["few"][row] = "I cannot help with that."
    assert "10.0% repeat a text that answers many prompts" in page_of(found, outputs=refused)
    assert "none looks like a refusal" in content


@pytest.mark.slow
def test_a_model_that_repeats_itself_is_last_in_diversity_and_first_in_redundancy():
    """One, three or five kinds of five answers a prompt; all five differ at this bandwidth."""
    kinds = np.eye(5, dtype=np.float32)
    counts = {"same": 1, "three": 3, "five": 5}
    models = {name: np.tile(kinds[np.arange(K) % k], (P, 1)) for name, k in counts.items()}
    options = {"output_kernel": cv.Gaussian(0.3), "prompt_kernel": cv.Indicator()}
    found = cv.compare(models, PROMPTS, **options, orders=[2])
    page = Parsed(page_of(found))
    assert page.inside["answer"] == "five and three lead, and cannot be told apart."
    assert [bar.model for bar in found.bars.models] == ["five", "three", "same"]
    assert page.inside["outputs"].count("5 alike") == P
    listed = webpage.outputs_behind(found.pairs).redundant(P * K)
    sizes = [len(alike) for alike, _ in listed]
    assert sizes[:P] == [K] * P and sizes == sorted(sizes, reverse=True)
    alone = [influence for alike, influence in listed if len(alike) == 1]
    assert alone == sorted(alone) and all(influence < 0 for influence in alone)


@pytest.mark.slow
def test_hostile_texts_stay_texts(page):
    # Names hold no control characters.
    named = [re.sub("[\\x00-\\x1f\ud800\u2028-\u202e]", "", words) for words in HOSTILE]
    models = {name: MODELS["many" if k else "few"] / (1 + k) for k, name in enumerate(named)}
    texts = zip(named, HOSTILE, strict=True)
    outputs = {name: [f"{words} {row}" for row in range(P * K)] for name, words in texts}
    prompts = [f"{HOSTILE[r // K % len(HOSTILE)]} {r // K}" for r in range(P * K)]
    other = cv.compare(models, PROMPTS, **KERNELS)
    content = page_of(other, outputs=outputs, prompts=prompts)
    content.encode()
    parsed = Parsed(content)
    assert {tag for tag, _ in parsed.elements} <= {tag for tag, _ in page.elements}
    assert [tag for tag, _ in parsed.elements].count("script") == 1
    for k, words in enumerate(HOSTILE):
        shown = words.replace("\x00", "\ufffd").replace("\x1b", "\ufffd").replace("\ud800", "?")
        assert shown in parsed.inside[f"o{k}-3"]


def test_long_texts_are_cut_and_say_how_much(found):
    outputs = {name: [*texts[:-1], "word " * 200_000] for name, texts in OUTPUTS.items()}
    page = page_of(found, outputs=outputs)
    assert len(page) < 2_000_000
    cut = re.search(r"\[([\d,]+) more characters\]", page)
    assert cut and int(cut[1].replace(",", "")) > 500_000


@pytest.mark.slow
def test_rows_of_weight_zero_keep_the_texts_in_place():
    weights = np.ones(P * K, int)
    weights[[2, 9]] = 0
    weighted = cv.compare(MODELS, PROMPTS, **KERNELS, weights=weights)
    page = Parsed(page_of(weighted, outputs=OUTPUTS))
    everything = page.inside["panels"]
    assert "few answer 3" in everything and "few answer 39" in everything
    assert not re.search(r"few answer [29]\b", everything)


@pytest.mark.slow
@pytest.mark.parametrize("prompts", [None, PROMPTS])
def test_outputs_alone_and_one_output_a_prompt(prompts):
    models = {name: rows[::K] for name, rows in MODELS.items()}
    kernels = KERNELS if prompts is not None else KERNELS | {"prompt_kernel": None}
    own = None if prompts is None else prompts[::K]
    page = Parsed(page_of(cv.compare(models, own, **kernels)))
    assert ("p1" in page.ids()) == (prompts is not None)
    words = "adds to the score" if prompts is not None else "count as the same"
    assert words in page.inside["prompts"]


def test_table_of_prompts_has_a_cell_under_each_heading(content):
    alone = page_of(cv.compare({"few": MODELS["few"]}, PROMPTS, **KERNELS))
    for page in (content, alone):
        head, body = re.search('(?s)<table class="heat">(.*?)<tbody>(.*?)</tbody>', page).groups()
        cells = {len(re.findall("<t[hd]", row)) for row in body.split("<tr>")[1:]}
        assert cells == {len(re.findall("<th[ >]", head))}


def test_texts_that_do_not_fit_are_refused(found):
    few = OUTPUTS["few"]
    cases = [
        ({"outputs": {"few": few}}, "outputs: expected those of"),
        ({"outputs": few}, "outputs: expected those of .*, received list"),
        ({"outputs": {"few": few, "many": "text"}}, "outputs of many: expected a list of 40"),
        ({"outputs": {"few": few, "many": [*few[1:], 3]}}, "received 3 in row 39"),
        ({"prompts": TEXTS[1:]}, "prompts of few: expected a list of 40"),
        ({"prompts": {"few": TEXTS}}, "prompts: expected those of"),
    ]
    for arguments, words in cases:
        with pytest.raises((TypeError, ValueError), match=words):
            page_of(found, **arguments)


@pytest.mark.slow
def test_pictures_become_small_ones(found, tmp_path):
    image = pytest.importorskip("PIL.Image")
    paths = {name: [] for name in MODELS}
    for name, row in ((name, row) for name in MODELS for row in range(P * K)):
        paths[name].append(tmp_path / f"{name} {row}.png")
        colour = tuple(np.random.default_rng(row).integers(256, size=3).tolist())
        image.new("RGB", (300, 200), colour).save(paths[name][-1])
    page = Parsed(page_of(found, outputs=paths))
    images = [attributes for tag, attributes in page.elements if tag == "img"]
    pictures = [image for image in images if "image/webp" in image["src"]]
    assert len(pictures) >= 2 * P * K
    assert all(p["src"].startswith("data:image/webp;base64,") and p["alt"] for p in pictures)
    (drawn,) = (image["src"] for image in images if image not in pictures)
    svg = base64.b64decode(drawn.removeprefix("data:image/svg+xml;base64,"))
    assert b"bandwidth of the outputs" in svg and b"many" in svg
    opened = {name: [*map(image.open, files)] for name, files in paths.items()}
    again = Parsed(page_of(found, outputs=opened))
    assert len([a for tag, a in again.elements if tag == "img"]) == len(images)
    paths["few"][0].write_text("no picture")
    with pytest.raises(ValueError, match=r"few 0\.png: expected a picture"):
        page_of(found, outputs=paths)


def test_a_small_picture_has_the_greys_of_one_of_16_bits(tmp_path):
    """Pillow alone would clip them to 255: all but the darkest would be white."""
    image = pytest.importorskip("PIL.Image")
    image.fromarray(np.full((60, 60), 100 * 257, np.uint16)).save(tmp_path / "grey.png")
    small = base64.b64decode(webpage._thumbnail(tmp_path / "grey.png", 40))
    pixels = np.asarray(image.open(io.BytesIO(small)))
    assert pixels.shape == (40, 40, 3)
    np.testing.assert_allclose(pixels, 100, atol=3)


def test_a_page_in_no_folder_is_refused(found, tmp_path):
    with pytest.raises(OSError, match="no directory"):
        cv.report.html(found, tmp_path / "none" / "page.html")


@pytest.mark.slow
def test_the_command_reports_records(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, step in (("a", 1), ("b", 3)):
        said = [[f"{name} says {'a' * (step * k * j)}" for j in (1, 2, 3)] for k in range(1, 9)]
        asked = [{"prompt": f"prompt {'a' * k}", "answers": a} for k, a in enumerate(said, 1)]
        write_lines(tmp_path / f"{name}.jsonl", asked)
    words = ("--text_encoder=fake_encoders:Means", "--cache=cache", "--rule=median", "--order=2")
    __main__.main(["condvendi", "report", "a.jsonl", "b.jsonl", "--output=page.html", *words])
    assert "Conditional-RKE" in capsys.readouterr().out
    page = Parsed((tmp_path / "page.html").read_text())
    assert "b says aaaaaa" in page.inside["panels"]
    assert "condvendi report" in page.inside["scores"] and "means" in page.inside["scores"]
