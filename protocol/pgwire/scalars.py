"""Text and binary input of single values: parameters, literals, and COPY data that the column decoder cannot handle.

    parse_text(type, "1.5")       -> the Python scalar (see types.py), with the type's modifiers applied
    parse_binary(type, b"...")    -> the same from the binary format
    column_of(type, scalars)      -> such scalars (None is NULL) as an Arrow array of type.arrow
    format_text(type, scalar)     -> the text as PostgreSQL prints it

Messages and codes are those of PostgreSQL 16. Values that Arrow cannot represent are refused: NaN and infinities of
numeric, arrays whose subscripts do not begin at 1.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Sequence
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from protocol.pgwire import datetime_input, interval_input, network
from protocol.pgwire.datetime_output import DATE_INFINITY, DAY_US, INFINITY
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.input_style import DEFAULT_INPUT, InputStyle
from protocol.pgwire.json_values import parse_json, parse_jsonb
from protocol.pgwire.nested_lists import mapped, nested, wrong_dimensions
from protocol.pgwire.text_columns import DEFAULT_STYLE, OutputStyle, plain_column, text_column
from protocol.pgwire.types import BY_OID, DIMENSIONS_MAX, NUMERIC_PRECISION_MAX, PgType, too_many_dimensions
from protocol.pgwire.utf8 import decode_utf8, invalid_encoding

_SPACE = " \t\n\v\f\r"


NUMBER_CHARS_MAX = 200_000
"""Limit for the text of types without arbitrary length, in characters. A numeric has at most 147,455 digits."""
_OF_ANY_LENGTH = frozenset(("text", "varchar", "bpchar", "name", '"char"', "unknown", "bytea", "json", "jsonb"))


def parse_text(type: PgType, text: str, *, timezone: str = "UTC", style: InputStyle = DEFAULT_INPUT) -> Any:
    """Parses `text` as PostgreSQL's input function of `type` does. Raises PgError."""
    if type.element is not None:
        element = type.element

        def parsed(item: str | None) -> Any:
            return None if item is None else parse_text(element, item, timezone=timezone, style=style)

        items, dimensions = _array_elements(text)
        if items and dimensions != type.dimensions:
            raise wrong_dimensions(dimensions, type)
        return mapped(parsed, items, dimensions)
    if type.enum is not None:
        return type.enum.position(text)
    if len(text) > NUMBER_CHARS_MAX and type.name not in _OF_ANY_LENGTH and len(text.strip(_SPACE)) > NUMBER_CHARS_MAX:
        raise _syntax(type, f"{text.strip(_SPACE)[:100]}...")
    if type.name == "timestamptz":
        return datetime_input.parse_timestamptz(text, timezone, style.date_order)
    if style is not DEFAULT_INPUT and type.name in _STYLED:
        return _STYLED[type.name](text, style)
    return _TEXT[type.name](type, text)


def parse_binary(type: PgType, data: bytes) -> Any:
    """Parses `data` as PostgreSQL's receive function of `type` does.

    Raises PgError: 08P01 if it is too short, 22P03 if it is too long, others if the value is invalid. The caller adds
    which parameter or column it is.
    """
    reader = _Binary(data)
    value = _receive(type, reader)
    if reader.rest():
        raise PgError(SqlState.INVALID_BINARY_REPRESENTATION, "incorrect binary data format")
    return value


def column_of(type: PgType, scalars: Sequence[Any]) -> pa.Array:
    """Scalars, None for NULL, as an Arrow array of `type.arrow`."""
    return pa.array(scalars, type.arrow)


_AS_PYTHON_PRINTS = frozenset(("int2", "int4", "int8", "text", "varchar"))  # Arrow is slow for single values


def format_text(type: PgType, scalar: Any, style: OutputStyle = DEFAULT_STYLE) -> str:
    """The text of a scalar as PostgreSQL prints it. The scalar must not be None."""
    if type.name in _AS_PYTHON_PRINTS:
        return str(scalar)
    if type.enum is not None:
        return type.enum.label_of[scalar]
    text: str = text_column(type, style)(plain_column(column_of(type, [scalar]), type))[0].as_py()
    return text


