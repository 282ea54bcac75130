r"""Statements that a real PostgreSQL and our planner are both given: over tables with NULLs and odd strings.

`DDL` and `ROWS` make the tables (`v` has a column of every type); `QUERIES` have an answer, `FAILURES` an error,
`function_queries()` calls every row of the function table over the columns of `v`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from catalog.objects import CatalogState, Column, ObjectId, Table
from protocol.pgwire.types import PgType
from server.sql.functions.table import ANY, ANYARRAY, ANYELEMENT, FUNCTIONS, OPERATORS, Function, Kind
from tests.server.states import empty_state

DDL = """
CREATE TABLE v (id int4, i2 int2, i4 int4, i8 int8, n2 numeric(10,2), nb numeric, f4 float4, f8 float8, b bool,
  s text, vc varchar(10), d date, tm time, ts timestamp, tz timestamptz, byt bytea, uu uuid, ia int4[], sa text[]);
CREATE TABLE t (a int4, b text, c int8, n numeric(12,3), d date);
CREATE TABLE u (a int4, k int4, w text);
"""
ROWS = r"""
INSERT INTO v VALUES
 (1, 1, 10, 100, 1.50, 2.25, 0.5, 1.5, true, 'abc', 'Hello', '2024-02-29', '01:02:03', '2024-02-29 10:11:12.345678',
  '2024-02-29 10:11:12+02', '\x0102', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{1,2,3}', '{a,b}'),
 (2, -7, -3, 9007199254740993, -2.50, -0.5, -1.25, -2.5, false, 'Äpfel %_\x', 'x', '1999-12-31', '23:59:59.999999',
  '1999-12-31 23:59:59.999999', '1999-12-31 23:59:59.5+00', '\x', '00000000-0000-0000-0000-000000000000', '{}', '{}'),
 (3, 7, 2, -5, 0.00, 3, 2.5, 3.5, true, '', '', '2000-01-01', '00:00:00', '2000-01-01 00:00:00',
  '2000-01-01 00:00:00+00', '\xff', 'ffffffff-ffff-ffff-ffff-ffffffffffff', '{3,NULL}', '{NULL,x}'),
 (4, 3, 7, 3, 99999999.99, 12345678.123456789, 100, 1234567.891, null, '  padded  ', 'a b', '1970-01-01', '12:00:00',
  '1969-12-31 23:00:00.000001', '1970-01-01 00:00:00+00', null, null, null, null),
 (5, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null),
 (6, 2, 5, 2, 3.33, 1.1, 4, 0.1, false, 'a''b"c
d', 'ABC', '2023-07-16', '06:30:00', '2023-07-16 06:30:00', '2023-07-16 06:30:00-05', '\x00ff',
  'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a12', '{5}', '{"a b",c}');
INSERT INTO t VALUES (1,'x',10,1.125,'2024-01-31'), (2,'y',20,-2.5,'2024-02-29'), (2,'x',null,0.001,null),
  (null,null,5,null,'2023-12-31'), (3,'z',-7,100,'2024-01-31'), (1,'x',10,1.125,'2024-01-31');
INSERT INTO u VALUES (1,1,'one'), (2,1,'two'), (2,null,'deux'), (null,3,null), (5,2,'five');
"""

QUERIES = (Path(__file__).parent / "plan_queries.sql").read_text().splitlines()
FAILURES = (Path(__file__).parent / "plan_failures.sql").read_text().splitlines()

_COLUMN_OF = {
    "bool": "b", "int2": "i2", "int4": "i4", "int8": "i8 % 1000000", "float4": "f4", "float8": "f8", "numeric": "n2",
    "text": "s", "varchar": "vc", "bpchar": "vc::char(12)", "bytea": "byt", "date": "d", "time": "tm",
    "timestamp": "ts", "timestamptz": "tz", "uuid": "uu", "interval": "interval '1 day 02:03:04'",
    "any": "i4", "anyelement": "s", "anyarray": "ia",
}  # fmt: skip
_ARGUMENTS = {  # where a column would mean an error or nothing
    "date_trunc": ("'hour'",), "extract": ("'day'",), "date_part": ("'day'",), "to_char": (None, "'YYYY'"),
    "split_part": (None, "'b'", "2"), "repeat": (None, "2"), "lpad": (None, "7"), "rpad": (None, "7"),
    "make_date": ("2024", "abs(i2) + 1", "3"), "round": (None, "1"), "trunc": (None, "1"), "array_length": (None, "1"),
    "string_agg": (None, "','"), "ntile": ("2",), "lag": (None, "1"), "lead": (None, "1"),
    "ln": ("abs({}) + 1",), "log": ("abs({}) + 1",), "log10": ("abs({}) + 1",), "sqrt": ("abs({})",),
    "|/": ("abs({})",), "power": ("abs({}) + 1", "2"), "pow": ("abs({}) + 1", "2"), "^": ("abs({}) + 1", "2"),
    "exp": ("{} / 1e6",), "mod": (None, "abs({}) + 1"), "%": (None, "abs({}) + 1"), "/": (None, "abs({}) + 1"),
    "substr": (None, None, "abs({})"), "substring": (None, None, "abs({})"), "left": (None, "i4"),
    "~": (None, "'[a-c]+'"), "!~": (None, "'[a-c]+'"), "~*": (None, "'[A-C]+'"), "!~*": (None, "'[A-C]+'"),
    "~~": (None, "'%b%'", "'!'"), "!~~": (None, "'%b%'", "'!'"), "~~*": (None, "'%B%'", "'!'"),
    "!~~*": (None, "'%B%'", "'!'"),
}  # fmt: skip


CALLS = 12  # in one query


def function_queries() -> Iterator[str]:
    """Calls of every row of the function table that is not refused, over the rows of `v` that have no extremes."""
    calls: dict[str, list[str]] = {}
    for table in (FUNCTIONS, OPERATORS):
        for rows in table.values():
            for row in rows:
                refused = row.spark is None or row.result.name == "interval"
                if not refused and not (len(row.arguments) == 3 and row.name in OPERATORS):
                    text = _call(row, table is OPERATORS)
                    match row.kind:
                        case Kind.AGGREGATE:
                            calls.setdefault("select id % 2, {} from v where id <> 4 group by id % 2", []).append(text)
                        case Kind.WINDOW:
                            window = " over (partition by id % 2 order by id)"
                            calls.setdefault("select id, {} from v", []).append(text + window)
                        case _:
                            calls.setdefault("select id, {} from v where id <> 4", []).append(text)
    for template, texts in calls.items():
        for i in range(0, len(texts), CALLS):
            yield template.format(", ".join(texts[i : i + CALLS]))


def _call(row: Function, is_operator: bool) -> str:
    arguments = [_argument(row, i, type) for i, type in enumerate(row.arguments)]
    if is_operator:
        return f"{row.name} {arguments[0]}" if len(arguments) == 1 else f"({arguments[0]}) {row.name} ({arguments[1]})"
    if row.name == "count" and not arguments:
        return "count(*)"
    if row.name == "extract":
        return f"extract(day from {arguments[1]})"
    if row.name == "position":
        return f"position({arguments[0]} in {arguments[1]})"
    order = " order by s" if row.name in ("string_agg", "array_agg") else ""
    return f"{row.name}({', '.join(arguments)}{order})"


def _argument(row: Function, place: int, type: PgType) -> str:
    if row.arguments.count(ANYARRAY) == 2 and place:
        return "array[3, null]"
    column = _COLUMN_OF[type.name]
    given = _ARGUMENTS.get(row.name, ())
    if place < len(given) and given[place] is not None:
        own = str(given[place]).format(column)
        is_known = {ANY, ANYELEMENT}.isdisjoint((type,))
        return own if is_known and (own[0] in "'(0123456789ia" or "{}" in str(given[place])) else column
    return column


def state() -> CatalogState:
    """A catalog with the tables, in the schema public of the database materialize."""
    result = empty_state()
    for name, body in re.findall(r"CREATE TABLE (\w+) \((.*?)\);", DDL, re.DOTALL):
        id, result = result.new_id()
        columns = (column.split(None, 1) for column in re.split(r",(?![^(]*\))", body))
        result = result.with_item(Table(id, ObjectId("u2"), name, tuple(Column(n, t.strip()) for n, t in columns)))
    return result
