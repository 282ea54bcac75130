"""Refused statements (0A000) have a hint that says what to do instead, unless PostgreSQL refuses them, too."""

from __future__ import annotations

import ast
from pathlib import Path

import psycopg
import pytest

from protocol.pgwire.errors import PgError, SqlState
from server.sql.grammar.parse import parse
from server.sql.grammar.rules.built_ins import KINDS as BUILT_IN
from server.sql.grammar.rules.objects import _HINTS
from tests.fix_server import ServerThread

ROOT = Path(__file__).parent.parent.parent.parent
CHECKED = ("server", "protocol", "catalog")
KINDS = {
    "access": "access method",
    "constraint": "constraint trigger",
    "event": "event trigger",
    "foreign": "foreign table",
    "large": "large object",
    "text": "text search parser",
}
STATEMENTS = """
alter table t force row level security
alter table t inherit u
alter table t no inherit u
alter table t attach partition u default
alter table t detach partition u
alter table t add a int, rename to u
alter table t alter constraint c deferrable
alter table t add constraint c exclude using gist (a with =)
alter table t add unique using index i
alter table t add unique (a) include (b)
alter table t add foreign key (a) references u match partial
alter view v set (security_barrier)
alter index i set tablespace x
alter materialized view v cluster on i
alter sequence s set logged
alter type t add attribute a int
create table t (a int) partition by range (a)
create table t partition of u default
create table t (a int) inherits (u)
create table t of u
create table t (a int) with (oids)
create table t (a int storage plain)
create table t (a int compression lz4)
create table t (a int check (a > 0) deferrable)
create table t (exclude using gist (a with &&))
create table t (a text collate "de_DE")
create table t (a bit(3))
create table t (a bit varying)
create view v with (security_barrier) as select 1
create view v with (check_option = local, security_invoker) as select 1
create recursive view v (n) as values (1) with check option
refresh materialized view v with no data
create or replace table t (a int)
create type t as (a int)
create type t as range (subtype = int4)
create domain d as text collate "de_DE"
create user mapping for u server s
drop user mapping for u server s
alter role all set a = 1
copy t from 'file'
prepare transaction 'x'
grant usage on language c to r
revoke usage on foreign server c from r
call p()
do 'declare n int; begin create schema s; end'
do 'begin raise notice ''hi''; end'
do 'begin if true then null; end if; end'
update t set a[2:3] = '{1, 2}'
insert into t values (1) on conflict (a) do update set b[1].f = 2
update t set a[1] = default
cluster
load 'x'
security label on table t is 'x'
import foreign schema a from server b into c
explain create role r
create source s with (connector = 'kafka')
create table t (a int) with (connector = 'datagen')
create table t (a timestamptz, watermark for a as a - interval '5 seconds')
create materialized view v with (refresh every '1 day') as select 1
create sink s from t with (connector = 'kafka')
create sink s as select 1
declare c subscription cursor for s
describe t
flush
"""


@pytest.mark.parametrize("text", [line for line in STATEMENTS.splitlines() if line])
def test_refused_statements_have_a_hint(text: str) -> None:
    with pytest.raises(PgError) as refused:
        parse(text)
    assert refused.value.sqlstate == SqlState.FEATURE_NOT_SUPPORTED
    assert refused.value.hint
    assert refused.value.hint.endswith(".")


@pytest.mark.parametrize(
    ("statement", "type", "hint"),
    [
        ("CREATE TABLE t (a xml)", "xml", "Use text."),
        ("CREATE TABLE t (a pg_catalog.money)", "money", "Use numeric(12, 2)."),
        ("CREATE TABLE t (a timetz)", "timetz", "Use time, or timestamp with time zone."),
        ("CREATE TABLE t (a int4range[])", "int4range", "Use two columns, for the lower and the upper bound."),
        ("CREATE DOMAIN d AS point", "point", "Use a column of type double precision for each coordinate."),
        ("ALTER TABLE known ADD COLUMN b tsvector", "tsvector", "Search texts with ILIKE or regular expressions."),
        ("ALTER TABLE known ALTER COLUMN a TYPE xml", "xml", "Use text."),
        ("SELECT 'a'::tsquery", "tsquery", "Search texts with ILIKE or regular expressions."),
    ],
)
def test_types_that_only_postgresql_has_are_refused_with_a_hint(
    passing_server: ServerThread, statement: str, type: str, hint: str
) -> None:
    with psycopg.connect(passing_server.dsn(), autocommit=True) as connection:
        connection.execute("CREATE TABLE known (a text)")
        with pytest.raises(psycopg.errors.FeatureNotSupported, match=f"type {type} is not supported") as refused:
            connection.execute(statement.encode())
        assert refused.value.diag.message_hint == hint
        connection.execute("CREATE TYPE path AS ENUM ('a')")
        connection.execute("CREATE TABLE t (a path)")


@pytest.mark.parametrize("query", ["select * from t", "values (1)", "show tables", "with a as (select 1) table a"])
def test_a_query_of_subscribe_without_parentheses_has_a_hint(query: str) -> None:
    with pytest.raises(PgError, match="syntax error at or near") as refused:
        parse(f"subscribe {query}")
    assert refused.value.sqlstate == SqlState.SYNTAX_ERROR
    assert refused.value.hint == "Write the query in parentheses: SUBSCRIBE (SELECT ...)."


