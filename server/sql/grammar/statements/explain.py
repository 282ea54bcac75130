"""EXPLAIN."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from server.sql.grammar.statements.merges import Merge
from server.sql.grammar.statements.objects import ObjectKind
from server.sql.grammar.statements.parts import Name, Parsed
from server.sql.grammar.statements.prepared import Execute
from server.sql.grammar.statements.queries import Select
from server.sql.grammar.statements.subscribe import Subscribe
from server.sql.grammar.statements.tables import CreateTableAs
from server.sql.grammar.statements.views import CreateIndex, CreateMaterializedView, CreateView
from server.sql.grammar.statements.writes import Delete, Insert, Update


class ExplainStage(StrEnum):
    """The stage that EXPLAIN shows. Without a stage, EXPLAIN shows a summary."""

    RAW = "raw"
    OPTIMIZED = "optimized"
    PHYSICAL = "physical"
    SPARK = "spark"
    TIMESTAMP = "timestamp"


class ExplainFormat(StrEnum):
    """The output of EXPLAIN. MERMAID and DOT: a graph of the plan."""

    TEXT = "text"
    JSON = "json"
    MERMAID = "mermaid"
    DOT = "dot"


@dataclass(frozen=True, slots=True)
class StoredQuery:
    """VIEW, MATERIALIZED VIEW or INDEX name as the object of EXPLAIN."""

    kind: ObjectKind
    name: Name


Explained = (
    Select
    | Insert
    | Update
    | Delete
    | Merge
    | Subscribe
    | CreateTableAs
    | CreateView
    | CreateMaterializedView
    | CreateIndex
    | Execute
    | StoredQuery
)


@dataclass(frozen=True, slots=True)
class Explain(Parsed):
    """EXPLAIN [ANALYZE] [(options)] statement, EXPLAIN stage PLAN [WITH (options)] FOR statement.

    `verbose`: includes the Spark SQL of operators. `no_timing`: ANALYZE without the times of steps. `summary`: includes
    the planning time and, with ANALYZE, the execution time.
    `spark_mode`: the mode of Spark's own EXPLAIN; None for the simple mode.
    """

    statement: Explained
    stage: ExplainStage | None
    analyze: bool
    verbose: bool
    no_timing: bool
    summary: bool
    format: ExplainFormat
    spark_mode: str | None
