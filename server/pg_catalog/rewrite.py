"""Translates a query over system relations to DuckDB's SQL, with PostgreSQL's semantics.

The input is a tree of `server.sql.grammar.trees`. The rewrite
- qualifies relations and functions with the catalog engine's schemas,
- replaces values of `regclass` etc. by OIDs or names, depending on the context,
- adds the escape character backslash to LIKE,
- converts array literals to arrays,
- replaces session functions and parameters by their values,
- rejects functions (42883) that are neither defined in `functions.sql` nor known to be equal in DuckDB.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from catalog.objects.system_tables import SystemTable
from catalog.pg_catalog import PgRelation
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.scalars import parse_text
from protocol.pgwire.types import TEXT, PgType, array_of
from server.pg_catalog.database import SCHEMAS, is_function, is_table_function
from server.pg_catalog.outputs import NAME, VECTORS, Outputs, Types, branches
from server.pg_catalog.types import REGISTERED, cast_to, duckdb_type, parameter_type, type_name, value_tree
from server.settings.variables import VARIABLES
from server.sql.grammar.lexer import words
from server.sql.regex.patterns import similar

# Functions of DuckDB with the semantics of PostgreSQL's function of the same name.
_SAME = words(
    """
    abs all any array_agg avg bool_and bool_or ceil ceiling coalesce concat concat_ws count every floor
    greatest least left length lower lpad ltrim max md5 min mod nullif rank repeat replace
    reverse right round row_number rpad rtrim some split_part starts_with string_agg strpos substr sum trim
    unnest upper array dense_rank first_value last_value lag lead chr ascii
    """
)
_RENAMED = {"btrim": "trim", "json_build_object": "json_object", "char_length": "length", "array_cat": "list_concat"}


@dataclass(frozen=True, slots=True)
class Names:
    """Name resolution for a session.

    `relation` finds a system relation by the parts of its name. `registered` returns the OID for a registered type and
    a literal; PgError if there is no such object. `session` returns the value of a session function, as SQL, from its
    name, its arguments and a function that evaluates constant arguments; None for other functions. `privilege` returns
    the call of a function such as has_table_privilege, from its name and its rewritten arguments; None for others.
    """

    relation: Callable[[tuple[str, ...]], tuple[SystemTable, PgRelation | None] | None]
    registered: Callable[[str, str], int]
    session: Callable[[str, Sequence[exp.Expr], Callable[[exp.Expr], Any]], exp.Expr | None]
    privilege: Callable[[str, Sequence[exp.Expr]], exp.Expr | None]


@dataclass(slots=True)
class Rewritten:
    """`parameters`: number -> type. `outputs`: the columns, None if `Types` cannot determine them."""

    sql: str
    parameters: dict[int, PgType] = field(default_factory=dict)
    outputs: Outputs | None = None


def rewritten(
    tree: exp.Expr, names: Names, declared: Sequence[PgType | None] = (), values: Sequence[Any] | None = None
) -> Rewritten:
    """Returns the query in DuckDB's SQL. `values` None: the query is only described, with NULL for each parameter."""
    return _Rewriter(names, declared, values).query(tree.copy())


