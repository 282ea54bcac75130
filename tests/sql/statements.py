"""The suite's statements: tests/sql/<chapter>.sql, plain SQL that psql can execute as well.

A statement ends with `;` at the end of a line. Lines between statements that begin with `--` are comments. `SET`
applies to the rest of its file; each file begins with the defaults. The statements read the tables of tables.sql.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from protocol.pgwire.errors import PgError
from server.sql.grammar import lexer

DIRECTORY = Path(__file__).parent
TABLES = "tables"
_SETTING = re.compile(r"SET\s+(?:(TIME\s+ZONE)|(\w+)\s*(?:=|TO))\s+'?([\w/+:-]+)'?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Statement:
    chapter: str
    sql: str
    settings: tuple[tuple[str, str], ...] = ()  # the session settings, by lower-case names

    @property
    def timezone(self) -> str:
        return dict(self.settings).get("timezone", "UTC")

    @property
    def bytea_output(self) -> str:
        return dict(self.settings).get("bytea_output", "hex")


def chapters() -> list[str]:
    """The names of the files, without the file of the tables."""
    return sorted(path.stem for path in DIRECTORY.glob("*.sql") if path.stem != TABLES)


def table_definitions() -> list[str]:
    """The CREATE TABLE and INSERT statements."""
    return [sql for sql, _ in split((DIRECTORY / f"{TABLES}.sql").read_text())]


def statements(chapter: str) -> list[Statement]:
    """A file's statements in order. For `tables`, the statements that read each table as a whole."""
    if chapter == TABLES:
        names = re.findall(r"^CREATE TABLE (\w+)", "\n".join(table_definitions()), re.MULTILINE)
        return [Statement(TABLES, f"SELECT * FROM {name}") for name in names]
    settings: dict[str, str] = {}
    found = []
    for sql, line in split((DIRECTORY / f"{chapter}.sql").read_text()):
        if match := _SETTING.fullmatch(sql.strip()):
            settings["timezone" if match[1] else match[2].lower()] = match[3]
            continue
        assert not re.match(r"SET\s", sql, re.IGNORECASE), f"{chapter}.sql:{line}: {sql}"
        found.append(Statement(chapter, sql, tuple(settings.items())))
    return found


def split(text: str) -> Iterator[tuple[str, int]]:
    """The statements without their semicolons, and the line at which each begins."""
    lines: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not lines and (not line.strip() or line.lstrip().startswith("--")):
            continue
        lines.append(line)
        if line.rstrip().endswith(";"):
            yield "\n".join(lines).rstrip()[:-1], number - len(lines) + 1
            lines = []
    assert not lines, f"no semicolon at the end of: {lines[0]}"


@cache
def shape(sql: str) -> str:
    """The statement without its literals: statements that differ only in literals are counted once."""
    try:
        tokens = lexer.tokenize(sql)
    except PgError:  # a statement may be invalid on purpose
        return sql
    literals = (lexer.Kind.STRING, lexer.Kind.NUMBER)
    return " ".join("?" if token.kind in literals else token.value for token in tokens)
