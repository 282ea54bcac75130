"""Plans of writes to views: the same as those of writes to their tables, and bounded as those of reads."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.ids import ObjectId
from catalog.keys import Key
from catalog.objects.columns import Column
from catalog.objects.tables import Table
from catalog.objects.views import View
from catalog.roles import MATERIALIZE
from protocol.pgwire.errors import PgError
from server.authorization import privileges
from server.sql.expressions import ColumnRef
from server.sql.grammar.parse import parse_query
from server.sql.plan import PlanContext, plan_query
from server.sql.relations import Filter, Project, Relation, Scan, Sort
from server.sql.writes.conflict import RETURNED
from server.sql.writes.updatable_views import level_of, updatable_columns
from tests.server.sql.planned import planned_write
from tests.server.states import state_with_table

STATE, TABLE = state_with_table("t", id="int4", a="int4", b="text")
BASE = PlanContext(state=STATE, database="materialize", search_path=("public",), user="m")


@pytest.fixture(scope="module", autouse=True)
def _deep_recursion() -> Iterator[None]:
    """As in the server."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(10_000)
    yield
    sys.setrecursionlimit(before)


def with_view(context: PlanContext, name: str, sql: str, names: Sequence[str] = ()) -> PlanContext:
    planned = plan_query(parse_query(sql), context, None)
    id, state = context.state.new_id()
    shown = names or [field.name for field in planned.columns]
    columns = tuple(Column(n, str(field.type)) for n, field in zip(shown, planned.columns, strict=True))
    view = View(id, ObjectId("u2"), name, columns, planned.stored_text, planned.uses)
    return replace(context, state=state.with_item(view))


def views(**queries: str) -> PlanContext:
    context = BASE
    for name, sql in queries.items():
        context = with_view(context, name, sql)
    return context


def numbered(sql: str) -> str:
    """The statement with its columns numbered in order."""
    names: dict[str, str] = {}
    return re.sub(r"\bx\d+", lambda match: names.setdefault(match[0], f"x{len(names)}"), sql)


def view_id(context: PlanContext, name: str) -> ObjectId:
    item = context.state.resolve((name,), "materialize", ("public",))
    assert item is not None
    return item.id


@pytest.mark.parametrize(
    ("through", "directly"),
    [
        ("UPDATE v SET x = x + 1 WHERE k = 5", "UPDATE t SET a = a + 1 WHERE id = 5"),
        ("UPDATE v SET x = 2 WHERE k IN (1, 2) RETURNING k", "UPDATE t SET a = 2 WHERE id IN (1, 2) RETURNING id"),
        ("DELETE FROM v WHERE k = 5", "DELETE FROM t WHERE id = 5"),
        ("INSERT INTO v VALUES (1, 2)", "INSERT INTO t (id, a) VALUES (1, 2)"),
        ("INSERT INTO v (x) SELECT id FROM t RETURNING x", "INSERT INTO t (a) SELECT id FROM t RETURNING a"),
    ],
)
def test_plan_is_that_of_the_table(through: str, directly: str) -> None:
    context = views(w="SELECT id AS k, a AS x FROM t", v="SELECT * FROM w")
    found, expected = planned_write(through, context), planned_write(directly, context)
    assert numbered(found.query.template) == numbered(expected.query.template)
    assert {i: [k.column for k in keys] for i, keys in found.query.key_filters.items()} == {
        i: [k.column for k in keys] for i, keys in expected.query.key_filters.items()
    }
    assert (found.table, found.given, found.assigned) == (expected.table, expected.given, expected.assigned)
    assert (found.added is None) == (expected.added is None)


def test_key_is_found_below_the_conditions_and_columns_of_views() -> None:
    context = views(w="SELECT id, a, a + 1 AS s FROM t WHERE a > 0", v="SELECT id, s, s * 2 AS d FROM w WHERE s < 9")
    plan = planned_write("DELETE FROM v WHERE id = 5", context)
    (keys,) = plan.query.key_filters.values()
    assert [key.column for key in keys] == [0]
    assert "WHERE (x2 > 0) AND (x1 = 5)" in plan.query.template


def test_only_columns_of_the_named_view_are_read() -> None:
    context = views(w="SELECT id, a FROM t WHERE b = 'x'", v="SELECT a AS x, id FROM w WHERE a > 0")
    v = view_id(context, "v")
    assert planned_write("DELETE FROM v", context).query.reads == set()
    assert planned_write("INSERT INTO v VALUES (1, 2)", context).query.reads == set()
    assert planned_write("INSERT INTO v VALUES (1, 2) RETURNING x", context).query.reads == {(v, 0)}
    assert planned_write("UPDATE v SET x = 1 WHERE id = 2", context).query.reads == {(v, 1)}
    assert planned_write("UPDATE v SET x = 1 WHERE id = 2", context).query.uses == set()


