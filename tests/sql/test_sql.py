"""Tidewire's answers to the suite, compared with PostgreSQL's recorded answers (see statements.py).

    without Spark   the recorded answers equal those of a real server; names, types, errors at planning, constants
    with Spark      the rows of all other statements
    on the wire     some statements of each file through a server, in both formats

A failure lists every statement of a file that differs, with both answers.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from psycopg.pq.abc import PGresult

from protocol.pgwire.errors import PgError
from protocol.pgwire.scalars import binary_dimensions, format_text, parse_binary
from protocol.pgwire.text_columns import OutputStyle
from protocol.pgwire.types import BY_OID, PgType, with_dimensions
from server.spark.engine import SparkEngine
from server.sql.plan import QueryPlan
from server.sql.stored_query import definition_text
from tests.fix_server import ServerThread
from tests.sql import answers, ours
from tests.sql.answers import Answer
from tests.sql.compare import columns_difference, difference
from tests.sql.differences import known, unused
from tests.sql.oracle import Cells, Oracle, answer_of, cells
from tests.sql.record import stable, without_oids
from tests.sql.statements import TABLES, Statement, chapters, statements, table_definitions

BATCH = 60  # statements per test with Spark: few enough for its time limit
STATEMENT_S = 600.0  # also on a busy machine, where a statement waits for all others of its batch
WIRE_STEP = 12  # every twelfth statement is also executed through a server

Answered = tuple[Statement, Answer]


def report(faults: Sequence[tuple[Statement, str]], count: int) -> None:
    lines = [f"{statement.sql}\n    {fault}" for statement, fault in faults]
    assert not lines, f"{len(lines)} of {count} differ\n" + "\n".join(lines)


def judged(statement: Statement, fault: str | None) -> str | None:
    """The fault, unless it is a known difference. A known difference that no longer exists is a fault, too."""
    if known(statement) is None:
        return fault
    return "listed in differences.toml, but equal" if fault is None else None


# -- without Spark --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def oracle(postgres: str) -> Iterator[Oracle]:
    with Oracle(postgres) as oracle:
        yield oracle


@pytest.mark.parametrize("chapter", [TABLES, *chapters()])
def test_recorded_answers_are_those_of_postgresql(chapter: str, oracle: Oracle) -> None:
    recorded, written = answers.read(chapter), statements(chapter)
    assert [statement for statement, _ in recorded] == written, f"run python -m tests.sql.record {chapter}"
    faults = []
    for statement, expected in recorded:
        actual = stable(oracle, statement)
        if actual != expected or actual.message != expected.message:
            faults.append((statement, f"recorded    {expected}\n    PostgreSQL  {actual}"))
    report(faults, len(recorded))


@pytest.mark.parametrize("chapter", chapters())
def test_plans_and_constants_equal_postgresql(chapter: str) -> None:
    recorded = answers.read(chapter)
    faults = []
    for statement, expected in recorded:
        plan, fault = planned(statement, expected)
        if plan is not None and fault is None and plan.constant is None:
            continue  # its rows are compared with Spark
        if plan is not None and fault is None:
            fault = difference(statement.sql, expected, ours.constant_answer(plan, statement))
        if (fault := judged(statement, fault)) is not None:
            faults.append((statement, fault))
    report(faults, len(recorded))


def planned(statement: Statement, expected: Answer) -> tuple[QueryPlan | None, str | None]:
    """The plan, or None if planning raises an error; and the difference found so far."""
    try:
        plan = ours.plan(statement)
    except PgError as error:
        return None, difference(statement.sql, expected, ours.failed(error))
    if expected.sqlstate is not None:
        return plan, None  # it may fail when it is executed
    return plan, columns_difference(expected.columns, ours.columns(plan))


@pytest.mark.sql
@pytest.mark.parametrize("chapter", chapters())
def test_the_stored_text_and_the_definition_of_a_query_are_planned_as_the_query(chapter: str) -> None:
    """A view is planned from its stored text, and a dump has its definition."""
    state, faults = ours.state(), []
    for statement in statements(chapter):
        try:
            plan = ours.plan(statement)
        except PgError:
            continue
        names = tuple((id, state.full_name(state.items[id])) for id in plan.uses | plan.types)
        for text in (plan.stored_text, definition_text(plan.stored_text, names)):
            if (fault := _difference_of_plan(plan, statement, text)) is not None:
                faults.append((statement, f"{text}\n    {fault}"))
    report(faults, len(statements(chapter)))


def _difference_of_plan(plan: QueryPlan, statement: Statement, text: str) -> str | None:
    """How the plan differs from that of another text of the query."""
    try:
        other = ours.plan(replace(statement, sql=text))
    except PgError as error:
        return f"{error.sqlstate} {error.message}"
    columns = [[(field.name, str(field.type)) for field in p.columns] for p in (plan, other)]
    if columns[0] != columns[1]:
        return f"{columns[0]} became {columns[1]}"
    return None if plan.template == other.template else f"{plan.template} became {other.template}"


def test_every_known_difference_is_in_the_suite() -> None:
    assert not unused(statement for chapter in chapters() for statement in statements(chapter))


# -- with Spark -----------------------------------------------------------------------------------------------------


def batches() -> Iterator[Any]:
    """The batches of each chapter, of which CI runs every second one."""
    for chapter in chapters():
        for start in range(0, len(answers.read(chapter)), BATCH):
            yield pytest.param(chapter, start, marks=[pytest.mark.long] if start // BATCH % 2 else ())


@pytest.mark.sql
@pytest.mark.parametrize(("chapter", "start"), list(batches()))
def test_rows_equal_postgresql(chapter: str, start: int, engine: SparkEngine) -> None:
    batch = answers.read(chapter)[start : start + BATCH]
    faults = asyncio.run(differing(batch, engine))
    report(faults, len(batch))


async def differing(batch: Sequence[Answered], engine: SparkEngine) -> list[tuple[Statement, str]]:
    """The differences of the statements that need Spark. The statements run concurrently."""
    found = await asyncio.gather(*(_fault(*pair, engine) for pair in batch))
    return [(statement, fault) for (statement, _), fault in zip(batch, found, strict=True) if fault is not None]


async def _fault(statement: Statement, expected: Answer, engine: SparkEngine) -> str | None:
    plan, fault = planned(statement, expected)
    if plan is None or plan.constant is not None or fault is not None:
        return None  # compared without Spark
    async with asyncio.timeout(STATEMENT_S):
        actual = await ours.answer(plan, statement, engine)
    fault = difference(statement.sql, expected, actual)
    return judged(statement, f"{fault}\n    {plan.template}" if fault is not None else None)


# -- on the wire ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wire(server: ServerThread) -> Iterator[psycopg.Connection]:
    """A session of a Tidewire server with the suite's tables."""
    name = "suite"
    with psycopg.connect(server.dsn(), autocommit=True) as maker:
        maker.execute(f"CREATE DATABASE {name}".encode())
    with psycopg.connect(server.dsn(name), user=ours.USER, autocommit=True) as connection:
        for definition in table_definitions():
            if definition.startswith("CREATE"):
                connection.execute(definition.encode())
        for statement, answer in answers.read(TABLES):
            with connection.cursor().copy(f"COPY {statement.sql.split()[-1]} FROM STDIN".encode()) as copy:
                for row in answer.rows:
                    copy.write_row(row)
        yield connection
    with psycopg.connect(server.dsn(), autocommit=True) as maker:
        maker.execute(f"DROP DATABASE {name} CASCADE".encode())


