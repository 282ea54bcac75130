"""sqlglot's scalar expressions to typed ones, by PostgreSQL's rules (parse_expr.c, parse_oper.c, parse_func.c).

`ScalarBinder.expression(tree, scope)` is the door. What it does not know it refuses by name (0A000). Queries inside
expressions are bound by `bind.Binder`, which adds FROM and everything around it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import (
    BOOL,
    DATE,
    FLOAT8,
    INT4,
    INTERVAL,
    MZ_TIMESTAMP,
    NUMERIC,
    NUMERIC_PRECISION_MAX,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    UNKNOWN,
    PgType,
    array_of,
    parse_type,
)
from server.sql.casts import natural_numeric
from server.sql.coerce import EXPLICIT, IMPLICIT, Coercer, integer_literal
from server.sql.expressions import (
    Aggregate,
    Array,
    Call,
    Case,
    Column,
    ColumnRef,
    Expression,
    InList,
    Literal,
    Quantified,
    SessionValue,
    SortKey,
    Subquery,
    SubqueryKind,
    WindowCall,
    precision,
)
from server.sql.functions import resolve, syntax
from server.sql.functions.resolve import Resolved
from server.sql.functions.table import ANY, FUNCTIONS, Function, Kind, Nulls
from server.sql.relations import Project, Relation
from server.sql.scope import Scope, find_column
from server.sql.statements import position_of

_BINARY: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.Pow: "^",
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.DPipe: "||",
    exp.Like: "~~",
    exp.ILike: "~~*",
    exp.RegexpLike: "~",
    exp.RegexpILike: "~*",
    exp.StartsWith: "^@",
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
    exp.BitwiseXor: "#",
    exp.BitwiseLeftShift: "<<",
    exp.BitwiseRightShift: ">>",
    exp.JSONExtract: "->",
    exp.JSONExtractScalar: "->>",
    exp.JSONBExtract: "#>",
    exp.JSONBExtractScalar: "#>>",
}
_PREFIX: dict[type[exp.Expr], str] = {exp.Neg: "-", exp.BitwiseNot: "~", exp.Sqrt: "|/", exp.Cbrt: "||/"}
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
SESSION_FUNCTIONS: dict[str, PgType] = {
    **dict.fromkeys(("now", "transaction_timestamp", "statement_timestamp", "current_timestamp"), TIMESTAMPTZ),
    "localtimestamp": TIMESTAMP,
    "current_date": DATE,
    **dict.fromkeys(("current_database", "current_catalog", "current_schema", "version"), TEXT),
    **dict.fromkeys(("current_user", "session_user", "user", "current_role"), TEXT),
    "pg_backend_pid": INT4,
    "mz_now": MZ_TIMESTAMP,
}
"""Functions of the session without arguments; `constant.session_value` knows what each is."""
_VOLATILE = ("random", "clock_timestamp", "gen_random_uuid", "timeofday", "nextval", "setval")
_SAME_FORMS: dict[str, Function] = {
    "coalesce": syntax.COALESCE, "greatest": syntax.GREATEST, "least": syntax.LEAST,
}  # fmt: skip


class ScalarBinder(Coercer, ABC):
    """Binds expressions; abstract only in `subquery`. `maintained` refuses what a view kept up to date cannot have."""

    def __init__(self, parameters: Sequence[PgType | None], timezone: str, *, maintained: bool) -> None:
        super().__init__(parameters, timezone)
        self.maintained = maintained
        self.source = ""
        self.offset = 0
        self.inside_view = 0
        self._last_column = 0
        self._handlers: dict[type[exp.Expr], Callable[[Any, Scope], Expression]] = {
            exp.Column: self._column,
            exp.Literal: self._literal_of,
            exp.Boolean: lambda tree, scope: Literal(bool(tree.this), BOOL),
            exp.Null: lambda tree, scope: Literal(None, UNKNOWN),
            exp.Parameter: self._parameter,
            exp.Paren: lambda tree, scope: self.expression(tree.this, scope),
            exp.Cast: self._cast,
            exp.Interval: self._interval,
            exp.And: self._and_or,
            exp.Or: self._and_or,
            exp.Not: lambda tree, scope: self.negation(self.condition(tree.this, scope, "NOT")),
            exp.Is: self._is,
            exp.NullSafeEQ: self._distinct,
            exp.NullSafeNEQ: self._distinct,
            exp.Between: self._between,
            exp.In: self._in,
            exp.Exists: self._exists,
            exp.Subquery: self._scalar_subquery,
            exp.Case: self._case,
            exp.Array: self._array,
            exp.Bracket: self._subscript,
            exp.Escape: self._escape,
            exp.Collate: self._collate,
            exp.Concat: self._adjacent,
            exp.RawString: lambda tree, scope: Literal(tree.this, UNKNOWN, self.at(tree)),
            exp.ByteString: lambda tree, scope: Literal(tree.this, UNKNOWN, self.at(tree)),
            exp.National: lambda tree, scope: Literal(tree.this, UNKNOWN, self.at(tree)),
            exp.Anonymous: self._function,
            exp.Dot: self._qualified_function,
            exp.Extract: self._extract,
            exp.Substring: self._substring,
            exp.Trim: self._trim,
            exp.StrPosition: lambda tree, scope: self.call("position", [tree.this, tree.args["substr"]], scope, tree),
            exp.Filter: self._function,
            exp.Window: self._window,
            exp.CurrentDate: self._session,
            exp.CurrentTimestamp: self._session,
            exp.Localtimestamp: self._session,
            exp.CurrentUser: self._session,
            exp.SessionUser: self._session,
            exp.CurrentCatalog: self._session,
            exp.CurrentSchema: self._session,
            exp.CurrentRole: self._session,
        }

    # -- doors ------------------------------------------------------------------------------------------------------

    @abstractmethod
    def subquery(self, tree: exp.Expr, scope: Scope) -> Relation:
        """The relation of a query inside an expression: the whole binder knows how."""

    def at(self, tree: exp.Expr | None) -> int | None:
        """The position to report for a node; none inside a view's text, which the client did not write."""
        return None if self.inside_view or tree is None else position_of(tree)

    def new_column(self, name: str, expression: Expression) -> Column:
        self._last_column += 1
        digits = precision(expression) if expression.type.name == "numeric" else 0
        return Column(self._last_column, name, expression.type, expression.nullable, digits)

    def expression(self, tree: exp.Expr, scope: Scope) -> Expression:
        """The typed form of a scalar expression; its type may be unknown (literals, NULL, parameters)."""
        handler = self._handlers.get(type(tree))
        if handler is not None:
            return handler(tree, scope)
        if type(tree) in _BINARY:
            return self._binary(tree, scope)
        if type(tree) in _PREFIX:
            return self._prefix(tree, scope)
        raise self.unsupported(_describe(tree), tree)

    def condition(self, tree: exp.Expr, scope: Scope, clause: str) -> Expression:
        """A boolean expression. 42804 `argument of WHERE must be type boolean, not type integer`."""
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

    def unsupported(self, what: str, tree: exp.Expr | None = None) -> PgError:
        return PgError(SqlState.FEATURE_NOT_SUPPORTED, f"{what} is not supported", position=self.at(tree))

    def type_of(self, tree: exp.Expr) -> PgType:
        """A type as it was written. 42704 if there is none."""
        try:
            return parse_type(type_spelling(tree))
        except ValueError as error:
            missing = "does not exist" in str(error)
            unsupported = "not supported" in str(error)
            state = (
                SqlState.UNDEFINED_OBJECT
                if missing
                else SqlState.FEATURE_NOT_SUPPORTED
                if unsupported
                else SqlState.INVALID_PARAMETER_VALUE
            )
            raise PgError(state, str(error), position=self.at(tree)) from None

    # -- leaves -----------------------------------------------------------------------------------------------------

    def _column(self, tree: exp.Column, scope: Scope) -> Expression:
        if isinstance(tree.this, exp.Star):
            raise self.unsupported("a row as a value", tree)
        table = tree.table or None
        if table is None and tree.name == "default" and not tree.this.quoted:
            message = "DEFAULT is not allowed in this context"
            raise PgError(SqlState.SYNTAX_ERROR, message, position=self.at(tree))
        return find_column(scope, table, tree.name, self.at(tree))

    def _literal_of(self, tree: exp.Literal, scope: Scope) -> Expression:
        if tree.is_string:
            return Literal(tree.this, UNKNOWN, self.at(tree))
        return self._number(tree.this, self.at(tree))

    @staticmethod
    def _number(text: str, position: int | None) -> Literal:
        text = text.replace("_", "")
        if text.lstrip("-").isdigit():
            return integer_literal(text, position)
        value = Decimal(text)
        if value.adjusted() >= NUMERIC_PRECISION_MAX:
            return Literal(float(value), FLOAT8, position)  # more digits than a numeric has here
        exponent = value.as_tuple().exponent
        if isinstance(exponent, int) and exponent > 0:
            value = Decimal(f"{value:f}")
        return Literal(value, natural_numeric(value), position)

    def _parameter(self, tree: exp.Parameter, scope: Scope) -> Expression:
        number = int(tree.name) if tree.name.isdigit() else 0
        if self.maintained or number < 1 or number > 65535:
            message = f"there is no parameter ${tree.name}"
            raise PgError(SqlState.UNDEFINED_PARAMETER, message, position=self.at(tree))
        return self.parameter(number - 1, self.at(tree))

    def _interval(self, tree: exp.Interval, scope: Scope) -> Expression:
        text, unit = tree.this.name, tree.args.get("unit")
        if unit is not None:
            if not text.strip().lstrip("+-").replace(".", "", 1).isdigit() or " " in unit.name:
                raise self.unsupported("an interval with fields", tree)
            text = f"{text} {unit.name.lower()}"
        return self.coerce(Literal(text, UNKNOWN, self.at(tree)), INTERVAL, EXPLICIT)

    def _adjacent(self, tree: exp.Concat, scope: Scope) -> Expression:
        """'a' 'b': strings that the source breaks over lines are one."""
        return Literal("".join(part.name for part in tree.expressions), UNKNOWN, self.at(tree))

    def _session(self, tree: exp.Expr, scope: Scope) -> Expression:
        return self.session_value(session_name(tree), tree)

    def session_value(self, name: str, tree: exp.Expr) -> Expression:
        if self.maintained:
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED, f"cannot materialize call to {name}()", position=self.at(tree)
            )
        if name in ("localtimestamp", "current_date") and not self.is_utc:
            raise self.unsupported(f"{name} in a session whose TimeZone is not UTC", tree)
        return SessionValue(name, SESSION_FUNCTIONS[name])

    # -- operators --------------------------------------------------------------------------------------------------

    def _binary(self, tree: exp.Expr, scope: Scope) -> Expression:
        name = _BINARY[type(tree)]
        left, right = tree.this, tree.expression
        if isinstance(right, (exp.Any, exp.All)) or _quantifier(right) is not None:
            return self._quantified(name, left, right, scope)
        if isinstance(left, exp.Tuple) or isinstance(right, exp.Tuple):
            return self._row_comparison(name, tree, scope)
        if name in ("+", "-") and isinstance(tree, (exp.Add, exp.Sub)):
            return self._chain(tree, scope)
        negate = tree.args.get("negate")
        sides = [self.expression(left, scope), self.expression(right, scope)]
        return self.operator("!" + name if negate else name, sides, tree)

    def _chain(self, tree: exp.Expr, scope: Scope) -> Expression:
        """a + b - c + ...: a long chain is a deep tree, taken without recursion."""
        links = []
        current: exp.Expr = tree
        while isinstance(current, (exp.Add, exp.Sub)):
            links.append(current)
            current = current.this
        result = self.expression(current, scope)
        for link in reversed(links):
            result = self.operator(_BINARY[type(link)], [result, self.expression(link.expression, scope)], link)
        return result

    def _prefix(self, tree: exp.Expr, scope: Scope) -> Expression:
        inner = tree.this
        if isinstance(tree, exp.Neg) and isinstance(inner, exp.Literal) and not inner.is_string:
            return self._number("-" + inner.this, self.at(tree))
        return self.operator(_PREFIX[type(tree)], [self.expression(inner, scope)], tree)

    def operator(self, name: str, arguments: list[Expression], tree: exp.Expr | None) -> Expression:
        """An operator over bound operands. 42883, 42725."""
        types = tuple(a.type.without_modifiers for a in arguments)
        try:
            resolved = resolve.resolve_operator(name, _plain(types))
        except PgError as error:
            raise self._placed(error, self._operator_position(tree)) from None
        if resolved is None:
            shown = resolve.operator_text(name, types)
            raise resolve.no_such("operator", shown, len(types), self._operator_position(tree))
        return self._applied(resolved, arguments, tree)

    def _operator_position(self, tree: exp.Expr | None) -> int | None:
        """Where the operator itself stands. sqlglot keeps no position for it, so look behind the left operand's last
        token, or before the only operand's first, for the next character that can begin one."""
        if tree is None or self.inside_view:
            return None
        if tree.args.get("expression") is None:
            start = self.at(tree)
            return None if start is None else len(self.source[: start - 1 - self.offset].rstrip(" (\n\t")) + self.offset
        ends = [node.meta["end"] + 1 for node in tree.this.find_all(exp.Expr) if "end" in node.meta]
        if not ends:
            return self.at(tree)
        rest = self.source[max(ends) - self.offset :]
        return int(max(ends) + len(rest) - len(rest.lstrip(" )]\n\t")) + 1)

    @staticmethod
    def _placed(error: PgError, position: int | None) -> PgError:
        if error.position is None:
            error.position = position
        return error

    def _applied(self, resolved: Resolved, arguments: Sequence[Expression], tree: exp.Expr | None) -> Call:
        """The call with its arguments made what the row wants."""
        function = resolved.function
        context = EXPLICIT if function.name == "||" else IMPLICIT  # || writes anything as text
        coerced = tuple(
            self.default_unknown(argument) if target == ANY else self.coerce(argument, target, context)
            for argument, target in zip(arguments, resolved.arguments, strict=True)
        )
        try:
            self._check_available(function)
            if function.prepare is not None:
                coerced = function.prepare(coerced)
            if function.variadic:
                coerced = tuple(
                    self.coerce(argument, TEXT, EXPLICIT) if argument.type != BOOL else self._output_of(argument)
                    for argument in coerced
                )
            return call_of(function, coerced, resolved.result)
        except PgError as error:
            raise self._placed(error, self.at(tree)) from None

    @staticmethod
    def _output_of(argument: Expression) -> Expression:
        """A boolean as concat() writes it: t or f."""
        letters = Literal("t", TEXT), Literal("f", TEXT)
        is_false = Call(syntax.NOT, (argument,), BOOL, argument.nullable)
        return Case(((argument, letters[0]), (is_false, letters[1])), Literal(None, TEXT), TEXT)

    def _check_available(self, function: Function) -> None:
        if function.spark is None and function.python is None:
            raise PgError(SqlState.FEATURE_NOT_SUPPORTED, f"{function} is not supported")
        if function.zoned and not self.is_utc:
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                f"{function} in a session whose TimeZone is not UTC is not supported",
            )

    # -- conditions -------------------------------------------------------------------------------------------------

    def _and_or(self, tree: exp.Expr, scope: Scope) -> Expression:
        """A chain of one connective is one call, however long."""
        kind = type(tree)
        parts: list[exp.Expr] = []
        stack = [tree]
        while stack:
            current = stack.pop()
            if isinstance(current, kind):
                stack.extend((current.args["expression"], current.this))
            else:
                parts.append(current)
        word = "AND" if kind is exp.And else "OR"
        bound = [self.condition(part, scope, word) for part in parts]
        return conjunction(bound) if word == "AND" else disjunction(bound)

    @staticmethod
    def negation(condition: Expression) -> Expression:
        return Call(syntax.NOT, (condition,), BOOL, condition.nullable)

    def _is(self, tree: exp.Is, scope: Scope) -> Expression:
        value = tree.expression
        negate = bool(tree.args.get("negate"))
        if isinstance(value, exp.Null):
            operand = self.default_unknown(self.expression(tree.this, scope))
            return Call(syntax.IS_NOT_NULL if negate else syntax.IS_NULL, (operand,), BOOL, False)
        if isinstance(value, exp.Boolean):
            word = "TRUE" if value.this else "FALSE"
            operand = self.condition(tree.this, scope, f"IS {'NOT ' if negate else ''}{word}")
            test = Call(syntax.IS_TRUE if value.this else syntax.IS_FALSE, (operand,), BOOL, False)
            return self.negation(test) if negate else test
        if isinstance(value, (exp.Column, exp.Identifier, exp.Var)) and value.name == "unknown":
            operand = self.condition(tree.this, scope, "IS UNKNOWN")
            return Call(syntax.IS_NOT_NULL if negate else syntax.IS_NULL, (operand,), BOOL, False)
        raise self.unsupported("this IS test", tree)

    def _distinct(self, tree: exp.Expr, scope: Scope) -> Expression:
        left, right = self.expression(tree.this, scope), self.expression(tree.expression, scope)
        equality = self.operator("=", [left, right], tree)
        assert isinstance(equality, Call)
        a, b = equality.arguments
        differ: Expression
        if a.type == b.type and a.type.name not in ("numeric", "bpchar"):
            differ = Call(syntax.IS_DISTINCT, (a, b), BOOL, False)
        else:
            a_null, b_null = (Call(syntax.IS_NULL, (side,), BOOL, False) for side in (a, b))
            differ = Case(
                ((a_null, self.negation(b_null)), (b_null, Literal(True, BOOL))), self.negation(equality), BOOL
            )
        return self.negation(differ) if isinstance(tree, exp.NullSafeEQ) else differ

    def _between(self, tree: exp.Between, scope: Scope) -> Expression:
        value, low, high = (self.expression(tree.args[k], scope) for k in ("this", "low", "high"))

        def within(least: Expression, most: Expression) -> Expression:
            return conjunction([self.operator(">=", [value, least], tree), self.operator("<=", [value, most], tree)])

        if tree.args.get("symmetric"):
            return disjunction([within(low, high), within(high, low)])
        return within(low, high)

    def _in(self, tree: exp.In, scope: Scope) -> Expression:
        query = tree.args.get("query")
        items = tree.expressions
        if query is None and len(items) == 1 and isinstance(items[0], (exp.Values, exp.Select, exp.SetOperation)):
            query = items[0]
        if query is not None:
            return self._in_query(tree.this, query, scope, tree)
        if isinstance(tree.this, exp.Tuple):
            alternatives = [self._rows_equal(tree.this, item, scope, tree) for item in items]
            return disjunction(alternatives)
        operand = self.expression(tree.this, scope)
        bound = [self.expression(item, scope) for item in items]
        try:
            common, coerced = self.to_common([operand, *bound], "IN")
        except PgError as error:
            if error.sqlstate is not SqlState.DATATYPE_MISMATCH:
                raise
            return disjunction([self.operator("=", [operand, item], tree) for item in bound])
        self.operator("=", [coerced[0], coerced[0]], tree)  # the type must have an equality
        if common.name == "bpchar":
            return disjunction([self.operator("=", [coerced[0], item], tree) for item in coerced[1:]])
        return InList(coerced[0], tuple(coerced[1:]))

    def _rows_equal(self, left: exp.Expr, right: exp.Expr, scope: Scope, tree: exp.Expr) -> Expression:
        a, b = (side.expressions if isinstance(side, exp.Tuple) else [side] for side in (left, right))
        if len(a) != len(b):
            message = "unequal number of entries in row expressions"
            raise PgError(SqlState.SYNTAX_ERROR, message, position=self._operator_position(tree))
        return conjunction(
            [
                self.operator("=", [self.expression(x, scope), self.expression(y, scope)], tree)
                for x, y in zip(a, b, strict=True)
            ]
        )

    def _row_comparison(self, name: str, tree: exp.Expr, scope: Scope) -> Expression:
        if name not in ("=", "<>"):
            raise self.unsupported(f"{name} of rows", tree)
        equal = self._rows_equal(tree.this, tree.expression, scope, tree)
        return equal if name == "=" else self.negation(equal)

    def _in_query(self, left: exp.Expr, query: exp.Expr, scope: Scope, tree: exp.Expr) -> Expression:
        relation = self.subquery(query, scope)
        operands = [self.expression(e, scope) for e in (left.expressions if isinstance(left, exp.Tuple) else [left])]
        if len(operands) != len(relation.columns):
            few = "few" if len(relation.columns) < len(operands) else "many"
            raise PgError(SqlState.SYNTAX_ERROR, f"subquery has too {few} columns", position=self.at(tree))
        refs: list[Expression] = [ColumnRef(column) for column in relation.columns]
        sides = [self.operator("=", [a, b], tree) for a, b in zip(operands, refs, strict=True)]
        typed, casts = [], []
        for side in sides:
            assert isinstance(side, Call)
            if side.function.spark is not None and not isinstance(side.function.spark, str):
                _common, coerced = self.to_common(side.arguments, "IN")
                typed.append(coerced[0])
                casts.append(coerced[1])
            else:
                typed.append(side.arguments[0])
                casts.append(side.arguments[1])
        return Subquery(SubqueryKind.IN, self.projected(relation, casts), BOOL, True, operands=tuple(typed))

    def projected(self, relation: Relation, expressions: Sequence[Expression]) -> Relation:
        """`relation` with `expressions` over its columns in their place; itself if they are its columns."""
        if [e.column for e in expressions if isinstance(e, ColumnRef)] == list(relation.columns):
            return relation
        columns = tuple(self.new_column(c.name, e) for c, e in zip(relation.columns, expressions, strict=True))
        return Project(relation, columns, tuple(expressions))

    def _quantified(self, name: str, left: exp.Expr, right: exp.Expr, scope: Scope) -> Expression:
        word = _quantifier(right)
        every = isinstance(right, exp.All) if word is None else word == "all"
        inner = right.this if word is None else right.expressions[0]
        while isinstance(inner, exp.Paren):
            inner = inner.this
        if isinstance(inner, (exp.Subquery, exp.Select, exp.SetOperation, exp.Values)):
            if (name, every) == ("=", False):
                return self._in_query(left, inner, scope, right)
            if (name, every) == ("<>", True):
                return self.negation(self._in_query(left, inner, scope, right))
            raise self.unsupported(f"{name} {'ALL' if every else 'ANY'} (query)", right)
        operand = self.expression(left, scope)
        array = self.expression(inner, scope)
        if array.type == UNKNOWN:
            array = self.coerce(array, array_of(self.default_unknown(operand).type.without_modifiers))
        if array.type.element is None:
            message = "op ANY/ALL (array) requires array on right side"
            raise PgError(SqlState.WRONG_OBJECT_TYPE, message, position=self.at(right))
        self._last_column += 1
        element = Column(self._last_column, "", array.type.element, True)
        return Quantified(self.operator(name, [operand, ColumnRef(element)], right.parent), element, array, every)

    def _exists(self, tree: exp.Exists, scope: Scope) -> Expression:
        return Subquery(SubqueryKind.EXISTS, self.subquery(tree.this, scope), BOOL, False)

    def _scalar_subquery(self, tree: exp.Subquery, scope: Scope) -> Expression:
        relation = self.subquery(tree, scope)
        if len(relation.columns) != 1:
            message = "subquery must return only one column"
            raise PgError(SqlState.SYNTAX_ERROR, message, position=self.at(tree))
        column = relation.columns[0]
        return Subquery(SubqueryKind.SCALAR, relation, column.type, True, precision=column.precision)

    # -- conditional and composite ----------------------------------------------------------------------------------

    def _case(self, tree: exp.Case, scope: Scope) -> Expression:
        operand = tree.this
        conditions: list[Expression] = []
        for branch in tree.args["ifs"]:
            if operand is None:
                conditions.append(self.condition(branch.this, scope, "CASE/WHEN"))
            else:
                sides = [self.expression(operand, scope), self.expression(branch.this, scope)]
                conditions.append(self.operator("=", sides, tree))
        default = tree.args.get("default")
        # PostgreSQL lists ELSE first when it looks for the common type
        values = [self.expression(default, scope) if default is not None else Literal(None, UNKNOWN)]
        values += [self.expression(branch.args["true"], scope) for branch in tree.args["ifs"]]
        common, coerced = self.to_common(values, "CASE", self.at(tree))
        return Case(tuple(zip(conditions, coerced[1:], strict=True)), coerced[0], common)

    def _same_type(self, name: str, arguments: list[Expression], tree: exp.Expr) -> Expression:
        """coalesce, greatest, least."""
        common, coerced = self.to_common(arguments, name.upper(), self.at(tree))
        if name != "coalesce":
            self.operator("<", [coerced[0], coerced[0]], tree)
        if len(coerced) == 1:
            return coerced[0]
        nullable = all(e.nullable for e in coerced)
        return Call(_SAME_FORMS[name], tuple(coerced), common, nullable)

    def _nullif(self, arguments: list[Expression], tree: exp.Expr) -> Expression:
        if len(arguments) != 2:
            raise PgError(SqlState.SYNTAX_ERROR, "NULLIF requires two arguments", position=self.at(tree))
        equality = self.operator("=", arguments, tree)
        assert isinstance(equality, Call)
        first = equality.arguments[0] if arguments[0].type == UNKNOWN else arguments[0]
        return Case(((equality, Literal(None, first.type)),), first, first.type)

    def _array(self, tree: exp.Array, scope: Scope) -> Expression:
        if any(isinstance(e, (exp.Select, exp.SetOperation)) for e in tree.expressions):
            raise self.unsupported("ARRAY(query)", tree)
        elements = [self.expression(e, scope) for e in tree.expressions]
        if not elements:
            raise PgError(
                SqlState.INDETERMINATE_DATATYPE,
                "cannot determine type of empty array",
                hint="Explicitly cast to the desired type, for example ARRAY[]::integer[].",
                position=self.at(tree),
            )
        if any(e.type.element is not None for e in elements):
            raise self.unsupported("an array of more than one dimension", tree)
        return constant_array(self.array(elements, self.at(tree)))

    def _subscript(self, tree: exp.Bracket, scope: Scope) -> Expression:
        array = self.expression(tree.this, scope)
        if array.type.element is None:
            message = f"cannot subscript type {array.type.base_display} because it does not support subscripting"
            raise PgError(SqlState.DATATYPE_MISMATCH, message, position=self.at(tree))
        if len(tree.expressions) != 1 or isinstance(tree.expressions[0], exp.Slice):
            raise self.unsupported("this subscript", tree)
        index = self.coerce(self.expression(tree.expressions[0], scope), INT4)
        return Call(syntax.SUBSCRIPT, (array, index), array.type.element, True, array.type.element.precision or 0)

    def _escape(self, tree: exp.Escape, scope: Scope) -> Expression:
        like = tree.this
        name = _BINARY[type(like)]
        sides = [self.expression(e, scope) for e in (like.this, like.expression, tree.expression)]
        return self.operator("!" + name if like.args.get("negate") else name, sides, like)

    def _collate(self, tree: exp.Collate, scope: Scope) -> Expression:
        if tree.expression.name not in ("C", "POSIX", "default", "ucs_basic"):
            message = f'collation "{tree.expression.name}" for encoding "UTF8" does not exist'
            raise PgError(SqlState.UNDEFINED_OBJECT, message, position=self.at(tree.expression))
        return self.expression(tree.this, scope)

    def _cast(self, tree: exp.Cast, scope: Scope) -> Expression:
        target = self.type_of(tree.args["to"])
        inner = tree.this
        while isinstance(inner, exp.Paren):
            inner = inner.this
        if isinstance(inner, exp.Array) and target.element is not None:
            elements = [
                self.coerce(self.expression(e, scope), target.element, EXPLICIT, self.at(e)) for e in inner.expressions
            ]
            return constant_array(Array(tuple(self.rescale(e, target.element) for e in elements), target))
        return self.coerce(self.expression(inner, scope), target, EXPLICIT, self._cast_position(tree))

    def _cast_position(self, tree: exp.Cast) -> int | None:
        """PostgreSQL points at `::`; at CAST we point at what is cast."""
        ends = [node.meta["end"] + 1 for node in tree.this.find_all(exp.Expr) if "end" in node.meta]
        if ends and not self.inside_view:
            rest = self.source[max(ends) - self.offset :]
            space = len(rest) - len(rest.lstrip(" )]\n\t"))
            if rest.startswith("::", space):
                return int(max(ends) + space + 1)
        return self.at(tree)

    # -- functions --------------------------------------------------------------------------------------------------

    def call(self, name: str, arguments: Sequence[exp.Expr], scope: Scope, tree: exp.Expr) -> Expression:
        return self.apply(name, [self.expression(a, scope) for a in arguments], tree)

    def apply(self, name: str, arguments: list[Expression], tree: exp.Expr) -> Expression:
        """A function over bound arguments. 42883, 42725, 0A000; aggregates come back bare."""
        types = tuple(a.type.without_modifiers for a in arguments)
        resolved = self._resolve(name, types, tree)
        if resolved is None:
            return self._function_cast(name, arguments, tree)
        return self._applied(resolved, arguments, tree)

    def _resolve(self, name: str, types: tuple[PgType, ...], tree: exp.Expr) -> Resolved | None:
        try:
            return resolve.resolve_function(name, _plain(types))
        except PgError as error:
            raise self._placed(error, self.at(tree)) from None

    def _function_cast(self, name: str, arguments: list[Expression], tree: exp.Expr) -> Expression:
        """date(x), text(x), int4(x): a type's name called with one argument is a cast."""
        if len(arguments) == 1:
            try:
                return self.coerce(arguments[0], parse_type(name), EXPLICIT, self.at(tree))
            except ValueError:
                pass  # no such type: no such function
        shown = f"{name}({', '.join(a.type.base_display for a in arguments)})"
        raise resolve.no_such("function", shown, len(arguments), self.at(tree))

    def _qualified_function(self, tree: exp.Dot, scope: Scope) -> Expression:
        if isinstance(tree.expression, exp.Anonymous) and tree.this.name == "pg_catalog":
            return self._function(tree.expression, scope)
        if isinstance(tree.expression, exp.Anonymous) and isinstance(tree.this, exp.Identifier):
            message = f'schema "{tree.this.name}" does not exist'
            raise PgError(SqlState.INVALID_SCHEMA_NAME, message, position=self.at(tree))
        raise self.unsupported("field selection", tree)

    def _function(self, tree: exp.Expr, scope: Scope, over: bool = False) -> Expression:
        where = None
        call = tree
        if isinstance(call, exp.Filter):
            where = call.expression.this
            call = call.this
        if isinstance(call, exp.Dot) and call.this.name == "pg_catalog":
            call = call.expression
        if not isinstance(call, exp.Anonymous):
            raise self.unsupported("FILTER here", tree)
        name = function_name(call)
        if name in _VOLATILE:
            if self.maintained:
                message = f"cannot materialize call to {name}()"
                raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, position=self.at(call))
            raise self.unsupported(f"function {name}()", call)
        arguments, distinct, order_trees, star = _argument_list(call)
        if name in SESSION_FUNCTIONS and not arguments and not star:
            return self.session_value(name, call)
        if name in _SAME_FORMS and arguments:
            return self._same_type(name, [self.expression(a, scope) for a in arguments], call)
        if name == "nullif":
            return self._nullif([self.expression(a, scope) for a in arguments], call)
        if name == "pg_typeof" and len(arguments) == 1:
            return Literal(self.expression(arguments[0], scope).type.base_display, TEXT)
        if name == "pg_is_in_recovery" and not arguments:
            return Literal(False, BOOL)
        if name == "current_setting" and len(arguments) in (1, 2):
            return self._current_setting(arguments, scope, call)
        nests = is_aggregate(name) and scope.clause is None and not over
        inner = replace_scope(scope, clause="aggregate function calls") if nests else scope
        bound = [self.expression(a, inner) for a in arguments]
        types = tuple(a.type.without_modifiers for a in bound)
        if star and name != "count":
            shown = f"{name}()"
            raise resolve.no_such("function", shown, 2, self.at(call))
        resolved = self._resolve(name, types, call)
        if resolved is None:
            return self._function_cast(name, bound, call)
        if resolved.function.kind is Kind.SCALAR:
            if where is not None or distinct or order_trees:
                what = "FILTER" if where is not None else "DISTINCT" if distinct else "ORDER BY"
                message = f"{what} specified, but {name} is not an aggregate function"
                raise PgError(SqlState.WRONG_OBJECT_TYPE, message, position=self.at(call))
            return self._applied(resolved, bound, call)
        return self._aggregate(resolved, bound, distinct, order_trees, where, scope, inner, call)

    def _current_setting(self, arguments: Sequence[exp.Expr], scope: Scope, tree: exp.Expr) -> Expression:
        if self.maintained:
            message = "cannot materialize call to current_setting()"
            raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, position=self.at(tree))
        return SessionValue("current_setting", TEXT, self.coerce(self.expression(arguments[0], scope), TEXT))

    def _aggregate(
        self,
        resolved: Resolved,
        arguments: list[Expression],
        distinct: bool,
        order_trees: Sequence[exp.Ordered],
        where: exp.Expr | None,
        scope: Scope,
        inner: Scope,
        tree: exp.Expr,
    ) -> Expression:
        function = resolved.function
        if scope.clause is not None and function.kind is Kind.AGGREGATE:
            message = (
                "aggregate function calls cannot be nested"
                if scope.clause == "aggregate function calls"
                else f"aggregate functions are not allowed in {scope.clause}"
            )
            raise PgError(SqlState.GROUPING_ERROR, message, position=self.at(tree))
        self._check_available_at(function, tree)
        coerced = tuple(
            self.default_unknown(a) if t == ANY else self.coerce(a, t)
            for a, t in zip(arguments, resolved.arguments, strict=True)
        )
        if function.name == "string_agg" and not isinstance(coerced[1], Literal):
            raise self.unsupported("a string_agg delimiter that is not a constant", tree)
        order = tuple(self.sort_key(o, self.default_unknown(self.expression(o.this, inner))) for o in order_trees)
        if distinct and any(key.expression not in coerced for key in order):
            message = "in an aggregate with DISTINCT, ORDER BY expressions must appear in argument list"
            raise PgError(SqlState.INVALID_COLUMN_REFERENCE, message, position=self.at(tree))
        if order and function.name not in ("string_agg", "array_agg"):
            order = ()  # the order of the input does not matter to any other
        for argument in coerced:
            if distinct:
                self.operator("=", [argument, argument], tree)
        condition = self.condition(where, inner, "FILTER") if where is not None else None
        call = call_of(function, coerced, resolved.result)
        return Aggregate(
            function, coerced, call.type, call.nullable, call.precision, distinct, order, condition, self.at(tree)
        )

    def _check_available_at(self, function: Function, tree: exp.Expr) -> None:
        try:
            self._check_available(function)
        except PgError as error:
            raise self._placed(error, self.at(tree)) from None

    def sort_key(self, tree: exp.Ordered, expression: Expression) -> SortKey:
        """NULLs are last when ascending, first when descending, unless said otherwise."""
        self.sortable(expression, tree)
        return SortKey(expression, bool(tree.args.get("desc")), bool(tree.args.get("nulls_first")))

    def sortable(self, expression: Expression, tree: exp.Expr) -> None:
        """42883 or 0A000 unless the type has an order."""
        name = expression.type.name
        if name == "json":
            raise PgError(
                SqlState.UNDEFINED_FUNCTION,
                f"could not identify an ordering operator for type {name}",
                hint="Use an explicit ordering operator or modify the query.",
                position=self.at(tree),
            )
        if name in ("interval", "jsonb", "bpchar") or expression.type.element is not None:
            raise self.unsupported(f"sorting by {expression.type.base_display}", tree)

    def groupable(self, expression: Expression, tree: exp.Expr | None) -> None:
        """42883 or 0A000 unless values of the type can be told equal by Spark as PostgreSQL tells."""
        name = expression.type.name
        if name == "json":
            message = "could not identify an equality operator for type json"
            raise PgError(SqlState.UNDEFINED_FUNCTION, message, position=self.at(tree))
        if name in ("interval", "jsonb", "bpchar"):
            raise self.unsupported(f"grouping by {expression.type.base_display}", tree)

    def _window(self, tree: exp.Window, scope: Scope) -> Expression:
        if scope.clause is not None:
            message = (
                "aggregate function calls cannot contain window function calls"
                if scope.clause == "aggregate function calls"
                else f"window functions are not allowed in {scope.clause}"
            )
            raise PgError(SqlState.WINDOWING_ERROR, message, position=self.at(tree))
        call = self._function(tree.this, scope, over=True)
        if not isinstance(call, Aggregate):
            name = function_name(tree.this) if isinstance(tree.this, exp.Anonymous) else "this"
            message = f"OVER specified, but {name} is not a window function nor an aggregate function"
            raise PgError(SqlState.WRONG_OBJECT_TYPE, message, position=self.at(tree))
        if call.distinct or call.order or call.filter is not None or call.function.name in ("string_agg", "array_agg"):
            raise self.unsupported("this call as a window function", tree)
        definition: exp.Expr = tree
        if tree.args.get("alias") is not None:
            name = tree.args["alias"].name
            named = scope.windows.get(name)
            if named is None:
                message = f'window "{name}" does not exist'
                raise PgError(SqlState.UNDEFINED_OBJECT, message, position=self.at(tree.args["alias"]))
            if any(tree.args.get(k) for k in ("partition_by", "order", "spec")):
                raise self.unsupported("extending a named window", tree)
            definition = named
        inner = replace_scope(scope, clause="window definitions")
        inner.clause = None
        partition = tuple(
            self.default_unknown(self.expression(p, inner)) for p in definition.args["partition_by"] or ()
        )
        for expression in partition:
            self.groupable(expression, tree)
        order_tree = definition.args.get("order")
        order = tuple(
            self.sort_key(o, self.default_unknown(self.expression(o.this, inner)))
            for o in (order_tree.expressions if order_tree is not None else ())
        )
        return WindowCall(call, partition, order, self._frame(definition.args.get("spec"), call, order), self.at(tree))

    def _frame(self, spec: exp.Expr | None, call: Aggregate, order: Sequence[SortKey]) -> str:
        if spec is None:
            return ""
        kind = spec.args["kind"].upper()
        bounds = []
        for side in ("start", "end"):
            bound = spec.args.get(side)
            if bound is None:
                bounds.append("CURRENT ROW")
                continue
            direction = (spec.args.get(f"{side}_side") or "").upper()
            if isinstance(bound, str):
                bounds.append(f"{bound.upper()} {direction}".strip())
            elif isinstance(bound, exp.Literal) and bound.this.isdigit() and kind == "ROWS":
                bounds.append(f"{bound.this} {direction}")
            else:
                raise self.unsupported("this window frame", spec)
        if kind == "GROUPS" or spec.args.get("exclude") is not None:
            raise self.unsupported("this window frame", spec)
        if call.function.kind is Kind.WINDOW and not call.function.name.endswith("_value"):
            return ""  # a frame means nothing to them
        return f"{kind} BETWEEN {bounds[0]} AND {bounds[1]}"

    # -- functions with a grammar of their own ----------------------------------------------------------------------

    def _extract(self, tree: exp.Extract, scope: Scope) -> Expression:
        field = Literal(tree.this.name.lower(), TEXT, self.at(tree.this))
        return self.apply("extract", [field, self.expression(tree.expression, scope)], tree)

    def _substring(self, tree: exp.Substring, scope: Scope) -> Expression:
        start, length = tree.args.get("start"), tree.args.get("length")
        arguments = [self.expression(tree.this, scope)]
        if start is None and length is not None:
            arguments.append(Literal(1, INT4))
        arguments += [self.expression(a, scope) for a in (start, length) if a is not None]
        return self.apply("substring", arguments, tree)

    def _trim(self, tree: exp.Trim, scope: Scope) -> Expression:
        name = trim_name(tree)
        characters = tree.expression
        return self.call(name, [tree.this] if characters is None else [tree.this, characters], scope, tree)