def _syntax(type: PgType | str, text: str) -> PgError:
    name = type if isinstance(type, str) else type.base_display
    return PgError(SqlState.INVALID_TEXT_REPRESENTATION, f'invalid input syntax for type {name}: "{text}"')


# ---- bool and numbers

_TRUE = frozenset({"t", "tr", "tru", "true", "y", "ye", "yes", "on", "1"})
_FALSE = frozenset({"f", "fa", "fal", "fals", "false", "n", "no", "of", "off", "0"})


def _bool(type: PgType, text: str) -> bool:
    word = text.strip(_SPACE).lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise _syntax(type, text)


def digits_pattern(digit: str) -> str:
    """A pattern of digits, with up to 20,000 single underscores between them. `digit`: a class of characters.

    A repetition of `_?[0-9]` would keep a hundred bytes for each digit until it has matched.
    """
    return rf"{digit}++(?>(?:_{digit}++){{0,20000}})"


DECIMAL_DIGITS = digits_pattern("[0-9]")
BASED_DIGITS = tuple(rf"_?+{digits_pattern(digit)}" for digit in ("[0-9a-fA-F]", "[0-7]", "[01]"))
"""The digits of hexadecimal, octal and binary numbers after their prefix."""
_INTEGER = re.compile(
    r"[ \t\n\v\f\r]*([+-]?)"
    rf"(?:0[xX]({BASED_DIGITS[0]})|0[oO]({BASED_DIGITS[1]})|0[bB]({BASED_DIGITS[2]})|({DECIMAL_DIGITS}))"
    r"[ \t\n\v\f\r]*",
    re.ASCII,
)
_BITS = {"int2": 15, "int4": 31, "int8": 63}
_DIGITS_MAX = 1_000


def _whole(match: re.Match[str]) -> int:
    """The number matched by `_INTEGER`; a number beyond the range of every type if it has too many digits."""
    sign, *digits_by_base = match.groups()
    for digits, base in zip(digits_by_base, (16, 8, 2, 10), strict=True):
        if digits is not None:
            digits = digits.replace("_", "").lstrip("0")
            # int() takes quadratic time in the number of decimal digits
            value = int(digits or "0", base) if len(digits) <= _DIGITS_MAX else 10**_DIGITS_MAX
    return -value if sign == "-" else value


def _int(type: PgType, text: str) -> int:
    if len(text) < 20 and text.isdigit() and text.isascii():
        value = int(text)
    else:
        match = _INTEGER.fullmatch(text)
        if match is None:
            raise _syntax(type, text)
        value = _whole(match)
    if not -1 << _BITS[type.name] <= value < 1 << _BITS[type.name]:
        message = f'value "{text}" is out of range for type {type.display}'
        raise PgError(SqlState.NUMERIC_VALUE_OUT_OF_RANGE, message)
    return value


def _oid(type: PgType, text: str) -> int:
    match = _INTEGER.fullmatch(text)
    if match is None:
        raise _syntax(type, text)
    value = _whole(match)
    if not 0 <= value < 1 << 32:
        raise PgError(SqlState.NUMERIC_VALUE_OUT_OF_RANGE, f'value "{text}" is out of range for type oid')
    return value


_FLOAT = re.compile(
    r"[ \t\n\v\f\r]*+([+-]?(?:(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?|"
    r"(?P<hex>0[xX](?:[0-9a-fA-F]++(?:\.[0-9a-fA-F]*+)?|\.[0-9a-fA-F]++)"
    r"(?:[pP][+-]?\d++)?)|(?P<word>nan|inf(?:inity)?)))[ \t\n\v\f\r]*+",
    re.ASCII | re.IGNORECASE,
)
"""Possessive, as `_DECIMAL`: two lists of digits in a row would take quadratic time, in which no other thread runs."""


