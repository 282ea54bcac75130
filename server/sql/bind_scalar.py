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
    INT8,
    INTERVAL,
    JSON,
    JSONB,
    MZ_TIMESTAMP,
    NUMERIC,
    NUMERIC_PRECISION_MAX,
    TEXT,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    UNKNOWN,
    PgType,
    array_of,
    bare_numeric,
    numeric,
    parse_type,
)
from server.sql.casts import natural_numeric
from server.sql.coerce import ASSIGNMENT, EXPLICIT, IMPLICIT, Coercer, integer_literal
from server.sql.constant import INQUIRIES, SIGNALS
from server.sql.expressions import (
    Aggregate,
    Array,
    Call,
    Case,
    Cast,
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
    walk,
)
from server.sql.functions import intervals, resolve, syntax
from server.sql.functions.aggregates import ORDERED_SETS
from server.sql.functions.json import IS_JSON
from server.sql.functions.resolve import Resolved
from server.sql.functions.sets import SETS
from server.sql.functions.table import ANY, FUNCTIONS, GRAMMAR, POLYMORPHIC, Function, Kind, Nulls
from server.sql.lexer import words
from server.sql.relations import Aggregate as AggregateNode
from server.sql.relations import Limit, Project, Relation, Sort, Values
from server.sql.scope import Scope, find_column
from server.sql.statements import position_of
from server.sql.temporal import in_milliseconds, is_now

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
    exp.ArrayContainsAll: "@>",
    exp.ArrayContainedBy: "<@",
    exp.ArrayOverlaps: "&&",
    exp.JSONBContains: "?",
    exp.JSONBContainsAnyTopKeys: "?|",
    exp.JSONBContainsAllTopKeys: "?&",
    exp.JSONBDeleteAtPath: "#-",
    exp.JSONBPathExists: "@?",
}
_PREFIX: dict[type[exp.Expr], str] = {
    exp.Neg: "-",
    exp.BitwiseNot: "~",
    exp.Sqrt: "|/",
    exp.Cbrt: "||/",
    exp.Abs: "@",
    exp.Unary: "+",
}
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
_OTHER_TYPES = words(
    """bit varbit box cidr inet macaddr macaddr8 circle line lseg path point polygon money name oid xml tsvector tsquery
    timetz xid xid8 cid tid regclass regcollation regconfig regdictionary regnamespace regoper regoperator regproc
    regprocedure regrole regtype pg_lsn jsonpath int4range int8range numrange daterange tsrange tstzrange record
    refcursor aclitem pg_snapshot txid_snapshot int2vector oidvector"""
)
"""PostgreSQL's types that Tidewire lacks."""
SESSION_FUNCTIONS: dict[str, PgType] = {
    **dict.fromkeys(("now", "transaction_timestamp", "statement_timestamp", "current_timestamp"), TIMESTAMPTZ),
    "localtimestamp": TIMESTAMP,
    "localtime": TIME,
    "current_date": DATE,
    **dict.fromkeys(("current_database", "current_catalog", "current_schema", "version"), TEXT),
    **dict.fromkeys(("current_user", "session_user", "user", "current_role"), TEXT),
    "pg_backend_pid": INT4,
    "mz_now": MZ_TIMESTAMP,
}
"""Functions of the session without arguments; `constant.session_value` knows what each is."""
INT4_MAX = (1 << 31) - 1
_UNORDERED = ("json", "jsonb", "interval", "bpchar")
"""Elements of arrays that Spark does not order as PostgreSQL does."""
_ORDER_MATTERS = frozenset(ORDERED_SETS) | words(
    """string_agg array_agg json_agg jsonb_agg json_agg_strict jsonb_agg_strict json_object_agg jsonb_object_agg
    json_object_agg_strict jsonb_object_agg_strict"""
)
_VOLATILE = (
    *("random", "random_normal", "setseed", "clock_timestamp", "gen_random_uuid", "timeofday", "nextval", "setval"),
    *("pg_sleep", "pg_sleep_for", "pg_sleep_until"),
)
_SAME_FORMS: dict[str, Function] = {
    "coalesce": syntax.COALESCE, "greatest": syntax.GREATEST, "least": syntax.LEAST,
}  # fmt: skip