class _Rewriter:
    def __init__(self, names: Names, declared: Sequence[PgType | None], values: Sequence[Any] | None) -> None:
        self._names, self._declared, self._values = names, declared, values
        self._ctes: set[str] = set()
        self._aliases: dict[str, PgRelation] = {}
        self.parameters: dict[int, PgType] = {}

    def query(self, tree: exp.Expr) -> Rewritten:
        self._ctes = {cte.alias for cte in tree.find_all(exp.CTE)}
        for select in tree.find_all(exp.Select):
            select.set("expressions", [each for item in select.expressions for each in _expanded(item)])
        for table in tree.find_all(exp.Table):
            self._note(table)
        types = Types(tree, self._pg_relation, type_name)
        for node in tree.walk():
            _note_array(node, types)
            _note_text(node, types)
            _note_xid(node, types)
        for cast in tree.find_all(exp.Cast):
            self._parameter_of(cast)
        for quantified in tree.find_all(exp.Any, exp.All, exp.Anonymous):
            self._parameter_of_array(quantified)
        self._check_no_rows(tree)
        text = self._visit(tree).sql(dialect="duckdb", identify=True, normalize_functions=False)
        return Rewritten(_with_function_names(text, types.outputs), self.parameters, types.outputs)

    # -- analysis of the unchanged tree -------------------------------------------------------------------------------

    def _note(self, table: exp.Table) -> None:
        found = self._relation(table)
        if found is not None and found[1] is not None:
            self._aliases[table.alias_or_name] = found[1]

    def _check_no_rows(self, tree: exp.Expr) -> None:
        """PgError 0A000 for a relation's name as a value, except as an argument: its text differs in DuckDB."""
        tables = tree.find_all(exp.Table, exp.Subquery)
        relations = {table.alias_or_name for table in tables if not isinstance(table.this, exp.Anonymous)}
        columns = {column.name for relation in self._aliases.values() for column in relation.columns}
        columns.update(name for inner in tree.find_all(exp.CTE, exp.Subquery) for name in inner.named_selects)
        for column in tree.find_all(exp.Column):
            is_row = not column.table and column.name in relations and column.name not in columns
            if is_row and not isinstance(column.parent, exp.Anonymous | exp.Count):
                raise no_row_values()

    def _relation(self, table: exp.Table) -> tuple[SystemTable, PgRelation | None] | None:
        if not isinstance(table.this, exp.Identifier) or (not table.db and table.name in self._ctes):
            return None
        return self._names.relation(tuple(part.name for part in table.parts))

    def _pg_relation(self, table: exp.Table) -> PgRelation | None:
        found = self._relation(table)
        return found[1] if found is not None else None

    def _parameter_of(self, cast: exp.Cast) -> None:
        if isinstance(cast.this, exp.Parameter):
            number = int(cast.this.this.name)
            if number > len(self._declared) or self._declared[number - 1] is None:
                self.parameters.setdefault(number, parameter_type(type_name(cast.to)))

    def _parameter_of_array(self, quantified: exp.Expr) -> None:
        """The type of $1 in `column = ANY ($1)`: an array of the column's type."""
        array = quantified.this
        if isinstance(quantified, exp.Anonymous):  # sqlglot parses some of them as calls
            if quantified.name.lower() not in ("any", "all", "some") or len(quantified.expressions) != 1:
                return
            array = quantified.expressions[0]
        while isinstance(array, exp.Paren):
            array = array.this
        if not isinstance(array, exp.Parameter) or quantified.parent is None:
            return
        number = int(array.this.name)
        if number > len(self._declared) or self._declared[number - 1] is None:
            self.parameters.setdefault(number, array_of(self._type_of_column(quantified.parent.this)))

    def _type_of_column(self, tree: exp.Expr) -> PgType:
        """The wire type of parameters that are compared with a column; text if it is no column of one relation."""
        if not isinstance(tree, exp.Column):
            return TEXT
        relations = [self._aliases[tree.table]] if tree.table in self._aliases else list(self._aliases.values())
        found = {column.type for relation in relations for column in relation.columns if column.name == tree.name}
        return parameter_type(found.pop()) if len(found) == 1 else TEXT

    # -- nodes --------------------------------------------------------------------------------------------------------

    def _visit(self, node: exp.Expr) -> exp.Expr:
        """Returns the node's replacement. `_OUTER` rules run before its children are rewritten, `_INNER` after."""
        outer = _OUTER.get(type(node))
        if outer is not None:
            found = outer(self, node)
            if found is not None:
                return found
        self._visit_inside(node)
        inner = _INNER.get(type(node))
        return inner(self, node) if inner is not None else node

    def _visit_inside(self, node: exp.Expr) -> None:
        for key, value in list(node.args.items()):
            if isinstance(value, exp.Expr):
                node.set(key, self._visit(value))
            elif isinstance(value, list):
                node.set(key, [self._visit(item) if isinstance(item, exp.Expr) else item for item in value])

    def _table(self, table: exp.Table) -> exp.Expr | None:
        if isinstance(table.this, exp.Anonymous):
            return self._table_function(table)
        found = self._relation(table)
        if found is not None:
            item, relation = found
            if not table.alias:
                table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name, quoted=True)))
            schema = relation.schema if relation is not None else "mz_catalog"
            table.set("this", exp.to_identifier(item.name, quoted=True))
            table.set("db", exp.to_identifier(SCHEMAS[schema]))
            table.set("catalog", None)
        return None

    def _lateral(self, lateral: exp.Lateral) -> exp.Expr | None:
        """LATERAL f(...) as f(...): DuckDB's functions in FROM see the relations before them without the word."""
        called = lateral.this.expression if isinstance(lateral.this, exp.Dot) else lateral.this
        if not isinstance(called, exp.Anonymous):
            return None
        alias, ordinality = lateral.args.get("alias"), lateral.args.get("ordinality") or None
        return self._table_function(exp.Table(this=called, alias=alias, ordinality=ordinality))

    def _table_function(self, table: exp.Table) -> exp.Expr:
        """Rewrites a function in FROM. The list that DuckDB's generate_series returns is unnested.

        The column is named like the alias, as in PostgreSQL.
        """
        call = table.this
        name = call.name.lower()
        self._visit_inside(call)
        alias = table.args.get("alias") or exp.TableAlias(this=exp.to_identifier(name, quoted=True))
        if name in _WITHOUT_ROWS:
            return _no_rows(name, table, alias)
        if name == "aclexplode":
            return _exploded(call, alias)
        if (listed := self._names.session(name, call.expressions, self._constant)) is not None and _is_unnest(listed):
            call.replace(listed)
            name, call = "unnest", listed
        if name == "generate_subscripts":
            name, call = "unnest", _unnested_subscripts(call)
        if name in ("generate_series", "unnest"):
            if not alias.args.get("columns"):
                alias.set("columns", [exp.to_identifier(alias.name, quoted=True)])
            series = exp.Anonymous(this=name, expressions=call.expressions)
            table.set("this", series if name == "unnest" else exp.Anonymous(this="unnest", expressions=[series]))
            table.set("db", None)
        elif is_function(name) and is_table_function(name):
            table.set("db", exp.to_identifier("fn"))
        elif is_function(name):
            return _single_row(_function(name, *call.expressions), alias)
        else:
            raise _no_function(call)
        table.set("catalog", None)
        table.set("alias", alias)
        return table

    def _unnest(self, node: exp.Unnest) -> exp.Expr:
        """In FROM. DuckDB's unnest takes one list: several become a lateral subquery with one column for each."""
        alias = node.args.get("alias")
        lists, names = node.expressions, [] if alias is None else list(alias.args.get("columns") or ())
        if alias is not None and len(lists) > 1 and len(names) == len(lists):
            if (ordinality := node.args.get("offset")) is not None:
                longest = exp.Greatest(this=_length(lists[0]), expressions=[_length(each) for each in lists[1:]])
                lists = [*lists, exp.Anonymous(this="generate_series", expressions=[exp.Literal.number(1), longest])]
                names.append(ordinality)
            columns = [
                exp.alias_(exp.Anonymous(this="unnest", expressions=[each.copy()]), name.copy())
                for each, name in zip(lists, names, strict=True)
            ]
            return exp.Subquery(this=exp.Select(expressions=columns), alias=exp.TableAlias(this=alias.this))
        if alias is not None and not alias.args.get("columns") and alias.this is not None:
            alias.set("columns", [alias.this.copy()])
        return node

    def _column(self, column: exp.Column) -> exp.Expr:
        column.set("db", None)
        column.set("catalog", None)
        if column.name == "tableoid":
            relation = self._aliases.get(column.table) or next(iter(self._aliases.values()), None)
            if relation is not None:
                return cast_to(exp.Literal.number(relation.oid), "UINTEGER")
        if column.name in ("xmin", "xmax") and (not column.table or column.table in self._aliases):
            return cast_to(exp.Literal.number(0), "UINTEGER")  # the catalogs' rows have no versions
        return column

    def _qualified(self, dot: exp.Dot) -> None:
        """PgError 42883 for a function in a schema without functions."""
        is_call = isinstance(dot.this, exp.Identifier) and isinstance(dot.expression, exp.Anonymous)
        if is_call and dot.this.name not in SCHEMAS:
            raise _no_function(dot.expression, dot.this.name)

    def _dot(self, dot: exp.Dot) -> exp.Expr:
        """Replaces pg_catalog.f(...) by f(...)."""
        qualified = dot.this.name in SCHEMAS and not isinstance(dot.expression, exp.Identifier)
        return dot.expression if qualified else dot

    def _special_call(self, call: exp.Anonymous) -> exp.Expr | None:
        """Rewrites functions that need their arguments before these are rewritten; None for other functions."""
        name = call.name.lower()
        if name == "set_config" and call.expressions and isinstance(call.expressions[0], exp.Column):
            setting = self._selected_setting(call.expressions[0])
            if setting is not None and setting.lower() not in VARIABLES:
                return cast_to(exp.Null(), "VARCHAR")  # the query has no rows
            if setting is not None:
                call.expressions[0].replace(exp.Literal.string(setting))
        if name == "coalesce":
            self._array_literals(call)
        if name in _OF_DOMAINS and len(call.expressions) == 2:
            return _of_domain(name, *call.expressions)
        value = self._names.session(name, call.expressions, self._constant)
        if value is not None:
            return value
        if name in _OF_RELATIONS and call.expressions:
            call.expressions[0].replace(_as_regclass(call.expressions[0], is_text=call.meta.get(_TEXT, False)))
        if name.startswith("to_reg") and name.removeprefix("to_") in REGISTERED:
            return self._to_registered(name.removeprefix("to_"), call)
        return None

    def _selected_setting(self, column: exp.Column) -> str | None:
        """The name in `FROM pg_settings WHERE name = 'literal'`, if `column` is `name` in such a SELECT; else None."""
        select = column.find_ancestor(exp.Select)
        if select is None or column.name != "name" or select.args.get("joins"):
            return None
        source, where = select.args.get("from_"), select.args.get("where")
        if source is None or where is None or not isinstance(source.this, exp.Table):
            return None
        relation, equality = self._aliases.get(source.this.alias_or_name), where.this
        if relation is None or relation.name != "pg_settings" or not isinstance(equality, exp.EQ):
            return None
        is_name = isinstance(equality.this, exp.Column) and equality.this.name == "name"
        return self._value_of(equality.expression) if is_name else None

    def _array_literals(self, node: exp.Case | exp.Anonymous) -> None:
        """Reads the literals among the results of CASE or coalesce as arrays, if the other results are arrays."""
        if (type := node.meta.get(_ARRAY)) is None:
            return
        array = array_of(parameter_type(VECTORS.get(type) or type.removesuffix("[]")))
        for branch in branches(node):
            if isinstance(branch, exp.Literal) and branch.is_string:
                branch.replace(value_tree(array, parse_text(array, branch.name)))

    def _call(self, call: exp.Anonymous) -> exp.Expr:
        name = call.name.lower()
        if name == "format":
            return self._format(call)
        if name == "regexp_replace":
            return _replacing(call)
        if name == "substring":
            return _substring(call, *call.expressions)
        if name == "age" and call.meta.get(_XID):
            return helper("xid_age", *call.expressions)
        if name == "bpchar":
            return cast_to(call.expressions[0], "VARCHAR")
        if call.meta.get(_FROM_0) and name in _OF_VECTORS:
            return helper(f"vector_{name}", *call.expressions)
        if name == "generate_subscripts":
            return _unnested_subscripts(call)
        if name in ("json_agg", "jsonb_agg"):
            return exp.Anonymous(this="to_json", expressions=[exp.Anonymous(this="list", expressions=call.expressions)])
        if name in _RENAMED:
            return exp.Anonymous(this=_RENAMED[name], expressions=call.expressions)
        if (checked := self._names.privilege(name, call.expressions)) is not None:
            return checked
        if is_function(name):
            return exp.Dot(
                this=exp.to_identifier("fn"), expression=exp.Anonymous(this=name, expressions=call.expressions)
            )
        if name in _SAME:
            call.set("this", name)
            return call
        raise _no_function(call)

    def _format(self, call: exp.Anonymous) -> exp.Expr:
        """Rewrites format('%s.%I', ...) with a constant pattern to a concatenation."""
        pattern, *arguments = call.expressions
        if not isinstance(pattern, exp.Literal):
            raise _not_supported(
                "format() with a pattern that is no constant",
                hint="Write the pattern as a literal, or concatenate with ||.",
            )
        pieces: list[exp.Expr] = []
        literal = ""
        text, place = pattern.name, 0
        while place < len(text):
            if text[place] != "%":
                literal += text[place]
                place += 1
                continue
            kind = text[place + 1 : place + 2]
            place += 2
            if kind == "%":
                literal += "%"
            elif kind in ("s", "I", "L") and kind and arguments:
                pieces += [exp.Literal.string(literal), _formatted(kind, arguments.pop(0))]
                literal = ""
            else:
                raise _not_supported(f"format() with %{kind}", hint="Use %s, %I and %L without positions and widths.")
        return exp.Anonymous(this="concat", expressions=[*pieces, exp.Literal.string(literal)])

    def _to_registered(self, kind: str, call: exp.Anonymous) -> exp.Expr:
        (argument,) = call.expressions
        while isinstance(argument, exp.Cast):
            argument = argument.this
        if not isinstance(argument, exp.Literal | exp.Parameter | exp.Null):
            raise _not_supported(
                f"to_{kind}() of what is no constant",
                hint="Pass a literal or a parameter, or compare names in pg_class.",
            )
        name = self._constant(argument)
        if name is None:
            return exp.Null()
        try:
            found = self._names.registered(kind, str(name))
        except PgError:
            return exp.Null()
        return _registered_value(kind, found, call)

    def _constant(self, tree: exp.Expr) -> Any:
        """Returns the value of a literal or parameter; None for a parameter of a query that is only described."""
        match tree:
            case exp.Cast():
                return self._constant(tree.this)
            case exp.Boolean() | exp.Literal():
                return tree.this
            case exp.Null():
                return None
            case exp.Parameter():
                number = int(tree.this.name)
                self._parameter(tree)
                return None if self._values is None else self._values[number - 1]
            case exp.Dot(this=exp.Identifier(), expression=exp.Anonymous() as called) if tree.this.name == "pg_catalog":
                return self._constant(called)
            case exp.Anonymous() if value := self._names.session(tree.name.lower(), tree.expressions, self._constant):
                return self._constant(value)
        raise _not_supported(
            "a setting's name or value that is no constant", hint="Write the name as a literal, or query pg_settings."
        )

    def _value_of(self, tree: exp.Expr) -> str | None:
        if isinstance(tree, exp.Literal):
            return str(tree.this)
        if isinstance(tree, exp.Parameter) and self._values is not None:
            value = self._values[int(tree.this.name) - 1]
            return None if value is None else str(value)
        return None

    def _cast(self, cast: exp.Cast) -> exp.Expr:
        name = type_name(cast.to)
        if name in REGISTERED:
            return self._registered(cast, name)
        if name == "regtype[]":
            return helper("regtype_texts", self._visit(cast.this))
        if name == '"char"' or name == "name":
            name = "text"
        inner = cast.this
        if isinstance(inner, exp.Parameter):
            value = self._parameter(inner)
            return value if name.endswith("[]") else cast_to(value, duckdb_type(name))
        if name.endswith("[]") and isinstance(inner, exp.Literal):
            type = parameter_type(name)
            return value_tree(type, parse_text(type, inner.name))
        if name in VECTORS and isinstance(inner, exp.Literal):
            return _vector(name, inner)
        array = cast.meta.get(_ARRAY)
        value = self._visit(inner)
        if array is not None and name in ("text", "varchar"):
            value = helper("vector_text" if array in VECTORS else "array_text", value)
        return _with_modifiers(cast.to, name, value)

    def _registered(self, cast: exp.Cast, kind: str) -> exp.Expr:
        """Rewrites a cast to a registered type to an OID, or to the object's name where the context needs text."""
        inner = cast.this
        if isinstance(inner, exp.Cast) and type_name(inner.to) in ("text", "varchar"):
            inner = inner.this
        text = self._value_of(inner)
        if text is None and isinstance(inner, exp.Parameter):
            return cast_to(exp.Null(), "VARCHAR" if _shown(cast) else "UINTEGER")  # described only, or NULL
        if text is not None:
            return _registered_value(kind, self._names.registered(kind, text), cast)
        called = inner.expression if isinstance(inner, exp.Dot) else inner
        if isinstance(called, exp.Anonymous) and called.name.lower() == "pg_get_serial_sequence" and not _shown(cast):
            return helper("serial_sequence_oid", *map(self._visit, called.expressions))
        value = self._visit(cast.this)
        if cast.meta.get(_TEXT) and kind in _FOUND_BY_NAME:
            value = helper(f"{kind}_oid", value)
        return helper(f"{kind}_text", value) if _shown(cast) else value

    def _parameter(self, parameter: exp.Parameter) -> exp.Expr:
        number = int(parameter.this.name)
        declared = self._declared[number - 1] if number <= len(self._declared) else None
        type = declared or self.parameters.setdefault(number, TEXT)
        self.parameters[number] = type
        if self._values is None:
            return value_tree(type, None)
        return value_tree(type, self._values[number - 1])

    def _elements(self, node: exp.Any | exp.All) -> exp.Expr | None:
        """ANY and ALL of a parameter or literal without a type, which is an array of texts."""
        array = node.this.unnest()
        if isinstance(array, exp.Parameter):
            number = int(array.this.name)
            if number > len(self._declared) or self._declared[number - 1] is None:
                self.parameters.setdefault(number, array_of(TEXT))
        elif isinstance(array, exp.Literal) and array.is_string:
            array.replace(value_tree(array_of(TEXT), parse_text(array_of(TEXT), array.name)))
        return None

    def _like(self, like: exp.Expr) -> exp.Expr:
        if isinstance(like.expression, exp.Any | exp.All):
            return _like_each(like, like.expression)
        if isinstance(like.parent, exp.Escape):
            return like
        return exp.Escape(this=like, expression=exp.Literal.string("\\"))

    def _similar(self, node: exp.SimilarTo | exp.Escape) -> exp.Expr | None:
        """SIMILAR TO, also with ESCAPE: DuckDB's takes a pattern of POSIX. None for another operator with ESCAPE."""
        tree, escape = (node.this, node.expression) if isinstance(node, exp.Escape) else (node, None)
        if not isinstance(tree, exp.SimilarTo):
            return None
        if isinstance(tree.expression, exp.Parameter) and self._values is None:
            self._parameter(tree.expression)
            return cast_to(exp.Null(), "BOOLEAN")
        pattern, character = self._value_of(tree.expression), "\\" if escape is None else self._value_of(escape)
        if pattern is None or character is None:
            raise _not_supported("SIMILAR TO with a pattern that is no constant", hint="Pass a literal or a parameter.")
        text = cast_to(self._visit(tree.this), "VARCHAR")
        arguments = [text, exp.Literal.string(similar(pattern, character)), exp.Literal.string("s")]
        return exp.Anonymous(this="regexp_full_match", expressions=arguments)

    def _regex(self, node: exp.Expr) -> exp.Expr:
        arguments = [cast_to(node.this, "VARCHAR"), node.expression]
        if isinstance(node, exp.RegexpILike):
            arguments.append(exp.Literal.string("i"))
        return exp.Anonymous(this="regexp_matches", expressions=arguments)

    def _substring(self, node: exp.Substring) -> exp.Expr:
        parts = (node.args.get("start"), node.args.get("length"))
        return _substring(node, node.this, *(part for part in parts if part is not None))

    def _collate(self, node: exp.Collate) -> exp.Expr:
        """Removes COLLATE: the only collation is byte order."""
        operand: exp.Expr = node.this
        return operand

    def _bracket(self, bracket: exp.Bracket) -> exp.Expr:
        """A subscript or slice. DuckDB counts from the end if a subscript is negative; PostgreSQL returns NULL."""
        (subscript,) = bracket.expressions
        if isinstance(subscript, exp.Literal) and subscript.is_string:
            return bracket
        first = exp.Literal.number(0 if bracket.meta.get(_FROM_0) else 1)
        if isinstance(subscript, exp.Slice):
            low, high = subscript.this or first, subscript.expression or exp.Literal.number(_SUBSCRIPT_MAX)
            return helper("array_slice", bracket.this, low, high, first)
        return helper("array_element", bracket.this, subscript, first)

    def _equality(self, node: exp.EQ | exp.NEQ) -> exp.Expr | None:
        """Reads a literal that is compared with a vector as a vector."""
        for side in (node.this, node.expression):
            if isinstance(side, exp.Literal) and side.is_string and node.meta.get(_ARRAY) in VECTORS:
                side.replace(_vector(node.meta[_ARRAY], side))
        return None

    def _select(self, select: exp.Select) -> exp.Expr:
        if not select.expressions:
            select.set("expressions", [exp.Literal.number(1)])
        return select

    def _session(self, node: exp.Expr) -> exp.Expr:
        value = self._names.session(_SESSION_NODES[type(node)], [], self._constant)
        assert value is not None
        return value


