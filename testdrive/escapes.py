"""Bytes as text of a script: \\n, \\r, \\t, \\0, \\\\ and \\xc3 (a byte in hexadecimal) are escapes."""

from __future__ import annotations

import re

_ESCAPED = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"0": b"\0", b"\\": b"\\"}
_NAMES = {value[0]: f"\\{name.decode()}" for name, value in _ESCAPED.items()}


def unescaped(line: str) -> bytes:
    """Returns the bytes of a line; text outside escapes is UTF-8."""

    def value(found: re.Match[bytes]) -> bytes:
        return bytes([int(found[1], 16)]) if found[1] else _ESCAPED[found[2]]

    return re.sub(rb"\\(?:x([0-9a-fA-F]{2})|([nrt0\\]))", value, line.encode())


def shown(data: bytes) -> str:
    """Returns a line that `unescaped` converts to these bytes. Bytes that are not valid UTF-8 are in hexadecimal."""
    text = data.decode(errors="surrogateescape")

    def character(c: str) -> str:
        code = ord(c)
        if 0xDC80 <= code <= 0xDCFF:
            return f"\\x{code - 0xDC00:02x}"
        return _NAMES.get(code) or (f"\\x{code:02x}" if code < 32 or code == 127 else c)

    return "".join(map(character, text))
