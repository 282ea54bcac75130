"""Type names, and casts."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from catalog.ids import ObjectId
from catalog.objects.columns import Column as CatalogColumn
from catalog.objects.columns import DomainUse
from catalog.objects.relations import Relation
from catalog.objects.types import Domain
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import (
    INT4,
    NUMERIC_PRECISION_MAX,
    TEXT,
    PgType,
    array_of,
    named_type,
    parse_type,
    with_dimensions,
)
from server.sql.bind import mz_timestamps
from server.sql.bind.arrays import constant_array, is_array_query
from server.sql.bind.binder import Binder, form
from server.sql.bind.calls import apply
from server.sql.bind.domains import checked
from server.sql.bind.names import replace_name, system_column_of
from server.sql.bind.shapes import unparenthesised
from server.sql.coerce import ASSIGNMENT, EXPLICIT, array_of_items, check_dimensions, common_dimensions
from server.sql.expressions import Expression, Literal
from server.sql.grammar.lexer import quote_identifier
from server.sql.grammar.refused_types import refused_type
from server.sql.grammar.token_reader import WHOLE_INTERVALS
from server.sql.scope import ID_SCHEMA, Scope
from server.sql.type_names import UserType, array_of_domain, by_id, check_schema, domain_use, find_type, type_of_item

_TYPE_NAMES: dict[exp.DType, str] = {
    exp.DType.BOOLEAN: "bool",
    exp.DType.SMALLINT: "int2",
    exp.DType.INT: "int4",
    exp.DType.BIGINT: "int8",
    exp.DType.FLOAT: "float4",
    exp.DType.DOUBLE: "float8",
    exp.DType.DECIMAL: "numeric",
    exp.DType.TEXT: "text",
    exp.DType.NAME: "text",
    exp.DType.VARCHAR: "varchar",
    exp.DType.CHAR: "char",
    exp.DType.BPCHAR: "bpchar",
    exp.DType.VARBINARY: "bytea",
    exp.DType.DATE: "date",
    exp.DType.TIME: "time",
    exp.DType.TIMESTAMP: "timestamp",
    exp.DType.TIMESTAMPTZ: "timestamptz",
    exp.DType.INTERVAL: "interval",
    exp.DType.UUID: "uuid",
    exp.DType.JSON: "json",
    exp.DType.JSONB: "jsonb",
}


_LONG_PRECISIONS = frozenset(map(str, range(NUMERIC_PRECISION_MAX + 1, 1_001)))  # that PostgreSQL's numeric has, too


def type_of(binder: Binder, tree: exp.Expr) -> PgType:
    """The type that a tree names. 42704 if there is none."""
    try:
        return named_type(type_spelling(tree))
    except ValueError as error:
        if (user_defined := _user_defined_type(binder, tree)) is not None:
            return user_defined
        if (refused := refused_type(type_spelling(tree).partition("[")[0], binder.at(tree))) is not None:
            raise refused from None
        raise PgError(state_of(error), str(error), position=binder.at(tree)) from None


def state_of(error: ValueError) -> SqlState:
    """The SQLSTATE of an error of `named_type`."""
    if "does not exist" in str(error):
        return SqlState.UNDEFINED_OBJECT
    if "dimensions" in str(error):
        return SqlState.PROGRAM_LIMIT_EXCEEDED
    return SqlState.INVALID_PARAMETER_VALUE


def _user_defined_type(binder: Binder, tree: exp.Expr) -> PgType | None:
    """The user-defined type that a tree names; None if there is none. The stored text references it by id."""
    if not isinstance(tree, exp.DataType):
        return None
    if tree.this == exp.DType.ARRAY and tree.expressions:
        inner = tree.expressions[0]
        if isinstance(inner, exp.DataType) and isinstance(item := _named_type(binder, inner), Domain):
            raise array_of_domain(item, binder.at(tree))
        element = _user_defined_type(binder, inner)
        if element is None:
            return None
        return array_of(element) if element.element is None else with_dimensions(element, element.dimensions + 1)
    kind = tree.args.get("kind")
    meta = kind.meta if isinstance(kind, exp.Expr) else {}
    parts: Sequence[str] = meta.get("parts") or (type_spelling(tree),)
    if len(parts) > 1 and parts[0] == ID_SCHEMA and (known := binder.known_types.get(ObjectId(parts[1]))) is not None:
        return known
    context = binder.context
    item = find_type(context.state, parts, context.database, context.search_path)
    if item is None:
        check_schema(context.state, parts, context.database, binder.at(tree))
        return None
    if not binder.inside_view:
        binder.types.add(item.id)
        if isinstance(kind, exp.Expr):
            replace_name(binder, [kind], by_id(item.id, parts[-1]))
    return type_of_item(context.state, item)


def _domain(binder: Binder, tree: exp.Expr) -> DomainUse | None:
    """The domain that a tree names."""
    item = _named_type(binder, tree) if isinstance(tree, exp.DataType) else None
    return domain_use(binder.context.state, item) if isinstance(item, Domain) else None


def _named_type(binder: Binder, tree: exp.DataType) -> UserType | None:
    """The definition of a user-defined type that a tree names; None if there is none."""
    try:
        named_type(type_spelling(tree))
    except ValueError:
        kind = tree.args.get("kind")
        parts = (kind.meta if isinstance(kind, exp.Expr) else {}).get("parts") or (type_spelling(tree),)
        return find_type(binder.context.state, parts, binder.context.database, binder.context.search_path)
    return None


def type_spelling(tree: exp.Expr) -> str:
    """The spelling of a DataType for `parse_type`.

    A numeric with more digits than there can be gets as many as possible, because values are computed and not stored:
    those with more digits are errors in all types.
    """
    if not isinstance(tree, exp.DataType):
        return tree.name.lower()
    if tree.this == exp.DType.ARRAY:
        return f"{type_spelling(tree.expressions[0])}[]" if tree.expressions else "array"
    if isinstance(tree.this, exp.Interval):
        return "interval"
    if tree.this == exp.DType.USERDEFINED:
        kind = tree.args.get("kind")
        if isinstance(kind, exp.Identifier) and kind.quoted and kind.name == "char":
            return '"char"'  # a type of its own, one byte
        return kind.name if isinstance(kind, exp.Expr) else str(kind)
    name = _TYPE_NAMES.get(tree.this, tree.this.value.lower())
    sizes = [str(size.name) for size in tree.expressions]
    if name == "float8" and sizes:
        name = "float"
    if name == "numeric" and sizes and sizes[0] in _LONG_PRECISIONS:
        sizes[0] = str(NUMERIC_PRECISION_MAX)
    return f"{name}({','.join(sizes)})" if sizes else name


def fraction_digits(binder: Binder, cast: exp.Cast) -> int | None:
    """n of a cast to timestamp(n), time(n) or interval(n). 42601 if it is not an integer."""
    tree = cast.args["to"]
    kinds = (exp.DType.TIME, exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ, exp.DType.INTERVAL)
    if not isinstance(tree, exp.DataType) or tree.this not in kinds or not tree.expressions:
        return None
    return precision_of(binder, tree.expressions, cast)


def precision_of(binder: Binder, sizes: Sequence[exp.Expr], tree: exp.Expr) -> int:
    """The number of decimals that an integer in parentheses selects. 42601 if they contain anything else."""
    size = sizes[0].this if isinstance(sizes[0], exp.DataTypeParam) else sizes[0]
    if len(sizes) > 1 or not isinstance(size, exp.Literal) or size.is_string or not size.name.isdecimal():
        raise PgError(SqlState.SYNTAX_ERROR, "precision must be an integer", position=binder.at(tree))
    return int(size.name)


def _regclass_text(binder: Binder, relation: Relation) -> str:
    """A relation's name as a regclass is shown: with its schema if the search path does not find it."""
    context, name = binder.context, quote_identifier(relation.name)
    if context.state.resolve((relation.name,), context.database, context.search_path) is relation:
        return name
    return f"{quote_identifier(context.state.schemas[relation.schema_id].name)}.{name}"