def _float(type: PgType, text: str) -> float:
    match = _FLOAT.fullmatch(text)
    if match is None:
        raise _syntax(type, text)
    number = match[1]
    if match["word"]:
        return float(number)
    value = float.fromhex(number) if match["hex"] else float(number)
    if type.name == "float4":
        value = _nearest_single(number, value, bool(match["hex"]))
    is_zero = not re.search("[1-9]" if not match["hex"] else "[1-9a-fA-F]", re.split("[eEpP]", number)[0][-99:] or "0")
    if math.isinf(value) or (value == 0 and not is_zero):
        message = f'"{number}" is out of range for type {type.display}'
        raise PgError(SqlState.NUMERIC_VALUE_OUT_OF_RANGE, message)
    return value


def _nearest_single(text: str, double: float, is_hex: bool) -> float:
    """The float4 nearest to the decimal text. If the rounded double is half-way between two, the exact text decides."""
    with np.errstate(over="ignore"):
        single = np.float32(double)
        if not np.isfinite(single) or is_hex or double == float(single):
            return float(single)
        other = np.nextafter(single, np.float32(math.inf if double > single else -math.inf))
    if not np.isfinite(other) or (float(single) + float(other)) / 2 != double:
        return float(single)
    exact = Fraction(text)
    if exact == Fraction(double):
        return float(single)
    return float(max(single, other) if exact > Fraction(double) else min(single, other))


_DECIMAL = re.compile(
    rf"[ \t\n\v\f\r]*+([+-]?(?:{DECIMAL_DIGITS}(?:\.(?:{DECIMAL_DIGITS})?)?|\.{DECIMAL_DIGITS})"
    rf"(?:[eE][+-]?{DECIMAL_DIGITS})?)[ \t\n\v\f\r]*+",
    re.ASCII,
)
_SCALE_MAX, _WEIGHT_MAX = 16_383, 131_071  # PostgreSQL's numeric: fraction digits, greatest exponent
_FEWER_DIGITS = "Round the value, or use double precision."
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN, rounding=ROUND_HALF_UP)


def _numeric(type: PgType, text: str) -> Decimal:
    match = _INTEGER.fullmatch(text)
    if match is not None:
        return fitted_numeric(type, Decimal(_whole(match)))
    if _DECIMAL.fullmatch(text) is None:
        if re.fullmatch("nan|[+-]?inf(inity)?", text.strip(_SPACE), re.IGNORECASE):
            raise _no_decimal(text.strip(_SPACE))
        raise _syntax(type, text)
    return fitted_numeric(type, exact_numeric(text))


def exact_numeric(text: str) -> Decimal:
    """The exact value of a number's text. PgError 22003 if it exceeds the limits of PostgreSQL's numeric."""
    match = _DECIMAL.fullmatch(text)
    assert match is not None, text
    mantissa, _, exponent = match[1].lower().replace("_", "").partition("e")
    if abs(int(exponent[:20] or 0)) < 1 << 30:
        value = _EXACT.create_decimal(f"{mantissa}e{exponent or 0}")
        if int(value.as_tuple().exponent) >= -_SCALE_MAX and (not value or value.adjusted() <= _WEIGHT_MAX):
            return value
    raise PgError(SqlState.NUMERIC_VALUE_OUT_OF_RANGE, "value overflows numeric format")


def too_many_digits() -> PgError:
    """Error 22003 for a numeric that PostgreSQL accepts but that exceeds 38 digits, the limit of Spark and Arrow."""
    return PgError(
        SqlState.NUMERIC_VALUE_OUT_OF_RANGE,
        "numeric field overflow",
        detail="A numeric has at most 38 digits, including those after the decimal point.",
        hint=_FEWER_DIGITS,
    )


def _no_decimal(what: str) -> PgError:
    return PgError(
        SqlState.NUMERIC_VALUE_OUT_OF_RANGE,
        f'numeric value "{what}" is not supported',
        hint="Use double precision for NaN and infinities.",
    )


