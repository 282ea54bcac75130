"""Strings (chapter 9.4); `matching` has patterns, `binary_strings` has bytea.

Lengths count characters. The locale is C: only ASCII letters have case. Native forms check the extreme values for which
Spark would differ: lengths beyond a gigabyte (54000), positions that overflow.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import TEXT, PgType
from server.sql.casts import find_cast
from server.sql.expressions import Expression
from server.sql.functions.table import FUNCTIONS, OPERATORS, Form, Nulls, guarded, independent, row
from server.sql.grammar.lexer import quote_identifier

_UPPER, _LOWER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz"
_TO_LOWER, _TO_UPPER = str.maketrans(_UPPER, _LOWER), str.maketrans(_LOWER, _UPPER)
_BYTES_MAX = 0x3FFFFFFF - 4  # PostgreSQL's allocation limit
_CHARACTERS_MAX = _BYTES_MAX // 4
_TOO_LONG = "requested length too large"


def _too_long() -> PgError:
    return PgError(SqlState.PROGRAM_LIMIT_EXCEEDED, _TOO_LONG)


def invalid(message: str) -> PgError:
    return PgError(SqlState.INVALID_PARAMETER_VALUE, message)


# -- parts ----------------------------------------------------------------------------------------------------------

_SUBSTRING_ERROR = "negative substring length not allowed"


def part(value: Any, start: int, length: int | None = None) -> Any:
    """substring of a text or of bytes. Positions before the first count towards the length but contain nothing."""
    if length is None:
        return value[max(start, 1) - 1 :]
    if length < 0:
        raise PgError(SqlState.SUBSTRING_ERROR, _SUBSTRING_ERROR)
    return value[max(start, 1) - 1 : max(start + length - 1, 0)]


def overlaid(value: Any, new: Any, start: int, length: int | None = None) -> Any:
    """overlay of a text or of bytes."""
    if start <= 0:
        raise PgError(SqlState.SUBSTRING_ERROR, _SUBSTRING_ERROR)
    end = start + (len(new) if length is None else length)
    if end >= 1 << 31:
        raise PgError(SqlState.NUMERIC_VALUE_OUT_OF_RANGE, "integer out of range")
    return value[: start - 1] + new + value[max(end, 1) - 1 :]


def _left(text: str, count: int) -> str:
    return text[:count]


def _right(text: str, count: int) -> str:
    if count == -(1 << 31):
        return text  # -2^31 cannot be negated
    return text[-count:] if count < 0 else text[max(len(text) - count, 0) :]


def _split_part(text: str, delimiter: str, number: int) -> str:
    if number == 0:
        raise invalid("field position must not be zero")
    parts = text.split(delimiter) if delimiter else [text]
    index = number - 1 if number > 0 else len(parts) + number
    return parts[index] if 0 <= index < len(parts) else ""


row(FUNCTIONS, "left", "text int4", "text",
    "substr({0}, 1, IF({1} >= 0, {1}, IF(char_length({0}) + {1} < 0, 0, char_length({0}) + {1})))",
    python=_left)  # fmt: skip
row(FUNCTIONS, "right", "text int4", "text",
    "IF({1} < -2147483647, {0}, substr({0}, IF({1} < 0, 1 - IF({1} < -2147483647, 0, {1}), "
    "IF(char_length({0}) < {1}, 1, char_length({0}) - {1} + 1))))", python=_right)  # fmt: skip
for _name in ("substring", "substr"):
    row(FUNCTIONS, _name, "text int4", "text", "substr({0}, IF({1} < 1, 1, {1}))", python=part)
    row(FUNCTIONS, _name, "text int4 int4", "text", guarded(
        "{2} < 0", SqlState.SUBSTRING_ERROR, _SUBSTRING_ERROR,
        "substr({0}, IF({1} < 1, 1, {1}), CAST(IF({1} < 1, greatest({1} + CAST({2} AS BIGINT) - 1, 0), "
        "least({2}, char_length({0}))) AS INT))"), python=part)  # fmt: skip
row(FUNCTIONS, "overlay", "text text int4", "text", python=overlaid)
row(FUNCTIONS, "overlay", "text text int4 int4", "text", python=overlaid)
row(FUNCTIONS, "split_part", "text text int4", "text", guarded(
    "{2} = 0", SqlState.INVALID_PARAMETER_VALUE, "field position must not be zero",
    "IF({1} = '', substr({0}, 1, IF(abs(CAST({2} AS BIGINT)) = 1, char_length({0}), 0)), split_part({0}, {1}, {2}))"),
    python=_split_part)  # fmt: skip

# -- filling, trimming, repeating -----------------------------------------------------------------------------------


def _filled(text: str, length: int, fill: str) -> tuple[str, str]:
    """The text truncated to the length, and the fill characters for the rest."""
    if length > _CHARACTERS_MAX:
        raise _too_long()
    text = text[: max(length, 0)]
    missing = max(length, 0) - len(text) if fill else 0
    return text, (fill * (missing // len(fill) + 1))[:missing] if missing else ""


def _lpad(text: str, length: int, fill: str = " ") -> str:
    text, rest = _filled(text, length, fill)
    return rest + text


def _rpad(text: str, length: int, fill: str = " ") -> str:
    text, rest = _filled(text, length, fill)
    return text + rest


def _repeated(text: str, count: int) -> str:
    if len(text.encode()) * max(count, 0) > _BYTES_MAX:
        raise _too_long()
    return text * max(count, 0)


for _name, _python in (("lpad", _lpad), ("rpad", _rpad)):
    for _types, _fill in (("text int4", "' '"), ("text int4 text", "{2}")):
        row(FUNCTIONS, _name, _types, "text", guarded(
            f"{{1}} > {_CHARACTERS_MAX}", SqlState.PROGRAM_LIMIT_EXCEEDED, _TOO_LONG,
            f"{_name}({{0}}, {{1}}, {_fill})"), python=_python)  # fmt: skip
row(FUNCTIONS, "repeat", "text int4", "text", guarded(
    f"CAST({{1}} AS BIGINT) * octet_length({{0}}) > {_BYTES_MAX}", SqlState.PROGRAM_LIMIT_EXCEEDED, _TOO_LONG,
    "repeat({0}, {1})"), python=_repeated)  # fmt: skip


def _trimmed(strip: Callable[[str, str], str]) -> Callable[..., str]:
    return lambda text, characters=" ": strip(text, characters) if characters else text


for _name, _side, _strip in (
    ("btrim", "BOTH", str.strip), ("ltrim", "LEADING", str.lstrip), ("rtrim", "TRAILING", str.rstrip),
):  # fmt: skip
    row(FUNCTIONS, _name, "text", "text", f"TRIM({_side} FROM {{0}})", python=_trimmed(_strip))
    row(FUNCTIONS, _name, "text text", "text", f"TRIM({_side} {{1}} FROM {{0}})", python=_trimmed(_strip))

# -- changing and measuring -----------------------------------------------------------------------------------------


def _initcap(text: str) -> str:
    return re.sub("[0-9A-Za-z]+", lambda word: word[0][0].translate(_TO_UPPER) + word[0][1:].translate(_TO_LOWER), text)


def _translated(text: str, old: str, new: str) -> str:
    table: dict[int, str | None] = {}
    for i, character in enumerate(old):
        table.setdefault(ord(character), new[i] if i < len(new) else None)
    return text.translate(table)


def _character(code: int) -> str:
    if code < 0:
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, "character number must be positive")
    if code == 0:
        raise PgError(SqlState.PROGRAM_LIMIT_EXCEEDED, "null character not permitted")
    if code > 0x10FFFF:
        raise PgError(SqlState.PROGRAM_LIMIT_EXCEEDED, f"requested character too large for encoding: {code}")
    if 0xD800 <= code < 0xE000:
        raise PgError(SqlState.PROGRAM_LIMIT_EXCEEDED, f"requested character not valid for encoding: {code}")
    return chr(code)


_UNISTR = re.compile(r"\\(?:(\\)|([0-9a-fA-F]{4})|\+([0-9a-fA-F]{6})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8}))|(\\)")
_UNICODE_HINT = "Unicode escapes must be \\XXXX, \\+XXXXXX, \\uXXXX, or \\UXXXXXXXX."


def _unistr(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        if match[6]:
            raise PgError(SqlState.SYNTAX_ERROR, "invalid Unicode escape", hint=_UNICODE_HINT)
        if match[1]:
            return "\\"
        code = int(match[2] or match[3] or match[4] or match[5], 16)
        if not 0 < code <= 0x10FFFF:
            raise invalid(f"invalid Unicode code point: {code:04X}")
        return chr(code)

    units = _UNISTR.sub(character, text)
    try:  # two surrogates encode one character
        return units.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise PgError(SqlState.SYNTAX_ERROR, "invalid Unicode surrogate pair") from None


def _normal_form(form: str) -> Any:
    if form.upper() not in ("NFC", "NFD", "NFKC", "NFKD"):
        raise invalid(f"invalid normalization form: {form}")
    return form.upper()


def _normalized(text: str, form: str = "NFC") -> str:
    return unicodedata.normalize(_normal_form(form), text)


def _is_normalized(text: str, form: str = "NFC") -> bool:
    return unicodedata.is_normalized(_normal_form(form), text)


def _cased(function: str, letters: str, into: str) -> Form:
    """Spark's own function is faster than translate. It equals PostgreSQL's for texts of ASCII characters only."""

    def form(args: Sequence[Expression], texts: Sequence[str]) -> str:
        text = texts[0]
        translated = f"translate({text}, '{letters}', '{into}')"
        if not text.isidentifier():
            return translated
        return f"IF(octet_length({text}) = char_length({text}), {function}({text}), {translated})"

    return form


row(FUNCTIONS, "lower", "text", "text", _cased("lower", _UPPER, _LOWER), python=lambda text: text.translate(_TO_LOWER))
row(FUNCTIONS, "upper", "text", "text", _cased("upper", _LOWER, _UPPER), python=lambda text: text.translate(_TO_UPPER))
row(FUNCTIONS, "initcap", "text", "text", python=_initcap)
row(FUNCTIONS, "replace", "text text text", "text", "replace({0}, {1}, {2})",
    python=lambda text, old, new: text.replace(old, new) if old else text)  # fmt: skip
row(FUNCTIONS, "translate", "text text text", "text", "translate({0}, {1}, {2})", python=_translated)
row(FUNCTIONS, "reverse", "text", "text", "reverse({0})", python=lambda text: text[::-1])
row(FUNCTIONS, "chr", "int4", "text", python=_character)
row(FUNCTIONS, "ascii", "text", "int4", "ascii({0})", python=lambda text: ord(text[0]) if text else 0)
row(FUNCTIONS, "unistr", "text", "text", python=_unistr)
row(FUNCTIONS, "normalize", "text", "text", python=_normalized)
row(FUNCTIONS, "normalize", "text text", "text", python=_normalized)
row(FUNCTIONS, "is_normalized", "text", "bool", python=_is_normalized)
row(FUNCTIONS, "is_normalized", "text text", "bool", python=_is_normalized)
row(FUNCTIONS, "to_hex", "int4", "text", "lower(hex(CAST({0} AS BIGINT) & 4294967295L))",
    python=lambda value: f"{value & 0xFFFFFFFF:x}")  # fmt: skip
row(FUNCTIONS, "to_hex", "int8", "text", "lower(hex({0}))", python=lambda value: f"{value & 0xFFFFFFFFFFFFFFFF:x}")
row(FUNCTIONS, "md5", "text", "text", "md5({0})",
    python=lambda text: hashlib.md5(text.encode(), usedforsecurity=False).hexdigest())  # fmt: skip
for _name in ("length", "char_length", "character_length"):
    row(FUNCTIONS, _name, "text", "int4", "char_length({0})", python=len)
    row(FUNCTIONS, _name, "bpchar", "int4", "char_length(rtrim({0}))", python=lambda text: len(text.rstrip(" ")))
for _a in ("text", "bpchar"):
    row(FUNCTIONS, "octet_length", _a, "int4", "octet_length({0})", python=lambda text: len(text.encode()))
row(FUNCTIONS, "bit_length", "text", "int4", "bit_length({0})", python=lambda text: 8 * len(text.encode()))
for _name in ("strpos", "position"):
    row(FUNCTIONS, _name, "text text", "int4", "instr({0}, {1})", python=lambda text, inner: text.find(inner) + 1)
for _table, _name in ((FUNCTIONS, "starts_with"), (OPERATORS, "^@")):
    row(_table, _name, "text text", "bool", "startswith({0}, {1})", python=str.startswith)

# -- joining and quoting --------------------------------------------------------------------------------------------


def _concat_ws(delimiter: str | None, *values: str | None) -> str | None:
    return None if delimiter is None else delimiter.join(v for v in values if v is not None)


def quote_text(text: str) -> str:
    """A string as an SQL literal."""
    quoted = text.replace("\\", "\\\\").replace("'", "''")
    return f"E'{quoted}'" if "\\" in text else f"'{quoted}'"


def _text_of(value: Any, type: PgType) -> str:
    rule = find_cast(type, TEXT)
    assert rule is not None, type
    return str(rule.python(value, TEXT))


def _quote_any(value: Any, *, types: Sequence[PgType]) -> str:
    return quote_text(_text_of(value, types[0]))


def _quote_nullable(value: Any, *, types: Sequence[PgType]) -> str:
    return "NULL" if value is None else _quote_any(value, types=types)


_SPECIFIER = re.compile(r"%(?:(%)|(?:(\d+)\$)?(-*)(?:\*(?:(\d+)\$)?|(\d+))?(.)?)", re.DOTALL | re.ASCII)


def _formatted(template: str | None, *values: str | None) -> str | None:
    """format(): %s, %I and %L with positions and widths."""
    if template is None:
        return None
    used = 0

    def argument(position: str | None) -> str | None:
        nonlocal used
        if position is not None and int(position) == 0:
            raise invalid("format specifies argument 0, but arguments are numbered from 1")
        used = int(position) if position is not None else used + 1
        if used > len(values):
            raise invalid("too few arguments for format()")
        return values[used - 1]

    def written(match: re.Match[str]) -> str:
        percent, position, minus, width_position, width, kind = match.groups()
        if percent:
            return "%"
        if kind is None:
            raise invalid("unterminated format() type specifier")
        left, size = bool(minus), int(width or 0)
        if "*" in match[0][:-1]:
            star = argument(width_position)
            size = _width(star)
        if kind not in "sIL":
            raise invalid(f'unrecognized format() type specifier "{kind}"')
        value = argument(position)
        if kind == "I" and value is None:
            raise PgError(SqlState.NULL_VALUE_NOT_ALLOWED, "null values cannot be formatted as an SQL identifier")
        if value is None:
            text = "NULL" if kind == "L" else ""
        else:
            text = quote_identifier(value) if kind == "I" else quote_text(value) if kind == "L" else value
        return text.ljust(abs(size)) if left or size < 0 else text.rjust(size)

    return _SPECIFIER.sub(written, template)


def _width(text: str | None) -> int:
    if text is None:
        return 0
    if not re.fullmatch(r"\s*[+-]?\d+\s*", text):
        raise PgError(SqlState.INVALID_TEXT_REPRESENTATION, f'invalid input syntax for type integer: "{text}"')
    return int(text)


def _parse_name(text: str, strict: bool = True) -> list[str]:
    """parse_ident: the parts of a qualified name."""
    out: list[str] = []
    rest = text.lstrip(" \t\n\v\f\r")

    def fault(detail: str | None = None) -> PgError:
        return PgError(SqlState.INVALID_PARAMETER_VALUE, f'string is not a valid identifier: "{text}"', detail=detail)

    while True:
        if rest.startswith('"'):
            match = re.compile(r'"((?:[^"]|"")*)"').match(rest)
            if match is None:
                raise fault("String has unclosed double quotes.")
            if not match[1]:
                raise fault("Quoted identifier must not be empty.")
            out.append(match[1].replace('""', '"'))
        else:
            match = re.compile(r"[A-Za-z_\x80-\U0010ffff][A-Za-z0-9_$\x80-\U0010ffff]*").match(rest)
            if match is None and rest.startswith("."):
                raise fault('No valid identifier before ".".')
            if match is None:
                raise fault('No valid identifier after ".".' if out else None)
            out.append(match[0].translate(_TO_LOWER))
        rest = rest[match.end() :].lstrip(" \t\n\v\f\r")
        if rest.startswith("."):
            rest = rest[1:].lstrip(" \t\n\v\f\r")
        elif rest and strict:
            raise fault()
        else:
            return out


row(OPERATORS, "||", "text text", "text", "({0} || {1})", python=lambda left, right: left + right)
row(OPERATORS, "||", "bytea bytea", "bytea", "({0} || {1})", python=lambda left, right: left + right)
row(FUNCTIONS, "concat", "any", "text", "concat_ws('', {*})", nulls=Nulls.NEVER, variadic=True,
    python=lambda *values: "".join(v for v in values if v is not None), dimensions=independent)  # fmt: skip
row(FUNCTIONS, "concat_ws", "text any", "text", "concat_ws({*})", variadic=True, nulls=Nulls.MAYBE, python=_concat_ws,
    dimensions=independent)  # fmt: skip
row(FUNCTIONS, "format", "text", "text", nulls=Nulls.MAYBE, python=_formatted)
row(FUNCTIONS, "format", "text any", "text", nulls=Nulls.MAYBE, variadic=True, python=_formatted,
    dimensions=independent)  # fmt: skip
row(FUNCTIONS, "quote_ident", "text", "text", python=quote_identifier)
row(FUNCTIONS, "quote_literal", "text", "text", python=quote_text)
row(FUNCTIONS, "quote_literal", "any", "text", python=_quote_any, typed=True, dimensions=independent)
row(FUNCTIONS, "quote_nullable", "text", "text", nulls=Nulls.NEVER,
    python=lambda text: "NULL" if text is None else quote_text(text))  # fmt: skip
row(FUNCTIONS, "quote_nullable", "any", "text", nulls=Nulls.NEVER, python=_quote_nullable, typed=True,
    dimensions=independent)  # fmt: skip
row(FUNCTIONS, "parse_ident", "text", "text[]", python=_parse_name)
row(FUNCTIONS, "parse_ident", "text bool", "text[]", python=_parse_name)