_SESSION_NODES: dict[type[exp.Expr], str] = {
    exp.CurrentUser: "current_user",
    exp.CurrentRole: "current_user",
    exp.SessionUser: "session_user",
    exp.CurrentSchema: "current_schema",
    exp.CurrentCatalog: "current_database",
    exp.CurrentTimestamp: "now",
}
_OUTER: dict[type[exp.Expr], Callable[[_Rewriter, Any], exp.Expr | None]] = {
    exp.Table: _Rewriter._table,
    exp.All: _Rewriter._elements,
    exp.EQ: _Rewriter._equality,
    exp.NEQ: _Rewriter._equality,
    exp.Anonymous: _Rewriter._special_call,
    exp.Case: _Rewriter._array_literals,
    exp.Any: _Rewriter._elements,
    exp.Cast: _Rewriter._cast,
    exp.Dot: _Rewriter._qualified,
    exp.Escape: _Rewriter._similar,
    exp.Lateral: _Rewriter._lateral,
    exp.Parameter: _Rewriter._parameter,
    exp.SimilarTo: _Rewriter._similar,
}
_INNER: dict[type[exp.Expr], Callable[[_Rewriter, Any], exp.Expr]] = {
    exp.Unnest: _Rewriter._unnest,
    exp.Column: _Rewriter._column,
    exp.Dot: _Rewriter._dot,
    exp.Anonymous: _Rewriter._call,
    exp.Like: _Rewriter._like,
    exp.ILike: _Rewriter._like,
    exp.RegexpLike: _Rewriter._regex,
    exp.RegexpILike: _Rewriter._regex,
    exp.Collate: _Rewriter._collate,
    exp.Substring: _Rewriter._substring,
    exp.Bracket: _Rewriter._bracket,
    exp.Select: _Rewriter._select,
    **dict.fromkeys(_SESSION_NODES, _Rewriter._session),
}


