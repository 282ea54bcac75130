"""Writes docs/functions.md and docs/sql-differences.md: `python -m tests.sql.document`. A test checks that they are up
to date.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from server.sql.bind.session import SESSION_FUNCTIONS
from server.sql.functions.table import FUNCTIONS, OPERATORS, SET_ARRAYS, Function, Kind
from tests.sql import manual
from tests.sql.differences import KINDS, differences
from tests.sql.score import forms_used
from tests.sql.statements import chapters, statements

DOCS = Path(__file__).parents[2] / "docs"
_OTHER = "Others"
_NATIVE = re.compile(r"\w+\((\{[\d*]\}(, )?)*\)|\(\{0\} \S+ \{1\}\)|\(\S+ ?\{0\}\)")


def functions() -> str:
    """docs/functions.md."""
    rows: dict[str, dict[tuple[str, str], list[Function]]] = {}
    for is_operator, table in ((False, FUNCTIONS), (True, OPERATORS), (False, SET_ARRAYS)):
        for row in (row for of_name in table.values() for row in of_name):
            arguments = [type.name for type in row.arguments]
            chapter = manual.chapter_of(row.name, arguments, is_operator=is_operator) or _OTHER
            rows.setdefault(chapter, {}).setdefault((row.name, _computed(row)), []).append(row)
    return "\n".join(_function_lines(rows)) + "\n"


def _function_lines(rows: dict[str, dict[tuple[str, str], list[Function]]]) -> Iterator[str]:
    yield "# Functions and operators"
    yield ""
    yield "Generated from the table that the planner uses (`server/sql/functions/`), by chapter of PostgreSQL's manual."
    yield "A function that is not listed is an error (42883). The third column shows how a function is computed:"
    yield ""
    yield "- *native*: by the Spark function or operator of the same meaning."
    yield "- *rewritten*: by an equivalent Spark expression."
    yield "- *Python*: value by value in an Arrow UDF, several times slower than the others."
    yield "- *refused*: not computed; a call is an error (0A000)."
    yield ""
    yield "The tables do not list casts: every cast of PostgreSQL between the types in [sql.md](sql.md) is supported."
    yield "Nor do they list the functions that read the session:"
    yield f"{', '.join(f'`{name}`' for name in sorted(SESSION_FUNCTIONS))}."
    for number, title in [*manual.titles().items(), (_OTHER, "")]:
        forms = ", ".join(f"`{form}`" for form in forms_used(number)) if number != _OTHER else ""
        if not forms and number not in rows:
            continue
        yield ""
        yield f"## {number} {title}".rstrip()
        yield ""
        if forms:
            yield f"Forms: {forms}."
            yield ""
        if number in rows:
            yield "| name | arguments and result | computed |"
            yield "|---|---|---|"
            for (name, computed), group in sorted(rows[number].items()):
                signatures = "<br>".join(f"({_arguments(row)}) → {_result(row)}" for row in group)
                yield f"| {_code(name)}{_kind(group[0])} | {signatures} | {computed} |"


def _computed(row: Function) -> str:
    if row.spark is None:
        return "refused" if row.python is None else "Python"
    return "native" if isinstance(row.spark, str) and _NATIVE.fullmatch(row.spark) else "rewritten"


def _arguments(row: Function) -> str:
    shown = [type.display for type in row.arguments]
    return ", ".join([*shown, "..."] if row.variadic else shown)


def _result(row: Function) -> str:
    element = row.result.element if row in SET_ARRAYS.get(row.name, ()) else None
    return row.result.display if element is None else f"setof {element.display}"


def _kind(row: Function) -> str:
    return "" if row.kind is Kind.SCALAR else f" ({row.kind.value})"


def known_differences() -> str:
    """docs/sql-differences.md."""
    return "\n".join(_difference_lines()) + "\n"


def _difference_lines() -> Iterator[str]:
    suite = [statement for chapter in chapters() for statement in statements(chapter)]
    yield "# What differs from PostgreSQL"
    yield ""
    yield f"The test suite executes {len(suite)} statements on PostgreSQL 16 and on Tidewire. It compares the names"
    yield "and types of columns, the rows in text form, and error codes. This page lists the known differences. The"
    yield "suite fails if there is another one, and if one of these no longer exists."
    yield ""
    yield "Three differences apply to all statements. All values of a `numeric` column without declared precision"
    yield "have the same scale: a value may be printed with more trailing zeros, in texts and JSON also with fewer,"
    yield "and a quotient is rounded to that scale. Computed floats are equal to twelve digits. `sum` of `real` and"
    yield "`double precision` is the exact sum, rounded once, and `avg` is that sum divided by the number of values:"
    yield "they do not depend on the order of the rows. PostgreSQL rounds after each addition. Sums in windows do"
    yield "so, too."
    by_reason: dict[tuple[str, str], list[str]] = {}
    for entry in differences():
        if covered := [statement.sql for statement in suite if entry.covers(statement)]:
            by_reason.setdefault((entry.kind, entry.reason), []).extend(covered)
    for kind, meaning in KINDS.items():
        mine = {reason: sqls for (of_kind, reason), sqls in by_reason.items() if of_kind == kind}
        if mine:
            yield ""
            yield f"## {kind.capitalize()}: {meaning}"
            yield ""
            yield "| why | for example | statements |"
            yield "|---|---|---|"
            for reason, sqls in mine.items():
                yield f"| {_cell(reason)} | {_code(min(sqls, key=len))} | {len(sqls)} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _code(sql: str) -> str:
    fence = "``" if "`" in sql else "`"
    return f"{fence}{_cell(sql)}{fence}"


DOCUMENTS = {"functions.md": functions, "sql-differences.md": known_differences}


def main() -> None:
    for name, text in DOCUMENTS.items():
        (DOCS / name).write_text(text())


if __name__ == "__main__":
    main()
