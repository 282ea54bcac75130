"""Tidewire's answers over the suite's tables: plans and constants, and with an engine, whole queries."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import pyarrow as pa

from catalog import updates
from catalog.enum_positions import first_positions
from catalog.ids import USER_OBJECTS, ObjectId, Timestamp
from catalog.objects.columns import Check
from catalog.objects.columns import Column as CatalogColumn
from catalog.objects.tables import Table
from catalog.objects.types import Domain, EnumType
from catalog.state import CatalogState
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.scalars import column_of, parse_text
from protocol.pgwire.text_columns import OutputStyle, plain_column, text_column
from protocol.pgwire.types import PgType, parse_type
from server.dataflow.runtime.computation import compute
from server.session_state.context import VERSION
from server.spark import Engine
from server.sql.constant import Bindings, compiled
from server.sql.grammar.parse import parse, parse_query
from server.sql.grammar.statements.domains import CreateDomain
from server.sql.grammar.statements.parts import NamedType
from server.sql.grammar.statements.tables import ColumnDefinition, CreateTable
from server.sql.grammar.statements.types import CreateEnum
from server.sql.plan import PlanContext, QueryPlan, plan_query
from server.sql.type_names import resolved
from tests.server.states import empty_state
from tests.sql import answers
from tests.sql.answers import Answer, Column
from tests.sql.oracle import DATABASE
from tests.sql.statements import TABLES, Statement, table_definitions

USER = "postgres"
_NOW_US = 1_800_000_000_000_000  # a time in 2027


@cache
def state() -> CatalogState:
    """A catalog with the tables, in the schema public of the database materialize."""
    result = empty_state()
    for sql in table_definitions():
        (statement,) = parse(sql)
        if isinstance(statement, CreateEnum):
            result = _with_enum(result, statement)
        if isinstance(statement, CreateDomain):
            result = _with_domain(result, statement)
        if isinstance(statement, CreateTable):
            id, result = result.new_id()
            columns = (
                CatalogColumn(c.name.name, str(_type(result, c.type)), not c.not_null)
                for c in statement.columns
                if isinstance(c, ColumnDefinition)
            )
            result = result.with_item(Table(id, ObjectId("u2"), statement.name.parts[-1], tuple(columns)))
    return result


def _with_enum(state: CatalogState, statement: CreateEnum) -> CatalogState:
    id, state = state.new_id()
    array_id, state = state.new_id()
    positions = first_positions(len(statement.labels))
    name = statement.name.parts[-1]
    return state.with_item(EnumType(id, ObjectId("u2"), name, statement.labels, positions, array_id))


def _with_domain(state: CatalogState, statement: CreateDomain) -> CatalogState:
    id, state = state.new_id()
    base, name = str(_type(state, statement.base)), statement.name.parts[-1]
    checks = tuple(Check(f"{name}_check{n or ''}", c.expression.text) for n, c in enumerate(statement.checks))
    return state.with_item(Domain(id, ObjectId("u2"), name, base, statement.not_null, None, checks))


def _type(state: CatalogState, type: PgType) -> PgType:
    return resolved(state, type, DATABASE, ("public",))[0] if isinstance(type, NamedType) else type


@cache
def contents() -> dict[ObjectId, pa.Table]:
    """The tables' rows, parsed from the text that PostgreSQL printed."""
    tables = {item.name: item for item in state().items.values() if isinstance(item, Table)}
    found = {}
    for statement, answer in answers.read(TABLES):
        table = tables[statement.sql.split()[-1]]
        types = [parse_type(column.type) for column in table.columns]
        columns = [
            column_of(type, [None if (text := row[i]) is None else parse_text(type, text) for row in answer.rows])
            for i, type in enumerate(types)
        ]
        found[table.id] = pa.table(columns, updates.rows_schema([type.arrow for type in types]))
    return found


def plan(statement: Statement) -> QueryPlan:
    """The plan of a statement. Raises PgError."""
    context = PlanContext(state(), DATABASE, ("public",), USER, statement.timezone)
    with _reported():
        return plan_query(parse_query(statement.sql), context)


@contextmanager
def _reported() -> Iterator[None]:
    """Converts other exceptions than PgError to XX000, as the server does, so that the remaining statements are
    compared."""
    try:
        yield
    except PgError:
        raise
    except Exception as error:
        raise PgError(SqlState.INTERNAL_ERROR, "".join(traceback.format_exception(error)[-3:])) from error


def columns(plan: QueryPlan) -> tuple[Column, ...]:
    """The output columns. As in the recorded answers, the OIDs of user-defined types are 0."""
    return tuple(Column(f.name, f.type.oid if f.type.oid < USER_OBJECTS else 0) for f in plan.columns)


def failed(error: PgError) -> Answer:
    return Answer(sqlstate=str(error.sqlstate), message=error.message)


def constant_answer(plan: QueryPlan, statement: Statement) -> Answer:
    """The answer of a plan that needs no Spark, evaluated in the way of a worker process."""
    try:
        with _reported():
            constant = compiled(pickle.loads(pickle.dumps(plan.relation)), bounded=False)
            assert constant is not None
            return _printed(plan, pa.Table.from_batches([constant.evaluate(_bindings(statement))]), statement)
    except PgError as error:
        return failed(error)


async def answer(plan: QueryPlan, statement: Statement, engine: Engine) -> Answer:
    """The answer of a plan that needs Spark."""

    async def read(id: ObjectId, time: Timestamp) -> pa.Table:
        return contents()[id]

    try:
        with _reported():
            return _printed(plan, await compute(plan, _bindings(statement), engine, read, Timestamp(1)), statement)
    except PgError as error:
        return failed(error)


def _bindings(statement: Statement) -> Bindings:
    settings = {"timezone": "UTC", "bytea_output": "hex"} | dict(statement.settings)
    return Bindings(
        now_us=_NOW_US,
        statement_us=_NOW_US,
        clock_us=_NOW_US + 1,
        mz_now=1,
        database=DATABASE,
        schema="public",
        user=USER,
        session_user=USER,
        version=VERSION,
        backend_pid=1,
        settings=settings,
    )


def _printed(plan: QueryPlan, table: pa.Table, statement: Statement) -> Answer:
    """The answer with the rows in the text form that a client receives."""
    style = OutputStyle(statement.timezone, statement.bytea_output)
    texts = []
    for field, column in zip(plan.columns, table.columns, strict=True):
        array = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
        encode = text_column(field.type, style)  # only for columns with at least one row
        texts.append(encode(plain_column(array, field.type)).to_pylist() if len(array) else [])
    return Answer(columns(plan), tuple(zip(*texts, strict=True)) if texts else ((),) * table.num_rows)
