"""The psql sessions of the documentation print what the pages show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, executes, normalised, replayed

DRAWINGS = sorted((PAGES / "images").glob("*.svg"))
SESSIONS = sorted(page for page in PAGES.rglob("*.md") if "```psql\n" in page.read_text())


@pytest.mark.parametrize("page", SESSIONS, ids=lambda page: page.stem)
def test_sessions_print_what_the_page_shows(page: Path, dsn: str) -> None:
    shown = page.read_text()
    assert normalised(replayed(shown, dsn)) == normalised(shown)


@pytest.mark.parametrize("drawing", DRAWINGS, ids=lambda drawing: drawing.stem)
def test_drawings_can_be_read_in_dark_mode_and_load_nothing(drawing: Path) -> None:
    text = drawing.read_text()
    assert "prefers-color-scheme: dark" in text or '<rect width="100%" height="100%" fill="white"/>' in text
    assert set(re.findall(r"https?://[^\"' ]+", text)) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"href=|url\((?!#)|@import", text)


for _page in SESSIONS:
    executes(str(_page.relative_to(PAGES)), "psql")(test_sessions_print_what_the_page_shows)
