"""The output of EXPLAIN: sections, as lines of text or as one JSON document in PostgreSQL's format."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from catalog import updates
from protocol.pgwire.errors import PgError, SqlState
from server.execution.prepare import explain_fields
from server.explain.graph import dot, mermaid
from server.session_state.results import Result, TableRows
from server.sql.grammar.statements.explain import Explain, ExplainFormat
from server.sql.outline import INDENT, Outline


@dataclass(frozen=True, slots=True)
class Section:
    """A named part of the output: a text or a duration in milliseconds, then a plan, lists, or verbatim text.

    `headless`: in text format the name is omitted. `body_name`: the JSON key of `body` if there is also a plan.
    """

    name: str
    text: str = ""
    ms: float | None = None
    plan: Outline | None = None
    items: Sequence[Outline] | None = None
    body: str = ""
    body_name: str = ""
    headless: bool = False

    def lines(self) -> Iterator[str]:
        depth = 0 if self.headless else 1
        if not self.headless:
            text = ms_text(self.ms) if self.ms is not None else self.text
            yield f"{self.name}: {text}".rstrip()
        for outline in [*([self.plan] if self.plan is not None else []), *(self.items or ())]:
            yield from outline.lines(depth)
        for line in self.body.splitlines():
            yield INDENT * depth + line

    def json(self) -> dict[str, object]:
        shown: dict[str, object] = {}
        if self.plan is not None:
            shown[self.name] = self.plan.json()
        elif self.items is not None:
            shown[self.name] = [outline.json() for outline in self.items]
        elif self.ms is not None:
            shown[self.name] = round(self.ms, 3)
        elif self.text:
            shown[self.name] = self.text
        if self.body:
            shown[self.body_name or self.name] = self.body
        return shown


_GRAPHS: Mapping[ExplainFormat, Callable[[Outline], Iterator[str]]] = {
    ExplainFormat.MERMAID: mermaid,
    ExplainFormat.DOT: dot,
}


def ms_text(ms: float) -> str:
    """A duration in PostgreSQL's format."""
    return f"{ms:.3f} ms"


def explanation(statement: Explain, sections: Sequence[Section]) -> Result:
    """The output in the requested format: one row per line, or one row with a JSON document.

    PgError 0A000 for a graph if there is no plan.
    """
    if (draw := _GRAPHS.get(statement.format)) is not None:
        plans = [section.plan for section in sections if section.plan is not None]
        if not plans:
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                "there is no plan that could be shown as a graph",
                hint="Explain a query that reads relations.",
            )
        return _result(statement, list(draw(plans[-1])))
    if statement.format is ExplainFormat.JSON:
        document: dict[str, object] = {}
        for section in sections:
            document |= section.json()
        return _result(statement, [json.dumps([document], indent=2, ensure_ascii=False)])
    return _result(statement, [line for section in sections for line in section.lines()])


def explained_timestamp(statement: Explain, text: str) -> Result:
    """The single row of EXPLAIN TIMESTAMP."""
    return _result(statement, [text])


def _result(statement: Explain, rows: list[str]) -> Result:
    fields = explain_fields(statement)
    schema = updates.rows_schema([field.type.arrow for field in fields])
    return Result("EXPLAIN", TableRows(fields, pa.table([rows], schema=schema)))