def test_columns_of_the_same_column_are_read_separately() -> None:
    context = views(v="SELECT id, id AS same FROM t")
    v = view_id(context, "v")
    assert planned_write("DELETE FROM v WHERE same = 1", context).query.reads == {(v, 1)}
    assert planned_write("DELETE FROM v WHERE id = 1", context).query.reads == {(v, 0)}


def test_on_conflict_reads_the_columns_that_it_names() -> None:
    key = Key(1, "t_pkey", ("id",), is_primary=True)
    context = views(v="SELECT a, id, id AS same, a + 1 AS s FROM t")
    table = context.state.relation(TABLE)
    assert isinstance(table, Table)
    context = replace(context, state=context.state.with_item(replace(table, keys=(key,))))
    v = view_id(context, "v")
    plan = planned_write("INSERT INTO v (id) VALUES (1) ON CONFLICT (same) DO NOTHING", context)
    assert (plan.query.reads, plan.conflict and plan.conflict.keys) == ({(v, 2)}, {"t_pkey"})
    update = (
        "INSERT INTO v (id, a) VALUES (1, 2) ON CONFLICT (id) DO UPDATE SET a = excluded.s WHERE v.a > 0 RETURNING same"
    )
    assert planned_write(update, context).query.reads == {(v, 0), (v, 1), (v, 2), (v, 3)}


def test_insert_does_not_read_the_table() -> None:
    context = views(v="SELECT id, a, a + 1 AS s FROM t WHERE id IN (SELECT id FROM t)")
    assert planned_write("INSERT INTO v (id) VALUES (1) RETURNING *", context).query.inputs == set()
    context = views(v="SELECT id, (SELECT max(a) FROM t) AS m FROM t")
    assert planned_write("INSERT INTO v (id) VALUES (1) RETURNING *", context).query.inputs == {TABLE}


def test_merge_writes_to_views() -> None:
    context = views(v="SELECT id AS k, a AS x, a + 1 AS s FROM t WHERE a > 0")
    clauses = "WHEN MATCHED THEN UPDATE SET x = v.s WHEN NOT MATCHED THEN INSERT (k) VALUES (1)"
    plan = planned_write(f"MERGE INTO v USING t ON v.k = t.id {clauses}", context)
    assert (plan.updates, plan.inserts, plan.given) == ({1}, {0}, {0, 1})
    for action in ("UPDATE SET s = 1", "UPDATE SET x = 1, s = 1"):
        with pytest.raises(PgError, match='cannot merge into column "s" of view "v"'):
            planned_write(f"MERGE INTO v USING t ON v.k = t.id WHEN MATCHED THEN {action}", context)
    with pytest.raises(PgError, match='cannot merge into column "s" of view "v"'):
        planned_write("MERGE INTO v USING t ON v.k = t.id WHEN NOT MATCHED THEN INSERT (k, s) VALUES (1, 2)", context)


def test_merge_that_only_deletes_needs_no_updatable_column() -> None:
    context = views(v="SELECT id + 1 AS n FROM t")
    assert planned_write("MERGE INTO v USING t ON v.n = t.id WHEN MATCHED THEN DELETE", context).table == TABLE
    for clause in ("MATCHED THEN UPDATE SET n = 1", "NOT MATCHED THEN INSERT (n) VALUES (1)"):
        with pytest.raises(PgError, match='cannot merge into view "v"'):
            planned_write(f"MERGE INTO v USING t ON v.n = t.id WHEN {clause}", context)


@pytest.mark.parametrize(
    ("sql", "is_read"),
    [
        ("UPDATE v SET x = 1 WHERE k = 5", False),
        ("DELETE FROM v WHERE k = 5", False),
        ("INSERT INTO v (k) VALUES (1) RETURNING k", False),
        ("INSERT INTO v AS n (k) VALUES (1) ON CONFLICT DO NOTHING RETURNING n.k", False),
        ("MERGE INTO v USING t ON v.k = t.id WHEN MATCHED THEN DELETE", False),
        ("UPDATE v SET x = 1 WHERE m = 5", True),
        ("UPDATE v SET x = 1 RETURNING *", True),
        ("UPDATE v SET x = 1 RETURNING v", True),
        ("UPDATE v AS n SET x = 1 RETURNING n", True),
        ('INSERT INTO v (k) VALUES (1) RETURNING "m"', True),
    ],
)
def test_columns_that_a_statement_does_not_name_are_not_computed(sql: str, is_read: bool) -> None:
    context = views(v="SELECT id AS k, a AS x, (SELECT max(oid) FROM pg_class) AS m FROM t")
    plan = planned_write(sql, context)
    parts = [plan.query] if plan.conflict is None else [plan.query, plan.conflict.update, plan.conflict.returning]
    inputs = {id for part in parts if part is not None for id in part.inputs}
    assert bool(inputs - {TABLE, RETURNED}) is is_read


