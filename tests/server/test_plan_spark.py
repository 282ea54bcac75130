"""What our plans mean: Spark's rows against a real PostgreSQL's, over the same tables.

Every statement of `plan_queries.sql`, and a call of every row of the function table. Names and types must be equal too.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Iterator
from decimal import Context, Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from catalog.objects import ObjectId, Table
from protocol.pgwire.errors import PgError
from protocol.pgwire.scalars import column_of, parse_text
from protocol.pgwire.types import BY_OID, PgType, parse_type
from server.spark.engine import SparkEngine
from server.sql.constant import Bindings
from server.sql.parse import parse_query
from server.sql.plan import PlanContext, QueryPlan, plan_query
from tests.server import plan_corpus as corpus

pytestmark = [pytest.mark.spark, pytest.mark.slow]

BATCH = 20  # statements a test: small enough for its time limit, large enough to be one line of the report


class Oracle:
    """PostgreSQL with the tables, and the same rows as Arrow tables for Spark."""

    def __init__(self, dsn: str) -> None:
        self.connection = psycopg.connect(dsn, autocommit=True)
        self.connection.execute("DROP SCHEMA IF EXISTS plan CASCADE; CREATE SCHEMA plan; SET search_path = plan")
        self.connection.execute(corpus.DDL.encode())
        self.connection.execute(corpus.ROWS.encode())
        self.context = PlanContext(corpus.state(), "materialize", ("public",), "postgres")
        tables = [item for item in self.context.state.items.values() if isinstance(item, Table)]
        self.views = {table.id: self._contents(table) for table in tables}

    def rows(self, sql: str) -> tuple[list[tuple[str, int]], list[tuple[str | None, ...]]]:
        """Names and type OIDs of the columns, and the rows in text form. psycopg.Error."""
        result = self.connection.pgconn.exec_params(sql.encode(), [], result_format=0)
        if result.status == psycopg.pq.ExecStatus.FATAL_ERROR:
            raise Refused((result.error_field(psycopg.pq.DiagnosticField.SQLSTATE) or b"").decode(), sql)
        columns = [((result.fname(i) or b"").decode(), result.ftype(i)) for i in range(result.nfields)]
        rows = [
            tuple(map(_text, (result.get_value(r, c) for c in range(result.nfields)))) for r in range(result.ntuples)
        ]
        return columns, rows

    def _contents(self, table: Table) -> pa.Table:
        types = [parse_type(column.type) for column in table.columns]
        _, rows = self.rows(f"select * from {table.name}")
        columns = [
            column_of(type, [None if row[i] is None else parse_text(type, row[i] or "") for row in rows])
            for i, type in enumerate(types)
        ]
        return pa.table(columns, names=[f"c{i}" for i in range(len(columns))])


class Refused(Exception):
    """PostgreSQL's error."""

    def __init__(self, sqlstate: str, sql: str) -> None:
        super().__init__(f"{sqlstate}: {sql}")
        self.sqlstate = sqlstate


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


@pytest.fixture(scope="module")
def oracle(postgres: str) -> Iterator[Oracle]:
    oracle = Oracle(postgres)
    yield oracle
    oracle.connection.close()


def ours(plan: QueryPlan, oracle: Oracle, engine: SparkEngine) -> pa.Table:
    if plan.constant is not None:
        return pa.Table.from_batches([plan.constant.evaluate(Bindings())])
    if plan.direct_scan is not None:
        return plan.direct_scan.rows(oracle.views[plan.direct_scan.source], Bindings())
    views: dict[str, pa.Table] = {id: oracle.views[ObjectId(id)] for id in plan.inputs}
    return asyncio.run(engine.run(plan.spark_sql(), views))


def plain(type: PgType, value: Any) -> Any:
    """A value in a form in which PostgreSQL's and ours are equal: floats to 12 digits, quotients to 12."""
    if value is None:
        return None
    if type.element is not None:
        return tuple(plain(type.element, item) for item in value)
    if type.name == "numeric":
        number = Decimal(value).normalize()
        return number if int(number.as_tuple().exponent) >= -9 else Context(prec=12).create_decimal(number).normalize()
    if type.name in ("float4", "float8"):
        digits = 12 if type.name == "float8" else 5
        return "NaN" if math.isnan(value) else float(f"{value:.{digits}g}")
    return value


def difference(sql: str, oracle: Oracle, engine: SparkEngine) -> str | None:
    """What the two disagree in; None if nothing."""
    names, expected_text = oracle.rows(sql)
    plan = plan_query(parse_query(sql), oracle.context)
    planned = [(field.name, field.type.oid) for field in plan.columns]
    if planned != names:
        return f"columns: PostgreSQL {names}, planned {planned}"
    types = [BY_OID[oid] for _, oid in names]
    expected = [
        tuple(plain(t, None if v is None else parse_text(t, v)) for t, v in zip(types, row, strict=True))
        for row in expected_text
    ]
    table = ours(plan, oracle, engine)
    schema = pa.schema([(f"c{i}", field.type.arrow) for i, field in enumerate(plan.columns)])
    table = table.rename_columns(schema.names).cast(schema)
    scalars = [_scalars(field.type, table.column(i)) for i, field in enumerate(plan.columns)]
    actual = [
        tuple(plain(f.type, v) for f, v in zip(plan.columns, row, strict=True)) for row in zip(*scalars, strict=True)
    ]
    same = actual == expected if " order by " in sql.rpartition(")")[2] else Counter(actual) == Counter(expected)
    return None if same else f"PostgreSQL {expected}\n      Spark      {actual}\n      {plan.template}"


def _scalars(type: PgType, column: pa.ChunkedArray) -> list[Any]:
    """Arrow's values as the Python scalars of types.py."""
    if type.name == "date":
        return column.cast(pa.int32()).to_pylist()  # type: ignore[no-any-return]
    if type.name in ("time", "timestamp", "timestamptz"):
        return column.cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]
    return column.to_pylist()  # type: ignore[no-any-return]


def _batches(statements: list[str]) -> list[list[str]]:
    return [statements[i : i + BATCH] for i in range(0, len(statements), BATCH)]


@pytest.mark.parametrize("statements", _batches([*corpus.QUERIES, *corpus.function_queries()]), ids=lambda s: s[0][:60])
def test_same_rows_as_postgresql(statements: list[str], oracle: Oracle, engine: SparkEngine) -> None:
    wrong = []
    for sql in statements:
        try:
            fault = difference(sql, oracle, engine)
        except (PgError, Refused) as error:
            fault = repr(error)
        if fault is not None:
            wrong.append(f"{sql}\n      {fault}")
    assert not wrong, f"{len(wrong)} of {len(statements)}\n" + "\n".join(wrong)


def test_same_errors_as_postgresql(oracle: Oracle, engine: SparkEngine) -> None:
    wrong = []
    for sql in corpus.FAILURES:
        states = []
        for run in (oracle.rows, lambda sql: ours(plan_query(parse_query(sql), oracle.context), oracle, engine)):
            try:
                run(sql)
                states.append("no error")
            except (PgError, Refused) as error:
                states.append(str(error.sqlstate))
        if states[0] == "no error" or states[0] != states[1]:
            wrong.append(f"{sql}: PostgreSQL {states[0]}, ours {states[1]}")
    assert not wrong, "\n".join(wrong)