def fitted_numeric(type: PgType, value: Decimal) -> Decimal:
    """`value` rounded half away from zero to the type's scale. PgError 22003 if its integer part is too long.

    For a bare numeric the scale is a maximum: 1.50 stays 1.50 until it is stored in a column. ANY_NUMERIC has none.
    """
    scale, precision = type.scale or 0, type.precision or NUMERIC_PRECISION_MAX
    if type.scale is None:  # as many digits as possible
        scale = max(NUMERIC_PRECISION_MAX - 1 - max(value.adjusted(), -1), 0)
    if not value or value.adjusted() < 39:
        exponent = int(value.as_tuple().exponent)
        if type.precision is not None or exponent < -scale or exponent > 0:
            value = value.quantize(
                Decimal(1).scaleb(-scale if type.precision or exponent < -scale else 0), context=_EXACT
            )
    if value and value.adjusted() >= precision - scale:
        limit = f"less than 10^{precision - scale}" if precision > scale else "less than 1"
        raise PgError(
            SqlState.NUMERIC_VALUE_OUT_OF_RANGE,
            "numeric field overflow",
            detail=f"A field with precision {precision}, scale {scale} must round to an absolute value {limit}.",
            hint=None if type.precision is not None else _FEWER_DIGITS,
        )
    return value if value else abs(value)  # no negative zero


# ---- strings


def _string(type: PgType, text: str) -> str:
    if "\0" in text:
        raise invalid_encoding(b"\0")
    limit = type.length
    if limit is None:
        return text
    if len(text) > limit:
        if text[limit:].strip(" "):
            raise PgError(SqlState.STRING_DATA_RIGHT_TRUNCATION, f"value too long for type {type.display}")
        text = text[:limit]
    return text.ljust(limit) if type.name == "bpchar" else text


_UUID = re.compile(r"(\{)?((?:[0-9a-f]{4}-?){7}[0-9a-f]{4})(?(1)\})", re.ASCII | re.IGNORECASE)


def _uuid(type: PgType, text: str) -> str:
    match = _UUID.fullmatch(text)
    if match is None:
        raise _syntax(type, text)
    return _dashed(match[2].replace("-", "").lower())


def _dashed(digits: str) -> str:
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


_ESCAPED = re.compile(rb"\\(?:\\|([0-3][0-7][0-7]))|\\")
_PIECE = r"(?>(?:(?:\\.?|[^\\])[^\\]*+){1,1000})"
"""A part of a text with a limited number of escapes. No other thread runs during a match or a substitution."""
_PIECE_BYTES, _PIECE_TEXT = re.compile(_PIECE.encode(), re.DOTALL), re.compile(_PIECE, re.DOTALL)


def _bytea(type: PgType, text: str) -> bytes:
    if text.startswith("\\x"):
        return _hex(text[2:])

    def byte(match: re.Match[bytes]) -> bytes:
        if match[1] is not None:
            return bytes([int(match[1], 8)])
        if match[0] == b"\\\\":
            return b"\\"
        raise PgError(SqlState.INVALID_TEXT_REPRESENTATION, "invalid input syntax for type bytea")

    return b"".join(_ESCAPED.sub(byte, piece[0]) for piece in _PIECE_BYTES.finditer(text.encode()))


_HEX_DIGITS = re.compile("[0-9a-fA-F]*+")
_HEX_PIECE = re.compile(r"(?>(?:[ \n\t\r]++|[0-9a-fA-F]{2}){1,1000})")


def _hex(digits: str) -> bytes:
    """Decodes pairs of hexadecimal digits; white space is allowed between pairs."""
    if len(digits) % 2 == 0 and _HEX_DIGITS.fullmatch(digits):
        return bytes.fromhex(digits)
    out, position = bytearray(), 0
    while match := _HEX_PIECE.match(digits, position):
        out += bytes.fromhex(match[0])
        position = match.end()
    for index in range(position, min(position + 2, len(digits))):
        if digits[index] not in "0123456789abcdefABCDEF":
            raise PgError(SqlState.INVALID_PARAMETER_VALUE, f'invalid hexadecimal digit: "{digits[index]}"')
    if position < len(digits):
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, "invalid hexadecimal data: odd number of digits")
    return bytes(out)