@pytest.mark.parametrize("others", [False, pytest.param(True, marks=pytest.mark.sql)], ids=["sample", "others"])
@pytest.mark.parametrize("chapter", chapters())
def test_answers_on_the_wire_equal_postgresql(
    chapter: str, others: bool, wire: psycopg.Connection, oracle: Oracle
) -> None:
    """Of the statements for a server, `make test` sends each fourth, and `make test-sql` the others."""
    chosen = enumerate(answers.read(chapter)[::WIRE_STEP])
    sample = [pair for number, pair in chosen if bool(number % 4) == others and known(pair[0]) is None]
    faults = []
    for statement, expected in sample:
        for name, value in statement.settings:
            wire.execute(f"SET {name} = '{value}'".encode())
        text = without_oids(answer_of(sent(wire, statement, binary=False)))
        fault = difference(statement.sql, expected, text)
        if fault is None and text.sqlstate is None:
            fault = binary_fault(statement, text, cells(sent(wire, statement, binary=True)), oracle)
        if fault is not None:
            faults.append((statement, fault))
        wire.execute("RESET ALL")
    report(faults, len(sample))


def sent(connection: psycopg.Connection, statement: Statement, *, binary: bool) -> PGresult:
    return connection.pgconn.exec_params(statement.sql.encode(), [], result_format=int(binary))


def in_text(type: PgType, data: bytes, style: OutputStyle) -> str:
    """A binary value as text; a numeric with the number of decimals that was sent."""
    if type.element is not None:
        type = with_dimensions(type, max(binary_dimensions(data), 1))
    value = parse_binary(type, data)
    return f"{value:f}" if type.name == "numeric" else format_text(type, value, style)


def binary_fault(statement: Statement, text: Answer, binary: Cells, oracle: Oracle) -> str | None:
    """What is wrong with the binary form of rows whose text form is right. The bytes must be PostgreSQL's if the
    texts are."""
    style = OutputStyle(statement.timezone, statement.bytea_output)
    if any(column.oid not in BY_OID for column in text.columns):
        return None  # of a user-defined type, whose values tests/server/execution/test_enums.py compares
    types = [BY_OID[column.oid] for column in text.columns]
    rows = (
        tuple(None if v is None else in_text(t, v, style) for t, v in zip(types, row, strict=True)) for row in binary
    )
    fault = difference(statement.sql, text, Answer(text.columns, tuple(rows)))
    if fault is not None or oracle.answer(statement).rows != text.rows:
        return fault
    theirs = oracle.binary(statement)
    if Counter(map(tuple, theirs)) != Counter(map(tuple, binary)):  # without ORDER BY, in any order
        return f"in binary\n    PostgreSQL  {theirs}\n    Tidewire    {binary}"
    return fault