_ARRAY, _FROM_0, _TEXT, _XID = "array", "from_0", "text", "xid"
"""What `_note_array`, `_note_text` and `_note_xid` record of a node: the type of its array, whether its subscripts
begin at 0, and whether its operand is a text or a transaction id."""
_OF_VECTORS = words("array_lower array_upper array_length array_ndims array_dims array_position")
"""Functions of arrays with another result for a vector."""
_SUBSCRIPT_MAX = 2**31 - 2


def _note_array(node: exp.Expr, types: Types) -> None:
    """Records the type of the array that a node has as an operand. The tree must be unchanged."""
    match node:
        case exp.Bracket() | exp.Cast():
            arrays = [node.this]
        case exp.EQ() | exp.NEQ():
            arrays = [node.this, node.expression]
        case exp.Case():
            arrays = [node]
        case exp.Anonymous() if node.name.lower() == "coalesce":
            arrays = [node]
        case exp.Anonymous() if node.expressions and node.name.lower() in (*_OF_VECTORS, "generate_subscripts"):
            arrays = [node.expressions[0]]
        case _:
            return
    for array in arrays:
        type = types.type_of(array)
        if type is not None and (
            type in VECTORS or (type == NAME and isinstance(node, exp.Bracket)) or type.endswith("[]")
        ):
            node.meta[_ARRAY] = type
            node.meta[_FROM_0] = types.counts_from_0(array)


