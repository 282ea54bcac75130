"""Decodes and checks text from clients."""

from __future__ import annotations

from protocol.pgwire.errors import PgError, SqlState


def decode_utf8(data: bytes) -> str:
    """PgError 22021 shows the first invalid byte sequence, as PostgreSQL does. A zero byte is invalid, too."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if b"\0" in data[: error.start]:
            raise invalid_encoding(b"\0") from None
        raise invalid_encoding(data[error.start : error.start + _sequence_length(data[error.start])]) from None
    if "\0" in text:
        raise invalid_encoding(b"\0")
    return text


def check_text(text: str) -> None:
    """PgError 22021 for what a message cannot contain: a zero character, or half of a surrogate pair."""
    if "\0" in text:
        raise invalid_encoding(b"\0")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise invalid_encoding(text[error.start].encode(errors="surrogatepass")) from None


def invalid_encoding(sequence: bytes) -> PgError:
    """The error for a byte sequence that is not UTF-8, or is a zero byte."""
    shown = " ".join(f"0x{byte:02x}" for byte in sequence)
    return PgError(SqlState.CHARACTER_NOT_IN_REPERTOIRE, f'invalid byte sequence for encoding "UTF8": {shown}')


def _sequence_length(lead: int) -> int:
    """The length that the lead byte implies, even if the sequence is invalid: pg_utf_mblen()."""
    return 2 if lead & 0xE0 == 0xC0 else 3 if lead & 0xF0 == 0xE0 else 4 if lead & 0xF8 == 0xF0 else 1
