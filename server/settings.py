"""A session's variables for SET, SHOW and RESET, with PostgreSQL's names, defaults and messages.

Values are kept as text, as SHOW prints them. A change of a variable with GUC_REPORT is sent to the client as
ParameterStatus. A comment marks the variables that exist only because drivers set them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from protocol.pgwire.encode import OutputStyle
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.input_style import DEFAULT_INPUT, InputStyle
from protocol.pgwire.interval_input import parse_interval
from protocol.pgwire.text_columns import INTERVAL_STYLES
from protocol.pgwire.timezones import zone

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


class Invalid(ValueError):
    """A value that a variable refuses. `{name}` in `message`, and in `detail`, is replaced by the variable's name."""

    def __init__(
        self,
        message: str | None = None,
        *,
        detail: str | None = None,
        sqlstate: SqlState = SqlState.INVALID_PARAMETER_VALUE,
    ) -> None:
        """`message` None: that of an invalid value."""
        super().__init__(message)
        self.message, self.detail, self.sqlstate = message, detail, sqlstate


def _one_of(*values: str, **synonyms: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        word = text.lower()
        for value in values:
            if value.lower() == synonyms.get(word, word):
                return value
        raise ValueError(f"Available values: {', '.join(values)}.")

    return parse


def parse_boolean(text: str) -> str:
    """As PostgreSQL's parse_bool: also accepts the first letters of a word, if they are unambiguous."""
    word = text.lower()
    if word and (word in ("on", "1") or "true".startswith(word) or "yes".startswith(word)):
        return "on"
    if word and (word in ("of", "off", "0") or "false".startswith(word) or "no".startswith(word)):
        return "off"
    raise Invalid('parameter "{name}" requires a Boolean value')


def _only(accepted: str, message: str, sqlstate: SqlState) -> Callable[[str], str]:
    """A boolean variable that has one value."""

    def parse(text: str) -> str:
        if parse_boolean(text) != accepted:
            raise Invalid(message, sqlstate=sqlstate)
        return accepted

    return parse


_INT_MAX = 2**31 - 1
_UNITS_MS = {"us": 1 / 1_000, "ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_UNITS_KB = {"B": 1 / 1_024, "kB": 1, "MB": 1_024, "GB": 1_024**2, "TB": 1_024**3}
_QUANTITY = re.compile(r"\s*([-+]?)(0[xX][0-9a-fA-F]+|(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)\s*([a-zA-Z]*)\s*")


def _quantity(
    least: int, greatest: int, unit: str = "", units: Mapping[str, float] = {}, *, int_max: int = _INT_MAX
) -> Callable[[str], str]:
    """An integer in `unit`, as PostgreSQL's parse_int reads it. The parser returns it in the largest unit that fits."""

    def parse(text: str) -> str:
        match = _QUANTITY.fullmatch(text)
        if match is None or (match[3] and not units):
            raise Invalid
        if match[3] and match[3] not in units:
            *firsts, last = (f'"{name}"' for name in units)
            raise ValueError(f"Valid units for this parameter are {', '.join(firsts)}, and {last}.")
        number = float(int(match[2], 16)) if match[2][:2] in ("0x", "0X") and len(match[2]) < 20 else _float(match[2])
        number *= units[match[3]] if match[3] else 1
        if number > int_max:
            raise ValueError("Value exceeds integer range.")
        total = round(-number if match[1] == "-" else number)
        shown_unit = f" {unit}" if unit else ""
        if not least <= total <= greatest:
            raise Invalid(
                f'{total}{shown_unit} is outside the valid range for parameter "{{name}}" ({least} .. {greatest})'
            )
        if not total:
            return "0"
        for name, size in reversed([*units.items()]):
            if size >= 1 and total % int(size) == 0:
                return f"{total // int(size)}{name}"
        return str(total)

    return parse


def _float(digits: str) -> float:
    try:
        return float(digits)
    except ValueError:  # a hexadecimal number with very many digits
        return float("inf")


def _milliseconds_between(least: int, greatest: int) -> Callable[[str], str]:
    return _quantity(least, greatest, "ms", _UNITS_MS)


_milliseconds = _milliseconds_between(0, _INT_MAX)


def _kilobytes(least: int) -> Callable[[str], str]:
    return _quantity(least, _INT_MAX, "kB", _UNITS_KB)


@functools.lru_cache(64)
def milliseconds(text: str) -> int:
    """Returns the number of milliseconds of a value that `_milliseconds` has returned."""
    match = re.fullmatch(r"(\d+)([a-z]*)", text)
    assert match is not None
    return int(match[1]) * int(_UNITS_MS[match[2] or "ms"])


def _auto_or(parse: Callable[[str], str]) -> Callable[[str], str]:
    return lambda text: "auto" if text.lower() == "auto" else parse(text)


def _integer(least: int, greatest: int) -> Callable[[str], str]:
    return _quantity(least, greatest, int_max=max(_INT_MAX, greatest))


def _cost(text: str) -> str:
    """A number that is not negative, as PostgreSQL's parse_real reads and shows it."""
    match = _QUANTITY.fullmatch(text)
    if match is None or match[3]:
        raise Invalid
    number = float(int(match[2], 16)) if match[2][:2] in ("0x", "0X") and len(match[2]) < 20 else _float(match[2])
    if match[1] == "-" and number:
        raise Invalid(f'-{number:g} is outside the valid range for parameter "{{name}}" (0 .. 1.79769e+308)')
    return f"{number:g}"


def _tablespace(text: str) -> str:
    if text not in ("", "pg_default"):
        raise Invalid(detail=f'Tablespace "{text}" does not exist.')
    return text


def _access_method(text: str) -> str:
    if not text:
        raise Invalid(detail="{name} cannot be empty.")
    if text != "heap":
        raise Invalid(detail=f'Table access method "{text}" does not exist.')
    return text


_ZONE_INTERVAL = re.compile(r"interval *'([^']*)'", re.IGNORECASE)
_ZONE_OFFSET_S_MAX = 16 * 3_600
"""Greater offsets from UTC are refused: Spark has none above 18 hours."""


def _zone_offset_us(text: str) -> float | None:
    """Returns the offset from UTC of a number of hours or of INTERVAL '...'; None for the name of a time zone."""
    interval = _ZONE_INTERVAL.fullmatch(text)
    if interval is not None:
        value = parse_interval(interval[1])
        for part, number in (("months", value.months), ("days", value.days)):
            if number:
                raise Invalid(detail=f"Cannot specify {part} in time zone interval.")
        return float(value.nanoseconds / 1_000)
    try:
        return float(text) * 3_600_000_000
    except ValueError:
        return None


def _timezone(text: str) -> str:
    """As PostgreSQL's check_timezone(): an offset becomes a POSIX zone, such as `<+05:30>-05:30`."""
    offset_us = _zone_offset_us(text)
    if offset_us is not None:
        if not abs(offset_us) < _ZONE_OFFSET_S_MAX * 1_000_000:
            raise Invalid(detail="UTC timezone offset is out of range.")
        seconds = int(offset_us / 1_000_000)
        minutes, second = divmod(abs(seconds), 60)
        shown = f"{minutes // 60:02}"
        shown += (f":{minutes % 60:02}" if seconds % 3_600 else "") + (f":{second:02}" if second else "")
        return f"<{'-' if seconds < 0 else '+'}{shown}>{'+' if seconds < 0 else '-'}{shown}"
    try:
        zone(text)
    except LookupError:
        raise ValueError("") from None
    return "UTC" if text.upper() == "UTC" else text


_ORDERS = {"ymd": "YMD", "dmy": "DMY", "mdy": "MDY", "us": "MDY"}


def _date_style(text: str) -> str:
    """As PostgreSQL's check_datestyle(). A part that the text does not name is "", and kept by `with_date_style`."""
    styles, orders = set[str](), set[str]()
    for word in (word.strip().strip('"').lower() for word in text.split(",")):
        if word in ("iso", "sql"):
            styles.add(word.upper())
        elif word.startswith("postgres"):
            styles.add("Postgres")
        elif word.startswith("german"):
            styles.add("German")
        elif word in _ORDERS:
            orders.add(_ORDERS[word])
        elif word.startswith(("euro", "noneuro")):
            orders.add("DMY" if word.startswith("euro") else "MDY")
        elif word == "default":
            styles, orders = styles or {"ISO"}, orders or {"MDY"}
        else:
            raise Invalid(detail=f'Unrecognized key word: "{word}".')
    if len(styles) > 1 or len(orders) > 1:
        raise Invalid(detail='Conflicting "datestyle" specifications.')
    order = next(iter(orders), "DMY" if "German" in styles else "")
    return f"{next(iter(styles), '')}, {order}"


def with_date_style(before: str, given: str) -> str:
    """The value of DateStyle after a SET, of which `_date_style` returned `given`."""
    parts = zip(before.split(", "), given.split(", "), strict=True)
    return ", ".join(new or old for old, new in parts)


def _utf8(text: str) -> str:
    # Like PostgreSQL's pg_char_to_encoding, compares only letters and digits: asyncpg sends 'utf-8', with the quotes.
    if re.sub("[^a-z0-9]", "", text.lower()) not in ("utf8", "unicode"):
        raise ValueError("Only UTF8 is supported.")
    return "UTF8"


MESSAGE_LEVELS = ("debug5", "debug4", "debug3", "debug2", "debug1", "log", "notice", "warning", "error")
"""The values of client_min_messages, from the least to the most severe."""


def _message_level(text: str) -> str:
    aliases = {"debug": "debug2", "info": "notice"}
    return aliases.get(text.lower()) or _one_of(*MESSAGE_LEVELS)(text)


ISOLATION_LEVELS = ("serializable", "repeatable read", "read committed", "read uncommitted", "strict serializable")


def _isolation(text: str) -> str:
    level = _one_of(*ISOLATION_LEVELS)(text)
    # The SQL standard allows a stronger level than requested.
    return level if level == "strict serializable" else "serializable"


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
        Variable("bytea_output", "hex", _one_of("hex", "escape")),
        Variable("client_encoding", "UTF8", _utf8, reported=True),
        Variable("client_min_messages", "notice", _message_level),
        Variable("cluster", "quickstart", _one_of("quickstart")),
        Variable("database", "materialize"),
        Variable("DateStyle", "ISO, MDY", _date_style, reported=True),
        Variable("extra_float_digits", "1", _integer(1, 3)),
        # Those of a transaction have the default_ values when it begins: see `Context.change_settings`.
        Variable("default_transaction_deferrable", "off", parse_boolean),
        Variable("default_transaction_isolation", "serializable", _isolation),
        Variable("default_transaction_read_only", "off", parse_boolean, reported=True),
        Variable("idle_in_transaction_session_timeout", "0", _milliseconds),
        Variable("idle_session_timeout", "0", _milliseconds),
        Variable("in_hot_standby", "off", reported=True, fixed=True),
        Variable("integer_datetimes", "on", reported=True, fixed=True),
        Variable("IntervalStyle", "postgres", _one_of(*INTERVAL_STYLES), reported=True),
        Variable("is_superuser", "on", reported=True, fixed=True),
        Variable("lock_timeout", "0", _milliseconds),
        Variable("max_identifier_length", "63", fixed=True),
        Variable("max_index_keys", "32", fixed=True),
        Variable("progress_notice_interval", "auto", _auto_or(_milliseconds)),
        Variable("role", "none", fixed=True),
        Variable("search_path", "public"),
        Variable("server_encoding", "UTF8", reported=True, fixed=True),
        Variable("server_version", SERVER_VERSION, reported=True, fixed=True),
        Variable("server_version_num", "160014", fixed=True),
        Variable("session_authorization", "", reported=True, fixed=True),
        Variable("standard_conforming_strings", "on", _one_of("on"), reported=True),
        Variable("statement_timeout", "0", _milliseconds),
        Variable("subscription_waiting_bytes_max", str(64 * 1024 * 1024), _integer(0, 2**40)),
        Variable("TimeZone", "UTC", _timezone, reported=True),
        Variable("transaction_deferrable", "off", parse_boolean),
        Variable("transaction_isolation", "serializable", _isolation),
        Variable("transaction_read_only", "off", parse_boolean),
        Variable("transaction_timeout", "0", _milliseconds),
        # Server-wide switches. New subscriptions with an output that is off are refused.
        *(
            Variable(f"enable_{feature}_in_subscribe", "on", parse_boolean, system=True)
            for feature in ("envelope_debezium", "envelope_upsert", "within_timestamp_order_by")
        ),
        Variable("authentication_timeout", "1min", _milliseconds_between(1_000, 600_000), system=True),
        Variable("failed_logins_max", "20", _integer(0, 1_000_000), system=True),
        # psql's \password asks for it.
        Variable("password_encryption", "scram-sha-256", _one_of("scram-sha-256")),
        Variable("max_connections", "5000", _integer(1, 262_143), system=True),
        Variable("superuser_reserved_connections", "3", _integer(0, 262_143), system=True),
        # Seconds; 60 is below the 350 s after which common NATs forget an idle connection.
        Variable("tcp_keepalives_idle", "60", _integer(0, 32_767), system=True),
        Variable("tcp_keepalives_interval", "0", _integer(0, 32_767), system=True),
        Variable("tcp_keepalives_count", "0", _integer(0, 127), system=True),
        Variable("tcp_user_timeout", "0", _integer(0, 2**31 - 1), system=True),
        Variable("enable_unlimited_retain_history", "off", parse_boolean, system=True),
        Variable("max_hold_lag", "7d", _milliseconds_between(1, _INT_MAX), system=True),
        Variable("dataflow_lag_bytes_max", str(64 * 1024 * 1024), _integer(0, 2**40), system=True),
        Variable("dataflow_lag_delay_max", "10s", _milliseconds, system=True),
        Variable("arrangement_probing", "auto", _one_of("auto", "server", "executors"), system=True),
        # What a bare ENVELOPE DEBEZIUM of CREATE SOURCE means.
        Variable("source_envelope_debezium", "classic", _one_of("classic", "upsert"), system=True),
        # Accepted because drivers, pools, ORMs and the scripts of pg_dump set them. They have no effect.
        Variable("check_function_bodies", "on", parse_boolean),
        Variable("default_table_access_method", "heap", _access_method),
        Variable("default_tablespace", "", _tablespace),
        Variable(
            "default_with_oids",
            "off",
            _only("off", "tables declared WITH OIDS are not supported", SqlState.FEATURE_NOT_SUPPORTED),
        ),
        Variable("jit", "off", parse_boolean),
        Variable("maintenance_work_mem", "64MB", _kilobytes(1_024)),
        Variable("row_security", "on", parse_boolean),  # there are no policies
        Variable("session_replication_role", "origin", _one_of("origin", "replica", "local")),  # nor triggers
        # Commits are always synced.
        Variable("synchronous_commit", "on", _one_of(*_SYNCHRONOUS_COMMIT, **_SYNCHRONOUS_COMMIT_SYNONYMS)),
        Variable("synchronize_seqscans", "on", parse_boolean),
        Variable("welcome_message", "off", parse_boolean),
        Variable("work_mem", "4MB", _kilobytes(64)),
        Variable("xmloption", "content", _one_of("content", "document")),
        # The planner of PostgreSQL, which applications direct. Spark and the server plan without it.
        *(Variable(f"enable_{name}", "on", parse_boolean) for name in _PLANS),
        *(Variable(name, value, _cost) for name, value in _COSTS.items()),
        *(Variable(name, "8", _integer(1, _INT_MAX)) for name in ("from_collapse_limit", "join_collapse_limit")),
        Variable("default_statistics_target", "100", _integer(1, 10_000)),
        Variable("geqo", "on", parse_boolean),
        Variable("max_parallel_workers", "8", _integer(0, 1_024)),
        Variable("max_parallel_workers_per_gather", "2", _integer(0, 1_024)),
        Variable("plan_cache_mode", "auto", _one_of("auto", "force_generic_plan", "force_custom_plan")),
    )
}


