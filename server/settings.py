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


def _one_of(*values: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        for value in values:
            if value.lower() == text.lower():
                return value
        raise ValueError(f"Available values: {', '.join(values)}.")

    return parse


def _boolean(text: str) -> str:
    word = text.lower()
    if word in ("on", "true", "yes", "1", "t", "y"):
        return "on"
    if word in ("off", "false", "no", "0", "f", "n"):
        return "off"
    raise ValueError("Use on or off.")


_UNITS_MS = {"": 1, "ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def _milliseconds(text: str) -> str:
    match = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", text)
    if match is None or match[2] not in _UNITS_MS:
        raise ValueError('Valid units for this parameter are "ms", "s", "min", "h", and "d".')
    total = int(match[1]) * _UNITS_MS[match[2]]
    if total > 2**31 - 1:
        raise ValueError("It is outside the valid range (0 .. 2147483647 ms).")
    for unit in ("d", "h", "min", "s"):
        if total and total % _UNITS_MS[unit] == 0:
            return f"{total // _UNITS_MS[unit]}{unit}"
    return f"{total}ms" if total else "0"


def _positive_milliseconds(text: str) -> str:
    value = _milliseconds(text)
    if value == "0":
        raise ValueError("It must be positive.")
    return value


def _milliseconds_between(least: int, greatest: int) -> Callable[[str], str]:
    def parse(text: str) -> str:
        value = _milliseconds(text)
        if not least <= milliseconds(value) <= greatest:
            raise ValueError(f"It is outside the valid range ({least} ms .. {greatest} ms).")
        return value

    return parse


@functools.lru_cache(64)
def milliseconds(text: str) -> int:
    """Returns the number of milliseconds of a value that `_milliseconds` has returned."""
    match = re.fullmatch(r"(\d+)([a-z]*)", text)
    assert match is not None
    return int(match[1]) * _UNITS_MS[match[2]]


def _integer(least: int, greatest: int) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if not re.fullmatch(r"[-+]?\d+", text.strip()) or not least <= int(text) <= greatest:
            raise ValueError(f"It must be a whole number from {least} to {greatest}.")
        return str(int(text))

    return parse


def _timezone(text: str) -> str:
    try:
        zone(text)
    except LookupError:
        raise ValueError("") from None
    return "UTC" if text.upper() == "UTC" else text


def _date_style(text: str) -> str:
    words = [word.strip().lower() for word in text.split(",")]
    if any(word not in ("iso", "mdy", "us", "noneuro", "noneuropean") for word in words):
        raise ValueError("Only ISO, MDY is supported.")
    return "ISO, MDY"


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


ISOLATION_LEVELS = ("serializable", "strict serializable")


def _isolation(text: str) -> str:
    word = text.lower()
    if word in ("read uncommitted", "read committed", "repeatable read"):
        return "serializable"  # the SQL standard allows a stronger level than requested
    return _one_of(*ISOLATION_LEVELS)(word)


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
        Variable("idle_in_transaction_session_timeout", "0", _milliseconds),
        Variable("in_hot_standby", "off", reported=True, fixed=True),
        Variable("integer_datetimes", "on", reported=True, fixed=True),
        Variable("IntervalStyle", "postgres", _one_of("postgres"), reported=True),
        Variable("is_superuser", "on", reported=True, fixed=True),
        Variable("lock_timeout", "0", _milliseconds),
        Variable("max_identifier_length", "63", fixed=True),
        Variable("max_index_keys", "32", fixed=True),
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
        Variable("transaction_isolation", "serializable", _isolation),
        # Server-wide switches. New subscriptions with an output that is off are refused.
        *(
            Variable(f"enable_{feature}_in_subscribe", "on", _boolean, system=True)
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
        Variable("enable_unlimited_retain_history", "off", _boolean, system=True),
        Variable("max_hold_lag", "7d", _positive_milliseconds, system=True),
        Variable("dataflow_lag_bytes_max", str(64 * 1024 * 1024), _integer(0, 2**40), system=True),
        Variable("dataflow_lag_delay_max", "10s", _milliseconds, system=True),
        Variable("arrangement_probing", "auto", _one_of("auto", "server", "executors"), system=True),
        # What a bare ENVELOPE DEBEZIUM of CREATE SOURCE means.
        Variable("source_envelope_debezium", "classic", _one_of("classic", "upsert"), system=True),
        # Accepted because drivers and pools set them. They have no effect.
        Variable("default_table_access_method", "heap", _one_of("heap")),
        Variable("jit", "off", _boolean),
        Variable("row_security", "on", _boolean),
        Variable("welcome_message", "off", _boolean),
    )
}


_OF_THE_ROLE = ("role", "is_superuser")


def find_variable(name: str) -> Variable:
    variable = VARIABLES.get(name.lower())
    if variable is None:
        raise PgError(SqlState.UNDEFINED_OBJECT, f'unrecognized configuration parameter "{name}"')
    return variable


def checked_value(name: str, value: str) -> str:
    """Returns a variable's value in the form that is kept. PgError 42704, 55P02 or 22023."""
    variable = find_variable(name)
    if variable.fixed:
        raise PgError(SqlState.CANT_CHANGE_RUNTIME_PARAM, f'parameter "{variable.name}" cannot be changed')
    try:
        return variable.parse(value)
    except ValueError as error:
        raise PgError(
            SqlState.INVALID_PARAMETER_VALUE,
            f'invalid value for parameter "{variable.name}": "{value}"',
            hint=str(error) or None,
        ) from None


def of_the_system(name: str, values: Mapping[str, str]) -> str:
    """Returns a server-wide variable. `values` are those that ALTER SYSTEM has set."""
    return values.get(name, VARIABLES[name].default)


class Settings(Mapping[str, str]):
    """One session's values by name, case-insensitively.

    SET is transactional: a transaction keeps a `copy` and restores it if it fails.
    """

    def __init__(self, system: Callable[[], Mapping[str, str]] = dict) -> None:
        """`system` returns the values that ALTER SYSTEM has set."""
        self._values: dict[str, str] = {}
        self._system = system
        self._defaults = {name: value for name, value in system().items() if not VARIABLES[name].system}
        self._changed()

    def _changed(self) -> None:
        self.revision = object()
        """Replaced by another object at each change. A copy has the revision of its original."""
        self._style: OutputStyle | None = None
        self._naming: tuple[str, str, str, str] | None = None
        self._timeouts_s: dict[str, float | None] = {}

    def copy(self) -> Settings:
        made = Settings.__new__(Settings)
        made._system = self._system
        made._values, made._defaults = dict(self._values), dict(self._defaults)
        made.revision, made._style, made._naming = self.revision, self._style, self._naming
        made._timeouts_s = {}
        return made

    def __getitem__(self, name: str) -> str:
        """The value as SHOW prints it. PgError 42704 for an unknown name."""
        variable = find_variable(name)
        key = variable.name.lower()
        if variable.system:
            return of_the_system(key, self._system())
        return self._values.get(key, self._defaults.get(key, variable.default))

    def set(self, name: str, value: str) -> None:
        """PgError 42704, 55P02 or 22023."""
        variable = find_variable(name)
        if variable.system:
            raise PgError(
                SqlState.CANT_CHANGE_RUNTIME_PARAM,
                f'parameter "{variable.name}" cannot be changed now',
                hint="It is the whole server's: use ALTER SYSTEM SET.",
            )
        self._values[variable.name.lower()] = checked_value(name, value)
        self._changed()

    def start_with(self, name: str, value: str) -> None:
        """Sets a value from the startup packet, to which RESET returns. It also sets `fixed` variables."""
        key = find_variable(name).name.lower()
        if not VARIABLES[key].fixed:
            self.set(name, value)
            value = self._values.pop(key)
        self._defaults[key] = value
        self._changed()

    def reset(self, name: str | None) -> None:
        """Resets a variable to its default; None: all but those of the role, as in PostgreSQL."""
        if name is None:
            self._values = {key: value for key, value in self._values.items() if key in _OF_THE_ROLE}
        elif name.lower() == "role":
            for key in _OF_THE_ROLE:
                self._values.pop(key, None)
        else:
            self._values.pop(find_variable(name).name.lower(), None)
        self._changed()

    def assume_role(self, name: str, *, superuser: bool) -> None:
        """Sets the variables that SET ROLE changes. The caller has checked that the role is allowed."""
        self._values.update(role=name, is_superuser="on" if superuser else "off")
        self._changed()

    def reported(self) -> dict[str, str]:
        """Returns the values of the variables with GUC_REPORT, by PostgreSQL's spelling of the names."""
        return {v.name: self[v.name] for v in VARIABLES.values() if v.reported}

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name.lower() in VARIABLES else default

    def __iter__(self) -> Iterator[str]:
        return iter(sorted((v.name for v in VARIABLES.values()), key=str.lower))

    def __len__(self) -> int:
        return len(VARIABLES)

    @property
    def search_path(self) -> tuple[str, ...]:
        names = (part.strip() for part in self["search_path"].split(","))
        return tuple(n[1:-1].replace('""', '"') if n.startswith('"') else n.lower() for n in names if n)

    @property
    def naming(self) -> tuple[str, str, str, str]:
        """The variables that affect names and literals in a statement: database, search_path, TimeZone, role."""
        if self._naming is None:
            self._naming = self["database"], self["search_path"], self["TimeZone"], self["role"]
        return self._naming

    @property
    def output_style(self) -> OutputStyle:
        """The settings that affect the text output of values."""
        if self._style is None:
            self._style = OutputStyle(timezone=self["TimeZone"], bytea_output=self["bytea_output"])
        return self._style

    def timeout_s(self, name: str) -> float | None:
        """Returns a variable of milliseconds in seconds; None if it is 0, which means off."""
        if name not in self._timeouts_s:
            self._timeouts_s[name] = milliseconds(self[name]) / 1_000 or None
        return self._timeouts_s[name]
