"""Binary strings (chapter 9.5): bytea. Positions count bytes. Bits of each byte count from the least significant."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.scalars import decode_utf8
from server.sql.functions.strings import invalid, overlaid, part
from server.sql.functions.table import FUNCTIONS, row

_ENCODINGS = {
    "utf8": "utf-8", "unicode": "utf-8", "sqlascii": "utf-8", "latin1": "latin-1", "iso88591": "latin-1",
    "latin2": "iso8859-2", "iso88592": "iso8859-2", "latin3": "iso8859-3", "iso88593": "iso8859-3",
    "latin4": "iso8859-4", "iso88594": "iso8859-4", "latin5": "iso8859-9", "iso88599": "iso8859-9",
    "latin9": "iso8859-15", "iso885915": "iso8859-15", "iso88595": "iso8859-5", "iso88597": "iso8859-7",
    "win1250": "cp1250", "windows1250": "cp1250", "win1251": "cp1251", "windows1251": "cp1251",
    "win1252": "cp1252", "windows1252": "cp1252", "koi8r": "koi8-r", "koi8": "koi8-r",
    "sjis": "cp932", "eucjp": "euc_jp", "euckr": "euc_kr", "gbk": "gbk", "big5": "cp950",
}  # fmt: skip
_SHOWN = {"utf-8": "UTF8", "latin-1": "LATIN1", "cp1252": "WIN1252", "cp1251": "WIN1251", "cp1250": "WIN1250"}


def _codec(name: str, what: str) -> str:
    codec = _ENCODINGS.get(re.sub("[^a-z0-9]", "", name.lower()))
    if codec is None:
        raise invalid(f'invalid {what} encoding name "{name}"')
    return codec


def _text_from(value: bytes, encoding: str) -> str:
    codec = _codec(encoding, "source")
    if codec == "utf-8":
        return decode_utf8(value)
    try:
        text = value.decode(codec)
    except UnicodeDecodeError:
        message = f'invalid byte sequence for encoding "{_SHOWN.get(codec, encoding.upper())}"'
        raise PgError(SqlState.CHARACTER_NOT_IN_REPERTOIRE, message) from None
    return decode_utf8(text.encode())


def _bytes_in(text: str, encoding: str) -> bytes:
    codec = _codec(encoding, "destination")
    try:
        return text.encode(codec)
    except UnicodeEncodeError as error:
        sequence = " ".join(f"0x{byte:02x}" for byte in text[error.start].encode())
        raise PgError(
            SqlState.UNTRANSLATABLE_CHARACTER,
            f'character with byte sequence {sequence} in encoding "UTF8" has no equivalent in encoding '
            f'"{_SHOWN.get(codec, encoding.upper())}"',
        ) from None


def _convert(value: bytes, source: str, target: str) -> bytes:
    return _bytes_in(_text_from(value, source), target)


row(FUNCTIONS, "convert_from", "bytea text", "text", python=_text_from)
row(FUNCTIONS, "convert_to", "text text", "bytea", python=_bytes_in)
row(FUNCTIONS, "convert", "bytea text text", "bytea", python=_convert)
row(FUNCTIONS, "length", "bytea text", "int4", python=lambda value, encoding: len(_text_from(value, encoding)))

# -- text forms -----------------------------------------------------------------------------------------------------


def _hex_digits(text: str) -> bytes:
    digits = re.sub("[ \t\n\r]", "", text)
    for digit in digits:
        if digit not in "0123456789abcdefABCDEF":
            raise invalid(f'invalid hexadecimal digit: "{digit}"')
    if len(digits) % 2:
        raise invalid("invalid hexadecimal data: odd number of digits")
    return bytes.fromhex(digits)


def _base64_digits(text: str) -> bytes:
    digits = re.sub("[ \t\n\r]", "", text)
    body = digits.rstrip("=")
    for symbol in body:
        if not re.fullmatch("[0-9A-Za-z+/]", symbol):
            word = 'unexpected "="' if symbol == "=" else f'invalid symbol "{symbol}" found'
            raise invalid(f"{word} while decoding base64 sequence")
    padding = len(digits) - len(body)
    if padding > 2 or (padding and len(body) % 4 + padding != 4):
        raise invalid('unexpected "=" while decoding base64 sequence')
    if len(digits) % 4:
        raise PgError(
            SqlState.INVALID_PARAMETER_VALUE, "invalid base64 end sequence",
            hint="Input data is missing padding, is truncated, or is otherwise corrupted.",
        )  # fmt: skip
    return base64.b64decode(digits)


def _base64_text(value: bytes) -> str:
    """Breaks lines after 76 characters."""
    return re.sub("(.{76})", "\\1\n", base64.b64encode(value).decode())


def _escaped_text(value: bytes) -> str:
    return "".join(
        "\\\\" if byte == 0x5C else f"\\{byte:03o}" if byte == 0 or byte >= 0x80 else chr(byte) for byte in value
    )


def _escaped_bytes(text: str) -> bytes:
    def byte(match: re.Match[bytes]) -> bytes:
        if match[0] == b"\\":
            raise PgError(SqlState.INVALID_TEXT_REPRESENTATION, "invalid input syntax for type bytea")
        return b"\\" if match[1] is None else bytes([int(match[1], 8)])

    return re.sub(rb"\\(?:\\|([0-3][0-7][0-7]))|\\", byte, text.encode())


_TO_TEXT: dict[str, Callable[[bytes], str]] = {"hex": bytes.hex, "base64": _base64_text, "escape": _escaped_text}
_FROM_TEXT: dict[str, Callable[[str], bytes]] = {
    "hex": _hex_digits, "base64": _base64_digits, "escape": _escaped_bytes,
}  # fmt: skip


def _encode(value: bytes, format: str) -> str:
    if (function := _TO_TEXT.get(format.lower())) is None:
        raise invalid(f'unrecognized encoding: "{format}"')
    return function(value)


def _decode(text: str, format: str) -> bytes:
    if (function := _FROM_TEXT.get(format.lower())) is None:
        raise invalid(f'unrecognized encoding: "{format}"')
    return function(text)


row(FUNCTIONS, "encode", "bytea text", "text", python=_encode)
row(FUNCTIONS, "decode", "text text", "bytea", python=_decode)

# -- bytes and bits -------------------------------------------------------------------------------------------------


def _checked_index(value: bytes, index: int, units: int) -> int:
    if not 0 <= index < units:
        message = f"index {index} out of valid range, 0..{units - 1}"
        raise PgError(SqlState.ARRAY_SUBSCRIPT_ERROR, message)
    return index


def _get_bit(value: bytes, index: int) -> int:
    position = _checked_index(value, index, 8 * len(value))
    return value[position // 8] >> position % 8 & 1


def _set_bit(value: bytes, index: int, bit: int) -> bytes:
    position = _checked_index(value, index, 8 * len(value))
    if bit not in (0, 1):
        raise invalid("new bit must be 0 or 1")
    mask = 1 << position % 8
    byte = value[position // 8] | mask if bit else value[position // 8] & ~mask
    return value[: position // 8] + bytes([byte]) + value[position // 8 + 1 :]


def _get_byte(value: bytes, index: int) -> int:
    return value[_checked_index(value, index, len(value))]


def _set_byte(value: bytes, index: int, byte: int) -> bytes:
    position = _checked_index(value, index, len(value))
    return value[:position] + bytes([byte & 0xFF]) + value[position + 1 :]


row(FUNCTIONS, "get_bit", "bytea int8", "int4", python=_get_bit)
row(FUNCTIONS, "set_bit", "bytea int8 int4", "bytea", python=_set_bit)
row(FUNCTIONS, "get_byte", "bytea int4", "int4", python=_get_byte)
row(FUNCTIONS, "set_byte", "bytea int4 int4", "bytea", python=_set_byte)
row(FUNCTIONS, "bit_count", "bytea", "int8", python=lambda value: int.from_bytes(value).bit_count())

# -- parts and digests ----------------------------------------------------------------------------------------------


def _trimmed(strip: Callable[[bytes, bytes], bytes]) -> Callable[[bytes, bytes], bytes]:
    return lambda value, unwanted: strip(value, unwanted) if unwanted else value


for _name, _strip in (("btrim", bytes.strip), ("ltrim", bytes.lstrip), ("rtrim", bytes.rstrip)):
    row(FUNCTIONS, _name, "bytea bytea", "bytea", python=_trimmed(_strip))
for _name in ("substring", "substr"):
    row(FUNCTIONS, _name, "bytea int4", "bytea", python=part)
    row(FUNCTIONS, _name, "bytea int4 int4", "bytea", python=part)
row(FUNCTIONS, "overlay", "bytea bytea int4", "bytea", python=overlaid)
row(FUNCTIONS, "overlay", "bytea bytea int4 int4", "bytea", python=overlaid)
row(FUNCTIONS, "position", "bytea bytea", "int4", python=lambda value, inner: value.find(inner) + 1)
for _name in ("length", "octet_length"):
    row(FUNCTIONS, _name, "bytea", "int4", "octet_length({0})", python=len)
row(FUNCTIONS, "bit_length", "bytea", "int4", "(8 * octet_length({0}))", python=lambda value: 8 * len(value))
row(FUNCTIONS, "md5", "bytea", "text", "md5({0})",
    python=lambda value: hashlib.md5(value, usedforsecurity=False).hexdigest())  # fmt: skip
row(FUNCTIONS, "sha224", "bytea", "bytea", "unhex(sha2({0}, 224))", python=lambda v: hashlib.sha224(v).digest())
row(FUNCTIONS, "sha256", "bytea", "bytea", "unhex(sha2({0}, 256))", python=lambda v: hashlib.sha256(v).digest())
row(FUNCTIONS, "sha384", "bytea", "bytea", "unhex(sha2({0}, 384))", python=lambda v: hashlib.sha384(v).digest())
row(FUNCTIONS, "sha512", "bytea", "bytea", "unhex(sha2({0}, 512))", python=lambda v: hashlib.sha512(v).digest())
