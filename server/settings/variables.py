"""All variables, and the check of a value that SET or ALTER SYSTEM gives to one.

A comment marks the variables that exist only because drivers set them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.text_columns import INTERVAL_STYLES
from server.settings.parsers import (
    INT_MAX,
    Invalid,
    auto_or,
    integer,
    kilobytes,
    milliseconds_between,
    one_of,
    only,
    parse_access_method,
    parse_boolean,
    parse_cost,
    parse_date_style,
    parse_encoding,
    parse_isolation_level,
    parse_message_level,
    parse_milliseconds,
    parse_tablespace,
    parse_time_zone,
    with_date_style,
)

SERVER_VERSION = "16.14"  # the PostgreSQL version whose behaviour and messages Tidewire follows; drivers depend on it


@dataclass(frozen=True, slots=True)
class Variable:
    """`parse` returns the text to keep, or raises ValueError, whose message becomes the HINT.

    `reported`: has GUC_REPORT. `fixed`: cannot be set. `system`: server-wide, set only by ALTER SYSTEM.
    """

    name: str
    default: str
    parse: Callable[[str], str] = str
    reported: bool = False
    fixed: bool = False
    system: bool = False


_SYNCHRONOUS_COMMIT = ("local", "remote_write", "remote_apply", "on", "off")
_SYNCHRONOUS_COMMIT_SYNONYMS = {
    **dict.fromkeys(("true", "yes", "1"), "on"),
    **dict.fromkeys(("false", "no", "0"), "off"),
}


_PLANS = (
    *("async_append", "bitmapscan", "gathermerge", "hashagg", "hashjoin", "incremental_sort", "indexonlyscan"),
    *("indexscan", "material", "memoize", "mergejoin", "nestloop", "parallel_append", "parallel_hash"),
    *("partition_pruning", "presorted_aggregate", "seqscan", "sort", "tidscan"),
)
_COSTS = {
    "cpu_index_tuple_cost": "0.005",
    "cpu_operator_cost": "0.0025",
    "cpu_tuple_cost": "0.01",
    "parallel_setup_cost": "1000",
    "parallel_tuple_cost": "0.1",
    "random_page_cost": "4",
    "seq_page_cost": "1",
}


VARIABLES: dict[str, Variable] = {
    v.name.lower(): v
    for v in (
        Variable("application_name", "", reported=True),
        Variable("bytea_output", "hex", one_of("hex", "escape")),
        Variable("client_encoding", "UTF8", parse_encoding, reported=True),
        Variable("client_min_messages", "notice", parse_message_level),
        Variable("cluster", "quickstart", one_of("quickstart")),
        Variable("database", "materialize"),
        Variable("DateStyle", "ISO, MDY", parse_date_style, reported=True),
        Variable("extra_float_digits", "1", integer(1, 3)),
        # Those of a transaction have the default_ values when it begins: see `Context.change_settings`.
        Variable("default_transaction_deferrable", "off", parse_boolean),
        Variable("default_transaction_isolation", "serializable", parse_isolation_level),
        Variable("default_transaction_read_only", "off", parse_boolean, reported=True),
        Variable("idle_in_transaction_session_timeout", "0", parse_milliseconds),
        Variable("idle_session_timeout", "0", parse_milliseconds),
        Variable("in_hot_standby", "off", reported=True, fixed=True),
        Variable("integer_datetimes", "on", reported=True, fixed=True),
        Variable("IntervalStyle", "postgres", one_of(*INTERVAL_STYLES), reported=True),
        Variable("is_superuser", "on", reported=True, fixed=True),
        Variable("lock_timeout", "0", parse_milliseconds),
        Variable("max_identifier_length", "63", fixed=True),
        Variable("max_index_keys", "32", fixed=True),
        Variable("max_prepared_transactions", "0", fixed=True),  # drivers ask before PREPARE TRANSACTION
        Variable("progress_notice_interval", "auto", auto_or(parse_milliseconds)),
        Variable("role", "none", fixed=True),
        Variable("search_path", "public"),
        Variable("server_encoding", "UTF8", reported=True, fixed=True),
        Variable("server_version", SERVER_VERSION, reported=True, fixed=True),
        Variable("server_version_num", "160014", fixed=True),
        Variable("session_authorization", "", reported=True, fixed=True),
        Variable("standard_conforming_strings", "on", one_of("on"), reported=True),
        Variable("statement_timeout", "0", parse_milliseconds),
        Variable("subscription_waiting_bytes_max", str(64 * 1024 * 1024), integer(0, 2**40)),
        Variable("TimeZone", "UTC", parse_time_zone, reported=True),
        Variable("transaction_deferrable", "off", parse_boolean),
        Variable("transaction_isolation", "serializable", parse_isolation_level),
        Variable("transaction_read_only", "off", parse_boolean),
        Variable("transaction_timeout", "0", parse_milliseconds),
        # Server-wide switches. New subscriptions with an output that is off are refused.
        *(
            Variable(f"enable_{feature}_in_subscribe", "on", parse_boolean, system=True)
            for feature in ("envelope_debezium", "envelope_upsert", "within_timestamp_order_by")
        ),
        Variable("authentication_timeout", "1min", milliseconds_between(1_000, 600_000), system=True),
        Variable("failed_logins_max", "20", integer(0, 1_000_000), system=True),
        # psql's \password asks for it.
        Variable("password_encryption", "scram-sha-256", one_of("scram-sha-256")),
        Variable("max_connections", "5000", integer(1, 262_143), system=True),
        Variable("superuser_reserved_connections", "3", integer(0, 262_143), system=True),
        # Seconds; 60 is below the 350 s after which common NATs forget an idle connection.
        Variable("tcp_keepalives_idle", "60", integer(0, 32_767), system=True),
        Variable("tcp_keepalives_interval", "0", integer(0, 32_767), system=True),
        Variable("tcp_keepalives_count", "0", integer(0, 127), system=True),
        Variable("tcp_user_timeout", "0", integer(0, 2**31 - 1), system=True),
        Variable("enable_unlimited_retain_history", "off", parse_boolean, system=True),
        Variable("max_hold_lag", "7d", milliseconds_between(1, INT_MAX), system=True),
        Variable("dataflow_lag_bytes_max", str(64 * 1024 * 1024), integer(0, 2**40), system=True),
        Variable("dataflow_lag_delay_max", "10s", parse_milliseconds, system=True),
        Variable("arrangement_probing", "auto", one_of("auto", "server", "executors"), system=True),
        # What a bare ENVELOPE DEBEZIUM of CREATE SOURCE means.
        Variable("source_envelope_debezium", "classic", one_of("classic", "upsert"), system=True),
        # Accepted because drivers, pools, ORMs and the scripts of pg_dump set them. They have no effect.
        Variable("check_function_bodies", "on", parse_boolean),
        Variable("default_table_access_method", "heap", parse_access_method),
        Variable("default_tablespace", "", parse_tablespace),
        Variable(
            "default_with_oids",
            "off",
            only("off", "tables declared WITH OIDS are not supported", SqlState.FEATURE_NOT_SUPPORTED),
        ),
        Variable("jit", "off", parse_boolean),
        Variable("maintenance_work_mem", "64MB", kilobytes(1_024)),
        Variable("row_security", "on", parse_boolean),  # there are no policies
        Variable("session_replication_role", "origin", one_of("origin", "replica", "local")),  # nor triggers
        # Commits are always synced.
        Variable("synchronous_commit", "on", one_of(*_SYNCHRONOUS_COMMIT, **_SYNCHRONOUS_COMMIT_SYNONYMS)),
        Variable("synchronize_seqscans", "on", parse_boolean),
        Variable("welcome_message", "off", parse_boolean),
        Variable("work_mem", "4MB", kilobytes(64)),
        Variable("xmloption", "content", one_of("content", "document")),
        # Parameters of PostgreSQL's planner, which applications set. They have no effect on Spark and the server.
        *(Variable(f"enable_{name}", "on", parse_boolean) for name in _PLANS),
        *(Variable(name, value, parse_cost) for name, value in _COSTS.items()),
        *(Variable(name, "8", integer(1, INT_MAX)) for name in ("from_collapse_limit", "join_collapse_limit")),
        Variable("default_statistics_target", "100", integer(1, 10_000)),
        Variable("geqo", "on", parse_boolean),
        Variable("max_parallel_workers", "8", integer(0, 1_024)),
        Variable("max_parallel_workers_per_gather", "2", integer(0, 1_024)),
        Variable("plan_cache_mode", "auto", one_of("auto", "force_generic_plan", "force_custom_plan")),
    )
}


LISTS = ("search_path", "datestyle")
"""The variables that SET accepts several values for."""
TRANSACTION_MODES = ("transaction_read_only", "transaction_deferrable")
"""The variables of the current transaction, with an effect in it only. They cannot be reset."""
DEFAULTS_OF = {name: f"default_{name}" for name in (*TRANSACTION_MODES, "transaction_isolation")}
"""The variables from which those of the current transaction have their values, if these are not set."""


VALUE_CHARS_MAX = 8_192  # of a setting that is not custom: each statement searches the schemas of search_path
_CUSTOM_NAME = re.compile(
    r"[A-Za-z_\x80-\U0010ffff][A-Za-z0-9_$\x80-\U0010ffff]*(\.[A-Za-z_\x80-\U0010ffff][A-Za-z0-9_$\x80-\U0010ffff]*)+"
)


def is_custom(name: str) -> bool:
    """Whether a name is one of a custom setting, as in `app.user`, which exists once a session has set it."""
    return "." in name


def check_custom_name(name: str) -> None:
    """PgError 42602 if a name with a dot is not one of a custom setting."""
    if not _CUSTOM_NAME.fullmatch(name):
        raise PgError(
            SqlState.INVALID_NAME,
            f'invalid configuration parameter name "{name}"',
            detail="Custom parameter names must be two or more simple identifiers separated by dots.",
        )


def find_variable(name: str) -> Variable:
    """Returns a variable by its name, case-insensitively. PgError 42704 if there is none."""
    variable = VARIABLES.get(name.lower())
    if variable is None:
        raise PgError(SqlState.UNDEFINED_OBJECT, f'unrecognized configuration parameter "{name}"')
    return variable


def checked_value(name: str, value: str, before: str | None = None) -> str:
    """Returns a variable's value in the form that is kept. PgError 42602, 42704, 55P02, 22023 or 54000.

    `before`: the value now, of which DateStyle keeps what `value` does not name; None: the default.
    """
    if is_custom(name):
        check_custom_name(name)
        return value
    variable = find_variable(name)
    if variable.fixed:
        raise PgError(SqlState.CANT_CHANGE_RUNTIME_PARAM, f'parameter "{variable.name}" cannot be changed')
    if len(value) > VALUE_CHARS_MAX:
        raise PgError(
            SqlState.PROGRAM_LIMIT_EXCEEDED,
            f'value of parameter "{variable.name}" is too long',
            detail=f"It has {len(value)} characters; the limit is {VALUE_CHARS_MAX}.",
        )
    message = f'invalid value for parameter "{variable.name}": "{value}"'
    try:
        parsed = variable.parse(value)
        return with_date_style(before or variable.default, parsed) if variable.name == "DateStyle" else parsed
    except Invalid as error:
        if error.message is not None:
            message = error.message.replace("{name}", variable.name)
        detail = None if error.detail is None else error.detail.replace("{name}", variable.name)
        raise PgError(error.sqlstate, message, detail=detail) from None
    except ValueError as error:
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, message, hint=str(error) or None) from None


def check_default(name: str) -> None:
    """PgError 55P02 for a variable of the current transaction: it has no default of its own."""
    if name.lower() in TRANSACTION_MODES:
        raise PgError(SqlState.CANT_CHANGE_RUNTIME_PARAM, f'parameter "{name.lower()}" cannot be changed')


def system_value(name: str, values: Mapping[str, str]) -> str:
    """Returns a server-wide variable. `values` are those that ALTER SYSTEM has set."""
    return values.get(name, VARIABLES[name].default)
