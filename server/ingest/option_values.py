"""Values of the options of sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.scalars import parse_text
from protocol.pgwire.types import INTERVAL

_INTEGER_MAX = 2**62


@dataclass(frozen=True, slots=True)
class OptionValues:
    """The options by lower-case name. The methods raise PgError 22023 for an invalid value."""

    given: Mapping[str, str]

    def integer(self, name: str, default: int, least: int = 1, greatest: int = _INTEGER_MAX) -> int:
        """A whole number from `least` to `greatest`."""
        text = self.given.get(name)
        if text is None:
            return default
        try:
            value = int(text)
        except ValueError:
            raise self._invalid(name, "Use a whole number.") from None
        if not least <= value <= greatest:
            raise self._invalid(name, f"Use a number from {least} to {greatest}.")
        return value

    def number(self, name: str, default: float, greatest: float) -> float:
        """A positive number of at most `greatest`."""
        text = self.given.get(name)
        if text is None:
            return default
        try:
            value = float(text)
        except ValueError:
            raise self._invalid(name, "Use a number.") from None
        if not 0 < value <= greatest:
            raise self._invalid(name, f"Use a positive number of at most {greatest:g}.")
        return value

    def microseconds(self, name: str) -> int | None:
        """An interval that is not negative; None if it is not given. Months count 30 days."""
        text = self.given.get(name)
        if text is None:
            return None
        hint = "Use an interval that is not negative, such as '1s'."
        try:
            value = parse_text(INTERVAL, text)
        except PgError:
            raise self._invalid(name, hint) from None
        total = ((value.months * 30 + value.days) * 86_400_000_000) + value.nanoseconds // 1_000
        if total < 0:
            raise self._invalid(name, hint)
        return int(total)

    def _invalid(self, name: str, hint: str) -> PgError:
        message = f'invalid value for option {name.upper()}: "{self.given[name]}"'
        return PgError(SqlState.INVALID_PARAMETER_VALUE, message, hint=hint)
