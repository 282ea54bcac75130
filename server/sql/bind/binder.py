"""The state of binding one statement, and the dispatch from sqlglot's nodes to the functions that bind them.

`Binder.expression` and `Binder.query` look up the binding function by the class of the node. Each module of this
package registers its functions with `form` and `query_form`. Only this dispatch is mutually recursive; functions that
several modules share are imported as usual.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sqlglot import exp

from catalog.ids import ObjectId
from catalog.objects.tables import Table
from catalog.objects.views import View
from catalog.state import CatalogState
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.input_style import DEFAULT_INPUT, InputStyle
from protocol.pgwire.types import BOOL, UNKNOWN, PgType
from server.sql.coerce import Coercer
from server.sql.expressions import Column, ColumnRef, Expression, children, name_of, precision, walk
from server.sql.grammar.checkpoint import checkpoint
from server.sql.grammar.statements.parts import Expr, Query, position_of
from server.sql.grammar.trees import too_complex
from server.sql.relations import Relation, RowLocks
from server.sql.scope import CommonTable, Scope

NODES_MAX = 500_000
"""The limit of nodes in all expressions of a statement. NULLIF, CASE x WHEN, BETWEEN, casts to domains and others
contain an operand several times, so that nested ones have exponentially many nodes. Planning these takes about 4 s."""
HASHED_NODES_MAX = 1_000
"""The limit of nodes in the operand and the array of ANY and ALL, if they are compared with others: nested ones are
hashed repeatedly."""
RELATIONS_MAX = 2_000
"""The limit of relations that a statement names. Those in a view or an item of WITH count as often as it is named, so
that a level which names the level below twice has twice as many."""
MAINTAINED_RELATIONS_MAX = 500
"""The same limit for a maintained query, which is planned again whenever its dataflow starts."""
COLUMNS_MAX = 200_000
"""The limit of columns in all relations and queries of a statement."""
JOINED_COLUMNS_MAX = 2_000_000
"""The limit of columns in all joins of a statement. Each join has the columns of both sides."""


@dataclass(frozen=True, slots=True)
class PlanContext:
    """The context of planning. `search_path` does not contain the system schemas, which are searched first.

    `views_expanded`: every view is replaced by its query, even if an index has the view's rows. `derived`: the origins
    (`origins`) of the columns of relations that exist only during the statement.
    """

    state: CatalogState
    database: str
    search_path: tuple[str, ...]
    user: str
    timezone: str = "UTC"
    input_style: InputStyle = DEFAULT_INPUT
    views_expanded: bool = False
    derived: Mapping[ObjectId, Sequence[tuple[ObjectId, int] | None]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Replacement:
    """A name at `start` to `end` (exclusive) of the query's whole text, and the `text` that references it by id."""

    start: int
    end: int
    text: str