def test_unknown_options_of_materializes_explain_have_a_hint() -> None:
    for stage, hint in (
        ("optimized", "Omit WITH and its options."),
        ("physical", "The options of EXPLAIN PHYSICAL PLAN are VERBOSE."),
    ):
        with pytest.raises(PgError, match='unrecognized EXPLAIN option "humanized"') as refused:
            parse(f"explain {stage} plan with (humanized expressions) for select 1")
        assert refused.value.hint == hint


@pytest.mark.parametrize("verb", ["create", "create or replace", "alter", "drop", "comment on"])
def test_all_kinds_of_objects_that_are_refused_have_a_hint(verb: str) -> None:
    for kind in _HINTS:
        is_statement = f"{verb} {kind}" in (
            "create extension", "alter system", "comment on constraint", "comment on extension"
        )  # fmt: skip
        if is_statement or (verb == "drop" and KINDS.get(kind, kind) in BUILT_IN):
            continue
        with pytest.raises(PgError) as refused:
            parse(f"{verb} {KINDS.get(kind, kind)} x")
        assert refused.value.sqlstate == SqlState.FEATURE_NOT_SUPPORTED, kind
        assert refused.value.hint, kind


# The functions with refusals that are PostgreSQL's: their errors have its text, and no other hint.
OF_POSTGRESQL = [
    "protocol/pgwire/copy_options.py: _refuse_unless",
    "protocol/pgwire/messages/startup.py: unsupported_version",
    "server/execution/ddl/alter.py: _between_temporary",
    "server/execution/ddl/alter.py: change_owner",
    "server/execution/ddl/alter.py: set_schema",
    "server/execution/ddl/drop.py: drop",
    "server/execution/ddl/grants.py: _grant",
    "server/execution/ddl/index_options.py: _method",
    "server/execution/ddl/index_options.py: _order",
    "server/execution/ddl/roles.py: _rename",
    "server/execution/ddl/sequences.py: alter",
    "server/execution/ddl/views.py: _is_temporary",
    "server/execution/maintenance.py: refresh",
    "server/execution/maintenance.py: reindex",
    "server/execution/planning.py: refuse_subquery",
    "server/execution/prepare.py: plan_copy",
    "server/execution/with_writes.py: _check_returning",
    "server/frontend/cursors.py: _check_row_locks",
    "server/frontend/dispatch.py: revalidated",
    "server/settings/session_settings.py: reset",
    "server/sql/bind/paths.py: step_tree",
    "server/sql/bind/row_locks.py: _not_allowed",
    "server/sql/bind/row_values.py: rows_compared",
    "server/sql/bind/samples.py: sampled",
    "server/sql/bind/table_functions.py: set_returning",
    "server/sql/bind/values.py: values_query",
    "server/sql/bind/windows.py: window_call",
    "server/sql/functions/datetime_fields.py: _checked",
    "server/sql/functions/datetime_format.py: _field",
    "server/sql/functions/datetimes.py: _binned",
    "server/sql/functions/number_format.py: read",
    "server/sql/grammar/glot_tokens.py: _check_name",
    "server/sql/grammar/rules/tables.py: _parse_column_type",
    "server/sql/json_path/parser.py: _like_regex",
    "server/sql/row_rules.py: validate",
    "server/sql/row_rules.py: validate_domain",
    "server/sql/scope.py: find_relation",
    "server/sql/writes/target.py: require_updatable",
]
STATE = "SqlState.FEATURE_NOT_SUPPORTED"


def _refusals_without_hint(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether the function makes an error 0A000 that has no hint, or whose hint callers may omit."""
    parameters = function.args
    named = [*parameters.posonlyargs, *parameters.args][-len(parameters.defaults) :] if parameters.defaults else []
    optional = {
        *(argument.arg for argument, default in zip(named, parameters.defaults, strict=True) if _is_none(default)),
        *(
            argument.arg
            for argument, d in zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True)
            if _is_none(d)
        ),
    }
    states = [*parameters.defaults, *(default for default in parameters.kw_defaults if default is not None)]
    refuses = any(ast.unparse(default) == STATE for default in states)
    return any(
        _lacks_hint(node, optional, refuses=refuses) for node in ast.walk(function) if isinstance(node, ast.Call)
    )


def _is_none(default: ast.expr | None) -> bool:
    return isinstance(default, ast.Constant) and default.value is None


def _lacks_hint(call: ast.Call, optional: set[str], *, refuses: bool) -> bool:
    """`refuses`: the function's SQLSTATE is 0A000 by default."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    if not any(ast.unparse(value) == STATE for value in values) and not (refuses and name == "PgError"):
        return False
    if name == "BadText" and len(call.args) > 2:
        return False
    hint = next((keyword.value for keyword in call.keywords if keyword.arg == "hint"), None)
    return hint is None or (isinstance(hint, ast.Name) and hint.id in optional)


def test_all_refusals_have_a_hint() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {function.name}"
        for directory in CHECKED
        for path in sorted((ROOT / directory).rglob("*.py"))
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and _refusals_without_hint(function)
    }
    assert sorted(found) == OF_POSTGRESQL
