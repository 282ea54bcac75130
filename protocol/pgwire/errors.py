"""Errors and notices for clients: PostgreSQL's SQLSTATE codes and error fields.

Source: PostgreSQL manual, chapter 55.8 "Error and Notice Message Fields" and appendix A. The code that detects an error
raises a complete `PgError`; the session converts it into an ErrorResponse.
The primary message is one line, lower case, without a full stop; detail and hint are sentences.
"""

from __future__ import annotations

from enum import StrEnum


class SqlState(StrEnum):
    """PostgreSQL's five-character error codes (appendix A), as far as Tidewire sends them."""

    SUCCESSFUL_COMPLETION = "00000"
    WARNING = "01000"
    PRIVILEGE_NOT_REVOKED = "01006"
    PRIVILEGE_NOT_GRANTED = "01007"
    CONNECTION_FAILURE = "08006"
    PROTOCOL_VIOLATION = "08P01"
    FEATURE_NOT_SUPPORTED = "0A000"
    INVALID_GRANT_OPERATION = "0LP01"
    CARDINALITY_VIOLATION = "21000"
    DATA_EXCEPTION = "22000"
    STRING_DATA_RIGHT_TRUNCATION = "22001"
    NUMERIC_VALUE_OUT_OF_RANGE = "22003"
    NULL_VALUE_NOT_ALLOWED = "22004"
    INVALID_DATETIME_FORMAT = "22007"
    DATETIME_FIELD_OVERFLOW = "22008"
    INVALID_TIME_ZONE_DISPLACEMENT_VALUE = "22009"
    INVALID_USE_OF_ESCAPE_CHARACTER = "2200C"
    SUBSTRING_ERROR = "22011"
    DIVISION_BY_ZERO = "22012"
    INVALID_PRECEDING_OR_FOLLOWING_SIZE = "22013"
    INVALID_ARGUMENT_FOR_NTILE_FUNCTION = "22014"
    INTERVAL_FIELD_OVERFLOW = "22015"
    INVALID_ARGUMENT_FOR_NTH_VALUE_FUNCTION = "22016"
    INVALID_ARGUMENT_FOR_LOGARITHM = "2201E"
    INVALID_ARGUMENT_FOR_POWER_FUNCTION = "2201F"
    INVALID_ARGUMENT_FOR_WIDTH_BUCKET_FUNCTION = "2201G"
    INVALID_TABLESAMPLE_ARGUMENT = "2202H"
    INVALID_ROW_COUNT_IN_LIMIT_CLAUSE = "2201W"
    INVALID_ROW_COUNT_IN_RESULT_OFFSET_CLAUSE = "2201X"
    INVALID_REGULAR_EXPRESSION = "2201B"
    CHARACTER_NOT_IN_REPERTOIRE = "22021"
    INVALID_PARAMETER_VALUE = "22023"
    INVALID_ESCAPE_SEQUENCE = "22025"
    SEQUENCE_GENERATOR_LIMIT_EXCEEDED = "2200H"
    ARRAY_SUBSCRIPT_ERROR = "2202E"
    DUPLICATE_JSON_OBJECT_KEY_VALUE = "22030"
    INVALID_ARGUMENT_FOR_SQL_JSON_DATETIME_FUNCTION = "22031"
    INVALID_SQL_JSON_SUBSCRIPT = "22033"
    NON_NUMERIC_SQL_JSON_ITEM = "22036"
    SINGLETON_SQL_JSON_ITEM_REQUIRED = "22038"
    SQL_JSON_ARRAY_NOT_FOUND = "22039"
    SQL_JSON_MEMBER_NOT_FOUND = "2203A"
    SQL_JSON_NUMBER_NOT_FOUND = "2203B"
    SQL_JSON_OBJECT_NOT_FOUND = "2203C"
    INVALID_TEXT_REPRESENTATION = "22P02"
    INVALID_BINARY_REPRESENTATION = "22P03"
    BAD_COPY_FILE_FORMAT = "22P04"
    UNTRANSLATABLE_CHARACTER = "22P05"
    NOT_NULL_VIOLATION = "23502"
    UNIQUE_VIOLATION = "23505"
    CHECK_VIOLATION = "23514"
    WITH_CHECK_OPTION_VIOLATION = "44000"
    INVALID_TRANSACTION_STATE = "25000"
    ACTIVE_SQL_TRANSACTION = "25001"
    READ_ONLY_SQL_TRANSACTION = "25006"
    NO_ACTIVE_SQL_TRANSACTION = "25P01"
    IN_FAILED_SQL_TRANSACTION = "25P02"
    IDLE_IN_TRANSACTION_SESSION_TIMEOUT = "25P03"
    TRANSACTION_TIMEOUT = "25P04"
    INVALID_SQL_STATEMENT_NAME = "26000"
    INVALID_AUTHORIZATION_SPECIFICATION = "28000"
    INVALID_PASSWORD = "28P01"
    DEPENDENT_OBJECTS_STILL_EXIST = "2BP01"
    INVALID_CURSOR_STATE = "24000"
    INVALID_CURSOR_NAME = "34000"
    INVALID_CATALOG_NAME = "3D000"
    INVALID_SCHEMA_NAME = "3F000"
    INVALID_SAVEPOINT_SPECIFICATION = "3B001"
    SERIALIZATION_FAILURE = "40001"
    DEADLOCK_DETECTED = "40P01"
    LOCK_NOT_AVAILABLE = "55P03"
    SYNTAX_ERROR = "42601"
    INSUFFICIENT_PRIVILEGE = "42501"
    CANNOT_COERCE = "42846"
    GROUPING_ERROR = "42803"
    WINDOWING_ERROR = "42P20"
    INVALID_RECURSION = "42P19"
    INVALID_NAME = "42602"
    RESERVED_NAME = "42939"
    DATATYPE_MISMATCH = "42804"
    INVALID_FOREIGN_KEY = "42830"
    INDETERMINATE_DATATYPE = "42P18"
    WRONG_OBJECT_TYPE = "42809"
    UNDEFINED_COLUMN = "42703"
    UNDEFINED_FUNCTION = "42883"
    UNDEFINED_TABLE = "42P01"
    UNDEFINED_PARAMETER = "42P02"
    UNDEFINED_OBJECT = "42704"
    DUPLICATE_COLUMN = "42701"
    DUPLICATE_CURSOR = "42P03"
    DUPLICATE_DATABASE = "42P04"
    DUPLICATE_PREPARED_STATEMENT = "42P05"
    DUPLICATE_SCHEMA = "42P06"
    DUPLICATE_TABLE = "42P07"
    DUPLICATE_ALIAS = "42712"
    DUPLICATE_OBJECT = "42710"
    AMBIGUOUS_COLUMN = "42702"
    AMBIGUOUS_PARAMETER = "42P08"
    AMBIGUOUS_FUNCTION = "42725"
    INVALID_COLUMN_REFERENCE = "42P10"
    GENERATED_ALWAYS = "428C9"
    INVALID_TABLE_DEFINITION = "42P16"
    INVALID_OBJECT_DEFINITION = "42P17"
    OUT_OF_MEMORY = "53200"
    DISK_FULL = "53100"
    TOO_MANY_CONNECTIONS = "53300"
    PROGRAM_LIMIT_EXCEEDED = "54000"
    TOO_MANY_COLUMNS = "54011"
    TOO_MANY_ARGUMENTS = "54023"
    STATEMENT_TOO_COMPLEX = "54001"
    OBJECT_NOT_IN_PREREQUISITE_STATE = "55000"
    OBJECT_IN_USE = "55006"
    CANT_CHANGE_RUNTIME_PARAM = "55P02"
    QUERY_CANCELED = "57014"
    ADMIN_SHUTDOWN = "57P01"
    CRASH_SHUTDOWN = "57P02"
    CANNOT_CONNECT_NOW = "57P03"
    IDLE_SESSION_TIMEOUT = "57P05"
    IO_ERROR = "58030"
    INTERNAL_ERROR = "XX000"
    DATA_CORRUPTED = "XX001"


