"""Input of json, which is validated and kept unchanged, and of jsonb, which is converted to PostgreSQL's normal form.

Both are stored as text. jsonb's normal form (src/backend/utils/adt/jsonb.c): keys ordered by length, then bytes; the
last of equal keys is kept; one space after `:` and `,`; numbers as numeric prints them (1.10 stays 1.10, 1e2 is 100).
"""

from __future__ import annotations

import json
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn

from protocol.pgwire.errors import PgError, SqlState

VALUES_MAX = 2_000_000
"""The number of members and elements of a value. Each takes 140 to 330 bytes of memory while the value is parsed."""
DIGITS_MAX = 1_000
"""How many digits the exponent of a number in jsonb may add. `1e131071`, which PostgreSQL keeps as one digit, is a text
of 131,072 bytes in the normal form."""
ADDED_BYTES_MAX = 16 << 20
"""How many digits the exponents of all numbers of a value may add."""

quoted_json = json.JSONEncoder(ensure_ascii=False).encode
"""Encodes a string as a JSON string."""


def parse_json(text: str) -> str:
    """Returns `text` unchanged if it is valid JSON. Raises PgError 22P02, 54000."""
    _loads(text, str)
    return text


def parse_jsonb(text: str) -> str:
    """`text` in jsonb's normal form. Raises PgError 22P02, 22P05 for \\u0000, 22003 for a number beyond numeric or with
    an exponent that adds more than DIGITS_MAX digits, 54000 for more than VALUES_MAX members and elements or
    ADDED_BYTES_MAX digits that are added."""
    return printed_jsonb(loaded_jsonb(text))


def loaded_jsonb(text: str) -> Any:
    """`text` as Python values: None, bool, Decimal, str, list, dict. Raises as `parse_jsonb`."""
    return _loads(text, _Numbers().value)


def _loads(text: str, number: Any) -> Any:
    if len(text) > VALUES_MAX and (count := text.count(",")) > VALUES_MAX:  # commas in strings count, too
        raise PgError(
            SqlState.PROGRAM_LIMIT_EXCEEDED,
            f"number of JSON values exceeds the maximum allowed ({VALUES_MAX})",
            detail=f"The input has {count} commas.",
            hint="Store the elements as rows.",
        )
    try:
        return json.loads(text, parse_int=number, parse_float=number, parse_constant=_refuse_constant)
    except RecursionError:
        raise PgError(SqlState.STATEMENT_TOO_COMPLEX, "stack depth limit exceeded") from None
    except ValueError as error:
        ended = isinstance(error, json.JSONDecodeError) and not text[error.pos :].strip(" \t\n\r")
        detail = "The input string ended unexpectedly." if ended else f"{error}."
        raise PgError(
            SqlState.INVALID_TEXT_REPRESENTATION, "invalid input syntax for type json", detail=detail
        ) from None


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f'Token "{word}" is invalid')


class _Numbers:
    """The numbers of one value of jsonb."""

    def __init__(self) -> None:
        self._added = 0  # digits

    def value(self, text: str) -> Decimal:
        """PgError 22003, 54000"""
        try:
            value = Decimal(text)
        except InvalidOperation:
            raise PgError(SqlState.NUMERIC_VALUE_OUT_OF_RANGE, "value overflows numeric format") from None
        before, after = max(value.adjusted(), 0), max(-int(value.as_tuple().exponent), 0)
        if before > 131_071 or after > 16_383:
            raise PgError(SqlState.NUMERIC_VALUE_OUT_OF_RANGE, "value overflows numeric format")
        if (added := before + after - len(text)) > 0:
            self._add(added)
        return value

    def _add(self, digits: int) -> None:
        if digits > DIGITS_MAX:
            raise PgError(
                SqlState.NUMERIC_VALUE_OUT_OF_RANGE,
                "value overflows numeric format",
                detail=f"The exponent of a number in jsonb may add {DIGITS_MAX} digits, not {digits}.",
                hint="Store the number as a string, or the value as json.",
            )
        self._added += digits
        if self._added > ADDED_BYTES_MAX:
            raise PgError(
                SqlState.PROGRAM_LIMIT_EXCEEDED,
                "out of memory",
                detail=f"The exponents of the numbers in a jsonb value add more than {ADDED_BYTES_MAX} digits.",
                hint="Store the numbers as strings, or the value as json.",
            )


def printed_jsonb(value: Any) -> str:
    """The normal form of a value as `loaded_jsonb` returns it."""
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, Decimal):
        return f"{value if value else abs(value):f}"
    if isinstance(value, dict):
        ordered = sorted(value.items(), key=lambda item: (len(key := item[0].encode(errors="surrogatepass")), key))
        return "{" + ", ".join(f"{_string(key)}: {printed_jsonb(member)}" for key, member in ordered) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(printed_jsonb, value)) + "]"
    return {None: "null", True: "true", False: "false"}[value]


def _string(value: str) -> str:
    if "\0" in value:
        raise PgError(
            SqlState.UNTRANSLATABLE_CHARACTER,
            "unsupported Unicode escape sequence",
            detail="\\u0000 cannot be converted to text.",
        )
    if any("\ud800" <= character <= "\udfff" for character in value):
        low = "Unicode low surrogate must follow a high surrogate."
        raise PgError(SqlState.INVALID_TEXT_REPRESENTATION, "invalid input syntax for type json", detail=low)
    return quoted_json(value)
