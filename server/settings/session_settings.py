"""The values of variables in one session."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from protocol.pgwire.encode import OutputStyle
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.input_style import DEFAULT_INPUT, InputStyle
from server.settings.parsers import milliseconds
from server.settings.variables import (
    DEFAULTS_OF,
    TRANSACTION_MODES,
    VARIABLES,
    check_custom_name,
    check_default,
    checked_value,
    find_variable,
    is_custom,
    system_value,
)

CUSTOM_SETTINGS_MAX = 128
CUSTOM_CHARACTERS_MAX = 65_536
"""The limits of a session's custom settings: their number, and the length of all names and values."""
_LISTED_NAME = re.compile(r'"((?:[^"]|"")*)"|([^",]+)')
_ROLE_VARIABLES = ("role", "is_superuser")
_SESSION_VARIABLES = ("session_authorization", *_ROLE_VARIABLES)


class Settings(Mapping[str, str]):
    """One session's values by name, case-insensitively.

    A custom setting exists from its first SET or RESET to the end of the session, even after ROLLBACK. Its default is
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
            return system_value(key, self._system())
        if key in DEFAULTS_OF and key not in self._values:
            return self[DEFAULTS_OF[key]]
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
            kept = (*_SESSION_VARIABLES, *TRANSACTION_MODES)
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
        for key in _ROLE_VARIABLES:
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
        listed = _LISTED_NAME.findall(self["search_path"])
        names = (quoted.replace('""', '"') or plain.strip().lower() for quoted, plain in listed)
        return tuple(filter(None, names))

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