class Binder(Coercer):
    """Binds one statement. Afterwards `inputs`, `uses`, `reads`, `replacements` and `parameters` describe it.

    `inside_view`: the nesting depth in views' texts, where nodes have no position in the client's text. `maintained`:
    refuses constructs that a maintained query cannot contain.
    """

    def __init__(
        self,
        context: PlanContext,
        parameters: Sequence[PgType | None] | None = (),
        *,
        text: str = "",
        offset: int = 0,
        maintained: bool = False,
    ) -> None:
        """`text`: the statement's text, at `offset` of the text that the client sent; for error positions.

        `parameters` None: parameters are not allowed (42P02).
        """
        super().__init__(parameters, context.timezone, context.input_style, maintained=maintained)
        self.context = context
        self.source, self.offset = text, offset
        self.inputs: set[ObjectId] = set()
        self.uses: set[ObjectId] = set()
        self.views: dict[ObjectId, View] = {}
        self.types: set[ObjectId] = set()
        """The user-defined types that the text names."""
        self.known_types: Mapping[ObjectId, PgType] = {}
        """User-defined types that the text may name by id although the catalog of `context` does not have them."""
        self.reads: set[tuple[ObjectId, int]] = set()
        """The columns, by relation and number, that the text names, also by `*`."""
        self._known: dict[int, tuple[ObjectId, int]] = {}
        self.copies: dict[int, int] = {}
        """The columns of grouping sets that are keys, each with the column that the key is, by id."""
        self.primary_keys: dict[int, frozenset[int]] = {}
        """For each column of a table with an enforced primary key: the columns of the key, by id."""
        self.sequences: set[ObjectId] = set()
        """The sequences that the text names as arguments of functions, such as nextval()."""
        self.implied_calls = False
        """Whether the expression is the default of an identity column."""
        self.replacements: list[Replacement] = []
        self.root: exp.Expr | None = None
        """The query whose rows are returned."""
        self.row_locks: RowLocks | None = None
        self.adds_key = False
        """Whether the rows that are returned have `RowLocks.key` as an additional column."""
        self.locked_keys: set[int] = set()
        """The ids of columns with the primary keys of the rows that a SELECT with SKIP LOCKED returns."""
        self.volatile_calls: list[str] = []
        """The names of the volatile functions that were called so far."""
        self.volatile_tables: dict[int, CommonTable] = {}
        """The WITH queries that call volatile functions and have been bound, by identity: another reference to one of
        them would get other values."""
        self.has_group_keys = False
        """The statement groups by a type of which equal values may differ (`server.sql.group_keys`)."""
        self._nodes = 0  # the number of nodes of all expressions that were bound so far
        self._relations = 0  # the number of relations that were named so far
        self._sizes: dict[int, tuple[Any, int]] = {}
        self._element_ids: dict[tuple[str, Expression, Expression], int] = {}
        self._last_id = 0
        self._joined = 0  # the number of columns of all joins that were bound so far
        self._last_level = 0

    def stored_text(self, source: Query | Expr) -> str:
        """The text of what was bound, with relations and user-defined types named by id."""
        text = source.text
        for replacement in sorted(set(self.replacements), key=lambda r: r.start, reverse=True):
            start, end = replacement.start - source.offset, replacement.end - source.offset
            text = text[:start] + replacement.text + text[end:]
        return text

    # -- dispatch ---------------------------------------------------------------------------------------------------

    def expression(self, tree: exp.Expr, scope: Scope) -> Expression:
        """Binds a scalar expression. The result's type may be unknown (literals, NULL, parameters).

        0A000 for a class of node that no module registers. 54001 if the expressions have more than NODES_MAX nodes.
        """
        checkpoint()
        bind = _FORMS.get(type(tree))
        if bind is None:
            raise self.unsupported(
                _described(tree),
                tree,
                hint="Write it with the functions and operators that \\df and \\do list in psql.",
            )
        before = self._nodes
        expression = bind(self, tree, scope)
        self._nodes = before + self._size(expression)  # includes those of the expressions in it
        if self._nodes > NODES_MAX:
            raise too_complex()
        return expression

    def _size(self, node: Any) -> int:
        """The number of nodes of a tree. A node that is in it several times is counted as often, but visited once."""
        known = self._sizes.get(id(node))
        if known is not None:
            return known[1]
        below = children(node)
        if not below:
            return 1
        size = 1 + sum(map(self._size, below))
        self._sizes[id(node)] = node, size  # the reference keeps the id from being used again
        return size

    def element_id(self, comparison: tuple[str, Expression, Expression]) -> int:
        """The id of the element in operand operator ANY/ALL (array), given the operator, the operand and the array.

        Equal comparisons have the same id, so that they are equal expressions, for example in GROUP BY.
        """
        _, operand, array = comparison
        if self._size(operand) + self._size(array) > HASHED_NODES_MAX:
            return self.new_id()
        known = self._element_ids.get(comparison)
        if known is None:
            known = self._element_ids[comparison] = self.new_id()
        return known

    def query(self, tree: exp.Expr, scope: Scope, *, keep_unknown: bool = False) -> Relation:
        """Binds a query. `scope`: the enclosing one. `keep_unknown`: untyped output columns stay untyped (INSERT)."""
        bind = _QUERY_FORMS.get(type(tree))
        if bind is None:
            raise self.unsupported(
                "this query", tree, hint="Write the query with SELECT, VALUES, UNION, INTERSECT or EXCEPT."
            )
        return bind(self, tree, scope, keep_unknown)

    def subquery(self, tree: exp.Expr, scope: Scope) -> Relation:
        """Binds a query inside an expression, which can reference the columns of `scope`."""
        return self.query(tree, Scope(parent=scope, common_tables=scope.common_tables))

    def condition(self, tree: exp.Expr, scope: Scope, clause: str) -> Expression:
        """Binds a boolean expression. 42804 `argument of WHERE must be type boolean, not type integer`."""
        bound = self.expression(tree, scope)
        if bound.type == UNKNOWN:
            return self.coerce(bound, BOOL)
        if bound.type != BOOL:
            raise PgError(
                SqlState.DATATYPE_MISMATCH,
                f"argument of {clause} must be type boolean, not type {bound.type.base_display}",
                position=self.at(tree),
            )
        return bound

    # -- columns and positions --------------------------------------------------------------------------------------

    def declare_columns(self, relation: ObjectId, columns: Sequence[Column]) -> None:
        """Declares that the first columns of a catalog relation have these ids, so that `read` recognizes them."""
        self._known.update((column.id, (relation, number)) for number, column in enumerate(columns))

    def column_of(self, id: int) -> tuple[ObjectId, int] | None:
        """The catalog relation and the number of the column with this id; None for other columns."""
        return self._known.get(id)

    def relation_of(self, expression: Expression) -> ObjectId | None:
        """The catalog relation of which an expression is a column; None for other expressions."""
        known = self._known.get(expression.column.id) if isinstance(expression, ColumnRef) else None
        return None if known is None else known[0]

    def declare_primary_key(self, table: Table, columns: Sequence[Column]) -> None:
        """Declares the enforced primary key of a table whose columns have these ids."""
        key = next((key for key in table.keys if key.is_primary and key.is_immediate), None)
        if key is not None:
            ids = frozenset(column.id for column in columns if column.name in key.columns)
            self.primary_keys.update((column.id, ids) for column in columns)

    def read(self, expression: Expression) -> Expression:
        """Adds the columns that a name denotes to `reads`. Returns the expression."""
        if not self.inside_view:
            for node in walk(expression):
                if isinstance(node, ColumnRef) and (column := self._known.get(node.column.id)) is not None:
                    self.reads.add(column)
        return expression

    def new_id(self) -> int:
        """A column id, unique in the plan. 54001 beyond COLUMNS_MAX."""
        self._last_id += 1
        if self._last_id > COLUMNS_MAX:
            raise too_complex()
        return self._last_id

    def count_joined(self, columns: Sequence[Column]) -> None:
        """Counts the columns of a join. 54000 beyond JOINED_COLUMNS_MAX."""
        self._joined += len(columns)
        if self._joined > JOINED_COLUMNS_MAX:
            raise PgError(
                SqlState.PROGRAM_LIMIT_EXCEEDED,
                f"the joins of a statement can have at most {JOINED_COLUMNS_MAX} columns together",
                hint="Join queries that select only the columns that are needed.",
            )

    def new_relation(self) -> None:
        """Counts a relation that the statement names. 54000 beyond the limit."""
        checkpoint()
        self._relations += 1
        limit = MAINTAINED_RELATIONS_MAX if self.maintained else RELATIONS_MAX
        if self._relations > limit:
            query = "maintained query" if self.maintained else "statement"
            raise PgError(
                SqlState.PROGRAM_LIMIT_EXCEEDED,
                "too many range table entries",
                detail=f"A {query} can name at most {limit} relations. "
                "Those in views and WITH queries count as often as the views and WITH queries are named.",
                hint="Create a materialized view of a part of the query, which counts as one relation.",
            )

    @property
    def size(self) -> int:
        """The number of columns and expressions that were bound."""
        return self._last_id + self._nodes

    def new_level(self) -> int:
        """A query level, unique in the plan, for a SELECT."""
        self._last_level += 1
        return self._last_level

    def new_column(self, name: str, expression: Expression) -> Column:
        digits = precision(expression) if expression.type.name == "numeric" else 0
        return Column(self.new_id(), name or name_of(expression), expression.type, expression.nullable, digits)

    def at(self, tree: exp.Expr | None) -> int | None:
        """The error position of a node; None inside a view's text, which the client did not write."""
        return None if self.inside_view or tree is None else position_of(tree)

    def unsupported(self, what: str, tree: exp.Expr | None = None, *, hint: str) -> PgError:
        message = f"{what} is not supported"
        return PgError(SqlState.FEATURE_NOT_SUPPORTED, message, hint=hint, position=self.at(tree))