def test_owners_with_select_need_no_plan_of_their_views(monkeypatch: pytest.MonkeyPatch) -> None:
    """Privileges are checked on the event loop, at each execution."""
    context = views(v="SELECT id, a, current_user AS who FROM t WHERE id IN (SELECT a FROM t) AND now() IS NOT NULL")
    plan = planned_write("UPDATE v SET a = 1 WHERE id = 5 RETURNING *", context)
    monkeypatch.setattr(privileges, "plan_stored", None)
    privileges.require_write(context.state, MATERIALIZE.id, plan, "UPDATE")


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("SELECT * FROM t", (0, 1, 2)),
        ("SELECT t.* FROM t", (0, 1, 2)),
        ("TABLE t", (0, 1, 2)),
        ("SELECT b, 1, id FROM t AS x", (2, None, 0)),
        ("SELECT x.q, b FROM t AS x (p, q)", (1, 2)),
        ("(SELECT a FROM t)", (1,)),
        ("SELECT ((a)) AS z, a::text FROM t ORDER BY b", (1, None)),
        ("SELECT row_to_json(t) AS j, a FROM t", (None, 1)),
        ("SELECT current_user AS b, a FROM t", (None, 1)),
        ('SELECT "a" FROM ONLY t', (1,)),
        ("SELECT (SELECT max(u.a) FROM t u) AS m, a FROM t", (None, 1)),
        ("SELECT a FROM t WHERE (SELECT count(*) FROM t) > 1", (1,)),
    ],
)
def test_updatable_columns(query: str, columns: tuple[int | None, ...]) -> None:
    context = views(v=query)
    (view,) = context.state.items_of(View)
    assert updatable_columns([view], context.state) == {view.id: columns}


ITEMS = st.sampled_from(
    ("id", "t.a", "b", "(id)", "*", "t.*", "1", "a + 1", "lower(b)", "current_user", "(SELECT max(x.a) FROM t x)")
)
SOURCES = st.sampled_from(("t", "ONLY t", "t AS t", "t AS t (id, a)"))


def column_of_scan(relation: Relation, number: int) -> int | None:
    """The number of the scan's column that a column of a chain of nodes is; None for another expression."""
    while not isinstance(relation, Scan):
        assert isinstance(relation, Project | Filter | Sort)
        if isinstance(relation, Project):
            expression = relation.expressions[number]
            if not isinstance(expression, ColumnRef):
                return None
            number = [column.id for column in relation.input.columns].index(expression.column.id)
        relation = relation.input
    return number