@form(exp.Cast)
def cast(binder: Binder, tree: exp.Cast, scope: Scope) -> Expression:
    """CAST(x AS type), x::type, type 'text'. 42846, and the errors of converting a constant."""
    inner = unparenthesised(tree.this)
    fields = tree.args["to"].this
    if isinstance(fields, exp.Interval):  # 'text'::interval year to month
        unit = fields.args["unit"].sql().upper()
        if not isinstance(inner, exp.Literal):
            if unit.lower() in WHOLE_INTERVALS:
                whole = exp.DataType(this=exp.DType.INTERVAL)
                return binder.expression(exp.Cast(this=tree.this, to=whole), scope)
            raise binder.unsupported(
                "a cast to an interval with fields",
                tree,
                hint="Cast to interval, and use date_trunc() to drop smaller fields.",
            )
        return binder.expression(exp.Interval(this=inner, unit=exp.Var(this=unit)), scope)
    if (digits := fraction_digits(binder, tree)) is not None:
        whole = exp.DataType(this=tree.args["to"].this)
        return rounded(binder, binder.expression(exp.Cast(this=tree.this, to=whole), scope), digits, tree)
    if type_spelling(tree.args["to"]) == "regclass" and (named := system_column_of(binder, inner, scope)) is not None:
        return Literal(_regclass_text(binder, named), TEXT)
    target = type_of(binder, tree.args["to"])
    domain = _domain(binder, tree.args["to"])
    if isinstance(inner, exp.Array) and target.element is not None and not is_array_query(inner):
        array = _cast_elements(binder, inner, target, scope)
        return array if domain is None else checked(binder, domain, array)
    operand = binder.expression(inner, scope)
    target = binder.fitting(operand, target)
    if domain is not None:
        base = binder.coerce(operand, target, EXPLICIT, _cast_position(binder, tree))
        return checked(binder, domain, binder.rescale(base, target))
    if type_spelling(tree.args["to"]) == mz_timestamps.NAME:
        return mz_timestamps.to_mz_timestamp(binder, operand, tree)
    if mz_timestamps.is_target(operand.type, target) and mz_timestamps.is_mz_timestamp(operand, inner):
        return mz_timestamps.to_timestamp(binder, operand, target)
    return binder.coerce(operand, target, EXPLICIT, _cast_position(binder, tree))


