"""Typed scalar expressions: a closed set of frozen nodes. `Expression` is their union.

`bind` creates them, `render` writes them as Spark SQL, and `constant.py` evaluates those that need no Spark.
Every node has its PostgreSQL `type` and `nullable`. A numeric also has `precision`: the digits of the Spark
DECIMAL(precision, type.scale) that it is rendered to. PostgreSQL's numeric has no such bound and the PgType of a bare
numeric does not contain it, but arithmetic needs it (see `decimals.py`).

Equality of nodes ignores their positions in the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from catalog.ids import ObjectId
from protocol.pgwire.types import BOOL, NUMERIC_PRECISION_MAX, PgType
from server.sql.grammar.checkpoint import checkpoint

if TYPE_CHECKING:
    from server.sql.functions.table import Function
    from server.sql.relations import Relation

_INTEGER_DIGITS = {"int2": 5, "int4": 10, "int8": 19}


@dataclass(frozen=True, slots=True)
class Column:
    """An output column of a relational node. `id` is unique within a plan, so a column needs no qualifier."""

    id: int
    name: str = field(compare=False)
    type: PgType
    nullable: bool
    precision: int = 0


@dataclass(frozen=True, slots=True)
class Literal:
    """`value` is a Python scalar as listed in `protocol.pgwire.types`, or None. With type `unknown` it is a str."""

    value: Any
    type: PgType
    position: int | None = field(default=None, compare=False)

    @property
    def nullable(self) -> bool:
        return self.value is None

    def __hash__(self) -> int:
        return hash((_hashable(self.value), self.type))


def _hashable(value: Any) -> Any:
    """A tuple instead of a list, which is the value of an array."""
    return tuple(map(_hashable, value)) if isinstance(value, (list, tuple)) else value


@dataclass(frozen=True, slots=True)
class Parameter:
    """`index` counts from 0: $1 is 0."""

    index: int
    type: PgType
    position: int | None = field(default=None, compare=False)

    nullable = True


@dataclass(frozen=True, slots=True)
class SessionValue:
    """A value that depends on the session or the clock, such as now and current_user.

    Without `argument` it is a field of `Bindings`. With `argument` it is a setting, or the result of `Bindings.signal`
    or `Bindings.privilege_function`.
    """

    name: str
    type: PgType
    argument: Expression | None = None

    nullable = True


@dataclass(frozen=True, slots=True)
class Volatile:
    """A call whose value differs from row to row, such as nextval() and random(): see `server.sql.volatile`.

    `number`: unique in the plan; nodes with the same number are one call. `sequence`: the one that the first argument
    names, if it is a constant; the argument is then left out. `implied`: it is the default of an identity column, for
    which no privilege on the sequence is required.
    """

    name: str
    arguments: tuple[Expression, ...]
    type: PgType
    number: int
    sequence: ObjectId | None = None
    implied: bool = False

    nullable = True


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """A column of a node below, or of an enclosing query. `written` is its name in error messages."""

    column: Column
    written: str = field(default="", compare=False)
    position: int | None = field(default=None, compare=False)

    @property
    def type(self) -> PgType:
        return self.column.type

    @property
    def nullable(self) -> bool:
        return self.column.nullable


@dataclass(frozen=True, slots=True)
class Call:
    """A function or operator of `functions`. The arguments already have its argument types.

    `timezone`: the session's, if the function depends on it.
    """

    function: Function
    arguments: tuple[Expression, ...]
    type: PgType
    nullable: bool
    precision: int = 0
    timezone: str = ""


@dataclass(frozen=True, slots=True)
class Cast:
    """A cast to another type or other modifiers. `assignment`: a string that is too long is an error, not truncated.

    `timezone`: the session's, if the cast depends on it.
    """

    operand: Expression
    type: PgType
    assignment: bool = False
    timezone: str = ""

    @property
    def nullable(self) -> bool:
        """An infinite timestamp has no time of day: its cast to time is NULL."""
        return self.operand.nullable or (self.type.name == "time" and self.operand.type.name != "time")


@dataclass(frozen=True, slots=True)
class Case:
    """CASE WHEN condition THEN value ... ELSE default END; all values have type `type`."""

    branches: tuple[tuple[Expression, Expression], ...]
    default: Expression
    type: PgType

    @property
    def nullable(self) -> bool:
        return self.default.nullable or any(value.nullable for _, value in self.branches)


@dataclass(frozen=True, slots=True)
class Array:
    """ARRAY[elements]; all elements have the element type."""

    elements: tuple[Expression, ...]
    type: PgType

    nullable = False


@dataclass(frozen=True, slots=True)
class InList:
    """operand IN (items). The operand and the items have the same type, which has an equality operator."""

    operand: Expression
    items: tuple[Expression, ...]

    type = BOOL

    @property
    def nullable(self) -> bool:
        return self.operand.nullable or any(item.nullable for item in self.items)


@dataclass(frozen=True, slots=True)
class Quantified:
    """operand operator ANY/ALL (array). `call` compares the operand with `element`, which denotes an array element."""

    call: Expression
    element: Column
    array: Expression
    all: bool

    type = BOOL
    nullable = True


@dataclass(frozen=True, slots=True)
class SortKey:
    expression: Expression
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate call. In a bound query it occurs only in `relations.Aggregate` and in windows.

    `level`: the nesting level of the SELECT whose rows it aggregates, which may enclose the query that contains the
    call; 0 in a window and in calls that a rewrite created.
    """

    function: Function
    arguments: tuple[Expression, ...]
    type: PgType
    nullable: bool
    precision: int = 0
    distinct: bool = False
    order: tuple[SortKey, ...] = ()
    filter: Expression | None = None
    position: int | None = field(default=None, compare=False)
    level: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class WindowCall:
    """`frame` is the text after ORDER BY in the parentheses, in syntax that PostgreSQL and Spark share.

    `offsets`: parameters of type bigint, or casts of them, for which `{0}` and `{1}` stand in `frame`.
    """

    call: Aggregate
    partition: tuple[Expression, ...]
    order: tuple[SortKey, ...]
    frame: str
    position: int | None = field(default=None, compare=False)
    offsets: tuple[Expression, ...] = ()

    @property
    def type(self) -> PgType:
        return self.call.type

    @property
    def nullable(self) -> bool:
        return True

    @property
    def precision(self) -> int:
        return self.call.precision