# ---- arrays

_IN_QUOTES = r'[^"\\]*+(?>(?:\\.[^"\\]*+){0,1000})'
_IN_PLAIN = r'[^"\\{},]*+(?>(?:\\.[^"\\{},]*+){0,1000})'
_MARK = re.compile(
    rf'[ \t\n\v\f\r]*+(?:("{_IN_QUOTES}")|([{{}},])|((?:[^"\\{{}}, \t\n\v\f\r]|\\.){_IN_PLAIN})|("))',
    re.DOTALL,
)
_QUOTED_CONTENTS, _PLAIN_CONTENTS = re.compile(_IN_QUOTES, re.DOTALL), re.compile(_IN_PLAIN, re.DOTALL)
_BOUND = r"[ \t\n\v\f\r]*+\[[+-]?\d++(?::[+-]?\d++)?\]"
_BOUNDS = re.compile(
    rf"(?P<too_many>(?:{_BOUND}){{{DIMENSIONS_MAX + 1}}})|(?:{_BOUND}){{1,{DIMENSIONS_MAX}}}[ \t\n\v\f\r]*+=", re.ASCII
)
_OPENING = rf"(?:[ \t\n\v\f\r]*+\{{){{1,{DIMENSIONS_MAX + 1}}}(?![ \t\n\v\f\r]*+\}})"
_OPENING_BYTES, _OPENING_TEXT = re.compile(_OPENING.encode()), re.compile(_OPENING)


def literal_dimensions(text: str) -> int:
    """The number of dimensions of an array's text, by its opening braces; 0 for an empty array and for other texts."""
    match = _OPENING_TEXT.match(text)
    return 0 if match is None else min(match[0].count("{"), DIMENSIONS_MAX)


def sent_dimensions(format: int, data: bytes) -> int:
    """The number of dimensions of an array in this format; 0 for an empty one, and for malformed data."""
    if format == 1:
        return binary_dimensions(data)
    match = _OPENING_BYTES.match(data)
    return 0 if match is None else min(match[0].count(b"{"), DIMENSIONS_MAX)


def _array_elements(text: str) -> tuple[list[Any], int]:
    """array_in(): the text of each element of `{a,"b c",NULL}`, in nested lists, and the number of dimensions."""

    def malformed(detail: str) -> PgError:
        message = f'malformed array literal: "{text.lstrip(_SPACE) if body.startswith("{") else text}"'
        return PgError(SqlState.INVALID_TEXT_REPRESENTATION, message, detail=detail)

    if (simple := _simple_elements(text)) is not None:
        return simple, 1
    if (bounds := _BOUNDS.match(text)) is not None:
        if bounds["too_many"] is not None:
            raise PgError(SqlState.PROGRAM_LIMIT_EXCEEDED, too_many_dimensions(DIMENSIONS_MAX + 1))
        raise no_bounds()
    body = text.strip(_SPACE)
    if not body.startswith("{"):
        raise malformed('Array value must start with "{" or dimension information.')
    whole: list[Any] = []
    open_lists = [whole]
    lengths: dict[int, int] = {}  # by the level of nesting
    depths: set[int] = set()  # of the elements
    # The last mark: `{`, `}`, `q` and `e` for elements with and without quotes, `,` after one, `;` after `}`.
    last = "{"
    position = 1
    while open_lists:
        match = _MARK.match(body, position)
        if match is None:
            rest = body[position:].lstrip(_SPACE)
            if rest and last not in "{," and not (last == "e" and rest[0] == "\\"):
                raise malformed("Unexpected array element." if rest[0] == '"' else 'Unexpected "\\" character.')
            raise malformed("Unexpected end of input.")
        quoted, mark, plain, quote = match.groups()
        position = match.end()
        level = len(open_lists)
        if mark == "{":
            if last not in "{;":
                raise malformed('Unexpected "{" character.')
            if level >= DIMENSIONS_MAX:
                raise PgError(SqlState.PROGRAM_LIMIT_EXCEEDED, too_many_dimensions(level + 1))
            inner: list[Any] = []
            open_lists[-1].append(inner)
            open_lists.append(inner)
            last = "{"
        elif mark == "}":
            if last not in "}eq" and not (level == 1 and last == "{"):
                raise malformed('Unexpected "}" character.')
            if lengths.setdefault(level, len(open_lists[-1])) != len(open_lists[-1]):
                raise malformed(_UNEQUAL)
            open_lists.pop()
            last = "}"
        elif mark == ",":
            if last not in "}eq":
                raise malformed('Unexpected "," character.')
            last = ";" if last == "}" else ","
        else:
            if last not in "{,":
                escape = plain is not None and plain.startswith("\\")
                raise malformed('Unexpected "\\" character.' if escape else "Unexpected array element.")
            if quote is not None:
                quoted, position = _continued(body, quote, position, _QUOTED_CONTENTS)
                if body[position : position + 1] != '"':
                    raise malformed("Unexpected end of input.")
                quoted, position = f'{quoted}"', position + 1
            elif plain is not None and body[position : position + 1] == "\\":
                plain, position = _continued(body, plain, position, _PLAIN_CONTENTS)
            depths.add(level)
            open_lists[-1].append(_element_text(quoted, plain))
            last = "q" if plain is None else "e"
    if position != len(body):
        raise malformed("Junk after closing right brace.")
    if len(depths) > 1:
        raise malformed(_UNEQUAL)
    return whole, max(depths, default=1)