Form = TypeVar("Form", bound=Callable[..., Expression])
QueryForm = TypeVar("QueryForm", bound=Callable[..., Relation])
_FORMS: dict[type[exp.Expr], Callable[[Binder, Any, Scope], Expression]] = {}
_QUERY_FORMS: dict[type[exp.Expr], Callable[[Binder, Any, Scope, bool], Relation]] = {}


def form(*trees: type[exp.Expr]) -> Callable[[Form], Form]:
    """Registers a function that binds expressions of these classes: (binder, tree, scope)."""
    return _registered(_FORMS, trees)


def query_form(*trees: type[exp.Expr]) -> Callable[[QueryForm], QueryForm]:
    """Registers a function that binds queries of these classes: (binder, tree, scope, keep_unknown)."""
    return _registered(_QUERY_FORMS, trees)


def _registered(forms: dict[type[exp.Expr], Any], trees: Sequence[type[exp.Expr]]) -> Callable[[Any], Any]:
    def register(bind: Any) -> Any:
        for tree in trees:
            assert tree not in forms, tree
            forms[tree] = bind
        return bind

    return register


def _described(tree: exp.Expr) -> str:
    """The name of an unsupported construct, from sqlglot's class: `SomeClass` becomes `SOME CLASS`."""
    name = type(tree).__name__
    return "".join(f" {c}" if c.isupper() and i else c for i, c in enumerate(name)).upper()
