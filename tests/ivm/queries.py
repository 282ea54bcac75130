"""Random queries in which every operator that can be maintained is nested in every other.

A query is generated from the outside: an operator over operators, down to the tables. The contents of the tables
determine its result: everything that depends on an order of rows is given a total order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

TYPES = ("int", "text", "numeric", "date", "timestamptz", "bool")
LITERALS = {
    "int": ("0", "1", "2", "3", "-1"),
    "text": ("'x'", "'y'", "''", "'zz'"),
    "numeric": ("0.5", "1.25", "-2.00", "10.10"),
    "date": ("date '2024-02-29'", "date '2020-01-01'", "date 'infinity'", "date '-infinity'"),
    "timestamptz": tuple(
        f"timestamptz '{value}'" for value in ("infinity", "2024-02-29 10:30+00", "2020-01-01 00:00+00", "-infinity")
    ),
    "bool": ("true", "false"),
}
SQL_TYPES = {**{type: type for type in TYPES}, "numeric": "numeric(10,2)"}

Columns = Sequence[tuple[str, str]]  # name and type


@dataclass(frozen=True)
class Relation:
    """An item for FROM, and its columns."""

    sql: str
    columns: Columns

    def of(self, draw: Random, type: str | None = None) -> tuple[str, str]:
        """The name and type of a random column of this type, or of any type if there is none of this type."""
        fitting = [c for c in self.columns if c[1] == type]
        return draw.choice(fitting or list(self.columns))

    @property
    def names(self) -> str:
        return ", ".join(name for name, _ in self.columns)


@dataclass(frozen=True)
class View:
    """A view that a query names. It is created as a materialized view if `materialized`."""

    name: str
    select: str
    materialized: bool


class Maker:
    """Generates queries over `tables` and numbers its aliases. `views` are those of all queries so far, in order of
    creation. The bounds of temporal filters are in the seconds after `now_ms`."""

    def __init__(self, draw: Random, tables: dict[str, Columns], now_ms: int) -> None:
        self.draw = draw
        self.tables = tables
        self.now_ms = now_ms
        self._count = 0
        self.views: list[View] = []

    def query(self, depth: int) -> str:
        """A query that nests at least `depth` operators."""
        return f"SELECT * FROM {self.relation(depth).sql}"

    def relation(self, depth: int) -> Relation:
        if depth <= 0:
            return self.leaf()
        return self.draw.choice(_OPERATORS)(self, depth)

    def alias(self) -> str:
        self._count += 1
        return f"q{self._count}"

    def named(self, select: str, columns: Sequence[str]) -> Relation:
        """A SELECT with columns of these types, as a relation with new names."""
        alias = self.alias()
        names = [(f"{alias}_{i}", type) for i, type in enumerate(columns)]
        return Relation(f"({select}) {alias}({', '.join(n for n, _ in names)})", names)

    def leaf(self) -> Relation:
        choice = self.draw.random()
        if choice < 0.06:
            return self.named("VALUES (1, 'x'), (2, NULL), (NULL, 'y')", ["int", "text"])
        if choice < 0.1:
            return self.named("SELECT g, NULL::text FROM generate_series(0, 3) g", ["int", "text"])
        name = self.draw.choice(sorted(self.tables))
        return self.named(f"SELECT * FROM {name}", [type for _, type in self.tables[name]])

    # -- scalars ------------------------------------------------------------------------------------------------

    def condition(self, columns: Columns, depth: int = 1) -> str:
        if depth and self.draw.random() < 0.4:
            one, other = self.condition(columns, depth - 1), self.condition(columns, depth - 1)
            return self.draw.choice((f"({one} AND {other})", f"({one} OR {other})", f"NOT ({one})"))
        name, type = self.draw.choice(list(columns))
        value = self.draw.choice(LITERALS[type])
        other = next((n for n, t in columns if t == type and n != name), value)
        return self.draw.choice(
            (
                f"{name} {self.draw.choice(('=', '<>', '<', '>='))} {value}",
                f"{name} {self.draw.choice(('=', '<', 'IS DISTINCT FROM'))} {other}",
                f"{name} IS {self.draw.choice(('', 'NOT '))}NULL",
                f"{name} IN ({value}, {self.draw.choice(LITERALS[type])})",
            )
        )

    def scalar(self, columns: Columns) -> tuple[str, str]:
        """An expression over the columns, and its type."""
        name, type = self.draw.choice(list(columns))
        made: dict[str, tuple[tuple[str, str], ...]] = {
            "int": ((f"{name} + 1", "int"), (f"{name} % 2", "int"), (f"{name} > 1", "bool"), (f"{name}::text", "text")),
            "text": ((f"upper({name})", "text"), (f"length({name})", "int"), (f"{name} || 'x'", "text")),
            "numeric": ((f"{name} * 2.5", "numeric"), (f"{name}::int", "int"), (f"round({name})", "numeric")),
            "date": (
                (f"{name} + 1", "date"),
                (f"extract(day FROM {name})::int", "int"),
                (f"{name}::timestamptz", "timestamptz"),
            ),
            "timestamptz": (
                (f"{name} + interval '1 day 1 hour'", "timestamptz"),
                (f"date_trunc('month', {name})", "timestamptz"),
                (f"{name}::date", "date"),
                (f"isfinite({name})", "bool"),
                (f"date_part('minute', {name})::int", "int"),
            ),
            "bool": ((f"NOT {name}", "bool"), (f"CASE WHEN {name} THEN 1 ELSE 0 END", "int")),
        }
        return self.draw.choice(((name, type), *made[type], (f"coalesce({name}, {LITERALS[type][0]})", type)))

    def aggregate(self, columns: Columns) -> tuple[str, str]:
        name, type = self.draw.choice(list(columns))
        choices: list[tuple[str, str]] = [
            ("count(*)", "int"),
            (f"count({name})", "int"),
            (f"count(DISTINCT {name})", "int"),
            (f"string_agg({name}::text, ',' ORDER BY {name}::text)", "text"),
            (f"array_agg({name}::text ORDER BY {name}::text)", "text"),
            (f"string_agg(DISTINCT {name}::text, ',' ORDER BY {name}::text DESC)", "text"),
            (f"jsonb_agg({name}::text ORDER BY {name}::text)", "text"),
            (f"percentile_disc(0.4) WITHIN GROUP (ORDER BY {name})", type),
            (f"mode() WITHIN GROUP (ORDER BY {name})", type),
        ]
        if type != "bool":
            choices += [(f"min({name})", type), (f"max({name})", type)] * 2
        if type in ("int", "numeric"):
            choices += [(f"sum({name})", type), (f"avg({name})", "numeric")] * 2
            choices += [(f"sum(DISTINCT {name})", type), (f"avg(DISTINCT {name})", "numeric")]
            choices += [(f"variance({name})", "numeric"), (f"stddev_pop({name})", "numeric")]
        if type == "bool":
            choices += [(f"bool_and({name})", "bool"), (f"bool_or({name})", "bool")]
        call, result = self.draw.choice(choices)
        if self.draw.random() < 0.2:
            call += f" FILTER (WHERE {self.condition(columns, 0)})"
        # Sums of integers are bigint, and averages have many digits: casts restore the types that `condition` knows.
        return f"({call})::{SQL_TYPES[result]}", result

    def order(self, relation: Relation) -> str:
        """A total order: by all columns. The order of equal rows has no effect."""
        names = [name for name, _ in relation.columns]
        self.draw.shuffle(names)
        words = ("", " DESC", " NULLS FIRST", " DESC NULLS LAST")
        return ", ".join(f"{name}{self.draw.choice(words)}" for name in names)

    def pair(self, one: Relation, other: Relation) -> tuple[str, str] | None:
        """One column of each relation, both of the same type."""
        types = sorted({t for _, t in one.columns} & {t for _, t in other.columns})
        if not types:
            return None
        type = self.draw.choice(types)
        return one.of(self.draw, type)[0], other.of(self.draw, type)[0]


# -- operators ------------------------------------------------------------------------------------------------------


def _filter(make: Maker, depth: int) -> Relation:
    inner = make.relation(depth - 1)
    return make.named(f"SELECT * FROM {inner.sql} WHERE {make.condition(inner.columns)}", _types(inner))


def _project(make: Maker, depth: int) -> Relation:
    inner = make.relation(depth - 1)
    shown = [make.scalar(inner.columns) for _ in range(make.draw.randrange(1, 4))]
    return make.named(f"SELECT {_list(shown)} FROM {inner.sql}", [type for _, type in shown])


def _join(make: Maker, depth: int) -> Relation:
    one, other = make.relation(depth - 1), make.relation(make.draw.randrange(depth))
    kind = make.draw.choice(("JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"))
    pair = make.pair(one, other)
    if pair is None:
        return make.named(f"SELECT * FROM {one.sql} CROSS JOIN (SELECT 1) z", [*_types(one), "int"])
    condition = f"{pair[0]} = {pair[1]}"
    if make.draw.random() < 0.3:
        condition += f" AND {make.condition([*one.columns, *other.columns], 0)}"
    elif kind == "JOIN" and make.draw.random() < 0.15:
        condition = f"{pair[0]} {make.draw.choice(('<', '<>', 'IS NOT DISTINCT FROM'))} {pair[1]}"
    shown = [one.of(make.draw), one.of(make.draw), other.of(make.draw)]
    return make.named(
        f"SELECT {_list(shown)} FROM {one.sql} {kind} {other.sql} ON {condition}", [type for _, type in shown]
    )


def _joins(make: Maker, depth: int) -> Relation:
    """A list of three relations in FROM, with the join conditions in WHERE."""
    one, other, third = make.relation(depth - 1), make.relation(0), make.relation(0)
    pairs = [pair for pair in (make.pair(one, other), make.pair(other, third)) if pair is not None]
    shown = [one.of(make.draw), other.of(make.draw), third.of(make.draw)]
    where = " AND ".join(f"{a} = {b}" for a, b in pairs) or make.condition(one.columns, 0)
    return make.named(
        f"SELECT {_list(shown)} FROM {one.sql}, {other.sql}, {third.sql} WHERE {where}", [type for _, type in shown]
    )


def _series(make: Maker, depth: int) -> Relation:
    """The rows that a set-returning function computes from each row."""
    inner = make.relation(depth - 1)
    name, type = inner.of(make.draw, "int")
    call = f"unnest(ARRAY[{name}, NULL, {name}])"
    if type == "int" and make.draw.random() < 0.6:
        call, type = f"generate_series(0, abs(coalesce({name}, 0)) % 4)", "int"
    shown = inner.of(make.draw)
    return make.named(f"SELECT {shown[0]}, s FROM {inner.sql}, {call} s", [shown[1], type])


def _top_by_number(make: Maker, depth: int) -> Relation:
    """The first rows of each key, selected by row_number()."""
    inner = make.relation(depth - 1)
    number = f"row_number() OVER (PARTITION BY {inner.of(make.draw)[0]} ORDER BY {make.order(inner)})"
    select = f"SELECT {inner.names} FROM (SELECT *, {number} AS n FROM {inner.sql}) a WHERE n <= 2"
    return make.named(select, _types(inner))


def _view(make: Maker, depth: int) -> Relation:
    inner = make.relation(depth - 1)
    view = View(f"v_{make.alias()}", f"SELECT * FROM {inner.sql}", make.draw.random() < 0.6)
    make.views.append(view)
    return make.named(f"SELECT * FROM {view.name}", _types(inner))


def _group(make: Maker, depth: int) -> Relation:
    inner = make.relation(depth - 1)
    keys = [make.scalar(inner.columns) for _ in range(make.draw.choice((0, 1, 1, 1, 2)))]
    calls = [make.aggregate(inner.columns) for _ in range(make.draw.randrange(1, 4))]
    by = f" GROUP BY {_list(keys)}" if keys else ""
    if len(keys) == 2 and make.draw.random() < 0.4:
        one, other = (text for text, _ in keys)
        sets = (f"ROLLUP ({_list(keys)})", f"CUBE ({_list(keys)})", f"GROUPING SETS (({one}), ({other}, {one}), ())")
        by = f" GROUP BY {make.draw.choice(sets)}"
    having = f" HAVING count(*) {make.draw.choice(('> 1', '<> 2'))}" if make.draw.random() < 0.3 else ""
    select = f"SELECT {_list([*keys, *calls])} FROM {inner.sql}{by}{having}"
    return make.named(select, [type for _, type in (*keys, *calls)])


def _distinct(make: Maker, depth: int) -> Relation:
    inner = make.relation(depth - 1)
    if make.draw.random() < 0.3:
        key = inner.of(make.draw)[0]
        return make.named(
            f"SELECT DISTINCT ON ({key}) * FROM {inner.sql} ORDER BY {key}, {make.order(inner)}", _types(inner)
        )
    shown = [inner.of(make.draw) for _ in range(2)]
    return make.named(f"SELECT DISTINCT {_list(shown)} FROM {inner.sql}", [type for _, type in shown])


def _rows(make: Maker, depth: int) -> Relation:
    """Whole rows that one operator passes to another, of which a column is selected again."""
    inner = make.relation(depth - 1)
    alias = inner.sql.rpartition(") ")[2].partition("(")[0]
    shown = [inner.of(make.draw) for _ in range(2)]
    select = make.draw.choice(
        (
            f"SELECT DISTINCT {alias} AS r FROM {inner.sql}",
            f"SELECT {alias} AS r FROM {inner.sql} GROUP BY {alias} HAVING count(*) <> 2",
            f"SELECT {alias} AS r FROM {inner.sql} UNION SELECT {alias} FROM {inner.sql} WHERE {shown[0][0]} IS NULL",
            f"SELECT {alias} AS r FROM {inner.sql} ORDER BY {alias} LIMIT 4",
        )
    )
    fields = ", ".join(f"(r).{name}" for name, _ in shown)
    return make.named(f"SELECT {fields} FROM ({select}) x", [type for _, type in shown])


def _first_of_each(make: Maker, depth: int) -> Relation:
    """The first row of each group by DISTINCT ON, or the first rows by row_number(), or by rank() over a column with
    ties."""
    inner = make.relation(depth - 1)
    key, column = inner.of(make.draw)[0], inner.of(make.draw)[0]
    if make.draw.random() < 0.3:
        on = make.draw.choice((key, f"{key}, {column}" if column != key else key))
        select = f"SELECT DISTINCT ON ({on}) * FROM {inner.sql} ORDER BY {on}, {make.order(inner)}"
        return make.named(select, _types(inner))
    number = make.draw.choice(
        (
            f"row_number() OVER (PARTITION BY {key} ORDER BY {make.order(inner)})",
            f"rank() OVER (PARTITION BY {key} ORDER BY {column} {make.draw.choice(('', 'DESC', 'NULLS FIRST'))})",
        )
    )
    test = make.draw.choice(("<= 2", "< 3", "= 1", "BETWEEN 2 AND 3"))
    select = f"SELECT {inner.names} FROM (SELECT *, {number} AS n FROM {inner.sql}) z WHERE n {test}"
    return make.named(select, _types(inner))


def _set_operation(make: Maker, depth: int) -> Relation:
    one, other = make.relation(depth - 1), make.relation(make.draw.randrange(depth))
    pair = make.pair(one, other)
    if pair is None:
        return one
    type = dict(one.columns)[pair[0]]
    word = make.draw.choice(("UNION", "UNION ALL", "UNION ALL", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL"))
    return make.named(f"SELECT {pair[0]} FROM {one.sql} {word} SELECT {pair[1]} FROM {other.sql}", [type])


_FRAMES = (
    "ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
    "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING",
    "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
    "RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
    "GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW",
)


def _window(make: Maker, depth: int) -> Relation:
    inner = make.relation(depth - 1)
    name = inner.of(make.draw)[0]
    call, type = make.draw.choice(
        [
            ("row_number()", "int"),
            ("rank()", "int"),
            ("ntile(2)", "int"),
            ("count(*)", "int"),
            (f"count({name})", "int"),
            (f"lead({name}, 2)", dict(inner.columns)[name]),
            (f"last_value({name})", dict(inner.columns)[name]),
            (f"nth_value({name}, 2)", dict(inner.columns)[name]),
            (f"max({name})" if dict(inner.columns)[name] != "bool" else "count(*)", dict(inner.columns)[name]),
            (f"lag({name})", dict(inner.columns)[name]),
            (f"first_value({name})", dict(inner.columns)[name]),
        ]
    )
    if call == "count(*)":
        type = "int"
    partition = f"PARTITION BY {inner.of(make.draw)[0]} " if make.draw.random() < 0.7 else ""
    frame = make.draw.choice(_FRAMES) if make.draw.random() < 0.5 else ""
    over = f"({partition}ORDER BY {make.order(inner)} {frame})"
    shown = f"SELECT *, ({call} OVER {over})::{SQL_TYPES[type]} FROM {inner.sql}"
    return make.named(shown, [*_types(inner), type])


def _limit(make: Maker, depth: int) -> Relation:
    inner = make.relation(depth - 1)
    offset = f" OFFSET {make.draw.randrange(1, 3)}" if make.draw.random() < 0.3 else ""
    select = f"SELECT * FROM {inner.sql} ORDER BY {make.order(inner)} LIMIT {make.draw.randrange(1, 5)}{offset}"
    return make.named(select, _types(inner))


def _lateral(make: Maker, depth: int) -> Relation:
    one, other = make.relation(depth - 1), make.relation(0)
    pair = make.pair(one, other)
    if pair is None:
        return one
    best = f"SELECT * FROM {other.sql} WHERE {pair[1]} = {pair[0]} ORDER BY {make.order(other)} LIMIT 2"
    kind = make.draw.choice(("CROSS JOIN LATERAL ({}) l", "LEFT JOIN LATERAL ({}) l ON true"))
    shown = [one.of(make.draw), other.of(make.draw)]
    return make.named(f"SELECT {_list(shown)} FROM {one.sql} {kind.format(best)}", [type for _, type in shown])


def _subquery(make: Maker, depth: int) -> Relation:
    one, other = make.relation(depth - 1), make.relation(make.draw.randrange(depth))
    pair = make.pair(one, other)
    if pair is None:
        return one
    outer, inner = pair
    where = make.condition(other.columns, 0)
    test = make.draw.choice(
        (
            f"{outer} IN (SELECT {inner} FROM {other.sql})",
            f"{outer} NOT IN (SELECT {inner} FROM {other.sql} WHERE {inner} IS NOT NULL)",
            f"{outer} NOT IN (SELECT {inner} FROM {other.sql})",
            f"EXISTS (SELECT 1 FROM {other.sql} WHERE {inner} = {outer} AND {where})",
            f"NOT EXISTS (SELECT 1 FROM {other.sql} WHERE {inner} = {outer})",
            f"EXISTS (SELECT 1 FROM {other.sql} WHERE {where})",
            f"(SELECT count(*) FROM {other.sql} WHERE {where}) > 2",
            f"(SELECT count(*) FROM {other.sql} WHERE {inner} = {outer}) < 2",
            f"{outer} = (SELECT max({inner}::text)::{SQL_TYPES[dict(one.columns)[outer]]} FROM {other.sql})",
            f"{outer} {make.draw.choice(('<', '>=', '<>'))} ALL (SELECT {inner} FROM {other.sql} WHERE {where})",
            f"{outer} {make.draw.choice(('<', '>=', '='))} ANY (SELECT {inner} FROM {other.sql} WHERE {where})",
            f"({outer}, 1) NOT IN (SELECT {inner}, count(*) FROM {other.sql} GROUP BY {inner})",
            f"EXISTS (SELECT 1 FROM {other.sql} WHERE {inner} < {outer})",
        )
    )
    if make.draw.random() < 0.15:
        best = f"SELECT {inner} FROM {other.sql} WHERE {inner} > {outer} OR {where} ORDER BY 1 LIMIT 1"
        type = dict(one.columns)[outer]
        return make.named(f"SELECT {outer}, ({best}) FROM {one.sql}", [type, type])
    if make.draw.random() < 0.15:
        most = f"(SELECT max({inner}::text) FROM {other.sql} WHERE {inner} = {outer})"
        having = f"count(*) > 1 OR min({outer}::text) = {most}"
        select = f"SELECT {outer}, count(*)::int FROM {one.sql} GROUP BY {outer} HAVING {having}"
        return make.named(select, [dict(one.columns)[outer], "int"])
    if make.draw.random() < 0.25:
        return make.named(
            f"SELECT {outer}, (SELECT count(*)::int FROM {other.sql} WHERE {inner} = {outer}) FROM {one.sql}",
            [dict(one.columns)[outer], "int"],
        )
    return make.named(f"SELECT * FROM {one.sql} WHERE {test}", _types(one))


def _shared(make: Maker, depth: int) -> Relation:
    """A common table expression that is used twice."""
    inner = make.relation(depth - 1)
    name, type = inner.of(make.draw)
    cte = make.alias()
    select = (
        f"WITH {cte} AS (SELECT * FROM {inner.sql}) SELECT a.{name}, (b.n)::int FROM {cte} a "
        f"JOIN (SELECT {name} AS k, count(*) AS n FROM {cte} GROUP BY {name}) b ON a.{name} = b.k"
    )
    return make.named(select, [type, "int"])


def _using(make: Maker, depth: int) -> Relation:
    """A join with USING or NATURAL, whose common column is that of either side."""
    one, other = make.relation(depth - 1), make.relation(make.draw.randrange(depth))
    pair = make.pair(one, other)
    if pair is None:
        return one
    sides = [f"(SELECT {name} AS k, {r.of(make.draw, 'int')[0]} AS {n} FROM {r.sql}) {n}s" for n, name, r in (
        ("l", pair[0], one), ("r", pair[1], other))]  # fmt: skip
    kind = make.draw.choice(("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "FULL JOIN"))
    join = (
        f"{sides[0]} NATURAL {kind} {sides[1]}" if make.draw.random() < 0.3 else f" {kind} ".join(sides) + " USING (k)"
    )
    key = dict(one.columns)[pair[0]]
    return make.named(f"SELECT k, ls.k IS NULL, rs.k FROM {join}", [key, "bool", key])


def _recursive(make: Maker, depth: int) -> Relation:
    inner = make.relation(depth - 1)
    name, type = inner.of(make.draw, "int")
    if type != "int":
        return inner
    cte, word = make.alias(), make.draw.choice(("UNION", "UNION ALL"))
    step = f"SELECT n + 1 FROM {cte} WHERE n BETWEEN 0 AND 2"
    select = f"WITH RECURSIVE {cte}(n) AS (SELECT {name} FROM {inner.sql} {word} {step}) SELECT n FROM {cte}"
    return make.named(select, ["int"])


def _temporal(make: Maker, depth: int) -> Relation:
    """Rows that are in the result for some time only."""
    inner = make.relation(depth - 1)
    name, type = inner.of(make.draw, "int")
    if type != "int":
        return inner
    begin, end = (f"{make.now_ms + make.draw.randrange(-2000, 20_000)} + {name}::bigint * 1500" for _ in range(2))
    test = make.draw.choice((f"mz_now() >= {begin}", f"mz_now() < {end}", f"mz_now() > {begin} AND mz_now() <= {end}"))
    if make.draw.random() < 0.3:
        test += f" AND {make.condition(inner.columns, 0)}"
    return make.named(f"SELECT * FROM {inner.sql} WHERE {test}", _types(inner))


_OPERATORS: Sequence[Callable[[Maker, int], Relation]] = (
    _filter, _project, _join, _join, _join, _group, _group, _group, _distinct, _rows, _set_operation, _window, _limit,
    _first_of_each, _lateral, _subquery, _subquery, _shared, _joins, _series, _top_by_number, _view,
    _using, _recursive, _temporal, _temporal,
)  # fmt: skip


def _types(relation: Relation) -> list[str]:
    return [type for _, type in relation.columns]


def _list(expressions: Sequence[tuple[str, str]]) -> str:
    return ", ".join(text for text, _ in expressions)