def _cast_elements(binder: Binder, array: exp.Array, target: PgType, scope: Scope) -> Expression:
    """ARRAY[...]::type[]: each element is cast. 2202E if the elements are arrays of different dimensions."""
    elements = []
    for e in array.expressions:
        inner = unparenthesised(e)
        if isinstance(inner, exp.Array) and not is_array_query(inner):
            elements.append(_cast_elements(binder, inner, target, scope))
        else:
            elements.append(binder.expression(e, scope))
    check_dimensions(elements)
    count = common_dimensions(elements)
    item = with_dimensions(target, count) if count else target.element
    assert item is not None
    coerced = [
        binder.rescale(binder.coerce(element, item, EXPLICIT, binder.at(e)), item)
        for element, e in zip(elements, array.expressions, strict=True)
    ]
    return constant_array(array_of_items(item, coerced, binder.at(array)))


def rounded(binder: Binder, expression: Expression, digits: int, tree: exp.Expr) -> Expression:
    """Rounds seconds to `digits` decimals, as for timestamp(3)."""
    return apply(binder, expression.type.name, [expression, Literal(digits, INT4)], tree)


def column_value(
    binder: Binder, value: Expression, column: CatalogColumn, position: int | None, described: str
) -> Expression:
    """The value, cast to the type of the column by an assignment cast. 42804, with `described`, if there is none."""
    declared = parse_type(column.type)
    target = declared.without_modifiers if declared.has_seconds else declared
    try:
        coerced = binder.coerce(value, target, ASSIGNMENT, position)
    except PgError as error:
        if error.sqlstate is not SqlState.CANNOT_COERCE:
            raise
        raise PgError(
            SqlState.DATATYPE_MISMATCH,
            f'column "{column.name}" is of type {target.base_display} but {described} is of type '
            f"{value.type.base_display}",
            hint="You will need to rewrite or cast the expression.",
            position=position,
        ) from None
    return _with_second_digits(binder, binder.rescale(coerced, target), declared)


def _with_second_digits(binder: Binder, expression: Expression, target: PgType) -> Expression:
    """Rounds an expression of type `target.without_modifiers` as the modifier of timestamp(n) and the like demands."""
    if target.second_digits is None:
        return expression
    return apply(binder, target.name, [expression, Literal(target.length, INT4)], exp.Null())


def _cast_position(binder: Binder, tree: exp.Cast) -> int | None:
    """Like PostgreSQL, the position of `::`. For CAST, the position of the operand."""
    ends = [node.meta["end"] + 1 for node in tree.this.find_all(exp.Expr) if "end" in node.meta]
    if ends and not binder.inside_view:
        rest = binder.source[max(ends) - binder.offset :]
        space = len(rest) - len(rest.lstrip(" )]\n\t"))
        if rest.startswith("::", space):
            return int(max(ends) + space + 1)
    return binder.at(tree)