LISTS = ("search_path", "datestyle")
"""The variables that SET accepts several values for."""
_OF_THE_ROLE = ("role", "is_superuser")
_OF_THE_SESSION = ("session_authorization", *_OF_THE_ROLE)
TRANSACTION_MODES = ("transaction_read_only", "transaction_deferrable")
"""The variables of the current transaction, with an effect in it only. They cannot be reset."""
_DEFAULTS_OF = {name: f"default_{name}" for name in (*TRANSACTION_MODES, "transaction_isolation")}
"""The variables from which those of the current transaction have their values, if these are not set."""


CUSTOM_SETTINGS_MAX = 128
VALUE_CHARS_MAX = 8_192  # of a setting that is not custom: each statement searches the schemas of search_path
CUSTOM_CHARACTERS_MAX = 65_536
"""The limits of a session's custom settings: their number, and the length of all names and values."""
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
    variable = VARIABLES.get(name.lower())
    if variable is None:
        raise PgError(SqlState.UNDEFINED_OBJECT, f'unrecognized configuration parameter "{name}"')
    return variable


def checked_value(name: str, value: str, before: str | None = None) -> str:
    """Returns a variable's value in the form that is kept. PgError 42704, 55P02, 22023 or 54000.

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


def of_the_system(name: str, values: Mapping[str, str]) -> str:
    """Returns a server-wide variable. `values` are those that ALTER SYSTEM has set."""
    return values.get(name, VARIABLES[name].default)


class Settings(Mapping[str, str]):
    """One session's values by name, case-insensitively.

    A custom setting exists from its first SET or RESET to the end of the session, also after ROLLBACK. Its default is
    empty, and iterations omit it.

    SET is transactional: a transaction keeps a `copy` and restores it if it fails.
    """

    def __init__(self, system: Callable[[], Mapping[str, str]] = dict) -> None:
        """`system` returns the values that ALTER SYSTEM has set."""
        self._values: dict[str, str] = {}
        self._system = system
        self.authorized: tuple[str, bool] | None = None
        """The role of SET SESSION AUTHORIZATION and whether it is a superuser; None: the login role."""
        self._custom: set[str] = set()
        """The custom settings that exist: the same object in all copies."""
        self._defaults = {name: value for name, value in system().items() if not VARIABLES[name].system}
        self._changed()

    def _changed(self) -> None:
        self.revision = object()
        """Replaced by another object at each change. A copy has the revision of its original."""
        self._style: OutputStyle | None = None
        self._naming: tuple[str, str, str, str, InputStyle] | None = None
        self._timeouts_s: dict[str, float | None] = {}
        self._read_only: bool | None = None

    def copy(self) -> Settings:
        made = Settings.__new__(Settings)
        made._system, made._custom, made.authorized = self._system, self._custom, self.authorized
        made._values, made._defaults = dict(self._values), dict(self._defaults)
        made.revision, made._style, made._naming = self.revision, self._style, self._naming
        made._timeouts_s, made._read_only = {}, self._read_only
        return made

    def __getitem__(self, name: str) -> str:
        """The value as SHOW prints it. PgError 42704 for an unknown name."""
        if name.lower() in self._custom:
            return self._values.get(name.lower(), self._defaults.get(name.lower(), ""))
        variable = find_variable(name)
        key = variable.name.lower()
        if variable.system:
            return of_the_system(key, self._system())
        if key in _DEFAULTS_OF and key not in self._values:
            return self[_DEFAULTS_OF[key]]
        return self._values.get(key, self._defaults.get(key, variable.default))

    def set(self, name: str, value: str) -> None:
        """PgError 42704, 55P02 or 22023; for a custom setting 42602, 54000 or 53200."""
        if is_custom(name):
            self._add_custom(name.lower(), value)
            self._values[name.lower()] = value
            self._changed()
            return
        variable = find_variable(name)
        if variable.system:
            raise PgError(
                SqlState.CANT_CHANGE_RUNTIME_PARAM,
                f'parameter "{variable.name}" cannot be changed now',
                hint="It is the whole server's: use ALTER SYSTEM SET.",
            )
        self._values[variable.name.lower()] = checked_value(name, value, self[name])
        self._changed()

    def _add_custom(self, name: str, value: str) -> None:
        """Makes a custom setting exist that is about to have a value. PgError 42602, 54000 or 53200."""
        check_custom_name(name)
        if name not in self._custom and len(self._custom) >= CUSTOM_SETTINGS_MAX:
            message = f"a session can have at most {CUSTOM_SETTINGS_MAX} custom settings"
            raise PgError(SqlState.PROGRAM_LIMIT_EXCEEDED, message)
        values = {key: self._values.get(key, "") for key in self._custom} | {name: value}
        if sum(len(key) + len(text) for key, text in values.items()) > CUSTOM_CHARACTERS_MAX:
            message = f"the custom settings of a session can have at most {CUSTOM_CHARACTERS_MAX} characters"
            raise PgError(SqlState.OUT_OF_MEMORY, message)
        self._custom.add(name)

    def start_with(self, name: str, value: str) -> None:
        """Sets a value from the startup packet, to which RESET returns. It also sets `fixed` variables."""
        key = name.lower() if is_custom(name) else find_variable(name).name.lower()
        check_default(key)
        if is_custom(name) or not VARIABLES[key].fixed:
            self.set(name, value)
            value = self._values.pop(key)
        self._defaults[key] = value
        self._changed()

    def reset(self, name: str | None) -> None:
        """Resets a variable to its default; None: all but those of role and transaction, as in PostgreSQL."""
        if name is None:
            kept = (*_OF_THE_SESSION, *TRANSACTION_MODES)
            self._values = {key: value for key, value in self._values.items() if key in kept}
        elif name.lower() in TRANSACTION_MODES:
            raise PgError(SqlState.FEATURE_NOT_SUPPORTED, f'parameter "{name.lower()}" cannot be reset')
        elif is_custom(name):
            self._add_custom(name.lower(), "")
            self._values.pop(name.lower(), None)
        elif name.lower() == "role":
            self._reset_role()
        elif name.lower() == "session_authorization":
            self._values.pop("session_authorization", None)
            self.authorized = None
            self._reset_role()
        else:
            self._values.pop(find_variable(name).name.lower(), None)
        self._changed()

    def _reset_role(self) -> None:
        for key in _OF_THE_ROLE:
            self._values.pop(key, None)
        if self.authorized is not None:
            self._values["is_superuser"] = "on" if self.authorized[1] else "off"

    def authorize(self, name: str, *, superuser: bool) -> None:
        """Sets the variables that SET SESSION AUTHORIZATION changes. The caller has checked that it is allowed."""
        self.authorized = name, superuser
        self._values["session_authorization"] = name
        self._reset_role()
        self._changed()

    def assume_role(self, name: str, *, superuser: bool) -> None:
        """Sets the variables that SET ROLE changes. The caller has checked that the role is allowed."""
        self._values.update(role=name, is_superuser="on" if superuser else "off")
        self._changed()

    def reported(self) -> dict[str, str]:
        """Returns the values of the variables with GUC_REPORT, by PostgreSQL's spelling of the names."""
        return {v.name: self[v.name] for v in VARIABLES.values() if v.reported}

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name.lower() in VARIABLES or name.lower() in self._custom else default

    def __iter__(self) -> Iterator[str]:
        return iter(sorted((v.name for v in VARIABLES.values()), key=str.lower))

    def __len__(self) -> int:
        return len(VARIABLES)

    @property
    def search_path(self) -> tuple[str, ...]:
        names = (part.strip() for part in self["search_path"].split(","))
        return tuple(n[1:-1].replace('""', '"') if n.startswith('"') else n.lower() for n in names if n)

    @property
    def naming(self) -> tuple[str, str, str, str, InputStyle]:
        """The settings on which the meaning of names and literals depends.

        These are database, search_path, TimeZone and role, and the style of input.
        """
        if self._naming is None:
            _, order = self["DateStyle"].split(", ")
            style = InputStyle(order, self["IntervalStyle"] == "sql_standard")
            style = DEFAULT_INPUT if style == DEFAULT_INPUT else style
            self._naming = self["database"], self["search_path"], self["TimeZone"], self["role"], style
        return self._naming

    @property
    def input_style(self) -> InputStyle:
        """The settings that affect the text input of values."""
        return self.naming[4]

    @property
    def read_only(self) -> bool:
        """Whether transaction_read_only is on."""
        if self._read_only is None:
            self._read_only = self["transaction_read_only"] == "on"
        return self._read_only

    @property
    def output_style(self) -> OutputStyle:
        """The settings that affect the text output of values."""
        if self._style is None:
            self._style = OutputStyle(self["TimeZone"], self["bytea_output"], self["IntervalStyle"], self["DateStyle"])
        return self._style

    def timeout_s(self, name: str) -> float | None:
        """Returns a variable of milliseconds in seconds; None if it is 0, which means off."""
        if name not in self._timeouts_s:
            self._timeouts_s[name] = milliseconds(self[name]) / 1_000 or None
        return self._timeouts_s[name]