ELEMENTS_MAX = (1 << 27) - 1
_UNEQUAL = "Multidimensional arrays must have sub-arrays with matching dimensions."


def no_bounds() -> PgError:
    """Error 0A000 for an array whose subscripts do not begin at 1."""
    return PgError(
        SqlState.FEATURE_NOT_SUPPORTED, "array bounds are not supported", hint="Omit the bounds: subscripts begin at 1."
    )


def _continued(text: str, element: str, position: int, contents: re.Pattern[str]) -> tuple[str, int]:
    """The rest of an element whose beginning ends at `position`, after the beginning, and the end of the rest."""
    end, after = -1, position
    while after != end:  # a match has a limited number of escapes
        end = after
        match = contents.match(text, end)
        assert match is not None
        after = match.end()
    return element + text[position:end], end


def _element_text(quoted: str | None, plain: str) -> str | None:
    """The text of an element in an array's text. Without quotes, `NULL` is NULL."""
    if quoted is not None:
        return _without_escapes(quoted[1:-1])
    return None if plain.strip(_SPACE).lower() == "null" else _unescaped(plain)


def _without_escapes(text: str) -> str:
    """Replaces each backslash and the character after it by this character."""
    if "\\" not in text:
        return text
    pieces = (piece[0].split("\\\\") for piece in _PIECE_TEXT.finditer(text))
    return "".join("\\".join(part.replace("\\", "") for part in parts) for parts in pieces)


def _simple_elements(text: str) -> list[str | None] | None:
    """The elements of an array without quotes, escapes and inner braces, such as `{a,b,NULL}`; else None."""
    body = text[1:-1]
    if text[:1] != "{" or text[-1:] != "}" or any(mark in body for mark in '"\\{}'):
        return None
    elements = [item.strip(_SPACE) for item in body.split(",")]
    if "" in elements:
        return None
    return [None if len(item) == 4 and item.lower() == "null" else item for item in elements]


def _unescaped(plain: str) -> str:
    """The value of an unquoted element. Trailing white space is removed unless a backslash precedes it."""
    if "\\" not in plain:
        return plain.rstrip(_SPACE)
    kept = plain.rstrip(_SPACE)
    if (len(kept) - len(kept.rstrip("\\"))) % 2:
        kept = plain[: len(kept) + 1]
    return _without_escapes(kept)