def _note_text(node: exp.Expr, types: Types) -> None:
    """Records that the operand is a text that names an object. The tree must be unchanged."""
    match node:
        case exp.Cast() if type_name(node.to) in _FOUND_BY_NAME:
            node.meta[_TEXT] = _is_text(node.this, types)
        case exp.Anonymous() if node.expressions and node.name.lower() in _OF_RELATIONS:
            node.meta[_TEXT] = _is_text(node.expressions[0], types)


def _note_xid(node: exp.Expr, types: Types) -> None:
    """Records that the argument of age() is a transaction id. The tree must be unchanged."""
    if isinstance(node, exp.Anonymous) and node.name.lower() == "age" and len(node.expressions) == 1:
        node.meta[_XID] = types.type_of(node.expressions[0]) == "xid"


def _is_text(tree: exp.Expr, types: Types) -> bool:
    """Whether an expression other than a literal or parameter has a text type."""
    tree = tree.unnest()
    if isinstance(tree, exp.Select) and len(tree.expressions) == 1:  # the only column of a subquery
        selected = tree.expressions[0].unalias()
        return (isinstance(selected, exp.Literal) and selected.is_string) or _is_text(selected, types)
    if isinstance(tree, exp.Cast):
        return type_name(tree.to) in _TEXT_TYPES and not isinstance(tree.this, exp.Literal | exp.Parameter)
    if isinstance(tree, exp.Anonymous) and tree.name.lower() in ("concat", "format", "quote_ident"):
        return True
    return isinstance(tree, exp.DPipe) or types.type_of(tree) in _TEXT_TYPES