class SubqueryKind(StrEnum):
    SCALAR = "scalar"
    EXISTS = "exists"
    IN = "in"
    ANY = "any"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Subquery:
    """(query), EXISTS (query), operands IN (query), operands operator ANY/ALL (query).

    It may name columns of the enclosing query. IN, ANY and ALL: `test` compares `holders`, which denote the operands,
    with the columns of the relation.
    """

    kind: SubqueryKind
    relation: Relation
    type: PgType
    nullable: bool
    operands: tuple[Expression, ...] = ()
    precision: int = 0
    holders: tuple[Column, ...] = ()
    test: Expression | None = None


Expression = (
    Literal
    | Parameter
    | SessionValue
    | Volatile
    | ColumnRef
    | Call
    | Cast
    | Case
    | Array
    | InList
    | Quantified
    | Aggregate
    | WindowCall
    | Subquery
)


def name_of(expression: Expression) -> str:
    """The name of a column that has this value and no name in the query. EXPLAIN shows it."""
    match expression:
        case ColumnRef(column=column):
            return column.name
        case Cast(operand=operand):
            return name_of(operand)
        case Call(function=function) | Aggregate(function=function) if function.name.isidentifier():
            return function.name
        case Case():
            return "case"
        case _:
            return "value"


def precision(expression: Expression) -> int:
    """The precision of the Spark decimal for a numeric expression. For an integer, the maximum number of digits."""
    if expression.type.name in _INTEGER_DIGITS:
        return _INTEGER_DIGITS[expression.type.name]
    match expression:
        case Literal(value=Decimal() as value):
            return max(max(value.adjusted() + 1, 0) + (expression.type.scale or 0), 1)
        case ColumnRef():
            return expression.column.precision or NUMERIC_PRECISION_MAX
        case Call() | Aggregate() | WindowCall() | Subquery():
            return expression.precision or NUMERIC_PRECISION_MAX
        case Cast() if expression.type.precision is None and expression.operand.type.name in _INTEGER_DIGITS:
            return _INTEGER_DIGITS[expression.operand.type.name] + (expression.type.scale or 0)
        case _:
            return expression.type.precision or NUMERIC_PRECISION_MAX


