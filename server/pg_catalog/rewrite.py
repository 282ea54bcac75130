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

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from catalog.objects.system_tables import SystemTable
from catalog.pg_catalog import PgRelation
from protocol.pgwire.errors import PgError
from protocol.pgwire.scalars import parse_text
from protocol.pgwire.types import TEXT, PgType, array_of
from server.pg_catalog.annotations import (
    ARRAY,
    COUNTS_FROM_0,
    FOUND_BY_NAME,
    IS_TEXT,
    IS_XID,
    OF_RELATIONS,
    OF_VECTORS,
    annotate,
)
from server.pg_catalog.database import SCHEMAS, is_function, is_table_function
from server.pg_catalog.equivalents import (
    OF_DOMAINS,
    attribute_type,
    cast_with_modifiers,
    format_call,
    like_each,
    regexp_replace,
    substring,
    vector_literal,
)
from server.pg_catalog.from_items import (
    WITHOUT_ROWS,
    expanded,
    exploded_acl,
    is_unnest,
    no_rows,
    single_row,
    unnest,
    unnested_subscripts,
)
from server.pg_catalog.outputs import VECTORS, Outputs, Types, branches
from server.pg_catalog.refusals import no_function, no_nested_arrays, no_row_values, not_supported
from server.pg_catalog.registered_values import as_regclass, is_shown, registered_value
from server.pg_catalog.trees import defined_function, helper
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
_SUBSCRIPT_MAX = 2**31 - 2
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.In, exp.Between)
_INFERRED = words('bool int2 int4 int8 oid float4 float8 numeric text varchar name "char"')
"""The types of operands that a parameter of a comparison can have. Others are compared with the parameter's text."""


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
            select.set("expressions", [each for item in select.expressions for each in expanded(item)])
        for table in tree.find_all(exp.Table):
            self._note(table)
        types = Types(tree, self._pg_relation, type_name)
        annotate(tree, types)
        for array in tree.find_all(exp.Array, exp.DataType):
            if any(_is_array(item) for item in array.expressions) and _is_array(array):
                raise no_nested_arrays()
        for cast in tree.find_all(exp.Cast):
            self._parameter_of(cast)
        for quantified in tree.find_all(exp.Any, exp.All, exp.Anonymous):
            self._parameter_of_array(quantified)
        for node in tree.find_all(*_COMPARISONS, exp.Limit, exp.Offset):
            self._parameters_of_operands(node, types)
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
            if is_row and not isinstance(column.parent, exp.Anonymous | exp.Count) and not _is_output(column):
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
            self._infer(cast.this, parameter_type(type_name(cast.to)))

    def _parameters_of_operands(self, node: exp.Expr, types: Types) -> None:
        """The type of $1 in `column = $1`, `column IN ($1)`, `LIMIT $1` and so on: that of the other operands."""
        operands = [operand.unnest() for operand in node.iter_expressions()]
        known = {types.type_of(operand) for operand in operands if not isinstance(operand, exp.Parameter)} - {None}
        type = "int8" if isinstance(node, exp.Limit | exp.Offset) else known.pop() if len(known) == 1 else None
        if type is not None and type in _INFERRED:
            for operand in operands:
                if isinstance(operand, exp.Parameter):
                    self._infer(operand, parameter_type(type))

    def _infer(self, parameter: exp.Parameter, type: PgType) -> None:
        """Sets the type of a parameter that has none yet."""
        number = int(parameter.this.name)
        if number > len(self._declared) or self._declared[number - 1] is None:
            self.parameters.setdefault(number, type)

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
        self._infer(array, array_of(self._type_of_column(quantified.parent.this)))

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
        if name in WITHOUT_ROWS:
            return no_rows(name, table, alias)
        if name == "aclexplode":
            return exploded_acl(call, alias)
        if (listed := self._names.session(name, call.expressions, self._constant)) is not None and is_unnest(listed):
            call.replace(listed)
            name, call = "unnest", listed
        if name == "generate_subscripts":
            name, call = "unnest", unnested_subscripts(call)
        if name in ("generate_series", "unnest"):
            if not alias.args.get("columns"):
                alias.set("columns", [exp.to_identifier(alias.name, quoted=True)])
            series = exp.Anonymous(this=name, expressions=call.expressions)
            table.set("this", series if name == "unnest" else exp.Anonymous(this="unnest", expressions=[series]))
            table.set("db", None)
        elif is_function(name) and is_table_function(name):
            table.set("db", exp.to_identifier("fn"))
        elif is_function(name):
            return single_row(defined_function(name, *call.expressions), alias)
        else:
            raise no_function(call)
        table.set("catalog", None)
        table.set("alias", alias)
        return table

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
            raise no_function(dot.expression, dot.this.name)

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
        if name in OF_DOMAINS and len(call.expressions) == 2:
            return attribute_type(name, *call.expressions)
        value = self._names.session(name, call.expressions, self._constant)
        if value is not None:
            return value
        if name == "pg_get_serial_sequence":
            _by_oid(call)
        if name in OF_RELATIONS and call.expressions:
            call.expressions[0].replace(as_regclass(call.expressions[0], is_text=call.meta.get(IS_TEXT, False)))
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
        if (type := node.meta.get(ARRAY)) is None:
            return
        array = array_of(parameter_type(VECTORS.get(type) or type.removesuffix("[]")))
        for branch in branches(node):
            if isinstance(branch, exp.Literal) and branch.is_string:
                branch.replace(value_tree(array, parse_text(array, branch.name)))

    def _call(self, call: exp.Anonymous) -> exp.Expr:
        name = call.name.lower()
        if name == "format":
            return format_call(call)
        if name == "regexp_replace":
            return regexp_replace(call)
        if name == "substring":
            return substring(call, *call.expressions)
        if name == "age" and call.meta.get(IS_XID):
            return helper("xid_age", *call.expressions)
        if name == "bpchar":
            return cast_to(call.expressions[0], "VARCHAR")
        if call.meta.get(COUNTS_FROM_0) and name in OF_VECTORS:
            return helper(f"vector_{name}", *call.expressions)
        if name == "generate_subscripts":
            return unnested_subscripts(call)
        if name == "format_type" and (dimensions := self._dimensions(call)) is not None:
            return helper("format_column_type", *call.expressions, dimensions)
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
        raise no_function(call)

    def _dimensions(self, call: exp.Anonymous) -> exp.Expr | None:
        """attndims for format_type(type, atttypmod) in a SELECT from pg_attribute without groups, otherwise None.

        In Tidewire the number of dimensions is a part of a column's type.
        """
        select = call.find_ancestor(exp.Select)
        modifier = call.expressions[1] if len(call.expressions) == 2 else None
        if not isinstance(modifier, exp.Column) or modifier.name != "atttypmod":
            return None
        if select is None or select.args.get("from_") is None or select.args.get("group"):
            return None
        for item in (select.args["from_"].this, *(join.this for join in select.args.get("joins") or ())):
            if isinstance(item, exp.Table) and modifier.table in ("", item.alias_or_name):
                relation = self._aliases.get(item.alias_or_name)
                if relation is not None and relation.name == "pg_attribute":
                    return exp.column("attndims", item.alias_or_name)
        return None

    def _to_registered(self, kind: str, call: exp.Anonymous) -> exp.Expr:
        (argument,) = call.expressions
        while isinstance(argument, exp.Cast):
            argument = argument.this
        if not isinstance(argument, exp.Literal | exp.Parameter | exp.Null):
            raise not_supported(
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
        return registered_value(kind, found, call)

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
        raise not_supported(
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
        kind = name.removesuffix("[]")
        if name != kind in REGISTERED and isinstance(cast.this, exp.Literal):
            named = parse_text(array_of(TEXT), cast.this.name)
            oids = [None if each is None else self._names.registered(kind, each) for each in named]
            return exp.Array(expressions=[exp.Null() if o is None else registered_value(kind, o, cast) for o in oids])
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
            return vector_literal(name, inner)
        array = cast.meta.get(ARRAY)
        value = self._visit(inner)
        if array is not None and name in ("text", "varchar"):
            value = helper("vector_text" if array in VECTORS else "array_text", value)
        return cast_with_modifiers(cast.to, name, value)

    def _registered(self, cast: exp.Cast, kind: str) -> exp.Expr:
        """Rewrites a cast to a registered type to an OID, or to the object's name where the context needs text."""
        inner = cast.this
        if isinstance(inner, exp.Cast) and type_name(inner.to) in ("text", "varchar"):
            inner = inner.this
        text = self._value_of(inner)
        if text is None and isinstance(inner, exp.Parameter):
            return cast_to(exp.Null(), "VARCHAR" if is_shown(cast) else "UINTEGER")  # described only, or NULL
        if text is not None:
            return registered_value(kind, self._names.registered(kind, text), cast)
        called = inner.expression if isinstance(inner, exp.Dot) else inner
        if isinstance(called, exp.Anonymous) and called.name.lower() == "pg_get_serial_sequence":
            value = helper("serial_sequence_oid", *map(self._visit, _by_oid(called).expressions))
            return helper(f"{kind}_text", value) if is_shown(cast) else value
        value = self._visit(cast.this)
        if cast.meta.get(IS_TEXT) and kind in FOUND_BY_NAME:
            value = helper(f"{kind}_oid", value)
        return helper(f"{kind}_text", value) if is_shown(cast) else value

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
            self._infer(array, array_of(TEXT))
        elif isinstance(array, exp.Literal) and array.is_string:
            array.replace(value_tree(array_of(TEXT), parse_text(array_of(TEXT), array.name)))
        return None

    def _like(self, like: exp.Expr) -> exp.Expr:
        if isinstance(like.expression, exp.Any | exp.All):
            return like_each(like, like.expression)
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
            raise not_supported("SIMILAR TO with a pattern that is no constant", hint="Pass a literal or a parameter.")
        text = cast_to(self._visit(tree.this), "VARCHAR")
        arguments = [text, exp.Literal.string(similar(pattern, character)), exp.Literal.string("s")]
        return exp.Anonymous(this="regexp_full_match", expressions=arguments)

    def _regex(self, node: exp.Expr) -> exp.Expr:
        arguments = [cast_to(node.this, "VARCHAR"), node.expression]
        if isinstance(node, exp.RegexpILike):
            arguments.append(exp.Literal.string("i"))
        matches = exp.Anonymous(this="regexp_matches", expressions=arguments)
        return exp.Not(this=matches) if node.args.get("negate") else matches

    def _substring(self, node: exp.Substring) -> exp.Expr:
        parts = (node.args.get("start"), node.args.get("length"))
        return substring(node, node.this, *(part for part in parts if part is not None))

    def _collate(self, node: exp.Collate) -> exp.Expr:
        """Removes COLLATE: the only collation is byte order."""
        operand: exp.Expr = node.this
        return operand

    def _bracket(self, bracket: exp.Bracket) -> exp.Expr:
        """A subscript or slice. DuckDB counts from the end if a subscript is negative; PostgreSQL returns NULL."""
        (subscript,) = bracket.expressions
        if isinstance(subscript, exp.Literal) and subscript.is_string:
            return bracket
        first = exp.Literal.number(0 if bracket.meta.get(COUNTS_FROM_0) else 1)
        if isinstance(subscript, exp.Slice):
            low, high = subscript.this or first, subscript.expression or exp.Literal.number(_SUBSCRIPT_MAX)
            return helper("array_slice", bracket.this, low, high, first)
        return helper("array_element", bracket.this, subscript, first)

    def _equality(self, node: exp.EQ | exp.NEQ) -> exp.Expr | None:
        """Reads a literal that is compared with a vector as a vector."""
        for side in (node.this, node.expression):
            if isinstance(side, exp.Literal) and side.is_string and node.meta.get(ARRAY) in VECTORS:
                side.replace(vector_literal(node.meta[ARRAY], side))
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
    exp.Unnest: lambda _, node: unnest(node),
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


def _by_oid(call: exp.Anonymous) -> exp.Anonymous:
    """Replaces the argument `oid::regclass::text` of pg_get_serial_sequence by `oid::text`: no name is looked up."""
    text = call.expressions[0] if call.expressions else None
    if isinstance(text, exp.Cast) and type_name(text.to) == "text" and isinstance(text.this, exp.Cast):
        relation = text.this
        if (
            type_name(relation.to) == "regclass"
            and isinstance(relation.this, exp.Column)
            and not relation.meta.get(IS_TEXT)
        ):
            text.set("this", relation.this)
    return call


def _is_output(column: exp.Column) -> bool:
    """Whether a name is an item of ORDER BY and the name of an output column, which takes precedence."""
    query, item = column.find_ancestor(exp.Query), column.parent
    if query is None or not isinstance(item, exp.Ordered) or item.parent is not query.args.get("order"):
        return False
    return column.name in query.named_selects


def _is_array(tree: exp.Expr) -> bool:
    """Whether it is ARRAY[...] or ARRAY(query), or the type of an array."""
    inner = tree.unnest()
    return isinstance(inner, exp.Array) or (isinstance(inner, exp.DataType) and inner.this == exp.DType.ARRAY)


def _with_function_names(text: str, outputs: Outputs | None) -> str:
    """Wraps the query so that output columns of type regproc contain names instead of OIDs, as in PostgreSQL."""
    if outputs is None or all(output.type != "regproc" for output in outputs):
        return text
    columns = [f"tw.regproc_text(c{n})" if o.type == "regproc" else f"c{n}" for n, o in enumerate(outputs)]
    names = [f"c{n}" for n in range(len(outputs))]
    return f"SELECT {', '.join(columns)} FROM ({text}) AS q({', '.join(names)})"