# -- small makers ---------------------------------------------------------------------------------------------------


def call_of(function: Function, arguments: tuple[Expression, ...], result: PgType) -> Call:
    """The node with its type, scale and nullability."""
    nullable = {
        Nulls.STRICT: any(a.nullable for a in arguments),
        Nulls.MAYBE: True,
        Nulls.NEVER: False,
    }[function.nulls]
    if function.shape is not None:
        shape = function.shape(arguments)
        return Call(function, arguments, replace(result, precision=None, scale=shape.scale), nullable, shape.precision)
    return Call(function, arguments, result, nullable)


def conjunction(conditions: Sequence[Expression]) -> Expression:
    return _connective(syntax.AND, conditions)


def disjunction(conditions: Sequence[Expression]) -> Expression:
    return _connective(syntax.OR, conditions)


def _connective(function: Function, conditions: Sequence[Expression]) -> Expression:
    if len(conditions) == 1:
        return conditions[0]
    return Call(function, tuple(conditions), BOOL, any(c.nullable for c in conditions))


def constant_array(array: Array) -> Expression:
    """ARRAY of literals is a literal."""
    if all(isinstance(e, Literal) for e in array.elements):
        return Literal([e.value for e in array.elements if isinstance(e, Literal)], array.type)
    return array


def replace_scope(scope: Scope, clause: str) -> Scope:
    """The same names, in a clause of which `clause` tells."""
    return Scope(scope.entries, scope.parent, scope.common_tables, clause, scope.real_names, scope.windows)


