"""Translates Spark's exceptions to PostgreSQL's errors.

Spark identifies an error by its condition (`DIVIDE_BY_ZERO`, `CAST_INVALID_INPUT`, ...) and gives values as message
parameters. The error of a task may be wrapped, so the chain of causes is searched for the first known one. An unknown
error becomes XX000: the client gets one line, the log gets the whole stack trace.

A query raises an error with a given SQLSTATE by Spark's `raise_error` with the text `SSSSS:message`, where SSSSS is the
SQLSTATE, e.g. `raise_error('2201E:cannot take logarithm of zero')`.

Source: Spark's error-conditions.json; PostgreSQL's wording from its backend (utils/adt).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import structlog

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import NUMERIC_PRECISION_MAX

LINE_MAX = 300
_TRACEBACK = "Traceback (most recent call last):"
_log = structlog.get_logger()

_PG_NAMES = {
    "BOOLEAN": "boolean",
    "SMALLINT": "smallint",
    "INT": "integer",
    "BIGINT": "bigint",
    "FLOAT": "real",
    "DOUBLE": "double precision",
    "DECIMAL": "numeric",
    "DATE": "date",
    "TIME": "time",
    "TIMESTAMP_NTZ": "timestamp",
    "TIMESTAMP": "timestamp with time zone",
    "INTERVAL": "interval",
    "BINARY": "bytea",
}
_STATES: frozenset[str] = frozenset(SqlState)
_DATETIMES = ("DATE", "TIME", "TIMESTAMP_NTZ", "TIMESTAMP", "INTERVAL")


@dataclass(frozen=True, slots=True)
class Fault:
    """One exception of a chain: its Java class (`kind`), its message, and its condition and parameters, if any."""

    kind: str
    message: str
    condition: str = ""
    sqlstate: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def line(self) -> str:
        """The first line of the message, without the leading `[CONDITION]` and the trailing SQLSTATE.

        If the message contains the traceback of a Python worker, the line with the Python exception.
        """
        _, trace, text = self.message.rpartition(_TRACEBACK)
        lines = [line.strip() for line in text.splitlines() if line.strip() and not (trace and line.startswith(" "))]
        text = next(iter(lines), self.kind.rpartition(".")[2])
        text = re.sub(r"^\[[A-Z0-9_.]+\]\s*", "", text)
        return re.split(r"SQLSTATE: \w{5}", text, maxsplit=1)[0].rstrip()[:LINE_MAX]


class Failure(Exception):
    """An exception of Spark: the chain of causes, outermost first and never empty, and the whole stack trace."""

    def __init__(self, chain: tuple[Fault, ...], trace: str, *, spark_stopped: bool = False) -> None:
        """`spark_stopped`: Spark is shutting down, so the query is not the cause."""
        super().__init__(chain[0].line)
        self.chain = chain
        self.trace = trace
        self.spark_stopped = spark_stopped

    @property
    def no_memory(self) -> bool:
        """Whether an allocation failed. All statements share the memory, so that another one may be the cause."""
        return any(_ALLOCATION_FAILED.search(f"{fault.kind}: {fault.message}") for fault in self.chain)


def pg_error(failure: Failure, sql: str) -> PgError:
    """Returns the error to send to the client for a failure of `sql`. Logs a failure that is not known."""
    named = [fault for fault in failure.chain if fault.condition]
    for fault in (*named, *reversed(failure.chain)):  # without a condition, the innermost cause is the most specific
        if (known := translate(fault)) is not None:
            return known
    _log.error("spark statement failed", sql=sql, trace=failure.trace)
    return PgError(SqlState.INTERNAL_ERROR, f"the query could not be computed: {failure.chain[-1].line}")


def out_of_memory() -> PgError:
    """The error of a statement for which the memory of Spark is not sufficient (53200)."""
    return PgError(SqlState.OUT_OF_MEMORY, "out of memory", hint=_HINTS[SqlState.OUT_OF_MEMORY])


def translate(fault: Fault) -> PgError | None:
    """Returns the PostgreSQL error for one fault; None if the fault is not known."""
    condition = fault.condition
    while condition:  # A.B.C, then A.B, then A
        if (rule := _BY_CONDITION.get(condition)) is not None:
            return rule(fault)
        condition = condition.rpartition(".")[0]
    for pattern, sqlstate, text in _BY_TEXT:
        if pattern.search(f"{fault.kind}: {fault.message}"):
            return PgError(sqlstate, text.format(fault=fault), hint=_HINTS.get(sqlstate))
    if fault.sqlstate.startswith("22") and fault.sqlstate in _STATES:
        return PgError(SqlState(fault.sqlstate), fault.line)
    return None


def _unquoted(value: str) -> str:
    """Removes the quotes of a value (`'it\\'s'`), a type (`"INT"`) or a name (`` `name` ``) as Spark prints it."""
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"`":
        value = re.sub(r"\\(.)", r"\1", value[1:-1])
    return value


def _target(fault: Fault) -> tuple[str, str]:
    """Returns the target type of a failed cast: (Spark's name without modifiers, PostgreSQL's name)."""
    spark = re.split(r"[(<]", _unquoted(fault.parameters.get("targetType", "")))[0]
    return spark, _PG_NAMES.get(spark, spark.lower() or "unknown")


def _bad_input(fault: Fault) -> PgError:
    spark, name = _target(fault)
    text = _unquoted(fault.parameters.get("expression", ""))
    if spark in ("SMALLINT", "INT", "BIGINT") and re.fullmatch(r"\s*[+-]?\d+\s*", text):
        return PgError(SqlState.NUMERIC_VALUE_OUT_OF_RANGE, f'value "{text}" is out of range for type {name}')
    state = SqlState.INVALID_DATETIME_FORMAT if spark in _DATETIMES else SqlState.INVALID_TEXT_REPRESENTATION
    return PgError(state, f'invalid input syntax for type {name}: "{text}"')


def _out_of_range(name: str) -> PgError:
    text = f"{name} out of range" if name in ("smallint", "integer", "bigint") else "value out of range: overflow"
    return PgError(SqlState.NUMERIC_VALUE_OUT_OF_RANGE, text)


def _numeric_overflow(fault: Fault) -> PgError:
    precision, scale = (int(fault.parameters.get(name, "38")) for name in ("precision", "scale"))
    bound = f"10^{precision - scale}" if precision > scale else "1"
    return PgError(
        SqlState.NUMERIC_VALUE_OUT_OF_RANGE,
        "numeric field overflow",
        detail=f"A field with precision {precision}, scale {scale} must round to an absolute value less than {bound}.",
        hint="Round the value, or use double precision." if precision == NUMERIC_PRECISION_MAX else None,
    )


def _arithmetic_overflow(fault: Fault) -> PgError:
    text = f"{fault.message} {fault.parameters.get('message', '')}"
    names = {"short": "smallint", "integer": "integer", "long": "bigint"}
    return _out_of_range(next((pg for java, pg in names.items() if f"{java} overflow" in text), ""))


def _raised(fault: Fault) -> PgError | None:
    match = re.fullmatch(r"([0-9A-Z]{5}):(.*)", fault.parameters.get("errorMessage", ""), re.DOTALL)
    if match is None or match[1] not in _STATES:
        return None
    return PgError(SqlState(match[1]), match[2])


def _error(sqlstate: SqlState, text: str, *parameters: str) -> Callable[[Fault], PgError]:
    def rule(fault: Fault) -> PgError:
        values = (_unquoted(fault.parameters.get(name, "?")) for name in parameters)
        return PgError(sqlstate, text.format(*values, fault=fault), hint=_HINTS.get(sqlstate))

    return rule


def _negative_bound(fault: Fault) -> PgError:
    if _unquoted(fault.parameters.get("name", "")) == "offset":
        return PgError(SqlState.INVALID_ROW_COUNT_IN_RESULT_OFFSET_CLAUSE, "OFFSET must not be negative")
    return PgError(SqlState.INVALID_ROW_COUNT_IN_LIMIT_CLAUSE, "LIMIT must not be negative")


_HINTS = {
    SqlState.OUT_OF_MEMORY: "Ask for fewer rows at a time, or restart the server with a larger --spark-memory "
    "(on a cluster, also with a larger spark.executor.memory).",
    SqlState.DISK_FULL: "Make room in the data directory, where Spark keeps temporary files, or ask for fewer rows at "
    "a time.",
}
_division_by_zero = _error(SqlState.DIVISION_BY_ZERO, "division by zero")
_cancelled = _error(SqlState.QUERY_CANCELED, "canceling statement due to user request")
_bad_pattern = _error(SqlState.INVALID_REGULAR_EXPRESSION, "invalid regular expression: {}", "value")

_BY_CONDITION: dict[str, Callable[[Fault], PgError | None]] = {
    "DIVIDE_BY_ZERO": _division_by_zero,
    "REMAINDER_BY_ZERO": _division_by_zero,
    "INTERVAL_DIVIDED_BY_ZERO": _division_by_zero,
    "ARITHMETIC_OVERFLOW": _arithmetic_overflow,
    "BINARY_ARITHMETIC_OVERFLOW": lambda _: _out_of_range("smallint"),
    "CAST_OVERFLOW": lambda fault: _out_of_range(_target(fault)[1]),
    "NUMERIC_VALUE_OUT_OF_RANGE": _numeric_overflow,
    "NUMERIC_OUT_OF_SUPPORTED_RANGE": _numeric_overflow,
    "CAST_INVALID_INPUT": _bad_input,
    "DATETIME_FIELD_OUT_OF_BOUNDS": _error(SqlState.DATETIME_FIELD_OVERFLOW, "date/time field value out of range"),
    "DATETIME_OVERFLOW": _error(SqlState.DATETIME_FIELD_OVERFLOW, "timestamp out of range"),
    "INTERVAL_ARITHMETIC_OVERFLOW": _error(SqlState.INTERVAL_FIELD_OVERFLOW, "interval out of range"),
    "INVALID_ARRAY_INDEX": _error(SqlState.ARRAY_SUBSCRIPT_ERROR, "array subscript out of range"),
    "INVALID_ARRAY_INDEX_IN_ELEMENT_AT": _error(SqlState.ARRAY_SUBSCRIPT_ERROR, "array subscript out of range"),
    "MALFORMED_CHARACTER_CODING": _error(
        SqlState.CHARACTER_NOT_IN_REPERTOIRE, "invalid byte sequence for encoding {}", "charset"
    ),
    "COLLECTION_SIZE_LIMIT_EXCEEDED": lambda _: PgError(
        SqlState.PROGRAM_LIMIT_EXCEEDED,
        "array size exceeds the maximum allowed (2147483632)",
        hint="Call generate_series() and similar functions in FROM, where their rows do not have to fit into an array.",
    ),
    "SCALAR_SUBQUERY_TOO_MANY_ROWS": _error(
        SqlState.CARDINALITY_VIOLATION, "more than one row returned by a subquery used as an expression"
    ),
    "INVALID_LIMIT_LIKE_EXPRESSION.IS_NEGATIVE": _negative_bound,
    "RECURSION_LEVEL_LIMIT_EXCEEDED": _error(SqlState.PROGRAM_LIMIT_EXCEEDED, "a recursive query did not end"),
    "RECURSION_ROW_LIMIT_EXCEEDED": _error(
        SqlState.PROGRAM_LIMIT_EXCEEDED, "a recursive query of more than {} rows", "rowLimit"
    ),
    "INVALID_PARAMETER_VALUE.PATTERN": _bad_pattern,
    "TABLE_OR_VIEW_NOT_FOUND": _error(SqlState.UNDEFINED_TABLE, 'relation "{}" does not exist', "relationName"),
    "UNRESOLVED_COLUMN": _error(SqlState.UNDEFINED_COLUMN, 'column "{}" does not exist', "objectName"),
    "UNRESOLVED_ROUTINE": _error(SqlState.UNDEFINED_FUNCTION, "function {} does not exist", "routineName"),
    "SPARK_JOB_CANCELLED": _cancelled,
    "OPERATION_CANCELED": _cancelled,
    "USER_RAISED_EXCEPTION": _raised,
}

# Arrow reports a leak instead of the failed allocation if it must release what was allocated before the failure.
_ALLOCATION_FAILED = re.compile(
    r"OutOfMemory(?:Error|Exception)|OutOfDirectMemoryError|UNABLE_TO_ACQUIRE_MEMORY|Memory was leaked by query"
)

_BY_TEXT: tuple[tuple[re.Pattern[str], SqlState, str], ...] = tuple(
    (re.compile(pattern), sqlstate, text)
    for pattern, sqlstate, text in (
        (r"PatternSyntaxException", SqlState.INVALID_REGULAR_EXPRESSION, "invalid regular expression: {fault.line}"),
        (_ALLOCATION_FAILED.pattern, SqlState.OUT_OF_MEMORY, "out of memory"),
        (r"maxResultSize|Cannot broadcast the table", SqlState.OUT_OF_MEMORY, "out of memory"),
        (r"RESOURCE_EXHAUSTED", SqlState.PROGRAM_LIMIT_EXCEEDED, "{fault.line}"),
        (r"No space left on device", SqlState.DISK_FULL, "could not write temporary data: no space left on device"),
        (
            r"Invalid value for NanoOfDay",
            SqlState.FEATURE_NOT_SUPPORTED,
            "time 24:00:00 in a computed query is not supported",
        ),
        (r"StackOverflowError", SqlState.STATEMENT_TOO_COMPLEX, "stack depth limit exceeded"),
        (r"ArithmeticException: (integer|short) overflow", SqlState.NUMERIC_VALUE_OUT_OF_RANGE, "integer out of range"),
        (r"ArithmeticException: long overflow", SqlState.NUMERIC_VALUE_OUT_OF_RANGE, "bigint out of range"),
    )
)