@given(st.lists(st.tuples(st.lists(ITEMS, min_size=1, max_size=4), SOURCES), min_size=1, max_size=3))
def test_updatable_columns_are_those_of_the_plan(levels: list[tuple[list[str], str]]) -> None:
    """For random views over views, whose columns have the names of the table's columns as far as there are so many."""
    context, below = BASE, "t"
    for number, (items, source) in enumerate(levels):
        query = f"SELECT {', '.join(items)} FROM {source.replace('t', below, 1) if 'AS' in source else below + ' AS t'}"
        try:
            width = len(plan_query(parse_query(query), context, None).columns)
        except PgError:
            return  # a column has another type
        names = [*("id", "a", "b")[:width], *(f"c{n}" for n in range(3, width))]
        if width < 3:
            return
        context = with_view(context, f"v{number}", query, names)
        below = f"v{number}"
    view = context.state.relation(view_id(context, below))
    assert isinstance(view, View)
    planned = plan_query(parse_query(f"SELECT * FROM {below}"), context, None)
    expected = tuple(column_of_scan(planned.relation, number) for number in range(len(planned.columns)))
    assert updatable_columns([view], context.state)[view.id] == expected


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT DISTINCT a FROM t", "containing DISTINCT"),
        ("SELECT DISTINCT ON (a) a FROM t", "containing DISTINCT"),
        ("SELECT a FROM t GROUP BY a HAVING true", "containing GROUP BY"),
        ("SELECT 1 AS x FROM t HAVING count(*) > 1", "containing HAVING"),
        ("(SELECT a FROM t EXCEPT SELECT id FROM t) LIMIT 1", "containing UNION, INTERSECT, or EXCEPT"),
        ("WITH x AS (SELECT 1) SELECT a FROM t", "containing WITH"),
        ("(SELECT a FROM t) LIMIT 1", "containing LIMIT or OFFSET"),
        ("SELECT a FROM t FETCH FIRST ROW ONLY", "containing LIMIT or OFFSET"),
        ("SELECT 1 + count(*) AS n FROM t", "that return aggregate functions"),
        ("SELECT count(*) FILTER (WHERE a > 1) AS n FROM t", "that return aggregate functions"),
        ("SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY a) AS p FROM t", "that return aggregate functions"),
        ("SELECT json_object_agg(b, a) AS j FROM t", "that return aggregate functions"),
        ("SELECT sum(count(*)) OVER () AS n FROM t", "that return aggregate functions"),
        ("SELECT sum(a) OVER (ORDER BY id) AS n FROM t", "that return window functions"),
        ("SELECT a FROM t ORDER BY rank() OVER (ORDER BY a)", "that return window functions"),
        ("SELECT a, unnest(ARRAY[1, 2]) AS n FROM t", "that return set-returning functions"),
        ("SELECT t.a FROM t CROSS JOIN t u", "that do not select from a single table or view"),
        ("SELECT a FROM (t JOIN (SELECT 1 AS one) o ON true)", "that do not select from a single table or view"),
        ("SELECT a FROM (SELECT * FROM t) AS t", "that do not select from a single table or view"),
        ("SELECT 1 AS one", "that do not select from a single table or view"),
        ("VALUES (1)", "that do not select from a single table or view"),
        ("SELECT relname FROM pg_class", "that do not select from a single table or view"),
        ("SELECT a FROM t TABLESAMPLE SYSTEM (10)", "containing TABLESAMPLE"),
    ],
)
def test_views_that_are_not_updatable(query: str, reason: str) -> None:
    context = views(v=query)
    (view,) = context.state.items_of(View)
    assert level_of(view, context.state) == f"Views {reason} are not automatically updatable."
    assert updatable_columns([view], context.state) == {}


def test_view_of_views_is_updatable_as_the_views_below() -> None:
    context = views(
        v="SELECT id, a + 1 AS s FROM t", w="SELECT s, id FROM v", g="SELECT count(*) FROM v", x="SELECT * FROM g"
    )
    found = updatable_columns(list(context.state.items_of(View)), context.state)
    assert found == {view_id(context, "v"): (0, None), view_id(context, "w"): (None, 0)}
    with pytest.raises(PgError, match='cannot update column "s" of view "v"'):
        planned_write("UPDATE w SET s = 1", context)
    with pytest.raises(PgError, match='cannot delete from view "g"'):
        planned_write("DELETE FROM x", context)


DEPTH = 400


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id, a FROM {}",
        "SELECT id, a + a AS a FROM {}",
        "SELECT * FROM {} WHERE a > 0",
        "SELECT id, a FROM {} ORDER BY a",
    ],
)
def test_deep_chains_of_views_are_planned_as_reads_are(query: str) -> None:
    context, below, before = BASE, "t", TABLE
    for number in range(DEPTH):
        id, state = context.state.new_id()
        text = query.format(f'"$id"."{before}" AS "t"')
        columns = tuple(Column(name, "int4") for name in ("id", "a"))
        if "*" in query and number == 0:
            text = text.replace("*", "id, a")
        context = replace(
            context, state=state.with_item(View(id, ObjectId("u2"), f"v{number}", columns, text, frozenset()))
        )
        before, below = id, f"v{number}"
    begun = time.process_time()
    plan_query(parse_query(f"SELECT * FROM {below}"), context)
    reading_s = time.process_time() - begun
    begun = time.process_time()
    for sql in (
        f"UPDATE {below} SET id = a WHERE id = 1 RETURNING *",
        f"DELETE FROM {below}",
        f"INSERT INTO {below} (id) VALUES (1)",
    ):
        plan = planned_write(sql, context)
        assert plan.table == TABLE
        assert len(plan.query.template) < 1_000_000
    assert time.process_time() - begun < 6 * reading_s + 1


def test_too_deep_chain_of_views_is_refused() -> None:
    context, before = BASE, TABLE
    for number in range(2_100):
        id, state = context.state.new_id()
        view = View(
            id,
            ObjectId("u2"),
            f"v{number}",
            (Column("id", "int4"),),
            f'SELECT id FROM "$id"."{before}" AS "t"',
            frozenset(),
        )
        context, before = replace(context, state=state.with_item(view)), id
    for sql in ("INSERT INTO v2099 VALUES (1)", "DELETE FROM v2099"):
        with pytest.raises(PgError) as caught:
            planned_write(sql, context)
        assert caught.value.sqlstate in ("54000", "54001")