def _vector(type: str, literal: exp.Expr) -> exp.Expr:
    """The elements of a literal of type int2vector or oidvector."""
    array = array_of(parameter_type(VECTORS[type]))
    return value_tree(array, parse_text(array, "{" + ",".join(literal.name.split()) + "}"))


def _unnested_subscripts(call: exp.Expr) -> exp.Anonymous:
    """generate_subscripts(array, dimension [, reverse]) as unnest() of a list of the subscripts."""
    first = exp.Literal.number(0 if call.meta.get(_FROM_0) else 1)
    return exp.Anonymous(this="unnest", expressions=[helper("subscripts", first, *call.expressions)])


_OF_RELATIONS = words(
    "pg_relation_filenode pg_get_viewdef "
    "pg_relation_size pg_table_size pg_total_relation_size pg_indexes_size pg_relation_is_updatable row_security_active"
)
"""Functions whose first argument is a regclass, so that a string there is the name of a relation."""


def _replacing(call: exp.Anonymous) -> exp.Expr:
    """regexp_replace(text, pattern, replacement [, flags]). 0A000 with a start, or with flags that DuckDB lacks."""
    flags = call.expressions[3] if len(call.expressions) > 3 else exp.Literal.string("")
    if not 3 <= len(call.expressions) <= 4 or not isinstance(flags, exp.Literal) or not set(flags.name) <= set("gic"):
        raise _not_supported(
            "this form of regexp_replace()",
            hint="Use regexp_replace(text, pattern, replacement, flags) with a literal of the flags g, i and c.",
        )
    text, pattern, replacement, *_ = call.expressions
    arguments = [cast_to(text, "VARCHAR"), pattern, replacement, exp.Literal.string(f"s{flags.name}")]
    return exp.Anonymous(this="regexp_replace", expressions=arguments)