def is_aggregate(name: str) -> bool:
    rows = FUNCTIONS.get(name)
    return rows is not None and rows[0].kind is Kind.AGGREGATE


def _plain(types: tuple[PgType, ...]) -> tuple[PgType, ...]:
    """numeric without its scale, so that types are equal when their names are."""
    return tuple(NUMERIC if t.name == "numeric" else array_of(NUMERIC) if t.name == "_numeric" else t for t in types)


def _argument_list(call: exp.Anonymous) -> tuple[list[exp.Expr], bool, list[exp.Ordered], bool]:
    """The arguments, whether DISTINCT, the terms of ORDER BY, whether it is (*)."""
    arguments = list(call.expressions)
    distinct, order, star = False, [], False
    if arguments and isinstance(arguments[-1], exp.Order):
        last = arguments.pop()
        order = list(last.expressions)
        arguments.append(last.this)
    if len(arguments) == 1 and isinstance(arguments[0], exp.Distinct):
        arguments, distinct = list(arguments[0].expressions), True
    if len(arguments) == 1 and isinstance(arguments[0], exp.Star):
        arguments, star = [], True
    return arguments, distinct, order, star


def function_name(call: exp.Anonymous) -> str:
    name = call.this
    return str(name.name) if isinstance(name, exp.Identifier) else str(name).lower()