_STYLED: dict[str, Callable[[str, InputStyle], Any]] = {
    "date": lambda text, style: datetime_input.parse_date(text, style.date_order),
    "timestamp": lambda text, style: datetime_input.parse_timestamp(text, style.date_order),
    "interval": lambda text, style: interval_input.parse_interval(text, sql_signs=style.sql_intervals),
}

_TEXT: dict[str, Callable[[PgType, str], Any]] = {
    "bool": _bool,
    "int2": _int,
    "int4": _int,
    "int8": _int,
    "oid": _oid,
    "name": _string,
    '"char"': _string,
    "float4": _float,
    "float8": _float,
    "numeric": _numeric,
    "text": _string,
    "varchar": _string,
    "bpchar": _string,
    "unknown": _string,
    "bytea": _bytea,
    "uuid": _uuid,
    "inet": lambda type, text: network.parse_inet(text),
    "cidr": lambda type, text: network.parse_cidr(text),
    "macaddr": lambda type, text: network.parse_macaddr(text),
    "macaddr8": lambda type, text: network.parse_macaddr8(text),
    "json": lambda type, text: parse_json(text),
    "jsonb": lambda type, text: parse_jsonb(text),
    "date": lambda type, text: datetime_input.parse_date(text),
    "time": lambda type, text: datetime_input.parse_time(text),
    "timestamp": lambda type, text: datetime_input.parse_timestamp(text),
    "interval": lambda type, text: interval_input.parse_interval(text),
}


# ---- binary


class _Binary:
    """Reads values from a buffer. PgError 08P01 if fewer bytes are left than requested."""

    def __init__(self, data: bytes) -> None:
        self._data, self._position = data, 0

    def take(self, count: int) -> bytes:
        end = self._position + count
        if count < 0 or end > len(self._data):
            raise PgError(SqlState.PROTOCOL_VIOLATION, "insufficient data left in message")
        taken, self._position = self._data[self._position : end], end
        return taken

    def unpack(self, format: str) -> tuple[Any, ...]:
        return struct.unpack(format, self.take(struct.calcsize(format)))

    def rest(self) -> bytes:
        return self.take(len(self._data) - self._position)


def _receive(type: PgType, reader: _Binary) -> Any:
    if type.element is not None:
        return _receive_array(type, type.element, reader)
    name = type.name
    if name in _STRUCTS:
        return reader.unpack(_STRUCTS[name])[0]
    if name == "bool":
        return reader.take(1) != b"\0"
    if name == "numeric":
        return _receive_numeric(type, reader)
    if name == "bytea":
        return reader.rest()
    if name in ("inet", "cidr"):
        return network.received(reader.rest(), is_cidr=name == "cidr")
    if name in ("macaddr", "macaddr8"):
        return network.received_mac(reader.rest(), type.size)
    if name == "uuid":
        return _dashed(reader.take(16).hex())
    if name == "date":
        return _receive_instant(reader, ">i", "date", datetime_input.POSTGRES_EPOCH_DAYS)
    if name in ("timestamp", "timestamptz"):
        return _receive_instant(reader, ">q", "timestamp", datetime_input.POSTGRES_EPOCH_DAYS * DAY_US)
    if name == "time":
        (us,) = reader.unpack(">q")
        if not 0 <= us <= DAY_US:
            raise PgError(SqlState.DATETIME_FIELD_OVERFLOW, "time out of range")
        return us
    if name == "interval":
        us, days, months = reader.unpack(">qii")
        return interval_input.interval_of(months, days, us)
    if name == "jsonb":
        version = reader.take(1)[0]
        if version != 1:
            raise PgError(SqlState.INTERNAL_ERROR, f"unsupported jsonb version number {version}")
    if type.enum is not None:
        return type.enum.position(decode_utf8(reader.rest()))
    return _TEXT[name](type, decode_utf8(reader.rest()))


_STRUCTS = {"int2": ">h", "int4": ">i", "int8": ">q", "oid": ">I", "float4": ">f", "float8": ">d"}


