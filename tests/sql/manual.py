"""Chapter 9 of PostgreSQL's manual, as recorded in chapters.toml: the section of each function and operator."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from functools import cache
from typing import Any

from tests.sql.statements import DIRECTORY


@cache
def _entries() -> dict[str, dict[str, Any]]:
    return tomllib.loads((DIRECTORY / "chapters.toml").read_text())


def titles() -> dict[str, str]:
    """The sections' titles by number, in order."""
    found = {number: str(entry["title"]) for number, entry in _entries().items() if "title" in entry}
    return dict(sorted(found.items(), key=lambda item: int(item[0].partition(".")[2])))


def syntax(chapter: str) -> dict[str, str]:
    """The constructs of a section that have a syntax of their own: the name, and a pattern for lower-case
    statements."""
    mine = (e for number, e in _entries().items() if e.get("of_chapter", number) == chapter)
    return {name: pattern for entry in mine for name, pattern in entry.get("syntax", {}).items()}


def chapter_of(name: str, arguments: Sequence[str], *, is_operator: bool) -> str | None:
    """The number of the section that describes it; `arguments` are names of pg_type."""
    for number, entry in _entries().items():
        of = set(entry.get("of", "").split())
        if name in names(entry, is_operator=is_operator) and (not of or of & set(arguments)):
            return str(entry.get("of_chapter", number))
    return None


def names(entry: dict[str, Any], *, is_operator: bool) -> list[str]:
    return str(entry.get("operators" if is_operator else "functions", "")).split()


def all_names() -> set[tuple[bool, str]]:
    """Every operator (True) and function (False) of the list."""
    return {
        (kind, name)
        for entry in _entries().values()
        for kind in (True, False)
        for name in names(entry, is_operator=kind)
    }