def _quantifier(tree: exp.Expr) -> str | None:
    """`any`, `some` or `all` where sqlglot took it for a function."""
    if isinstance(tree, exp.Anonymous) and len(tree.expressions) == 1:
        name = function_name(tree)
        return name if name in ("any", "some", "all") else None
    return None


def trim_name(tree: exp.Trim) -> str:
    return {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(tree.args.get("position") or "", "btrim")


_SESSION_NAMES: dict[type[exp.Expr], str] = {
    exp.CurrentDate: "current_date",
    exp.CurrentTimestamp: "current_timestamp",
    exp.Localtimestamp: "localtimestamp",
    exp.CurrentUser: "current_user",
    exp.SessionUser: "session_user",
    exp.CurrentCatalog: "current_catalog",
    exp.CurrentSchema: "current_schema",
    exp.CurrentRole: "current_role",
}


def session_name(tree: exp.Expr) -> str:
    return _SESSION_NAMES[type(tree)]


def _describe(tree: exp.Expr) -> str:
    """A word for what is refused: sqlglot's class, spaced."""
    name = type(tree).__name__
    return "".join(f" {c}" if c.isupper() and i else c for i, c in enumerate(name)).upper()


def type_spelling(tree: exp.Expr) -> str:
    """A DataType in the words of `parse_type`."""
    if not isinstance(tree, exp.DataType):
        return tree.name.lower()
    if tree.this == exp.DType.ARRAY:
        return f"{type_spelling(tree.expressions[0])}[]" if tree.expressions else "array"
    if tree.this == exp.DType.USERDEFINED:
        kind = tree.args.get("kind")
        return kind.name if isinstance(kind, exp.Expr) else str(kind)
    name = _TYPE_NAMES.get(tree.this, tree.this.value.lower())
    sizes = [str(size.name) for size in tree.expressions]
    if name == "float8" and sizes:
        name = "float"
    return f"{name}({','.join(sizes)})" if sizes else name