class Severity(StrEnum):
    """Severity of an ErrorResponse or NoticeResponse, not localised."""

    ERROR = "ERROR"
    FATAL = "FATAL"
    PANIC = "PANIC"
    WARNING = "WARNING"
    NOTICE = "NOTICE"
    DEBUG = "DEBUG"
    INFO = "INFO"
    LOG = "LOG"


class PgError(Exception):
    """An error to report to a client.

    `position` is the 1-based index, in characters, into the text of the query that the client sent.
    `where` is the CONTEXT line; COPY puts the input's line and column there.
    `schema_name`, `table_name`, `column_name` and `constraint_name` name what a row violates.
    `routine` is the function of PostgreSQL's source that reports the error, where drivers tell errors with one SQLSTATE
    apart by it.
    """

    def __init__(
        self,
        sqlstate: SqlState,
        message: str,
        *,
        detail: str | None = None,
        hint: str | None = None,
        position: int | None = None,
        where: str | None = None,
        severity: Severity = Severity.ERROR,
        schema_name: str | None = None,
        table_name: str | None = None,
        column_name: str | None = None,
        constraint_name: str | None = None,
        routine: str | None = None,
    ) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate
        self.message = message
        self.detail = detail
        self.hint = hint
        self.position = position
        self.where = where
        self.severity = severity
        self.schema_name = schema_name
        self.table_name = table_name
        self.column_name = column_name
        self.constraint_name = constraint_name
        self.routine = routine

    def __repr__(self) -> str:
        return f"PgError({self.sqlstate}, {self.message!r})"

    def __reduce__(self) -> tuple[object, ...]:
        """Pickles all fields: worker processes send errors to the server."""
        return PgError, (self.sqlstate, self.message), self.__dict__


class Notice:
    """A warning or notice to report to a client."""

    __slots__ = ("detail", "hint", "message", "severity", "sqlstate")

    def __init__(
        self,
        message: str,
        *,
        severity: Severity = Severity.NOTICE,
        sqlstate: SqlState = SqlState.SUCCESSFUL_COMPLETION,
        detail: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.severity = severity
        self.sqlstate = sqlstate
        self.message = message
        self.detail = detail
        self.hint = hint
