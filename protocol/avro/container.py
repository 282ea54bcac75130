"""Avro object container files: a header with the schema, and blocks of values, each with a sync marker at its end.

    header    "Obj\\x01", a map of metadata (`avro.schema`, `avro.codec`), the sync marker of 16 bytes
    block     the number of values, the number of bytes, the bytes (encoded with the codec), the sync marker

The functions do no IO. What they return is bounded by the limits below, whatever the bytes say.
"""

from __future__ import annotations

import bz2
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from protocol.avro.plain import DecodeError, PlainReader, TruncatedError
from protocol.avro.schema import Map, Primitive
from protocol.avro.varints import BYTES_MAX, varint_bytes

MAGIC = b"Obj\x01"
SYNC_BYTES = 16
PREFIX_BYTES_MAX = 2 * BYTES_MAX
"""The greatest number of bytes before the data of a block."""
HEADER_BYTES_MAX = 16 * 1024 * 1024
BLOCK_BYTES_MAX = 256 * 1024 * 1024  # as stored, and decoded
BLOCK_VALUES_MAX = 10_000_000

_METADATA = Map(Primitive("bytes"))
_CRC_BYTES = 4


class ContainerError(Exception):
    """The bytes are not those of a container file. `offset`: the byte of the file at which the invalid part begins."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset, self.reason = offset, reason


class ContainerLimitError(ContainerError):
    """The header or a block is larger than is read."""


@dataclass(frozen=True, slots=True)
class Header:
    """`schema`: the text of the schema. `size`: the number of bytes of the header."""

    schema: str
    codec: str
    sync: bytes
    size: int


@dataclass(frozen=True, slots=True)
class Block:
    """`offset`: the byte of the file at which it begins. `end`: the byte after its sync marker.

    `data`: the values, encoded with the codec.
    """

    offset: int
    end: int
    count: int
    data: memoryview


# -- reading ----------------------------------------------------------------------------------------------------------


def parse_header(data: bytes) -> Header | None:
    """The header with which the bytes of a file begin; None if they end before it does. ContainerError."""
    if not data.startswith(MAGIC):
        if MAGIC.startswith(data):
            return None
        raise ContainerError(0, "it does not begin as an Avro container file")
    reader = PlainReader(data[:HEADER_BYTES_MAX], len(MAGIC))
    try:
        metadata = reader.read(_METADATA)
    except TruncatedError:
        _check_header_length(data)
        return None
    except DecodeError as error:
        raise ContainerError(0, f"invalid header: {error}") from None
    size = reader.position + SYNC_BYTES
    if size > len(data):
        _check_header_length(data)
        return None
    if "avro.schema" not in metadata:
        raise ContainerError(0, "invalid header: it has no schema")
    try:
        schema, codec = metadata["avro.schema"].decode(), metadata.get("avro.codec", b"null").decode()
    except UnicodeDecodeError:
        raise ContainerError(0, "invalid header: the schema or the codec is not UTF-8") from None
    return Header(schema, codec, data[reader.position : size], size)


def _check_header_length(data: bytes) -> None:
    if len(data) >= HEADER_BYTES_MAX:
        raise ContainerLimitError(0, f"the header has more than {HEADER_BYTES_MAX} bytes")


@dataclass(frozen=True, slots=True)
class Blocks:
    """The complete blocks with which some bytes begin. `end`: the byte of the file after them.

    `wanted`: the number of bytes from `end` on that the next block needs; 0 if it is not known yet.
    """

    blocks: Sequence[Block]
    end: int
    wanted: int


def split_blocks(data: bytes, offset: int, sync: bytes) -> Blocks:
    """The blocks of bytes that begin at `offset` of a file, at a block. ContainerError for the first invalid block.

    An invalid block is an error only if it is the first one, so that the blocks before it are read.
    """
    found: list[Block] = []
    view, at, wanted = memoryview(data), 0, 0
    while at < len(data):
        try:
            prefix = block_prefix(data[at : at + PREFIX_BYTES_MAX], offset + at)
            if prefix is None:
                break
            start, stop = at + prefix.size, at + prefix.size + prefix.length
            if stop + SYNC_BYTES > len(data):
                wanted = stop + SYNC_BYTES - at
                break
            if view[stop : stop + SYNC_BYTES] != sync:
                raise ContainerError(offset + at, "the block does not end with the sync marker of the file")
        except ContainerError:
            if found:
                break
            raise
        found.append(Block(offset + at, offset + stop + SYNC_BYTES, prefix.count, view[start:stop]))
        at = stop + SYNC_BYTES
    return Blocks(found, offset + at, wanted)


@dataclass(frozen=True, slots=True)
class Prefix:
    """The bytes that precede the data of a block. `size`: its own bytes. `length`: the bytes of the data."""

    count: int
    length: int
    size: int


def block_prefix(data: bytes, offset: int) -> Prefix | None:
    """The prefix with which a block begins; None if the bytes end before it does. `offset`: for errors.

    ContainerError if a number is negative or above its limit.
    """
    reader = PlainReader(data)
    try:
        count, length = reader.read(Primitive("long")), reader.read(Primitive("long"))
    except TruncatedError:
        return None
    except DecodeError as error:
        raise ContainerError(offset, f"invalid block: {error}") from None
    if count < 0 or length < 0:
        raise ContainerError(offset, "invalid block: its number of values or of bytes is negative")
    if length > BLOCK_BYTES_MAX:
        raise ContainerLimitError(offset, f"the block has {length} bytes, which is more than {BLOCK_BYTES_MAX}")
    if count > BLOCK_VALUES_MAX:
        raise ContainerLimitError(offset, f"the block has {count} values, which is more than {BLOCK_VALUES_MAX}")
    return Prefix(count, length, reader.position)


# -- codecs -----------------------------------------------------------------------------------------------------------


def supported_codecs() -> list[str]:
    """The codecs that `decoded_block` decodes."""
    return [name for name, codec in _CODECS.items() if codec.arrow is None or pa.Codec.is_available(codec.arrow)]


def decoded_block(block: Block, codec: str) -> bytes | memoryview:
    """The data of a block, decoded. ContainerError if it is damaged, or has more bytes than a block may have."""
    try:
        data = _CODECS[codec].decode(block)
    except (zlib.error, OSError, ValueError, EOFError, pa.ArrowException) as error:
        reason = str(error).partition("\n")[0]
        raise ContainerError(block.offset, f"the block cannot be decompressed with codec {codec}: {reason}") from None
    return data


def _null(block: Block) -> memoryview:
    return block.data


def _deflate(block: Block) -> bytes:
    stream = zlib.decompressobj(-zlib.MAX_WBITS)
    data = stream.decompress(block.data, BLOCK_BYTES_MAX + 1)
    _check_length(block, len(data))
    if not stream.eof:
        raise ValueError("it is incomplete")
    return data


def _bzip2(block: Block) -> bytes:
    stream = bz2.BZ2Decompressor()
    data = stream.decompress(block.data, BLOCK_BYTES_MAX + 1)
    _check_length(block, len(data))
    if not stream.eof:
        raise ValueError("it is incomplete")
    return data


def _zstandard(block: Block) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(block.data)), "zstd") as stream:
        data: bytes = stream.read(BLOCK_BYTES_MAX + 1)
    _check_length(block, len(data))
    return data


def _snappy(block: Block) -> bytes:
    """Snappy's raw format, which begins with the decoded size, and the CRC-32 of the decoded bytes."""
    data, crc = block.data[:-_CRC_BYTES], block.data[-_CRC_BYTES:]
    size, shift = 0, 0
    for byte in data[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    else:
        raise ValueError("it has no size")
    _check_length(block, size)
    found: bytes = pa.Codec("snappy").decompress(data, size, asbytes=True)
    if zlib.crc32(found) != int.from_bytes(crc, "big"):
        raise ValueError("its checksum is wrong")
    return found


def _check_length(block: Block, length: int) -> None:
    if length > BLOCK_BYTES_MAX:
        raise ContainerLimitError(block.offset, f"the decoded block has more than {BLOCK_BYTES_MAX} bytes")


@dataclass(frozen=True, slots=True)
class _Codec:
    """`arrow`: Arrow's name of the codec, if Arrow decodes it."""

    decode: Callable[[Block], bytes | memoryview]
    arrow: str | None = None


_CODECS = {
    "null": _Codec(_null),
    "deflate": _Codec(_deflate),
    "bzip2": _Codec(_bzip2),
    "snappy": _Codec(_snappy, "snappy"),
    "zstandard": _Codec(_zstandard, "zstd"),
}


# -- writing ----------------------------------------------------------------------------------------------------------


def encoded_header(schema: str, sync: bytes, codec: str = "null") -> bytes:
    """The header of a file. `sync`: 16 random bytes."""
    parts = [MAGIC, varint_bytes(2)]
    for name, value in (("avro.schema", schema), ("avro.codec", codec)):
        parts += [varint_bytes(len(name)), name.encode(), varint_bytes(len(value.encode())), value.encode()]
    return b"".join([*parts, varint_bytes(0), sync])


def encoded_block(values: Sequence[bytes], sync: bytes) -> bytes:
    """A block of the codec null. Together, the values must have at most `BLOCK_BYTES_MAX` bytes."""
    return b"".join([varint_bytes(len(values), sum(len(value) for value in values)), *values, sync])
