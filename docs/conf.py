"""Sphinx's configuration of the documentation site, which `make site` builds. The pages can be read without it, too."""

from __future__ import annotations

import re
import shutil

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx
from sphinx.highlighting import lexers

project = "Tidewire"
extensions = ["myst_parser"]
for language in ("mermaid", "synopsis", "hba", "td", "pt"):  # GitHub shows Mermaid as a drawing
    lexers[language] = TextLexer()
root_doc = "README"
exclude_patterns = ["requirements.txt", "demo", "examples/*.py"]
html_theme = "furo"
html_title = "Tidewire"
html_show_copyright = False
html_show_sourcelink = False
html_copy_source = False
myst_heading_anchors = 4
highlight_language = "text"


def setup(app: Sphinx) -> None:
    app.connect("source-read", _add_navigation)
    app.connect("build-finished", _add_index)


def _add_navigation(app: Sphinx, page: str, source: list[str]) -> None:
    """Adds a table of contents for each group of pages that README.md lists, and for all decisions."""
    if page == "README":
        # Directories, and files outside this one, have no page on the site.
        text = re.sub(r"\[([^\]]+)\]\((?:\.\./[^)]+|[^)]+/)\)", r"\1", source[0])
        for caption, entries in re.findall(r"^([A-Z].*):\n\n((?:- .*\n)+)", text, re.MULTILINE):
            text += _contents(
                re.findall(r"^- \[.*?\]\(([\w/.-]+\.md)\)", entries, re.MULTILINE), f":caption: {caption}\n"
            )
        source[0] = text
    elif page == "decisions/README":
        source[0] += _contents(re.findall(r"^- \[\d+\]\(([\w.-]+\.md)\)", source[0], re.MULTILINE))


def _add_index(app: Sphinx, error: Exception | None) -> None:
    """Makes README.html the first page."""
    if error is None and app.builder.format == "html":
        shutil.copy(app.outdir / "README.html", app.outdir / "index.html")


def _contents(pages: list[str], options: str = "") -> str:
    entries = "\n".join(page.removesuffix(".md") for page in pages)
    return f"\n```{{toctree}}\n:hidden:\n{options}\n{entries}\n```\n"