class ScalarBinder(Coercer, ABC):
    """Binds expressions; abstract only in `subquery`. `maintained` refuses what a view kept up to date cannot have."""

    def __init__(self, parameters: Sequence[PgType | None] | None, timezone: str, *, maintained: bool) -> None:
        super().__init__(parameters, timezone, maintained=maintained)
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
            exp.ParseJSON: lambda tree, scope: self.coerce(self.expression(tree.this, scope), JSON, EXPLICIT),
            exp.MatchAgainst: lambda tree, scope: self.operator(
                "@@", [self.expression(e, scope) for e in (tree.expressions[0], tree.this)], tree
            ),
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
            exp.Overlay: self._overlay,
            exp.SimilarTo: lambda tree, scope: self._similar([tree.this, tree.expression], scope, tree),
            exp.Trim: self._trim,
            exp.StrPosition: lambda tree, scope: self.call("position", [tree.this, tree.args["substr"]], scope, tree),
            exp.Filter: self._function,
            exp.WithinGroup: self._function,
            exp.Window: self._window,
            exp.CurrentDate: self._session,
            exp.CurrentTimestamp: self._session,
            exp.Localtimestamp: self._session,
            exp.Localtime: self._session,
            exp.AtTimeZone: lambda tree, scope: self.call("timezone", [tree.args["zone"], tree.this], scope, tree),
            exp.Overlaps: self._overlaps,
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

    @abstractmethod
    def set_returning(self, tree: exp.Anonymous, scope: Scope) -> Expression:
        """A set-returning function in a select list: the column of its rows. 0A000 anywhere else."""

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
            if (name := type_spelling(tree).removesuffix("[]")) in _OTHER_TYPES or name == '"char"':
                raise self.unsupported(f"type {name}", tree) from None
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
        exponent = value.as_tuple().exponent
        assert isinstance(exponent, int)
        if value.adjusted() >= NUMERIC_PRECISION_MAX or exponent < -NUMERIC_PRECISION_MAX:
            return Literal(float(value), FLOAT8, position)  # more digits than a numeric has here
        if exponent > 0:
            value = Decimal(f"{value:f}")
        return Literal(value, natural_numeric(value), position)

    def _parameter(self, tree: exp.Parameter, scope: Scope) -> Expression:
        number = int(tree.name) if tree.name.isdigit() else 0
        if not self.takes_parameters or number < 1 or number > 65535:
            message = f"there is no parameter ${tree.name}"
            raise PgError(SqlState.UNDEFINED_PARAMETER, message, position=self.at(tree))
        return self.parameter(number - 1, self.at(tree))

    def _interval(self, tree: exp.Interval, scope: Scope) -> Expression:
        text, unit = tree.this.name, tree.args.get("unit")
        if unit is not None:
            try:
                value = Literal(intervals.with_fields(text, unit.name), INTERVAL, self.at(tree))
            except PgError as error:
                raise self._placed(error, self.at(tree.this)) from None
            digits = tree.args.get("digits")
            return value if digits is None else self._rounded(value, int(digits.name), tree)
        return self.coerce(Literal(text, UNKNOWN, self.at(tree)), INTERVAL, EXPLICIT)

    def _adjacent(self, tree: exp.Concat, scope: Scope) -> Expression:
        """'a' 'b': strings that the source breaks over lines are one."""
        return Literal("".join(part.name for part in tree.expressions), UNKNOWN, self.at(tree))

    def _session(self, tree: exp.Expr, scope: Scope) -> Expression:
        return self.session_value(session_name(tree), tree)

    def session_value(self, name: str, tree: exp.Expr) -> Expression:
        if self.maintained and name != "mz_now":  # where that may stand, `temporal` knows
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED, f"cannot materialize call to {name}()", position=self.at(tree)
            )
        if (type := SESSION_FUNCTIONS[name]) in (DATE, TIME, TIMESTAMP):
            return self.coerce(SessionValue("now", TIMESTAMPTZ), type, ASSIGNMENT)  # of the session's time zone
        return SessionValue(name, SESSION_FUNCTIONS[name])

    # -- operators --------------------------------------------------------------------------------------------------

    def _binary(self, tree: exp.Expr, scope: Scope) -> Expression:
        name = f"!{_BINARY[type(tree)]}" if tree.args.get("negate") else _BINARY[type(tree)]
        left, right = tree.this, tree.expression
        if isinstance(right, (exp.Any, exp.All)) or _quantifier(right) is not None:
            return self._quantified(name, left, right, scope)
        if row_of(left) is not None:
            return self._row_comparison(name, tree, scope)
        if name in ("+", "-") and isinstance(tree, (exp.Add, exp.Sub)):
            return self._chain(tree, scope)
        sides = [self.expression(left, scope), self.expression(right, scope)]
        return self.operator(name, sides, tree)

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
        if len(arguments) == 2 and any(map(is_now, arguments)):
            arguments = [in_milliseconds(argument) for argument in arguments]
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
            if function.variadic and not function.typed:
                coerced = tuple(map(self._output_of, coerced))
            coerced, result = self._polymorphic(resolved, coerced)
            call = call_of(function, coerced, result)
            return replace(call, timezone=self.timezone) if function.zoned else call
        except PgError as error:
            raise self._placed(error, self.at(tree)) from None

    def _polymorphic(
        self, resolved: Resolved, arguments: tuple[Expression, ...]
    ) -> tuple[tuple[Expression, ...], PgType]:
        """Numerics that share a pseudo-type get one scale, which is the result's too."""
        result = resolved.result
        shared = [
            argument
            for argument, declared in zip(arguments, resolved.function.arguments, strict=False)
            if declared in POLYMORPHIC and (argument.type.element or argument.type).name == "numeric"
        ]
        if not shared:
            return arguments, result
        valued = [e for e in shared if not (isinstance(e, Literal) and e.value is None)]
        scale = max(((e.type.element or e.type).scale or 0 for e in valued or shared), default=0)
        scalar = bare_numeric(scale)
        if len(shared) > 1:
            arguments = tuple(
                self.rescale(e, scalar if e.type.element is None else array_of(scalar))
                if any(e is other for other in shared)
                else e
                for e in arguments
            )
        if (result.element or result).name == "numeric" and resolved.function.result in POLYMORPHIC:
            result = scalar if result.element is None else array_of(scalar)
        return arguments, result

    def _output_of(self, argument: Expression) -> Expression:
        """A value as concat() writes it: a boolean is t or f, char(n) keeps its blanks."""
        if argument.type.name == "bpchar":
            return argument
        if argument.type != BOOL:
            return self.coerce(argument, TEXT, EXPLICIT)
        letters = Literal("t", TEXT), Literal("f", TEXT)
        is_false = Call(syntax.NOT, (argument,), BOOL, argument.nullable)
        return Case(((argument, letters[0]), (is_false, letters[1])), Literal(None, TEXT), TEXT)

    def _check_available(self, function: Function) -> None:
        if function.spark is None and function.python is None:
            raise PgError(SqlState.FEATURE_NOT_SUPPORTED, f"{function} is not supported")
        if function.zoned:
            if function.python is None and not self.is_utc:
                message = f"{function} in a session whose TimeZone is not UTC is not supported"
                raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message)
            self.check_zone(str(function))

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
        if isinstance(value, exp.Null) and (fields := row_of(tree.this)) is not None:
            null_test = syntax.IS_NOT_NULL if negate else syntax.IS_NULL
            bound = [self.default_unknown(self.expression(field, scope)) for field in fields]
            return conjunction([Call(null_test, (field,), BOOL, False) for field in bound] or [Literal(True, BOOL)])
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
        if isinstance(value, exp.JSON) and value.args.get("with_") is None:
            operand = self.default_unknown(self.expression(tree.this, scope))
            kind = Literal((value.this or "VALUE").lower(), TEXT)
            if not (operand.type.is_string_family or operand.type in (JSON, JSONB)):
                message = f"cannot use type {operand.type.base_display} in IS JSON predicate"
                raise PgError(SqlState.DATATYPE_MISMATCH, message, position=self.at(tree))
            return call_of(IS_JSON, (self.coerce(operand, TEXT, EXPLICIT), kind), BOOL)
        if isinstance(value, exp.Column) and value.name == "normalized":
            normalized = self.call("is_normalized", [tree.this], scope, tree)
            return self.negation(normalized) if negate else normalized
        raise self.unsupported("this IS test", tree)

    def _distinct(self, tree: exp.Expr, scope: Scope) -> Expression:
        fields = row_of(tree.this), row_of(tree.expression)
        differ: Expression
        if fields[0] is not None and fields[1] is not None:
            pairs = self._paired(fields[0], fields[1], tree)
            tests = [self._differ(self.expression(x, scope), self.expression(y, scope), tree) for x, y in pairs]
            differ = disjunction(tests) if tests else Literal(False, BOOL)
        else:
            differ = self._differ(self.expression(tree.this, scope), self.expression(tree.expression, scope), tree)
        return self.negation(differ) if isinstance(tree, exp.NullSafeEQ) else differ

    def _differ(self, left: Expression, right: Expression, tree: exp.Expr) -> Expression:
        equality = self.operator("=", [left, right], tree)
        assert isinstance(equality, Call)
        a, b = equality.arguments
        differ: Expression
        if a.type == b.type and a.type.name not in ("numeric", "bpchar", "interval"):
            differ = Call(syntax.IS_DISTINCT, (a, b), BOOL, False)
        else:
            a_null, b_null = (Call(syntax.IS_NULL, (side,), BOOL, False) for side in (a, b))
            differ = Case(
                ((a_null, self.negation(b_null)), (b_null, Literal(True, BOOL))), self.negation(equality), BOOL
            )
        return differ

    def _between(self, tree: exp.Between, scope: Scope) -> Expression:
        if row_of(tree.this) is not None:
            below = self._rows_compared(">=", tree.this, tree.args["low"], scope, tree)
            return conjunction([below, self._rows_compared("<=", tree.this, tree.args["high"], scope, tree)])
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
        if row_of(tree.this) is not None:
            alternatives = [self._rows_compared("=", tree.this, item, scope, tree) for item in items]
            return disjunction(alternatives)
        if not items:
            raise PgError(SqlState.SYNTAX_ERROR, 'syntax error at or near ")"')
        operand = self.expression(tree.this, scope)
        bound = [self.expression(item, scope) for item in items]
        try:
            common, coerced = self.to_common([operand, *bound], "IN")
        except PgError as error:
            if error.sqlstate is not SqlState.DATATYPE_MISMATCH:
                raise
            return disjunction([self.operator("=", [operand, item], tree) for item in bound])
        self.operator("=", [coerced[0], coerced[0]], tree)  # the type must have an equality
        if common.name in ("bpchar", "interval"):
            return disjunction([self.operator("=", [coerced[0], item], tree) for item in coerced[1:]])
        return InList(coerced[0], tuple(coerced[1:]))

    def _paired(
        self, left: Sequence[exp.Expr], right: Sequence[exp.Expr], tree: exp.Expr
    ) -> list[tuple[exp.Expr, exp.Expr]]:
        if len(left) != len(right):
            message = "unequal number of entries in row expressions"
            raise PgError(SqlState.SYNTAX_ERROR, message, position=self._operator_position(tree))
        return list(zip(left, right, strict=True))

    def _rows_compared(self, name: str, left: exp.Expr, right: exp.Expr, scope: Scope, tree: exp.Expr) -> Expression:
        fields = row_of(left), row_of(right)
        pairs = self._paired(fields[0] or [left], fields[1] if fields[1] is not None else [right], tree)
        if not pairs:
            message = "cannot compare rows of zero length"
            raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, position=self._operator_position(tree))
        bound = [(self.expression(x, scope), self.expression(y, scope)) for x, y in pairs]
        return self._compared(name, bound, tree)

    def _compared(self, name: str, pairs: Sequence[tuple[Expression, Expression]], tree: exp.Expr) -> Expression:
        """A comparison of rows: by all fields, or by the first that are not equal; unknown if those are."""
        tests = [self.operator(name, [a, b], tree) for a, b in pairs]
        for test in tests:
            if test.type != BOOL:
                raise PgError(
                    SqlState.DATATYPE_MISMATCH,
                    f"row comparison operator must yield type boolean, not type {test.type.base_display}",
                    position=self._operator_position(tree),
                )
        if len(tests) == 1 or name == "=":
            return conjunction(tests)
        if name == "<>":
            return disjunction(tests)
        if name not in ("<", "<=", ">", ">="):
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                f"could not determine interpretation of row comparison operator {name}",
                hint="Row comparison operators must be associated with btree operator families.",
                position=self._operator_position(tree),
            )
        result = tests[-1]
        for a, b in reversed(pairs[:-1]):
            less = self.operator(name[0], [a, b], tree)
            result = Case(((self.operator("=", [a, b], tree), result),), less, BOOL)
        return result

    def _row_comparison(self, name: str, tree: exp.Expr, scope: Scope) -> Expression:
        right = tree.expression
        while isinstance(right, exp.Paren):
            right = right.this
        if isinstance(right, exp.Subquery):
            return self._row_subquery(name, tree, right, scope)
        return self._rows_compared(name, tree.this, tree.expression, scope, tree)

    def _row_subquery(self, name: str, tree: exp.Expr, query: exp.Subquery, scope: Scope) -> Expression:
        """(a, b) = (query): the comparison with its only row; NULL if it has none."""
        relation = self.subquery(query, scope)
        operands = [self.expression(field, scope) for field in row_of(tree.this) or ()]
        self._check_columns(len(operands), relation, tree)
        if any(isinstance(node, (Aggregate, WindowCall)) for operand in operands for node in walk(operand)):
            raise self.unsupported("a row of aggregates compared with a subquery", tree)
        pairs = list(zip(operands, map(ColumnRef, relation.columns), strict=True))
        test = self._compared(name, pairs, tree)
        rows = Project(relation, (self.new_column("", test),), (test,))
        return Subquery(SubqueryKind.SCALAR, rows, BOOL, True)

    def _check_columns(self, wanted: int, relation: Relation, tree: exp.Expr) -> None:
        if wanted != len(relation.columns):
            few = "few" if len(relation.columns) < wanted else "many"
            raise PgError(SqlState.SYNTAX_ERROR, f"subquery has too {few} columns", position=self.at(tree))

    def _overlaps(self, tree: exp.Overlaps, scope: Scope) -> Expression:
        sides = [side.expressions if isinstance(side, exp.Tuple) else [side] for side in (tree.this, tree.expression)]
        for side, word in zip(sides, ("left", "right"), strict=True):
            if len(side) != 2:
                message = f"wrong number of parameters on {word} side of OVERLAPS expression"
                raise PgError(SqlState.SYNTAX_ERROR, message, position=self.at(tree))
        return self.call("overlaps", [*sides[0], *sides[1]], scope, tree)

    def _in_query(self, left: exp.Expr, query: exp.Expr, scope: Scope, tree: exp.Expr) -> Expression:
        relation = self.subquery(query, scope)
        fields = row_of(left)
        operands = [self.expression(e, scope) for e in (fields if fields is not None else [left])]
        self._check_columns(len(operands), relation, tree)
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
            if casts[-1].type == INTERVAL:
                typed[-1], casts[-1] = intervals.length_of(typed[-1]), intervals.length_of(casts[-1])
        projected = self.projected(relation, casts)
        holders = tuple(self.new_column("", operand) for operand in typed)
        pairs = zip(holders, projected.columns, strict=True)
        test = conjunction([self.operator("=", [ColumnRef(a), ColumnRef(b)], tree) for a, b in pairs])
        return Subquery(SubqueryKind.IN, projected, BOOL, True, tuple(typed), holders=holders, test=test)

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
            return self._quantified_query(name, every, left, inner, scope, right)
        operand = self.expression(left, scope)
        array = self.expression(inner, scope)
        if array.type == UNKNOWN:
            array = self.coerce(array, array_of(self.default_unknown(operand).type.without_modifiers))
        if array.type.element is None:
            message = "op ANY/ALL (array) requires array on right side"
            raise PgError(SqlState.WRONG_OBJECT_TYPE, message, position=self.at(right))
        self._last_column += 1
        element = Column(self._last_column, "", array.type.element, True)
        call = self.operator(name, [operand, ColumnRef(element)], right.parent)
        wanted = call.arguments[1].type.without_modifiers if isinstance(call, Call) else element.type
        if wanted.element is None and wanted.name != element.type.name:  # cast the array, not each element
            array = self.coerce(array, array_of(wanted))
            element = Column(element.id, "", array_of(wanted).element or wanted, True)
            call = self.operator(name, [operand, ColumnRef(element)], right.parent)
        return Quantified(call, element, array, every)

    def _quantified_query(
        self, name: str, every: bool, left: exp.Expr, query: exp.Expr, scope: Scope, tree: exp.Expr
    ) -> Expression:
        """operand operator ANY/ALL (query)"""
        relation = self.subquery(query, scope)
        fields = row_of(left)
        operands = [self.expression(e, scope) for e in (fields if fields is not None else [left])]
        self._check_columns(len(operands), relation, tree)
        outer = tree.parent if tree.parent is not None else tree
        for operand, column in zip(operands, relation.columns, strict=True):
            self.operator(name, [operand, ColumnRef(column)], outer)  # to fail in its own words
        typed = tuple(self._typed_like(o, c, name, outer) for o, c in zip(operands, relation.columns, strict=True))
        holders = tuple(self.new_column("", operand) for operand in typed)
        pairs = [(ColumnRef(h), ColumnRef(c)) for h, c in zip(holders, relation.columns, strict=True)]
        test = self._compared(name, pairs, outer)
        kind = SubqueryKind.ALL if every else SubqueryKind.ANY
        return Subquery(kind, relation, BOOL, True, typed, holders=holders, test=test)

    def _typed_like(self, operand: Expression, column: Column, name: str, tree: exp.Expr) -> Expression:
        """An operand whose type the operator told."""
        if operand.type != UNKNOWN:
            return operand
        call = self.operator(name, [operand, ColumnRef(column)], tree)
        return call.arguments[0] if isinstance(call, Call) else self.default_unknown(operand)

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
        scope = replace(scope, sets=None)
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
        if name != "coalesce" and (common.element is not None or common.name in ("bpchar", "jsonb")):
            return Call(GRAMMAR[name][0], tuple(coerced), common, nullable)
        form = intervals.EXTREMES.get(name) if common == INTERVAL else None
        return Call(form or _SAME_FORMS[name], tuple(coerced), common, nullable)

    def _nullif(self, arguments: list[Expression], tree: exp.Expr) -> Expression:
        if len(arguments) != 2:
            raise PgError(SqlState.SYNTAX_ERROR, "NULLIF requires two arguments", position=self.at(tree))
        equality = self.operator("=", arguments, tree)
        assert isinstance(equality, Call)
        first = equality.arguments[0]
        return Case(((equality, Literal(None, first.type)),), first, first.type)

    def _array(self, tree: exp.Array, scope: Scope) -> Expression:
        if len(tree.expressions) == 1 and isinstance(tree.expressions[0], (exp.Query, exp.Values)):
            return self._array_query(tree.expressions[0], scope, tree)
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

    def _array_query(self, query: exp.Expr, scope: Scope, tree: exp.Expr) -> Expression:
        """ARRAY(query): array_agg in the query's order, and an empty array of no rows."""
        relation = self.subquery(query, scope)
        if len(relation.columns) != 1:
            message = "subquery must return only one column"
            raise PgError(SqlState.SYNTAX_ERROR, message, position=self.at(tree))
        (column,) = relation.columns
        if column.type.element is not None:
            raise self.unsupported("an array of more than one dimension", tree)
        is_numeric = column.type.name == "numeric"
        element = bare_numeric(column.type.scale or 0) if is_numeric else column.type.without_modifiers
        relation, keys = self._with_order(relation)
        resolved = resolve.resolve_function("array_agg", _plain((element,)))
        assert resolved is not None
        value = self.rescale(ColumnRef(column), element)
        call = Aggregate(resolved.function, (value,), array_of(element), True, order=keys)
        result = self.new_column(column.name, call)
        rows = AggregateNode(relation, (), (call,), (result,))
        array = Subquery(SubqueryKind.SCALAR, rows, result.type, True)
        return Call(syntax.COALESCE, (array, Literal([], result.type)), result.type, False)

    def _with_order(self, relation: Relation) -> tuple[Relation, tuple[SortKey, ...]]:
        """The relation with what its ORDER BY sorts by in columns of their own, and the order by those."""
        match relation:
            case Sort(keys=keys):
                return relation, keys
            case Limit(input=input):
                below, keys = self._with_order(input)
                return replace(relation, input=below), keys
            case Project(input=input, columns=columns, expressions=expressions):
                below, keys = self._with_order(input)
                added = tuple(self.new_column("", key.expression) for key in keys)
                order = tuple(replace(k, expression=ColumnRef(c)) for k, c in zip(keys, added, strict=True))
                hidden = tuple(key.expression for key in keys)
                return Project(below, (*columns, *added), (*expressions, *hidden)), order
            case Values(columns=columns, rows=rows) if len(rows) > 1:
                place = self.new_column("", Literal(1, INT4))
                numbered = tuple((*row, Literal(number, INT4)) for number, row in enumerate(rows))
                return Values((*columns, place), numbered), (SortKey(ColumnRef(place), False, False),)
        return relation, ()

    def _subscript(self, tree: exp.Bracket, scope: Scope) -> Expression:
        array = self.expression(tree.this, scope)
        if array.type == JSONB and not isinstance(tree.expressions[0], exp.Slice):
            return self._json_subscript(array, tree, scope)
        if array.type.element is None:
            message = f"cannot subscript type {array.type.base_display} because it does not support subscripting"
            raise PgError(SqlState.DATATYPE_MISMATCH, message, position=self.at(tree))
        if len(tree.expressions) != 1 or (isinstance(tree.this, exp.Bracket) and not isinstance(tree.this, exp.Paren)):
            raise self.unsupported("an array of more than one dimension", tree)
        subscript = tree.expressions[0]
        if isinstance(subscript, exp.Slice):
            bounds = (
                Literal(default, INT4) if bound is None else self._array_index(bound, scope)
                for bound, default in ((subscript.this, 1), (subscript.expression, INT4_MAX))
            )
            return call_of(syntax.SLICE, (array, *bounds), array.type)
        index = self._array_index(subscript, scope)
        return Call(syntax.SUBSCRIPT, (array, index), array.type.element, True, array.type.element.precision or 0)

    def _array_index(self, tree: exp.Expr, scope: Scope) -> Expression:
        index = self.expression(tree, scope)
        try:
            return self.coerce(index, INT4, ASSIGNMENT)
        except PgError as error:
            if error.sqlstate is not SqlState.CANNOT_COERCE:
                raise
            message = "array subscript must have type integer"
            raise PgError(SqlState.DATATYPE_MISMATCH, message, position=self.at(tree)) from None

    def _json_subscript(self, json: Expression, tree: exp.Bracket, scope: Scope) -> Expression:
        """jsonb['key'] is jsonb #> '{key}'."""
        step = self.coerce(self.expression(tree.expressions[0], scope), TEXT, EXPLICIT)
        return self.operator("#>", [json, constant_array(self.array([step], self.at(tree)))], tree)

    def _escape(self, tree: exp.Escape, scope: Scope) -> Expression:
        like = tree.this
        if isinstance(like, exp.SimilarTo):
            return self._similar([like.this, like.expression, tree.expression], scope, like)
        name = _BINARY[type(like)]
        sides = [self.expression(e, scope) for e in (like.this, like.expression, tree.expression)]
        return self.operator("!" + name if like.args.get("negate") else name, sides, like)

    def _collate(self, tree: exp.Collate, scope: Scope) -> Expression:
        if tree.expression.name not in ("C", "POSIX", "default", "ucs_basic"):
            message = f'collation "{tree.expression.name}" for encoding "UTF8" does not exist'
            raise PgError(SqlState.UNDEFINED_OBJECT, message, position=self.at(tree.expression))
        return self.expression(tree.this, scope)

    def _cast(self, tree: exp.Cast, scope: Scope) -> Expression:
        inner = tree.this
        while isinstance(inner, exp.Paren):
            inner = inner.this
        fields = tree.args["to"].this
        if isinstance(fields, exp.Interval):  # 'text'::interval year to month
            if not isinstance(inner, exp.Literal):
                raise self.unsupported("a cast to an interval with fields", tree)
            return self._interval(exp.Interval(this=inner, unit=exp.Var(this=fields.args["unit"].sql().upper())), scope)
        if (digits := fraction_digits(tree.args["to"])) is not None:
            whole = exp.DataType(this=tree.args["to"].this)
            return self._rounded(self.expression(exp.Cast(this=tree.this, to=whole), scope), digits, tree)
        target = self.type_of(tree.args["to"])
        if isinstance(inner, exp.Array) and target.element is not None:
            elements = [
                self.coerce(self.expression(e, scope), target.element, EXPLICIT, self.at(e)) for e in inner.expressions
            ]
            return constant_array(Array(tuple(self.rescale(e, target.element) for e in elements), target))
        return self.coerce(self.expression(inner, scope), target, EXPLICIT, self._cast_position(tree))

    def _rounded(self, expression: Expression, digits: int, tree: exp.Expr) -> Expression:
        """timestamp(3) and the like."""
        return self.apply(expression.type.name, [expression, Literal(digits, INT4)], tree)

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

    def set_array(self, name: str, array: str, arguments: list[Expression], tree: exp.Expr) -> Expression:
        """The values of a column of a set-returning function's result; `array` names the row that computes them."""
        types = tuple(a.type.without_modifiers for a in arguments)
        try:
            resolved = resolve.resolve_set_array(array, _plain(types))
        except PgError as error:
            raise self._placed(error, self.at(tree)) from None
        if resolved is None:
            shown = f"{name}({', '.join(a.type.base_display for a in arguments)})"
            raise resolve.no_such("function", shown, len(arguments), self.at(tree))
        if resolved.result.name != "_numeric":
            return self._applied(resolved, arguments, tree)
        numbers = [self.coerce(a, NUMERIC) for a in arguments]
        scale = max(number.type.scale or 0 for number in numbers)
        exact = tuple(self.rescale(number, bare_numeric(scale)) for number in numbers)
        return Call(resolved.function, exact, array_of(bare_numeric(scale)), True)

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
        within = None
        if isinstance(call, exp.WithinGroup):
            within = call.expression.expressions
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
        if within is not None or name in ORDERED_SETS:
            order_trees = self._ordered_set(name, within, distinct or bool(order_trees), call)
            arguments.extend(order.this for order in order_trees)
        if star and distinct:
            raise PgError(SqlState.SYNTAX_ERROR, 'syntax error at or near "*"', position=self.at(call))
        if name in SETS or name == "unnest":
            return self.set_returning(call, scope)
        if name == "grouping":
            return self._grouping(call, scope)
        if name == "array" and len(arguments) == 1 and isinstance(arguments[0], (exp.Query, exp.Values)):
            return self._array_query(arguments[0], scope, call)
        if name == "row":
            raise self.unsupported("a row as a value", call)
        if name == "make_interval":
            arguments = intervals.positional(arguments)
        if name in SESSION_FUNCTIONS and not arguments and not star:
            return self.session_value(name, call)
        if name in ("current_timestamp", "localtimestamp", "localtime") and len(arguments) == 1:
            return self._rounded(self.session_value(name, call), int(arguments[0].name or 0), call)
        if name in _SAME_FORMS and not arguments:
            raise PgError(SqlState.SYNTAX_ERROR, 'syntax error at or near ")"', position=self.at(call))
        if name in _SAME_FORMS:
            inner = replace(scope, sets=None)
            return self._same_type(name, [self.expression(a, inner) for a in arguments], call)
        if name == "nullif":
            return self._nullif([self.expression(a, scope) for a in arguments], call)
        if name == "pg_typeof" and len(arguments) == 1:
            return Literal(self.expression(arguments[0], scope).type.base_display, TEXT)
        if name == "normalize" and len(arguments) == 2 and isinstance(arguments[1], exp.Column):
            arguments = [arguments[0], self._normal_form(arguments[1])]
        if name == "pg_is_in_recovery" and not arguments:
            return Literal(False, BOOL)
        if name == "current_setting" and len(arguments) in (1, 2):
            return self._current_setting(arguments, scope, call)
        if name in SIGNALS and len(arguments) == 1 and not star:
            return self._signal(name, arguments[0], scope, call)
        if name in INQUIRIES and len(arguments) in (2, 3) and not star:
            return self._inquiry(name, arguments, scope, call)
        nests = is_aggregate(name) and scope.clause is None and not over
        inner = replace_scope(scope, clause="aggregate function calls") if nests else scope
        bound = [self.expression(a, inner) for a in arguments]
        if name == "age" and len(bound) == 1:
            if bound[0].type == UNKNOWN:
                message = "function age(unknown) is not unique"
                raise PgError(SqlState.AMBIGUOUS_FUNCTION, message, position=self.at(call))
            bound.insert(0, self.session_value("current_date", call))
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
        if resolved.function.kind is Kind.WINDOW and not over:
            message = f"window function {name} requires an OVER clause"
            raise PgError(SqlState.WRONG_OBJECT_TYPE, message, position=self.at(call))
        return self._aggregate(resolved, bound, distinct, order_trees, where, scope, inner, call)

    def _grouping(self, tree: exp.Anonymous, scope: Scope) -> Expression:
        if scope.clause is not None:
            message = f"grouping operations are not allowed in {scope.clause}"
            raise PgError(SqlState.GROUPING_ERROR, message, position=self.at(tree))
        arguments = tuple(self.default_unknown(self.expression(a, scope)) for a in tree.expressions)
        if len(arguments) > 31:
            message = "GROUPING must have fewer than 32 arguments"
            raise PgError(SqlState.TOO_MANY_ARGUMENTS, message, position=self.at(tree))
        return Call(syntax.GROUPING, arguments, INT4, False)

    def _ordered_set(
        self, name: str, within: Sequence[exp.Ordered] | None, ordered_inside: bool, tree: exp.Expr
    ) -> list[exp.Ordered]:
        """The terms of WITHIN GROUP (ORDER BY ...), which are arguments too. 42809."""
        if within is None:
            message = f"WITHIN GROUP is required for ordered-set aggregate {name}"
            raise PgError(SqlState.WRONG_OBJECT_TYPE, message, position=self.at(tree))
        if name in ("rank", "dense_rank", "percent_rank", "cume_dist"):
            raise self.unsupported(f"the hypothetical-set aggregate {name}", tree)
        if name not in ORDERED_SETS:
            raise resolve.no_such("function", f"{name}(...)", 2, self.at(tree))
        if ordered_inside:
            message = "cannot use DISTINCT or ORDER BY with WITHIN GROUP"
            raise PgError(SqlState.SYNTAX_ERROR, message, position=self.at(tree))
        return list(within)

    def _current_setting(self, arguments: Sequence[exp.Expr], scope: Scope, tree: exp.Expr) -> Expression:
        if self.maintained:
            message = "cannot materialize call to current_setting()"
            raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, position=self.at(tree))
        return SessionValue("current_setting", TEXT, self.coerce(self.expression(arguments[0], scope), TEXT))

    def _signal(self, name: str, process_id: exp.Expr, scope: Scope, tree: exp.Expr) -> Expression:
        if self.maintained:
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED, f"cannot materialize call to {name}()", position=self.at(tree)
            )
        return SessionValue(name, BOOL, self.coerce(self.expression(process_id, scope), INT4))

    def _inquiry(self, name: str, arguments: Sequence[exp.Expr], scope: Scope, tree: exp.Expr) -> Expression:
        if self.maintained:
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED, f"cannot materialize call to {name}()", position=self.at(tree)
            )
        texts = tuple(self.coerce(self.expression(argument, scope), TEXT) for argument in arguments)
        if any(isinstance(node, ColumnRef | Subquery) for text in texts for node in walk(text)):
            raise self.unsupported(f"{name}() of columns", tree)
        return SessionValue(name, BOOL, Array(texts, array_of(TEXT)))

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
        if function.prepare is not None:
            coerced = self._prepared(function, coerced, tree)
        order: tuple[SortKey, ...]
        if function.name in ORDERED_SETS:
            order = (self.sort_key(order_trees[0], coerced[-1]),)
            if len(coerced) > 1 and not isinstance(coerced[0], Literal):
                raise self.unsupported(f"a fraction of {function.name} that is not a constant", tree)
        else:
            order = tuple(self.sort_key(o, self.default_unknown(self.expression(o.this, inner))) for o in order_trees)
        if distinct and any(key.expression not in coerced for key in order):
            message = "in an aggregate with DISTINCT, ORDER BY expressions must appear in argument list"
            raise PgError(SqlState.INVALID_COLUMN_REFERENCE, message, position=self.at(tree))
        if order and function.name not in _ORDER_MATTERS:
            order = ()
        for argument in coerced:
            if distinct:
                self.operator("=", [argument, argument], tree)
            if distinct and argument.type == INTERVAL:
                self.groupable(argument, tree)
        condition = self.condition(where, inner, "FILTER") if where is not None else None
        coerced, result = self._polymorphic(resolved, coerced)
        call = call_of(function, coerced, result)
        return Aggregate(
            function, coerced, call.type, call.nullable, call.precision, distinct, order, condition, self.at(tree)
        )

    def _prepared(
        self, function: Function, arguments: tuple[Expression, ...], tree: exp.Expr
    ) -> tuple[Expression, ...]:
        assert function.prepare is not None
        try:
            return function.prepare(arguments)
        except PgError as error:
            raise self._placed(error, self.at(tree)) from None

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
        if expression.type.element is not None and expression.type.element.name in _UNORDERED:
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
            if scope.clause == "aggregate function calls":
                message = "aggregate function calls cannot contain window function calls"
                raise PgError(SqlState.GROUPING_ERROR, message, position=self.at(tree))
            message = f"window functions are not allowed in {scope.clause}"
            raise PgError(SqlState.WINDOWING_ERROR, message, position=self.at(tree))
        call = self._function(tree.this, scope, over=True)
        if not isinstance(call, Aggregate):
            name = function_name(tree.this) if isinstance(tree.this, exp.Anonymous) else "this"
            message = f"OVER specified, but {name} is not a window function nor an aggregate function"
            raise PgError(SqlState.WRONG_OBJECT_TYPE, message, position=self.at(tree))
        if call.function.name in ORDERED_SETS:
            message = f"OVER is not supported for ordered-set aggregate {call.function.name}"
            raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, position=self.at(tree))
        if call.distinct:
            message = "DISTINCT is not implemented for window functions"
            raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, position=self.at(tree))
        if call.order:
            message = "aggregate ORDER BY is not implemented for window functions"
            raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, position=self.at(tree))
        if call.filter is not None and call.function.kind is Kind.WINDOW:
            message = "FILTER is not implemented for non-aggregate window functions"
            raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, position=self.at(tree))
        partition_trees, order_tree, spec = self._definition(tree, scope, list(scope.windows))
        inner = replace_scope(scope, clause="window definitions")
        inner.clause = None
        partition = tuple(self.default_unknown(self.expression(p, inner)) for p in partition_trees)
        for expression in partition:
            self.groupable(expression, tree)
        order = tuple(
            self.sort_key(o, self.default_unknown(self.expression(o.this, inner)))
            for o in (order_tree.expressions if order_tree is not None else ())
        )
        frame, order = self._frame(spec, call, order, tree)
        return WindowCall(call, partition, order, frame, self.at(tree))

    def _definition(
        self, tree: exp.Expr, scope: Scope, known: Sequence[str]
    ) -> tuple[Sequence[exp.Expr], exp.Expr | None, exp.Expr | None]:
        """PARTITION BY, ORDER BY and frame of a window, with what it takes over from one of those `known` by name."""
        partition, order, spec = (tree.args.get(k) for k in ("partition_by", "order", "spec"))
        base = tree.args.get("alias")
        if base is None:
            return partition or (), order, spec
        if base.name not in known:
            message = f'window "{base.name}" does not exist'
            raise PgError(SqlState.UNDEFINED_OBJECT, message, position=self.at(base))
        before = known[: known.index(base.name)]
        base_partition, base_order, base_spec = self._definition(scope.windows[base.name], scope, before)
        fault = None
        if partition:
            fault = f'cannot override PARTITION BY clause of window "{base.name}"'
        elif order is not None and base_order is not None:
            fault = f'cannot override ORDER BY clause of window "{base.name}"'
        elif base_spec is not None and (order is not None or spec is not None or not isinstance(tree.this, exp.Func)):
            fault = f'cannot copy window "{base.name}" because it has a frame clause'
        if fault is not None:
            raise PgError(SqlState.WINDOWING_ERROR, fault, position=self.at(base))
        return base_partition, base_order if order is None else order, base_spec if spec is None else spec

    def _frame(
        self, spec: exp.Expr | None, call: Aggregate, order: tuple[SortKey, ...], tree: exp.Expr
    ) -> tuple[str, tuple[SortKey, ...]]:
        """The frame's text, and the order that it wants. 42P20; 0A000 for what Spark has not."""
        if spec is None:
            return "", order
        kind = spec.args["kind"].upper()
        bounds = [
            self._frame_bound(spec, side, kind, order, tree) if spec.args.get(side) is not None else "CURRENT ROW"
            for side in ("start", "end")
        ]
        self._check_frame(bounds[0], bounds[1], tree)
        if kind == "GROUPS" and not order:
            message = "GROUPS mode requires an ORDER BY clause"
            raise PgError(SqlState.WINDOWING_ERROR, message, position=self.at(tree))
        if kind == "RANGE" and any(bound[0].isdigit() or bound.startswith(("CAST", "INTERVAL")) for bound in bounds):
            order = (replace(order[0], expression=_ranged(order[0].expression)),)
        if call.function.kind is Kind.WINDOW and not call.function.name.endswith("_value"):
            return "", order  # a frame means nothing to them
        exclude = spec.args.get("exclude")
        if exclude is not None and exclude.name.upper() != "NO OTHERS":
            raise self.unsupported(f"a window frame with EXCLUDE {exclude.name.upper()}", tree)
        if kind == "GROUPS":
            raise self.unsupported("a window frame in GROUPS mode", tree)
        if kind == "RANGE" and not order:
            return "", order  # all rows are peers
        if _is_backwards(*bounds):
            raise self.unsupported("a window frame that ends before it starts", tree)
        if any("MONTH" in bound for bound in bounds) and any("DAY" in bound for bound in bounds):
            raise self.unsupported("RANGE with an offset of months and one of days", tree)
        return f"{kind} BETWEEN {bounds[0]} AND {bounds[1]}", order

    def _check_frame(self, start: str, end: str, tree: exp.Expr) -> None:
        fault = None
        if start == "UNBOUNDED FOLLOWING":
            fault = "frame start cannot be UNBOUNDED FOLLOWING"
        elif end == "UNBOUNDED PRECEDING":
            fault = "frame end cannot be UNBOUNDED PRECEDING"
        elif start == "CURRENT ROW" and end.endswith("PRECEDING"):
            fault = "frame starting from current row cannot have preceding rows"
        elif start.endswith("FOLLOWING") and not end.endswith("FOLLOWING"):
            fault = "frame starting from following row cannot have preceding rows"
        if fault is not None:
            raise PgError(SqlState.WINDOWING_ERROR, fault, position=self.at(tree))

    def _frame_bound(self, spec: exp.Expr, side: str, kind: str, order: tuple[SortKey, ...], tree: exp.Expr) -> str:
        """UNBOUNDED PRECEDING, CURRENT ROW, 3 FOLLOWING, ... in Spark's words."""
        bound = spec.args[side]
        direction = (spec.args.get(f"{side}_side") or "").upper()
        if isinstance(bound, str):
            return f"{bound.upper()} {direction}".strip()
        offset = self.expression(bound, Scope())
        if kind == "RANGE":
            if len(order) != 1:
                message = "RANGE with offset PRECEDING/FOLLOWING requires exactly one ORDER BY column"
                raise PgError(SqlState.WINDOWING_ERROR, message, position=self.at(tree))
            offset = self._range_offset(offset, order[0].expression, tree)
        else:
            try:
                offset = self.coerce(offset, INT8, ASSIGNMENT)
            except PgError as error:
                if error.sqlstate is not SqlState.CANNOT_COERCE:
                    raise
                message = f"argument of {kind} must be type bigint, not type {offset.type.base_display}"
                raise PgError(SqlState.DATATYPE_MISMATCH, message, position=self.at(bound)) from None
        if not isinstance(offset, Literal):
            raise self.unsupported("a window frame whose offset is not a constant", tree)
        what = "starting" if side == "start" else "ending"
        if offset.value is None:
            message = f"frame {what} offset must not be null"
            raise PgError(SqlState.NULL_VALUE_NOT_ALLOWED, message, position=self.at(bound))
        parts = offset.value if offset.type == INTERVAL else (offset.value,)
        if any(part < 0 for part in parts):
            message = "invalid preceding or following size in window function"
            message = message if kind == "RANGE" else f"frame {what} offset must not be negative"
            raise PgError(SqlState.INVALID_PRECEDING_OR_FOLLOWING_SIZE, message, position=self.at(bound))
        if kind != "RANGE":
            return f"{offset.value} {direction}" if offset.value <= INT4_MAX else f"UNBOUNDED {direction}"
        return f"{self._range_text(offset, order[0].expression, tree)} {direction}"

    def _range_offset(self, offset: Expression, key: Expression, tree: exp.Expr) -> Expression:
        """The offset in the type that goes with the order's."""
        name = key.type.name
        if name in ("int2", "int4", "int8", "numeric", "float4", "float8"):
            wanted = FLOAT8 if name.startswith("float") else NUMERIC if name == "numeric" else INT8
        elif name in ("date", "timestamp", "timestamptz"):
            wanted = INTERVAL
        else:
            raise self.unsupported(f"RANGE with offset PRECEDING/FOLLOWING for column type {key.type.display}", tree)
        try:
            return self.coerce(offset, wanted)
        except PgError as error:
            if error.sqlstate is not SqlState.CANNOT_COERCE:
                raise
            raise self.unsupported(
                f"RANGE with offset PRECEDING/FOLLOWING for column type {key.type.base_display} "
                f"and offset type {offset.type.base_display}",
                tree,
            ) from None

    def _range_text(self, offset: Literal, key: Expression, tree: exp.Expr) -> str:
        if offset.type == INTERVAL:
            months, days, nanoseconds = offset.value
            if key.type == TIMESTAMPTZ and not self.is_utc:
                raise self.unsupported("RANGE over timestamp with time zone outside UTC", tree)
            if months and (days or nanoseconds):
                raise self.unsupported("RANGE with an offset of months and days", tree)
            if months:
                return f"INTERVAL '{months}' MONTH"
            seconds, us = divmod(nanoseconds // 1000, 1_000_000)
            minutes, seconds = divmod(seconds, 60)
            hours, minutes = divmod(minutes, 60)
            clock = f"{days + hours // 24} {hours % 24:02}:{minutes:02}:{seconds:02}.{us:06}"
            return f"INTERVAL '{clock}' DAY TO SECOND"
        if offset.type == FLOAT8:
            if offset.value - offset.value != 0:
                raise self.unsupported("RANGE with an infinite offset", tree)
            return f"CAST('{offset.value!r}' AS DOUBLE)"
        target = _ranged(key).type
        if target == INT8:
            return f"CAST({min(offset.value, 1 << 61)} AS BIGINT)"
        scale = target.scale or 0
        value = Decimal(offset.value)
        exponent = value.as_tuple().exponent
        if isinstance(exponent, int) and -exponent > scale:
            raise self.unsupported("RANGE with an offset of more decimals than the column", tree)
        return f"CAST('{value:f}' AS DECIMAL({target.precision},{scale}))"

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

    def _overlay(self, tree: exp.Overlay, scope: Scope) -> Expression:
        places = [tree.args[k] for k in ("from_", "for_") if tree.args.get(k) is not None]
        return self.call("overlay", [tree.this, tree.expression, *places], scope, tree)

    def _normal_form(self, tree: exp.Column) -> exp.Expr:
        """NFC, NFD, NFKC and NFKD are words of normalize's own."""
        if tree.name not in ("nfc", "nfd", "nfkc", "nfkd"):
            raise PgError(SqlState.SYNTAX_ERROR, f'syntax error at or near "{tree.name}"', position=self.at(tree))
        return exp.Literal.string(tree.name)

    def _similar(self, sides: Sequence[exp.Expr], scope: Scope, tree: exp.Expr) -> Expression:
        """text SIMILAR TO pattern [ESCAPE character]"""
        return self.operator("SIMILAR TO", [self.expression(side, scope) for side in sides], tree)

    def _trim(self, tree: exp.Trim, scope: Scope) -> Expression:
        name = trim_name(tree)
        characters = tree.expression
        return self.call(name, [tree.this] if characters is None else [tree.this, characters], scope, tree)


# -- small makers ---------------------------------------------------------------------------------------------------


def call_of(function: Function, arguments: tuple[Expression, ...], result: PgType) -> Call:
    """The node with its type, scale and nullability."""
    nullable = {
        Nulls.STRICT: any(a.nullable for a in arguments),
        Nulls.OPTIONAL: True,
        Nulls.MAYBE: True,
        Nulls.NEVER: False,
    }[function.nulls]
    if function.shape is not None:
        shape = function.shape(arguments)
        return Call(function, arguments, replace(result, precision=None, scale=shape.scale), nullable, shape.precision)
    if result.name == "numeric" and function.result in POLYMORPHIC:
        elements = [a.type.element.precision or 0 if a.type.element is not None else precision(a) for a in arguments
                    if (a.type.element or a.type).name == "numeric"]  # fmt: skip
        return Call(function, arguments, result, nullable, elements[0] if len(elements) == 1 else 0)
    return Call(function, arguments, result, nullable)


def _is_backwards(start: str, end: str) -> bool:
    """Whether a frame of ROWS is empty, as from 2 PRECEDING to 3 PRECEDING."""
    first, last = (int(bound.split()[0]) if bound[0].isdigit() else None for bound in (start, end))
    if first is None or last is None or start.split()[1] != end.split()[1]:
        return False
    return first < last if start.endswith("PRECEDING") else first > last


def _ranged(key: Expression) -> Expression:
    """What a RANGE with an offset is ordered by: a type in which adding the offset does not overflow."""
    targets = {"int2": INT8, "int4": INT8, "int8": numeric(21), "float4": FLOAT8, "date": TIMESTAMP}
    if key.type.name == "numeric":
        return Cast(key, numeric(NUMERIC_PRECISION_MAX, key.type.scale or 0))
    target = targets.get(key.type.name)
    return key if target is None else Cast(key, target)


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


def row_of(tree: exp.Expr) -> list[exp.Expr] | None:
    """The fields of (a, b) or ROW(a, b); None if it is no row."""
    while isinstance(tree, exp.Paren):
        tree = tree.this
    if isinstance(tree, exp.Tuple) or (isinstance(tree, exp.Anonymous) and function_name(tree) == "row"):
        return list(tree.expressions)
    return None


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
    exp.Localtime: "localtime",
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


def fraction_digits(tree: exp.Expr) -> int | None:
    """n of timestamp(n), time(n) or interval(n)."""
    kinds = (exp.DType.TIME, exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ, exp.DType.INTERVAL)
    if isinstance(tree, exp.DataType) and tree.this in kinds and tree.expressions:
        return int(tree.expressions[0].name)
    return None


def type_spelling(tree: exp.Expr) -> str:
    """A DataType in the words of `parse_type`."""
    if not isinstance(tree, exp.DataType):
        return tree.name.lower()
    if tree.this == exp.DType.ARRAY:
        return f"{type_spelling(tree.expressions[0])}[]" if tree.expressions else "array"
    if isinstance(tree.this, exp.Interval):
        return "interval"
    if tree.this == exp.DType.USERDEFINED:
        kind = tree.args.get("kind")
        if isinstance(kind, exp.Identifier) and kind.quoted and kind.name == "char":
            return '"char"'  # a type of its own, a byte
        return kind.name if isinstance(kind, exp.Expr) else str(kind)
    name = _TYPE_NAMES.get(tree.this, tree.this.value.lower())
    sizes = [str(size.name) for size in tree.expressions]
    if name == "float8" and sizes:
        name = "float"
    return f"{name}({','.join(sizes)})" if sizes else name