def _receive_instant(reader: _Binary, format: str, what: str, epoch: int) -> int:
    """Reads days or microseconds since 2000. The infinities are the greatest and least integers."""
    (since_2000,) = reader.unpack(format)
    greatest = DATE_INFINITY if what == "date" else INFINITY
    if since_2000 in (greatest, -greatest - 1):
        return int(since_2000)
    value = int(since_2000) + epoch
    day = value if what == "date" else value // DAY_US
    if not datetime_input.DATE_MIN <= day < datetime_input.DATE_END or value >= INFINITY:
        raise PgError(SqlState.DATETIME_FIELD_OVERFLOW, f"{what} out of range")
    return value


def _receive_numeric(type: PgType, reader: _Binary) -> Decimal:
    count, weight, sign, scale = reader.unpack(">HhHh")
    if sign in (0xC000, 0xD000, 0xF000):
        raise _no_decimal({0xC000: "NaN", 0xD000: "Infinity", 0xF000: "-Infinity"}[sign])
    what = "sign" if sign not in (0, 0x4000) else "scale" if not 0 <= scale <= 16_383 else ""
    digits = reader.unpack(f">{count}h")
    if any(not 0 <= digit < 10_000 for digit in digits):
        what = what or "digit"
    if what:
        raise PgError(SqlState.INVALID_BINARY_REPRESENTATION, f'invalid {what} in external "numeric" value')
    coefficient = int("".join(f"{digit:04d}" for digit in digits)[:40_000] or "0") if count < 1000 else 10**4000
    value = _EXACT.scaleb(Decimal(coefficient), 4 * (weight - count + 1))
    if value.adjusted() < 39:
        value = value.quantize(Decimal(1).scaleb(-scale), context=_EXACT) if value else Decimal(0).scaleb(-scale)
    return fitted_numeric(type, value.copy_negate() if sign else value)


def binary_dimensions(data: bytes) -> int:
    """The number of dimensions of an array in binary format; 0 for an empty array, and for what is no array."""
    if len(data) < 12:
        return 0
    dimensions = int.from_bytes(data[:4], "big")
    return dimensions if dimensions <= DIMENSIONS_MAX else 0


def _receive_array(type: PgType, element: PgType, reader: _Binary) -> list[Any]:
    dimensions, flags, oid = reader.unpack(">iii")
    if dimensions < 0:
        raise PgError(SqlState.INVALID_BINARY_REPRESENTATION, f"invalid number of dimensions: {dimensions}")
    if dimensions > DIMENSIONS_MAX:
        raise PgError(SqlState.PROGRAM_LIMIT_EXCEEDED, too_many_dimensions(dimensions))
    if flags not in (0, 1):
        raise PgError(SqlState.INVALID_BINARY_REPRESENTATION, "invalid array flags")
    if oid != element.oid:
        given = BY_OID.get(oid)
        raise PgError(
            SqlState.DATATYPE_MISMATCH,
            f"binary data has array element type {oid} ({given.base_display if given else '???'}) "
            f"instead of expected {element.oid} ({element.base_display})",
        )
    bounds = [reader.unpack(">ii") for _ in range(dimensions)]
    lengths = [length for length, _ in bounds]
    if (negative := next((length for length in lengths if length < 0), None)) is not None:
        raise PgError(SqlState.INVALID_BINARY_REPRESENTATION, f"invalid number of elements: {negative}")
    count = math.prod(lengths) if lengths else 0
    if count > ELEMENTS_MAX:
        message = f"array size exceeds the maximum allowed ({ELEMENTS_MAX})"
        raise PgError(SqlState.PROGRAM_LIMIT_EXCEEDED, message)
    if not count:
        return []
    if any(lower != 1 for _, lower in bounds):
        raise no_bounds()
    if dimensions != type.dimensions:
        raise wrong_dimensions(dimensions, type)
    values: list[Any] = []
    for _ in range(count):
        (length,) = reader.unpack(">i")
        values.append(None if length == -1 else parse_binary(element, reader.take(length)))
    return nested(values, lengths)
