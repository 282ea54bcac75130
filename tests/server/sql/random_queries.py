"""Random queries over the suite's tables, whose clauses are nested in each other as users nest them.

A query is generated from the outside. Every subquery may refer to the columns of the queries around it. The tables'
contents determine the multiset of rows: LIMIT has an order by all output columns, row_number() and similar functions
one by all input columns, and aggregates that depend on an order have one by their argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

Columns = Sequence[tuple[str, str]]  # expression and type

TABLES: dict[str, dict[str, str]] = {
    "people": {
        "id": "int", "name": "text", "dept": "int", "boss": "int", "salary": "numeric", "hired": "date",
        "active": "bool",
    },
    "depts": {"id": "int", "name": "text", "city": "text"},
    "t": {"a": "int", "b": "text", "n": "numeric", "d": "date"},
    "u": {"a": "int", "k": "int", "w": "text"},
    "nums": {"id": "int", "i2": "int", "n": "numeric", "nb": "numeric"},
    "strs": {"id": "int", "s": "text", "v": "text"},
    "times": {"id": "int", "d": "date", "tz": "timestamptz", "iv": "interval"},
    "lists": {"id": "int", "ia": "int[]", "ta": "text[]"},
    "docs": {"id": "int", "jb": "jsonb"},
}  # fmt: skip
_LITERALS: dict[str, Sequence[str]] = {
    "int": ("0", "1", "2", "3", "-7"),
    "text": ("'x'", "'Paris'", "''::text", "'Ada'", "'ß'::text"),
    "numeric": ("0", "1.125", "4000.50", "-2.5"),
    "date": ("date '2012-06-01'", "date '2024-01-31'", "date '2024-02-29'"),
    "bool": ("true", "false"),
    "timestamptz": ("timestamptz '2024-02-29 00:00+00'", "timestamptz '2013-03-10 07:30+00'"),
    "interval": ("interval '1 day'", "interval '1 mon -2 days 03:04:05.6'", "interval '36 hours'"),
    "int[]": ("('{}'::int[])", "('{1,2,3}'::int[])", "('{NULL,1}'::int[])"),
    "text[]": ("('{a,b}'::text[])", "('{NULL,x}'::text[])"),
    "jsonb": ("'{\"a\": 1}'::jsonb", "'[1, \"x\", null]'::jsonb", "'1.50'::jsonb"),
}
# The types of output columns; frequent ones are repeated.
_SHOWN = ("int", "int", "int", "text", "text", "numeric", "date", "bool", "timestamptz", "int[]", "jsonb")
_OPERANDS = {"i": "int", "s": "text", "n": "numeric", "d": "date", "z": "timestamptz", "v": "interval", "l": "int[]",
             "j": "jsonb"}  # fmt: skip
_FORMS: dict[str, Sequence[str]] = {
    "int": (
        "({a} + {b})", "({a} % 2)", "length({s})", "({d} - date '2020-01-01')", "{l}[1]", "cardinality({l})",
        "extract(month FROM {d})::int", "array_position({l}, {a})", "strpos({s}, 'a')", "ascii({s})",
        "jsonb_array_length(CASE jsonb_typeof({j}) WHEN 'array' THEN {j} END)",
    ),
    "text": (
        "({a} || {b})", "upper({a})", "substr({a}, 2, 3)", "({j} ->> 'a')", "({j} ->> 0)", "({j} #>> '{{b,c}}')",
        "to_char({d}, 'YYYY-MM-DD Dy')", "concat({a}, {i}, {n})", "({n})::text", "lpad({a}, 4, '*')", "trim({a})",
        "jsonb_typeof({j})", "split_part({a}, ',', 2)", "({interval})::text", "({j})::text", "left({a}, -1)",
        "format('%s-%s', {a}, {i})", "array_to_string({l}, ',', 'N')",
    ),
    "numeric": (
        "({a} + {b})", "({a} * {b})", "round({a}, 1)", "({a})::numeric(12,1)", "abs({a})", "trunc({a})", "({a} / 4)",
        "({i} * 1.50)", "mod({a}, 3)", "ceil({a})", "extract(epoch FROM {z})", "extract(epoch FROM {v})",
    ),
    "date": ("({a} + {i})", "({z})::date", "({z} AT TIME ZONE {zone})::date", "date_trunc('quarter', {a})::date"),
    "bool": ("{condition}",),
    "timestamptz": (
        "({a} + {v})", "date_trunc('week', {a}, 'Europe/Berlin')", "(({d} + {v}) AT TIME ZONE {zone})",
        "date_trunc('hour', {a})",
    ),
    "interval": (
        "({a} + {b})", "({a} * 1.5)", "justify_hours({a})", "age({z}, timestamptz '2020-01-31')", "(-({a}))",
        "({z} - timestamptz '2020-01-31')", "make_interval(days => {i})", "justify_interval({a})",
    ),
    "int[]": (
        "array_append({a}, {i})", "ARRAY[{i}, 1]", "({a} || {b})", "{a}[1:2]", "array_remove({a}, {i})",
        "ARRAY(SELECT unnest({a}) ORDER BY 1 DESC)",
    ),
    "text[]": ("string_to_array({s}, ',')", "array_append({a}, {s})"),
    "jsonb": (
        "to_jsonb({i})", "jsonb_build_object('k', {i}, 'v', {s})", "({a} -> 'a')", "({a} -> -1)", "to_jsonb({n})",
        "jsonb_build_array({n}, {s}, {d})", "to_jsonb({l})", "jsonb_strip_nulls({a})",
    ),
}  # fmt: skip
_ANY_FORMS = ("coalesce({a}, {b})", "nullif({a}, {b})", "CASE WHEN {condition} THEN {a} ELSE {b} END")
_AGGREGATES: dict[str, Sequence[str]] = {
    "int": (
        "count(*)::int", "count({any})::int", "count(DISTINCT {any})::int", "sum({i})::int", "max({a})", "min({a})",
        "percentile_disc(0.4) WITHIN GROUP (ORDER BY {a}{order})", "sum(DISTINCT {a})::int", "bit_or({a})",
        "mode() WITHIN GROUP (ORDER BY {a})", "(array_agg({a} ORDER BY {a}{order}))[2]",
        "rank({literal}) WITHIN GROUP (ORDER BY {a})::int",
    ),
    "text": (
        "max({a})", "min({a})", "string_agg({a}, ',' ORDER BY {a}{order})", "mode() WITHIN GROUP (ORDER BY {a})",
        "string_agg(DISTINCT {a}, '' ORDER BY {a})",
    ),
    "numeric": (
        "sum({a})", "avg({a})", "max({a})", "avg({i})", "sum({i} * 1.5)", "sum(DISTINCT {a})", "stddev({a})",
        "var_pop({i})", "(percentile_disc(ARRAY[0.1, 0.9]) WITHIN GROUP (ORDER BY {a}))[1]",
    ),
    "date": ("max({a})", "min({a})"),
    "bool": ("bool_and({a})", "bool_or({a})", "every({a})", "count(*) > 2"),
    "timestamptz": ("max({a})", "min({a})"),
    "interval": ("sum({a})", "avg({a})"),
    "int[]": ("array_agg({i} ORDER BY {i}{order})", "array_agg(DISTINCT {i} ORDER BY {i})", "max({a})"),
    "text[]": ("max({a})",),
    "jsonb": (
        "jsonb_agg({a} ORDER BY {a})", "jsonb_object_agg({i}, 1) FILTER (WHERE {i} IS NOT NULL)",
        "to_jsonb(array_agg({i} ORDER BY {i}))",
    ),
}  # fmt: skip
_ORDERS = ("", " DESC", " NULLS FIRST", " DESC NULLS LAST")
_LIMITS = (" LIMIT 3", " LIMIT 1", " OFFSET 1", " LIMIT 2 OFFSET 2", " FETCH FIRST 2 ROWS ONLY")
_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
_SET_OPERATIONS = ("UNION", "UNION ALL", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL")
_ZONES = ("'UTC'", "'America/New_York'", "'Asia/Kolkata'", "interval '-02:30'")
_FRAMES = (
    "", "", "ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING", "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING",
    "ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING", "ROWS UNBOUNDED PRECEDING", "GROUPS 1 PRECEDING",
    "GROUPS BETWEEN CURRENT ROW AND 2 FOLLOWING", "RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
    "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW EXCLUDE CURRENT ROW",
    "RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING EXCLUDE TIES",
    "GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE GROUP", "ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING",
)  # fmt: skip


class Maker:
    """Generates queries and numbers their aliases."""

    def __init__(self, draw: Random) -> None:
        self.draw = draw
        self._count = 0

    def query(self) -> str:
        """A statement: a SELECT, perhaps with ORDER BY and LIMIT, set operations and common table expressions."""
        if self._chance(0.08):
            return self._recursive()
        types = [self.draw.choice(_SHOWN) for _ in range(self.draw.randrange(1, 4))]
        return self._statement(types, (), 2)

    # -- queries ----------------------------------------------------------------------------------------------------

    def _statement(self, types: Sequence[str], outer: Columns, depth: int) -> str:
        """A SELECT or a set operation of these types, perhaps with ORDER BY and LIMIT or OFFSET."""
        comparable = "jsonb" not in types
        if depth and self._chance(0.2) and comparable:
            one, other = (self._select(types, outer, depth - 1) for _ in range(2))
            text = f"{one} {self.draw.choice(_SET_OPERATIONS)} {other}"
            if self._chance(0.2):
                third = self._select(types, outer, depth - 1)
                text = f"({text}) {self.draw.choice(_SET_OPERATIONS)} {third}"
        else:
            text = self._select(types, outer, depth)
        if self._chance(0.25) and not text.startswith("(SELECT DISTINCT ON"):
            places = [str(i + 1) for i in range(len(types))]
            self.draw.shuffle(places)
            text += " ORDER BY " + ", ".join(p + self.draw.choice(_ORDERS) for p in places)
            text += self.draw.choice(
                (" LIMIT 3", " LIMIT 1", " OFFSET 1", " LIMIT 2 OFFSET 2", " FETCH FIRST 2 ROWS ONLY")
            )
        return text

    def _select(self, types: Sequence[str], outer: Columns, depth: int) -> str:
        """A SELECT without ORDER BY, except that of DISTINCT ON, which is in parentheses."""
        source, columns = self._from(outer, depth)
        where = f" WHERE {self.condition(columns, outer, depth)}" if self._chance(0.5) else ""
        kind = self.draw.choice(("plain", "plain", "group", "group", "window", "distinct", "on", "sets"))
        if kind in ("group", "sets"):
            return self._grouped(types, source + where, columns, outer, depth, sets=kind == "sets")
        if kind == "window":
            window = self._window(columns)
            shown = [self._windowed(t, columns, outer, *window) for t in types]
            return f"SELECT {self._named(shown)} FROM {source}{where}"
        shown = [self.scalar(t, columns, outer, depth) for t in types]
        if kind == "distinct":
            return f"SELECT DISTINCT {self._named(shown)} FROM {source}{where}"
        if kind == "on":
            key = self.draw.choice([c for c, _ in columns])
            if self._chance(0.4):
                key = f"coalesce({key}, {key})"
            order = ", ".join(self.draw.sample([c for c, _ in columns], len(columns)))
            return (
                f"(SELECT DISTINCT ON ({key}) {self._named(shown)} FROM {source}{where} "
                f"ORDER BY {key}{self.draw.choice(_ORDERS)}, {order})"
            )
        return f"SELECT {self._named(shown)} FROM {source}{where}"

    def _grouped(
        self, types: Sequence[str], source: str, columns: Columns, outer: Columns, depth: int, *, sets: bool
    ) -> str:
        keys = [(self.scalar(t, columns, (), 0), t) for t in self.draw.choices(("int", "text", "date", "bool"), k=2)]
        # A constant in GROUP BY would be the position of an output column.
        keys = [(text, type) for text, type in keys if any(c in text for c, _ in columns)]
        shown = []
        for type in types:
            fitting = [text for text, t in keys if t == type]
            aggregate = self.aggregate(type, columns, outer, depth)
            shown.append(self.draw.choice((fitting[0], aggregate)) if fitting else aggregate)
        by = ""
        if keys:
            names = [text for text, _ in keys]
            by = f" GROUP BY {', '.join(names)}"
            if sets:
                by = " GROUP BY " + self.draw.choice(
                    (
                        f"ROLLUP ({', '.join(names)})",
                        f"CUBE ({', '.join(names)})",
                        f"GROUPING SETS (({names[0]}), ({', '.join(names)}), ())",
                        f"GROUPING SETS ({names[-1]}, ()), {names[0]}",
                    )
                )
                shown = [
                    f"grouping({names[0]})" if t == "int" and self._chance(0.3) else s
                    for s, t in zip(shown, types, strict=True)
                ]
        having = ""
        if self._chance(0.4):
            call = self.aggregate("int", columns, outer, 0)
            having = f" HAVING {call} {self.draw.choice(_COMPARISONS)} {self.draw.choice(_LITERALS['int'])}"
            if outer and self._chance(0.5):
                having += f" OR {self._leaf('int', outer)} IS NOT NULL"
        return f"SELECT {self._named(shown)} FROM {source}{by}{having}"

    def _recursive(self) -> str:
        start = self.condition([("p.id", "int"), ("p.boss", "int"), ("p.name", "text")], (), 0)
        word = self.draw.choice(("UNION", "UNION ALL"))
        one, other = self.draw.choice((("boss", "id"), ("id", "boss")))
        columns = [("r.id", "int"), ("r.boss", "int"), ("r.n", "int"), ("r.path", "text")]
        types = self.draw.choices(("int", "text", "numeric"), k=2)
        shown = [self.scalar(t, columns, (), 1) for t in types]
        if self._chance(0.4):
            shown = [self.aggregate(t, columns, (), 1) for t in types]
        where = f" WHERE {self.condition(columns, (), 1)}" if self._chance(0.6) else ""
        return (
            f"WITH RECURSIVE r(id, boss, n, path) AS (SELECT p.id, p.boss, 0, p.name FROM people p WHERE {start} "
            f"{word} SELECT p.id, p.boss, r.n + 1, r.path || '/' || coalesce(p.name, '') FROM people p JOIN r "
            f"ON p.{one} = r.{other} WHERE r.n < 4) SELECT {self._named(shown)} FROM r{where}"
        )

    # -- FROM -------------------------------------------------------------------------------------------------------

    def _from(self, outer: Columns, depth: int) -> tuple[str, Columns]:
        text, columns = self._item(outer, depth)
        for _ in range(self.draw.choice((0, 0, 1, 1, 2)) if depth else self.draw.choice((0, 0, 1))):
            choice = self.draw.random()
            if choice < 0.2:
                text, columns = self._lateral(text, columns, outer, depth)
            elif choice < 0.35:
                text, columns = self._using(text, columns)
            else:
                other, added = self._item(outer, max(depth - 1, 0))
                kind = self.draw.choice(("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN"))
                pairs = [(a, b) for a, t in columns for b, s in added if t == s and t in ("int", "text", "date")]
                if kind == "CROSS JOIN" or not pairs:
                    text = f"{text} CROSS JOIN {other}"
                else:
                    on = "{} = {}".format(*self.draw.choice(pairs))
                    if self._chance(0.3):
                        # PostgreSQL supports only simple conditions of a FULL JOIN.
                        around, below = ((), 0) if kind == "FULL JOIN" else (outer, depth - 1)
                        on += f" AND {self.condition([*columns, *added], around, below)}"
                    text = f"{text} {kind} {other} ON {on}"
                columns = [*columns, *added]
        return text, columns

    def _item(self, outer: Columns, depth: int) -> tuple[str, Columns]:
        """A table, a subquery or a function, with an alias."""
        alias = self._alias()
        choice = self.draw.random()
        if depth and choice < 0.25:
            types = [self.draw.choice(_SHOWN) for _ in range(2)]
            names = [f"{alias}c{i}" for i in range(2)]
            text = f"({self._statement(types, (), depth - 1)}) {alias}({', '.join(names)})"
            return text, [(f"{alias}.{n}", t) for n, t in zip(names, types, strict=True)]
        if choice < 0.3:
            return f"(VALUES (1, 'x'), (2, NULL), (NULL, 'y')) {alias}(k, w)", [
                (f"{alias}.k", "int"),
                (f"{alias}.w", "text"),
            ]
        if choice < 0.35:
            return f"generate_series(0, 3) {alias}(g)", [(f"{alias}.g", "int")]
        name = self.draw.choice(sorted(TABLES))
        return f"{name} {alias}", [(f"{alias}.{c}", t) for c, t in TABLES[name].items()]

    def _lateral(self, text: str, columns: Columns, outer: Columns, depth: int) -> tuple[str, Columns]:
        alias = self._alias()
        arrays = [(c, t) for c, t in columns if t in ("int[]", "text[]")]
        if arrays and self._chance(0.6):
            array, type = self.draw.choice(arrays)
            kind = self.draw.choice(("CROSS JOIN {}", "LEFT JOIN {} ON true"))
            call = f"unnest({array}) WITH ORDINALITY {alias}(e, o)"
            return f"{text} {kind.format(call)}", [*columns, (f"{alias}.e", type[:-2]), (f"{alias}.o", "int")]
        types = [self.draw.choice(_SHOWN) for _ in range(2)]
        inner = self._statement(types, [*columns, *outer], max(depth - 1, 0))
        kind = self.draw.choice(("CROSS JOIN LATERAL {}", "LEFT JOIN LATERAL {} ON true"))
        added = [(f"{alias}.a", types[0]), (f"{alias}.b", types[1])]
        item = f"({inner}) {alias}(a, b)"
        if self._chance(0.3):
            on = self.condition([*columns, *added], (), 0)
            return f"{text} {self.draw.choice(('JOIN', 'LEFT JOIN'))} LATERAL {item} ON {on}", [*columns, *added]
        return f"{text} {kind.format(item)}", [*columns, *added]

    def _using(self, text: str, columns: Columns) -> tuple[str, Columns]:
        """A join of two tables with USING or NATURAL, in a subquery. The common column is taken from both."""
        one, other, column = self.draw.choice(
            (("people", "depts", "id"), ("t", "u", "a"), ("nums", "strs", "id"), ("lists", "docs", "id"))
        )
        kind = self.draw.choice(("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "FULL JOIN"))
        shared = sorted(set(TABLES[one]) & set(TABLES[other]))
        join = f"{one} x NATURAL {kind} {other} y"
        if len(shared) != 1 or self._chance(0.5):
            join = f"{one} x {kind} {other} y USING ({column})"
        alias = self._alias()
        item = f"(SELECT {column}, x.{column}, y.{column} FROM {join}) {alias}(k, l, r)"
        added = [(f"{alias}.{c}", "int") for c in "klr"]
        ints = [c for c, t in columns if t == "int"]
        on = f"{self.draw.choice(ints)} = {self.draw.choice(added)[0]}" if ints else "true"
        return f"{text} {self.draw.choice(('JOIN', 'LEFT JOIN'))} {item} ON {on}", [*columns, *added]

    # -- expressions ------------------------------------------------------------------------------------------------

    def scalar(self, type: str, columns: Columns, outer: Columns, depth: int) -> str:
        """An expression of this type. `depth` bounds the subqueries in it."""
        if depth and self._chance(0.25):
            return self._scalar_subquery(type, [*columns, *outer], depth - 1)
        if self._chance(0.45):
            return self._leaf(type, columns, outer)
        values = {name: self._leaf(type, columns, outer) for name in "ab"}
        values |= {name: self._leaf(other, columns, outer) for name, other in _OPERANDS.items()}
        forms = _FORMS[type] if self._chance(0.7) else _ANY_FORMS
        if type not in ("jsonb", "bool") and self._chance(0.2):
            forms = ("greatest({a}, {b})", "least({a}, {b})")
        form = self.draw.choice(forms)
        if "{condition}" in form:
            values["condition"] = self.condition(columns, outer, depth)
        if "{interval}" in form:
            values["interval"] = self.scalar("interval", columns, outer, 0)
        return form.format(zone=self.draw.choice(_ZONES), **values)

    def _scalar_subquery(self, type: str, outer: Columns, depth: int) -> str:
        if self._chance(0.5):
            source, columns = self._from(outer, depth)
            call = self.aggregate(type, columns, outer, 0)
            where = f" WHERE {self._correlation(columns, outer, depth)}"
            return f"(SELECT {call} FROM {source}{where})"
        if type == "int[]" and self._chance(0.5):
            return f"ARRAY(SELECT z FROM ({self._select(['int'], outer, depth)}) z(z) ORDER BY z)"
        source, columns = self._from(outer, depth)
        shown = self.scalar(type, columns, outer, 0)
        offset = self.draw.choice(("", "", " OFFSET 1"))
        return (
            f"(SELECT {shown} FROM {source} WHERE {self._correlation(columns, outer, depth)} "
            f"ORDER BY 1{self.draw.choice(_ORDERS)} LIMIT 1{offset})"
        )

    def _correlation(self, columns: Columns, outer: Columns, depth: int) -> str:
        pairs = [(a, b) for a, t in columns for b, s in outer if t == s and t in ("int", "text", "date")]
        if not pairs or self._chance(0.2):
            return self.condition(columns, outer, depth)
        one, other = self.draw.choice(pairs)
        text = f"{one} {self.draw.choice(('=', '=', '=', '<', '<>', 'IS NOT DISTINCT FROM'))} {other}"
        return f"{text} AND {self.condition(columns, outer, 0)}" if self._chance(0.3) else text

    def condition(self, columns: Columns, outer: Columns, depth: int) -> str:
        if self._chance(0.2):
            one, other = (self.condition(columns, outer, depth and 1) for _ in range(2))
            return self.draw.choice(
                (f"({one} AND {other})", f"({one} OR {other})", f"NOT ({one})", f"({one}) IS NOT TRUE")
            )
        if depth > 0 and self._chance(0.5):
            return self._subquery_condition(columns, outer, depth - 1)
        type = self.draw.choice([t for _, t in columns])
        a, b, value = (
            self._leaf(type, columns, outer),
            self._leaf(type, columns, outer),
            self.draw.choice(_LITERALS[type]),
        )
        i, s = self._leaf("int", columns, outer), self._leaf("text", columns, outer)
        choices = [
            f"{a} {self.draw.choice(_COMPARISONS)} {b}",
            f"{a} IS {self.draw.choice(('', 'NOT '))}NULL",
            f"{a} IS {self.draw.choice(('', 'NOT '))}DISTINCT FROM {b}",
            f"{a} {self.draw.choice(('', 'NOT '))}BETWEEN {self.draw.choice(('', 'SYMMETRIC '))}{value} AND {b}",
            f"{a} {self.draw.choice(('', 'NOT '))}IN ({value}, {b})",
            f"{a} {self.draw.choice(('', 'NOT '))}IN ({value}, NULL)",
            f"({i}, {s}) {self.draw.choice(_COMPARISONS)} (2, 'Bob')",
            f"({i}, {s}) {self.draw.choice(('', 'NOT '))}IN ((1, 'x'), (NULL, 'Ada'), (2, {s}))",
        ]
        special = {
            "bool": (a, f"{a} IS UNKNOWN", f"NOT {a}"),
            "text": (f"{a} LIKE '%a%'", f"{a} ~ '^[A-D]'", f"{a} ILIKE 'B_b'", f"starts_with({a}, 'A')"),
            "int[]": (f"{i} = ANY ({a})", f"{i} <> ALL ({a})", f"{a} && {value}", f"{a} @> {value}"),
            "text[]": (f"{s} = ANY ({a})", f"{a} <@ {value}"),
            "jsonb": (f"{a} ? 'a'", f"{a} @> {value}", f"({a} -> 'a') IS NULL", f"{a} ?| ARRAY['a', 'b']"),
        }
        return self.draw.choice([*choices, *special.get(type, ()) * 3])

    def _subquery_condition(self, columns: Columns, outer: Columns, depth: int) -> str:
        scope = [*columns, *outer]
        type = self.draw.choice(("int", "int", "text", "date"))
        left = self._leaf(type, columns, outer)
        no = self.draw.choice(("", "NOT "))
        if self._chance(0.3):
            source, inside = self._from(scope, depth)
            return f"{no}EXISTS (SELECT 1 FROM {source} WHERE {self._correlation(inside, scope, depth)})"
        if self._chance(0.2):
            right = self._statement([type, "int"], scope, depth)
            return f"({left}, {self._leaf('int', columns, outer)}) {no}IN ({right})"
        right = self._statement([type], scope, depth)
        return self.draw.choice(
            (
                f"{left} {no}IN ({right})",
                f"{left} {self.draw.choice(_COMPARISONS)} {self.draw.choice(('ANY', 'ALL'))} ({right})",
                f"{left} {self.draw.choice(_COMPARISONS)} {self._scalar_subquery(type, scope, depth)}",
            )
        )

    def aggregate(self, type: str, columns: Columns, outer: Columns, depth: int) -> str:
        """A call of an aggregate function over the columns. Its argument has one of them."""
        own = [c for c, t in columns if t == type] or None
        a = self.draw.choice(own) if own else self._derived(type, columns)
        if own and self._chance(0.2):
            other = self._leaf(type, columns, outer)
            a = f"coalesce({a}, {other})"
        any_column = self.draw.choice(list(columns))[0]
        i = self._derived("int", columns)
        order = self.draw.choice(_ORDERS)
        literal = self.draw.choice(_LITERALS["int"])
        form = self.draw.choice(_AGGREGATES[type])
        call = form.format(a=a, any=any_column, i=i, order=order, literal=literal)
        # FILTER follows a call immediately.
        bare = (
            call.endswith(")") and "::" not in call and "FILTER" not in call and not call.startswith(("(", "to_jsonb"))
        )
        if bare and self._chance(0.25):
            call += f" FILTER (WHERE {self.condition(columns, outer, depth)})"
        return call

    def _window(self, columns: Columns) -> tuple[str, str]:
        """PARTITION BY, and an ORDER BY of all columns, for all calls of a SELECT.

        With several orders it is not determined which values equal rows get together.
        """
        partition = f"PARTITION BY {self.draw.choice(list(columns))[0]} " if self._chance(0.6) else ""
        names = self.draw.sample([c for c, _ in columns], len(columns))
        return partition, "ORDER BY " + ", ".join(f"{n}{self.draw.choice(_ORDERS)}" for n in names)

    def _windowed(self, type: str, columns: Columns, outer: Columns, partition: str, total: str) -> str:
        a = self._leaf(type, columns, outer)
        i = self._leaf("int", columns, outer)
        frame = self.draw.choice(_FRAMES)
        if self._chance(0.2):
            n = self._derived("int", columns)
            offset = self.draw.choice(("RANGE BETWEEN 2 PRECEDING AND 1 FOLLOWING", "RANGE 1 PRECEDING",
                                       "RANGE BETWEEN 1 FOLLOWING AND 3 FOLLOWING"))  # fmt: skip
            over = f"({partition}ORDER BY {n}{self.draw.choice(_ORDERS)} {offset})"
            calls = {"int": (f"sum({i})", f"count({i})", f"max({i})"), "numeric": (f"avg({i})", f"sum({a})")}
            if type in calls:
                call = f"{self.draw.choice(calls[type])} OVER {over}"
                return f"({call})::int" if type == "int" else call
        over = f"({partition}{total} {frame})"
        if type == "int" and self._chance(0.7):
            call = self.draw.choice(
                (
                    "row_number()",
                    "rank()",
                    "dense_rank()",
                    "ntile(3)",
                    "count(*)",
                    f"sum({i})",
                    f"count({i})",
                    f"lag({i}, 2, 0)",
                )
            )
            return f"({call} OVER {over})::int"
        if type == "numeric" and self._chance(0.6):
            return f"{self.draw.choice(('sum', 'avg', 'min'))}({a}) OVER {over}"
        call = self.draw.choice(
            (f"first_value({a})", f"last_value({a})", f"lag({a})", f"lead({a}, 2)", f"nth_value({a}, 2)")
            if type in ("bool", "jsonb", "int[]", "text[]")
            else (f"first_value({a})", f"last_value({a})", f"lag({a})", f"lead({a})", f"max({a})", f"min({a})")
        )
        if self._chance(0.15) and call.startswith(("max", "min")):
            call += f" FILTER (WHERE {self.condition(columns, (), 0)})"
        return f"{call} OVER {over}"

    def _derived(self, type: str, columns: Columns) -> str:
        """An expression of this type that has a column of `columns`."""
        own = [c for c, t in columns if t == type]
        if own:
            return self.draw.choice(own)
        column = self.draw.choice(list(columns))[0]
        return f"CASE WHEN {column} IS NOT NULL THEN {self.draw.choice(_LITERALS[type])} END"

    def _leaf(self, type: str, columns: Columns, outer: Columns = ()) -> str:
        scope = outer if outer and self._chance(0.25) else columns
        own = [c for c, t in scope if t == type] or [c for c, t in columns if t == type]
        if own and self._chance(0.8):
            return self.draw.choice(own)
        return self.draw.choice(_LITERALS[type])

    def _named(self, shown: Sequence[str]) -> str:
        return ", ".join(f"{text} AS c{i}" for i, text in enumerate(shown))

    def _alias(self) -> str:
        self._count += 1
        return f"q{self._count}"

    def _chance(self, probability: float) -> bool:
        return self.draw.random() < probability
