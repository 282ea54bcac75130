"""The messages that a replication connection exchanges inside CopyData, and log sequence numbers (LSN).

An LSN is a byte position in the write-ahead log, an int here; PostgreSQL writes it as `16/B374D848`.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from protocol.pgoutput import BadMessage

WAL_DATA: Final = ord("w")
KEEPALIVE: Final = ord("k")
HEADER_BYTES: Final = 25
"""The header of WAL data: its kind, the start of the data, the end of the WAL, the server's clock."""

POSTGRES_EPOCH_US: Final = 946_684_800_000_000  # 2000-01-01 in microseconds since 1970

_WAL_END = struct.Struct(">Q")
_KEEPALIVE_BYTES = 18
_STATUS = struct.Struct(">cQQQQB")
LSN_MAX: Final = (1 << 63) - 1
"""PostgreSQL's log does not reach it, and it is the greatest bigint. A greater one is not true."""
_LSN = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")


@dataclass(frozen=True, slots=True)
class Keepalive:
    """All transactions that committed before `wal_end` have been sent. A requested reply is due at once."""

    wal_end: int
    reply_requested: bool


def parse_keepalives(data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Keepalive:
    """Reads keepalives, `data[start:end]` each. Returns the last end of the WAL, and whether one asks for an answer.

    BadMessage if one is malformed.
    """
    if (ends - starts != _KEEPALIVE_BYTES).any():
        raise BadMessage(f"a keepalive does not have {_KEEPALIVE_BYTES} bytes")
    wal_ends = data[starts[:, None] + np.arange(1, 9)].view(">u8")
    return Keepalive(checked_lsn(int(wal_ends.max())), bool(data[ends - 1].any()))


def wal_end(data: bytes) -> int:
    """The end of the server's WAL when it sent these WAL data. BadMessage if they are malformed."""
    if len(data) < HEADER_BYTES:
        raise BadMessage(f"WAL data have at least {HEADER_BYTES} bytes, not {len(data)}")
    return checked_lsn(_WAL_END.unpack_from(data, 9)[0])


def checked_lsn(lsn: int) -> int:
    """The argument. BadMessage if it is greater than LSN_MAX."""
    if lsn > LSN_MAX:
        raise BadMessage(f"the log sequence number {format_lsn(lsn)} is too large")
    return lsn


def status_update(lsn: int, now_us: int, *, asks: bool = False) -> bytes:
    """Standby status update: everything before `lsn` is written, flushed and applied. `now_us`: since 1970.

    `asks`: the server answers with a keepalive at once.
    """
    return _STATUS.pack(b"r", lsn, lsn, lsn, now_us - POSTGRES_EPOCH_US, asks)


def parse_lsn(text: str) -> int:
    match = _LSN.fullmatch(text)
    if match is None:
        raise BadMessage(f'"{text}" is not a log sequence number')
    return int(match[1], 16) << 32 | int(match[2], 16)


def format_lsn(lsn: int) -> str:
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def timeline_end(history: str, timeline: int) -> int | None:
    """The end of a timeline in a timeline history, up to which a later timeline has the same WAL.

    None if the history does not have it: the later timeline does not follow it. Lines are `timeline LSN reason`.
    """
    for line in history.splitlines():
        number, _, rest = line.partition("\t")
        if number.strip() == str(timeline):
            return parse_lsn(rest.partition("\t")[0].strip())
    return None
