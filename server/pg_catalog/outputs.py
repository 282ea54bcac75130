"""PostgreSQL's names and types of a query's columns and expressions, where they derive from system relations.

DuckDB describes any query, but it has no types `name`, `"char"` and `int2vector`, and names some columns differently
from PostgreSQL. This module traces columns, stars, casts and arrays through subqueries and WITH to their relation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from sqlglot import exp

from catalog.pg_catalog import PgRelation
from server.sql.bind import Origin, output_name


class Output(NamedTuple):
    """An output column. `type` is PostgreSQL's type name; None if it cannot be determined here.

    `origin`: the system relation's column that it is, numbered from 1; None for others.
    """

    name: str
    type: str | None
    origin: Origin | None = None


Outputs = Sequence[Output]
FindRelation = Callable[[exp.Table], PgRelation | None]

NAME = "name"
"""A type of text whose subscripts select characters, from 0."""
VECTORS: Mapping[str, str] = {"int2vector": "int2", "oidvector": "oid"}
"""The types of arrays whose subscripts begin at 0, with the types of their elements."""

_FUNCTIONS = {
    **dict.fromkeys(("current_database", "current_schema", "pg_encoding_to_char", "pg_get_userbyid"), "name"),
    **dict.fromkeys(("getdatabaseencoding", "pg_client_encoding"), "name"),
    "acldefault": "aclitem[]",
    "current_schemas": "name[]",
    "string_to_array": "text[]",
}
"""Functions whose results have another type, or no known one, in DuckDB, with PostgreSQL's result types."""


class Types:
    """PostgreSQL's types of the expressions of a query. The query must not change while this is used."""

    def __init__(self, query: exp.Expr, relation: FindRelation, type_name: Callable[[exp.DataType], str]) -> None:
        self._relation, self._type_name = relation, type_name
        self._ctes: dict[str, Outputs | None] = {}
        self._sources: dict[int, dict[str, Outputs | None]] = {}  # of each SELECT
        self.outputs = self._outputs(query)
        """The output columns of the query; None if their number cannot be determined here."""

    def type_of(self, tree: exp.Expr | None) -> str | None:
        """PostgreSQL's name of the type of an expression; None if it cannot be determined here."""
        match tree:
            case exp.Cast():
                type = self._type_name(tree.to)
                return type if not type.startswith("reg") else None
            case exp.Case() | exp.Paren():
                return self._common(branches(tree))
            case exp.Dot():
                return self.type_of(tree.expression)
            case exp.Anonymous():
                return self._type_of_call(tree)
            case exp.CurrentUser() | exp.SessionUser() | exp.CurrentRole() | exp.CurrentSchema() | exp.CurrentCatalog():
                return "name"
            case exp.Column():
                return self._type_of_column(tree)
            case exp.Bracket():
                array = self.type_of(tree.this)
                element = element_of(array)
                is_slice = isinstance(tree.expressions[0], exp.Slice)
                return f"{element}[]" if element is not None and is_slice else element
            case exp.Subquery():
                outputs = self._outputs(tree)
                return outputs[0].type if outputs is not None and len(outputs) == 1 else None
        return None

    def counts_from_0(self, tree: exp.Expr) -> bool:
        """Whether `tree` is an array whose subscripts begin at 0."""
        if isinstance(tree, exp.Paren):
            return self.counts_from_0(tree.this)
        if isinstance(tree, exp.Cast) and self._type_name(tree.to).endswith("[]"):
            return self.counts_from_0(tree.this)
        return self.type_of(tree) in (*VECTORS, NAME)

    def _outputs(self, query: exp.Expr) -> Outputs | None:
        if isinstance(query, exp.Query):
            for cte in query.ctes:
                self._ctes[cte.alias] = None  # a recursive query's reference to itself
                self._ctes[cte.alias] = _renamed(self._outputs(cte.this), cte.args["alias"])
        if isinstance(query, exp.SetOperation):
            first = self._outputs(query.this)
            return None if first is None else [Output(column.name, column.type) for column in first]
        if isinstance(query, exp.Subquery):
            return self._outputs(query.this)
        if not isinstance(query, exp.Select):
            return None
        sources = self._sources_of(query)
        found: list[Output] = []
        for item in query.expressions:
            tree = item.unalias()
            if isinstance(tree, exp.Star) or (isinstance(tree, exp.Column) and isinstance(tree.this, exp.Star)):
                named = [tree.table] if isinstance(tree, exp.Column) else list(sources)
                for source in named:
                    columns = sources.get(source)
                    if columns is None:
                        return None
                    found.extend(columns)
                continue
            name = item.alias if isinstance(item, exp.Alias) else output_name(item).strip('"')
            column = self._column(tree.unnest())
            found.append(Output(name, self.type_of(tree), None if column is None else column.origin))
        return found

    def _column(self, tree: exp.Expr) -> Output | None:
        """The column of FROM that a name denotes; None for other trees, and if several columns have the name."""
        if not isinstance(tree, exp.Column):
            return None
        found = self._columns_named(tree)
        return found[0] if len(found) == 1 else None

    def _type_of_column(self, column: exp.Column) -> str | None:
        """The type in the innermost SELECT that has such a column."""
        types = {each.type for each in self._columns_named(column)}
        return types.pop() if len(types) == 1 else None

    def _columns_named(self, column: exp.Column) -> list[Output]:
        """The columns that a name may denote, in the innermost SELECT that has such columns."""
        select = column.find_ancestor(exp.Select)
        while select is not None:
            sources = self._sources_of(select)
            named = [column.table] if column.table else list(sources)
            found = [each for source in named for each in sources.get(source) or () if each.name == column.name]
            if found:
                return found
            select = select.find_ancestor(exp.Select)
        return []

    def _type_of_call(self, call: exp.Anonymous) -> str | None:
        name, arguments = call.name.lower(), call.expressions
        if name == "coalesce":
            return self._common(branches(call))
        if name == "array_agg" and arguments:
            value = arguments[0].this if isinstance(arguments[0], exp.Order) else arguments[0]
            type = self.type_of(value)
            return None if type is None else f"{type}[]"
        if name == "array" and arguments and isinstance(arguments[0], exp.Query):
            outputs = self._outputs(arguments[0])
            type = outputs[0].type if outputs else None
            return None if type is None else f"{type}[]"
        if name in ("unnest", "any_value", "min", "max") and arguments:
            type = self.type_of(arguments[0])
            return element_of(type) if name == "unnest" else type
        return _FUNCTIONS.get(name)

    def _common(self, trees: Sequence[exp.Expr | None]) -> str | None:
        """The common type of all expressions except literals and NULL; None if they differ."""
        typed = [tree for tree in trees if tree is not None and not isinstance(tree, exp.Literal | exp.Null)]
        types = {self.type_of(tree) for tree in typed}
        return types.pop() if len(types) == 1 else None

    def _sources_of(self, select: exp.Select) -> dict[str, Outputs | None]:
        """The alias and the columns of each source in FROM."""
        known = self._sources.get(id(select))
        if known is not None:
            return known
        found = self._sources[id(select)] = {}  # a lateral source sees those before it
        first = select.args.get("from_")
        outer = [*([first] if first is not None else []), *(select.args.get("joins") or [])]
        nodes = [node for each in outer for node in _joined(each)]
        merged = any(
            isinstance(node, exp.Join) and (node.args.get("using") or node.method == "NATURAL") for node in nodes
        )
        for node in [*nodes, *(select.args.get("laterals") or [])]:
            source = node if isinstance(node, exp.Lateral) else node.this
            query = source.this if isinstance(source, exp.Lateral) else source
            columns: Outputs | None = None
            if _is_joins(source):
                continue
            if isinstance(source, exp.Table):
                relation = self._relation(source)
                if relation is not None:
                    named = enumerate(relation.columns, 1)
                    columns = [Output(column.name, column.type, (relation.id, n)) for n, column in named]
                elif not source.db:
                    columns = self._ctes.get(source.name)
            elif isinstance(query, exp.Subquery):
                columns = self._outputs(query)
            elif isinstance(query, exp.Unnest):
                columns = self._unnested(query, source.args.get("alias"))
            found[source.alias_or_name] = _renamed(columns, source.args.get("alias"))
        # The star of a join with USING has each merged column once, first. The None leaves the description to DuckDB,
        # which expands it the same way.
        if merged:
            found[""] = None
        return found

    def _unnested(self, unnest: exp.Unnest, alias: exp.Expr | None) -> Outputs | None:
        """The columns of unnest() in FROM."""
        lists, ordinality = unnest.expressions, unnest.args.get("offset")
        names = [name.name for name in (alias.args.get("columns") or ())] if isinstance(alias, exp.TableAlias) else []
        if isinstance(alias, exp.TableAlias) and not names and len(lists) == 1:
            names = [alias.name]
        if len(names) < len(lists):
            return None
        columns = [Output(name, element_of(self.type_of(each))) for name, each in zip(names, lists, strict=False)]
        return [*columns, Output(ordinality.name, "int8")] if isinstance(ordinality, exp.Expr) else columns