# -- walking ----------------------------------------------------------------------------------------------------

Node = TypeVar("Node")


_NODES = frozenset(get_args(Expression))
_LEAVES = ("int", "str", "bool", "PgType", "Any", "int | None", "Function", "ObjectId", "ObjectId | None")
_field_name_cache: dict[type[Any], tuple[str, ...]] = {}


def _field_names(cls: type[Any]) -> tuple[str, ...]:
    """The fields of a node's class that can contain other nodes."""
    names = _field_name_cache.get(cls)
    if names is None:
        names = _field_name_cache[cls] = tuple(f.name for f in fields(cls) if f.type not in _LEAVES)
    return names


def children(node: Any) -> Sequence[Any]:
    """The direct children of an expression or relation. The relation of a subquery is one of its children."""
    names = _field_names(node.__class__)
    if not names:
        return ()
    found: list[Any] = []
    for name in names:
        _add_nodes(getattr(node, name), found)
    return found


def _add_nodes(value: Any, found: list[Any]) -> None:
    if value.__class__ is tuple:
        for item in value:
            if item.__class__ in _NODES:  # lists can be long
                found.append(item)
            else:
                _add_nodes(item, found)
    elif _is_node(value):
        found.append(value)


def _is_node(value: Any) -> bool:
    return value.__class__ in _NODES or (
        hasattr(value, "__dataclass_fields__") and value.__class__ not in (PgType, Column)
    )


def walk(node: Any) -> Iterator[Any]:
    """`node` and everything below it."""
    checkpoint()
    stack = [node]
    while stack:
        current = stack.pop()
        yield current
        if below := children(current):
            stack.extend(below)


def walk_all(part: Any) -> Iterator[Any]:
    """As `walk`, for a node, a tuple of nodes or tuples, or None."""
    if isinstance(part, tuple):
        for item in part:
            yield from walk_all(item)
    elif part is not None:
        yield from walk(part)


def contains(expression: Any, kind: type) -> bool:
    """Whether an expression contains a node of that class. Relations of subqueries are not searched."""
    stack = [expression]
    while stack:
        node = stack.pop()
        if isinstance(node, kind):
            return True
        if isinstance(node, Subquery):
            stack.extend(node.operands)
        elif isinstance(node, WindowCall):
            stack.extend(node.call.arguments)
            stack.extend(node.partition)
            stack.extend(key.expression for key in node.order)
        else:
            stack.extend(children(node))
    return False


def transform(node: Node, change: Callable[[Any], Any | None]) -> Node:
    """Rebuilds a tree. `change` returns a replacement, which is not visited further, or None to visit the children."""
    changed = change(node)
    if changed is not None:
        return changed  # type: ignore[no-any-return]
    updates = {}
    for name in _field_names(node.__class__):
        value = getattr(node, name)
        new = _transform_value(value, change)
        if new is not value:
            updates[name] = new
    return replace(node, **updates) if updates else node  # type: ignore[type-var]


def _transform_value(value: Any, change: Callable[[Any], Any | None]) -> Any:
    if isinstance(value, tuple):
        new = tuple(_transform_value(item, change) for item in value)
        return value if all(a is b for a, b in zip(value, new, strict=True)) else new
    if _is_node(value):
        return transform(value, change)
    return value