def _substring(node: exp.Expr, text: exp.Expr, *rest: exp.Expr) -> exp.Expr:
    """substring(text, start [, length]), or substring(text from 'pattern') with a literal of a regular expression."""
    text = cast_to(text, "VARCHAR")
    if len(rest) != 1 or not isinstance(rest[0], exp.Literal) or not rest[0].is_string:
        return exp.Anonymous(this="substr", expressions=[text, *rest])
    group = 1 if re.search(r"(?<!\\)\((?!\?)", rest[0].name) else 0
    found = exp.Anonymous(this="regexp_extract", expressions=[text, rest[0], exp.Literal.number(group)])
    matches = exp.Anonymous(this="regexp_matches", expressions=[text.copy(), rest[0].copy()])
    return exp.Case(ifs=[exp.If(this=matches, true=found)])


_OF_DOMAINS = {"_pg_truetypid": ("typbasetype", "atttypid"), "_pg_truetypmod": ("typtypmod", "atttypmod")}
"""Functions of rows of pg_attribute and pg_type: the column of pg_type for a domain, and that of pg_attribute."""


def _of_domain(name: str, attribute: exp.Expr, type: exp.Expr) -> exp.Expr:
    """The arguments are rows: `a` or `a.*`."""
    a, t = (row.args.get("table") or row.this for row in (attribute, type))
    of_domain, of_attribute = _OF_DOMAINS[name]
    is_domain = exp.EQ(this=exp.column("typtype", t), expression=exp.Literal.string("d"))
    domain = exp.If(this=is_domain, true=exp.column(of_domain, t))
    return exp.Case(ifs=[domain], default=exp.column(of_attribute, a))


def _like_each(like: exp.Expr, quantified: exp.Any | exp.All) -> exp.Expr:
    """LIKE ANY and LIKE ALL. `a NOT LIKE ALL (b)` is `NOT a LIKE ANY (b)`."""
    is_any = isinstance(quantified, exp.Any) is not bool(like.args.get("negate"))
    matches = helper("ilikes" if isinstance(like, exp.ILike) else "likes", like.this, quantified.this)
    found = helper("any_of" if is_any else "all_of", matches)
    return exp.Not(this=found) if like.args.get("negate") else found


def _as_regclass(argument: exp.Expr, *, is_text: bool) -> exp.Expr:
    """Casts a string literal (also one cast to text), a parameter or a text to regclass; returns other arguments."""
    inner = argument
    if isinstance(inner, exp.Cast) and type_name(inner.to) in _TEXT_TYPES:
        inner = inner.this
    if is_text or isinstance(inner, exp.Parameter) or (isinstance(inner, exp.Literal) and inner.is_string):
        cast = exp.Cast(this=inner.copy(), to=exp.DataType(this=exp.DType.USERDEFINED, kind="regclass"))
        cast.meta[_TEXT] = is_text
        return cast
    return argument


def _with_modifiers(type: exp.DataType, name: str, value: exp.Expr) -> exp.Expr:
    """Casts a value to a type whose modifiers are respected: numeric(p, s), varchar(n) and char(n)."""
    numbers = [int(modifier.name) for modifier in type.expressions if modifier.name.isdigit()]
    if name == "numeric" and numbers:
        return cast_to(value, f"DECIMAL({', '.join(map(str, numbers))})")
    cast = cast_to(value, duckdb_type(name))
    if name in ("varchar", "bpchar") and numbers:
        return exp.Anonymous(this="left", expressions=[cast, exp.Literal.number(numbers[0])])
    return cast


def _formatted(kind: str, argument: exp.Expr) -> exp.Expr:
    if kind == "s":
        return argument
    return _function("quote_ident" if kind == "I" else "quote_literal", argument)


def _with_function_names(text: str, outputs: Outputs | None) -> str:
    """Wraps the query so that output columns of type regproc contain names instead of OIDs, as in PostgreSQL."""
    if outputs is None or all(output.type != "regproc" for output in outputs):
        return text
    columns = [f"tw.regproc_text(c{n})" if o.type == "regproc" else f"c{n}" for n, o in enumerate(outputs)]
    names = [f"c{n}" for n in range(len(outputs))]
    return f"SELECT {', '.join(columns)} FROM ({text}) AS q({', '.join(names)})"


def _length(array: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this="len", expressions=[array.copy()])


def _function(name: str, *arguments: exp.Expr) -> exp.Expr:
    return exp.Dot(this=exp.to_identifier("fn"), expression=exp.Anonymous(this=name, expressions=[*arguments]))


def helper(name: str, *arguments: exp.Expr) -> exp.Expr:
    return exp.Dot(this=exp.to_identifier("tw"), expression=exp.Anonymous(this=name, expressions=[*arguments]))