def test_wide_views_share_the_limit_of_columns() -> None:
    wide = Table(TABLE, ObjectId("u2"), "t", tuple(Column(f"c{n}", "int4") for n in range(1_600)))
    context, before = replace(BASE, state=BASE.state.with_item(wide)), TABLE
    for number in range(300):
        id, state = context.state.new_id()
        name = "c0" if number == 0 else "x"
        text = f'SELECT {name} + 1 AS x FROM "$id"."{before}" AS "t"'
        view = View(id, ObjectId("u2"), f"v{number}", (Column("x", "int4"),), text, frozenset())
        context, before = replace(context, state=state.with_item(view)), id
    with pytest.raises(PgError) as caught:
        planned_write("DELETE FROM v299 WHERE x = 1", context)
    assert caught.value.sqlstate == "54001"


def checked(context: PlanContext, name: str, option: str) -> PlanContext:
    """The context in which a view has WITH CHECK OPTION."""
    view = context.state.relation(view_id(context, name))
    assert isinstance(view, View)
    return replace(context, state=context.state.with_item(replace(view, check_option=option)))


def rules(sql: str, context: PlanContext) -> list[str]:
    plan = planned_write(sql, context)
    return [] if plan.rules is None else [rule.name for rule, _ in plan.rules.checks]


def test_views_that_are_checked() -> None:
    context = views(
        a="SELECT id, a FROM t WHERE id > 0",
        b="SELECT id, a + 1 AS s FROM a",
        c="SELECT s, id FROM b WHERE s > 0",
        d="SELECT id FROM c WHERE id < 9",
    )
    insert = "INSERT INTO d VALUES (1)"
    assert rules(insert, context) == []
    assert rules(insert, checked(context, "c", "local")) == ["c"]
    assert rules(insert, checked(context, "b", "local")) == []
    assert rules(insert, checked(context, "c", "cascaded")) == ["a", "c"]
    assert rules("UPDATE d SET id = 1", checked(context, "d", "cascaded")) == ["a", "c", "d"]
    assert rules("UPDATE b SET id = 1", checked(context, "d", "cascaded")) == []
    assert rules("DELETE FROM d", checked(context, "d", "cascaded")) == []


def test_constants_are_checked_without_spark() -> None:
    context = checked(
        views(v="SELECT id, a + 1 AS s FROM t WHERE a > 0", w="SELECT * FROM v WHERE s < 9"), "w", "cascaded"
    )
    plan = planned_write("INSERT INTO w (id) VALUES (1)", context)
    assert plan.added is not None
    assert [rule.name for rule, _ in plan.added.conditions] == ["v", "w"]


@pytest.mark.parametrize("condition", ["id IN (SELECT a FROM t)", "random() > 0.5"])
def test_conditions_that_cannot_be_checked(condition: str) -> None:
    context = checked(views(v=f"SELECT id FROM t WHERE {condition}"), "v", "local")
    with pytest.raises(PgError, match="WITH CHECK OPTION is not supported for") as caught:
        planned_write("INSERT INTO v VALUES (1)", context)
    assert caught.value.hint
    assert planned_write("DELETE FROM v", context).table == TABLE


def test_large_conditions_are_not_checked_on_the_event_loop() -> None:
    parts = " OR ".join(f"a = {number}" for number in range(200))
    context = checked(views(v=f"SELECT id FROM t WHERE {parts}"), "v", "local")
    assert planned_write("INSERT INTO v VALUES (1)", context).added is not None
    many = ", ".join(f"({number})" for number in range(100))
    assert planned_write(f"INSERT INTO v VALUES {many}", context).added is None


@pytest.mark.parametrize(("depth", "sqlstate"), [(16, "54000"), (40, "54001")])
def test_conditions_that_are_larger_than_their_texts_are_refused(depth: int, sqlstate: str) -> None:
    queries = {f"v{n}": f"SELECT id, a + a AS a FROM {'t' if n == 0 else f'v{n - 1}'}" for n in range(depth)}
    context = checked(views(**queries, w=f"SELECT id FROM v{depth - 1} WHERE a > 0"), "w", "local")
    with pytest.raises(PgError) as caught:
        planned_write("INSERT INTO w VALUES (1)", context)
    assert caught.value.sqlstate == sqlstate
