"""The psql sessions of the documentation print what the pages show."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import PAGES, executes, normalised, replayed

SESSIONS = sorted(page for page in PAGES.rglob("*.md") if "```psql\n" in page.read_text())


@pytest.mark.parametrize("page", SESSIONS, ids=lambda page: page.stem)
def test_sessions_print_what_the_page_shows(page: Path, dsn: str) -> None:
    shown = page.read_text()
    assert normalised(replayed(shown, dsn)) == normalised(shown)


for _page in SESSIONS:
    executes(str(_page.relative_to(PAGES)), "psql")(test_sessions_print_what_the_page_shows)