_TEXT_TYPES = words("text varchar name character_data sql_identifier")
_FOUND_BY_NAME = words("regclass regnamespace regrole regtype")
"""Registered types to which a text that is no constant can be cast."""
_TEXT_CALLS = words("concat concat_ws string_agg array_agg array_to_string quote_ident format")


def _shown(cast: exp.Expr) -> bool:
    """Returns whether the context of a cast to a registered type needs the object's name rather than its OID."""
    parent = cast.parent
    while isinstance(parent, exp.Paren | exp.Alias | exp.Order | exp.Ordered | exp.Case | exp.If) or (
        isinstance(parent, exp.Anonymous) and parent.name.lower() == "coalesce"
    ):
        parent = parent.parent
    match parent:
        case exp.Cast():
            return type_name(parent.to) in ("text", "varchar", "name", "bpchar")
        case exp.Select() | exp.DPipe() | exp.Distinct():
            return True
        case exp.Anonymous():
            return parent.name.lower() in _TEXT_CALLS
        case _:
            return False


def _registered_value(kind: str, found: int, place: exp.Expr) -> exp.Expr:
    number = cast_to(exp.Literal.number(found), "UINTEGER")
    return helper(f"{kind}_text", number) if _shown(place) else number


def _is_unnest(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.name == "unnest"


_WITHOUT_ROWS = {
    "pg_options_to_table": {"option_name": "VARCHAR", "option_value": "VARCHAR"},
    "pg_partition_ancestors": {"relid": "UINTEGER"},
    "pg_partition_tree": {"relid": "UINTEGER", "parentrelid": "UINTEGER", "isleaf": "BOOLEAN", "level": "INTEGER"},
}
"""The functions whose rows are options of foreign tables or partitions, which do not exist, and their columns."""


def _no_rows(name: str, table: exp.Table, alias: exp.TableAlias) -> exp.Expr:
    """A function in FROM that has no rows. A single column has the alias."""
    types = [*_WITHOUT_ROWS[name].values(), "BIGINT"]
    names = [exp.to_identifier(column) for column in _WITHOUT_ROWS[name]]
    if len(names) == 1:
        names = [alias.this]
    if table.args.get("ordinality"):
        names.append(exp.to_identifier("ordinality", quoted=True))
    given = alias.args.get("columns") or []
    names[: len(given)] = given
    columns = [exp.alias_(cast_to(exp.Null(), type), name.copy()) for name, type in zip(names, types, strict=False)]
    rows = exp.Select(expressions=columns).where(exp.false(), copy=False)
    return exp.Subquery(this=rows, alias=exp.TableAlias(this=alias.this.copy()))


def _single_row(value: exp.Expr, alias: exp.TableAlias) -> exp.Expr:
    """A function in FROM that returns one value: a lateral subquery whose column has the alias."""
    columns = alias.args.get("columns") or [alias.this]
    return exp.Subquery(this=exp.Select(expressions=[exp.alias_(value, columns[0].copy())]), alias=alias)


def _exploded(call: exp.Anonymous, alias: exp.TableAlias) -> exp.Expr:
    """aclexplode in FROM: a lateral subquery with a row for each privilege of each entry."""
    entry = exp.alias_(_function("aclexplode", *call.expressions), "tw_entry")
    columns: list[exp.Expr] = [exp.column(name, "tw_entry") for name in _ENTRY]
    rows = exp.Select(expressions=columns).from_(exp.Select(expressions=[entry]).subquery("tw_entries"), copy=False)
    return exp.Subquery(this=rows, alias=alias)


def _expanded(item: exp.Expr) -> list[exp.Expr]:
    """An item of SELECT. For `(f(...)).*`, one for each column that the function returns, named like the column."""
    if not isinstance(item, exp.Dot):
        return [item]
    inner = item.this.unnest()
    called = inner.expression if isinstance(inner, exp.Dot) else inner
    columns = _COLUMNS.get(called.name.lower(), ()) if isinstance(called, exp.Anonymous) else ()
    names = columns if isinstance(item.expression, exp.Star) else [name for name in columns if name == item.name]
    rows = [exp.alias_(exp.Dot(this=item.this.copy(), expression=exp.to_identifier(name)), name) for name in names]
    return list(rows) or [item]


_ENTRY = ("grantor", "grantee", "privilege_type", "is_grantable")
_COLUMNS = {"aclexplode": _ENTRY, "_pg_expandarray": ("x", "n")}
"""The columns of the functions that return rows."""


def no_row_values() -> PgError:
    return PgError(
        SqlState.FEATURE_NOT_SUPPORTED,
        "rows as values are not supported over system catalogs",
        hint="Select the columns of the row, or convert it: row_to_json(t).",
    )


def _no_function(call: exp.Expr, schema: str = "") -> PgError:
    start = call.meta.get("start")
    name = f"{schema}.{call.name.lower()}" if schema else call.name.lower()
    return PgError(
        SqlState.UNDEFINED_FUNCTION,
        f"function {name} does not exist in queries over system catalogs",
        position=start + 1 if start is not None else None,
    )


def _not_supported(what: str, *, hint: str) -> PgError:
    return PgError(SqlState.FEATURE_NOT_SUPPORTED, f"{what} is not supported over system catalogs", hint=hint)