def _joined(node: exp.Expr) -> Iterator[exp.Expr]:
    """A FROM or a JOIN, and those in its parentheses: `a JOIN (b JOIN c ON ...) ON ...` has the sources a, b and c."""
    yield node
    if _is_joins(node.this):
        inner = node.this.this
        for each in [node.this, *(inner.args.get("joins") or [])]:
            yield from _joined(each)


def _is_joins(source: exp.Expr) -> bool:
    """Whether a source is joins in parentheses without an alias, whose tables can be named outside."""
    return (
        isinstance(source, exp.Subquery)
        and not source.args.get("alias")
        and isinstance(source.this, exp.Table | exp.Subquery)
    )


def element_of(array: str | None) -> str | None:
    """The type of an array's elements; None if it is no array."""
    if array is None:
        return None
    return VECTORS.get(array) or (array[:-2] if array.endswith("[]") else None)


def branches(tree: exp.Expr) -> list[exp.Expr | None]:
    match tree:
        case exp.Case():
            return [*(branch.args["true"] for branch in tree.args["ifs"]), tree.args.get("default")]
        case exp.Anonymous():
            return list(tree.expressions)
        case _:
            return [tree.this]


def _renamed(columns: Outputs | None, alias: exp.Expr | None) -> Outputs | None:
    """Renames columns by the column list of an alias, `t(a, b)`."""
    names = [name.name for name in (alias.args.get("columns") or ())] if isinstance(alias, exp.TableAlias) else []
    if columns is None or not names:
        return columns
    kept = [column.name for column in columns[len(names) :]]
    return [column._replace(name=name) for name, column in zip([*names, *kept], columns, strict=False)]
