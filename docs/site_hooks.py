"""Hooks of the documentation site: files outside docs/, and LaTeX as MathML.

MkDocs reads docs/ alone, and its pages link to figures/ and CHANGELOG.md beside it. These files
become part of the site, and links to them lose the step that leaves docs/.
"""

import html
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

# Pages that a search shows after the others.
_LAST_FOUND = ("proofs", "theory", "architecture", "CHANGELOG", "CONTRIBUTING")


def on_config(config):
    """Lists every study in the menu, and lets tutorials compile fast."""
    os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    (studies,) = (entry["Studies"] for entry in config.nav if "Studies" in entry)
    for path in sorted((ROOT / "docs/studies").glob("*.md")):
        if (page := f"studies/{path.name}") not in studies:
            question = path.read_text(encoding="utf-8").split("<!-- generated -->")[1]
            studies.append({question.strip().partition("?")[0] + "?": page})
    return config


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
        page.meta["search"] = {"boost": 0.2 if page.file.name in _LAST_FOUND else 2}
    depth = page.file.src_uri.count("/")
    if page.file.generated_by:
        return markdown.replace("](docs/", "](" + "../" * depth)
    leave, stay = "../" * (depth + 1), "../" * depth
    return re.sub(rf'(\]\(|src="){re.escape(leave)}(?!\.)', rf"\g<1>{stay}", markdown)


def on_page_content(content, page, **_):
    """Replaces LaTeX, which the Markdown extension marks, by MathML; mends links of tutorials."""
    if page.file.src_uri.endswith(".py"):  # MkDocs leaves their links as they are.
        content = re.sub(r'(href="[^":]+)\.(?:md|py)(["#])', r"\g<1>.html\g<2>", content)
    inline = re.sub(
        r'<span class="arithmatex">\\\((.*?)\\\)</span>',
        lambda found: _mathml(found[1], "inline"),
        content,
        flags=re.DOTALL,
    )
    return re.sub(
        r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>',
        lambda found: f'<div class="formula">{_mathml(found[1], "block")}</div>',
        inline,
        flags=re.DOTALL,
    )


def on_post_page(output, **_):
    """Removes the script by which notebooks draw Mermaid diagrams: it loads from the network."""
    return re.sub(
        r"<script[^>]*>(?:(?!</script>).)*mermaid.*?</script>", "", output, flags=re.DOTALL
    )


def _mathml(latex, display):
    converted = convert(html.unescape(latex), display=display)
    # Parentheses of a given size (\\big) must stretch to have it.
    return converted.replace("<mo minsize", '<mo stretchy="true" minsize')
