"""After `decorrelated`, no query refers to columns of another query, except in the forms that Spark supports."""

from __future__ import annotations

import pytest

from protocol.pgwire.errors import PgError
from server.sql.columns import free_columns
from server.sql.expressions import Subquery, SubqueryKind, walk
from server.sql.grammar.parse import parse, parse_query
from server.sql.grammar.statements.writes import Delete, Update
from server.sql.plan import plan_query
from server.sql.relations import DistinctOn, Join, Unnest
from server.sql.writes.statements import plan_delete, plan_update
from tests.server.sql.test_bad_sql import context, statements


@pytest.mark.sql
def test_plans_have_no_lateral_joins_and_no_free_columns() -> None:
    rewritten = 0
    for text in statements():
        try:
            plan = plan_query(parse_query(text), context())
        except PgError:
            continue  # statements that have no plan are tested elsewhere
        assert not free_columns(plan.relation), text
        for node in walk(plan.relation):
            assert not (isinstance(node, Join) and node.lateral), text
            if isinstance(node, Subquery):
                assert node.kind not in (SubqueryKind.ANY, SubqueryKind.ALL), text
        rewritten += "<=>" in plan.template
    assert rewritten > 50


@pytest.mark.parametrize(
    "sql",
    [
        "select id, x from lists, unnest(ia) x",
        "select id, x from lists left join unnest(ia) x on true",
        "select id, x from lists, lateral unnest(ia) x where x > 1",
    ],
)
def test_a_table_function_of_each_row_needs_no_join(sql: str) -> None:
    nodes = list(walk(plan_query(parse_query(sql), context()).relation))
    assert any(isinstance(node, Unnest) for node in nodes)
    assert not any(isinstance(node, Join) for node in nodes)


@pytest.mark.parametrize(
    "sql",
    [
        "update people set name = d.name from depts d where people.dept = d.id returning people.id, d.city",
        "delete from people p using depts d where p.dept = d.id returning p.*, d.id",
    ],
)
def test_a_row_with_several_matches_is_written_once(sql: str) -> None:
    (statement,) = parse(sql)
    assert isinstance(statement, Update | Delete)
    plan = plan_update(statement, context()) if isinstance(statement, Update) else plan_delete(statement, context())
    assert any(isinstance(node, DistinctOn) for node in walk(plan.query.relation))
    assert plan.returning is not None
