"""Container files are those that fastavro writes and reads, and damaged ones give only the documented errors."""

from __future__ import annotations

import bz2
import io
import json
import random
import zlib
from collections.abc import Sequence
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.avro import container
from protocol.avro.container import (
    HEADER_BYTES_MAX,
    Block,
    ContainerError,
    ContainerLimitError,
    Header,
    block_prefix,
    decoded_block,
    encoded_block,
    encoded_header,
    parse_header,
    split_blocks,
    supported_codecs,
)
from protocol.avro.plain import DecodeError, PlainReader
from protocol.avro.schema import Type, parse_schema
from protocol.avro.sequence import SequenceError, split_sequences
from protocol.avro.varints import varint_bytes
from tests.protocol.avro.test_decoder import encoded, schemas_and_values

SYNC = bytes(range(16))


def written(schema: Any, values: Sequence[Any], **options: Any) -> bytes:
    buffer = io.BytesIO()
    fastavro.writer(buffer, fastavro.parse_schema(json.loads(json.dumps(schema))), values, **options)
    return buffer.getvalue()


def parsed(data: bytes) -> Header:
    header = parse_header(data)
    assert header is not None
    return header


def values_of(data: bytes) -> list[bytes]:
    """The values of a complete file."""
    header = parsed(data)
    found = split_blocks(data[header.size :], header.size, header.sync)
    assert found.end == len(data)
    sequences = [decoded_block(block, header.codec) for block in found.blocks]
    values = split_sequences(parse_schema(header.schema), sequences, [block.count for block in found.blocks])
    return values.to_pylist()


@given(schemas_and_values(), st.sampled_from(["null", "deflate", "bzip2"]), st.sampled_from([1, 20, 10_000]))
def test_files_of_fastavro_have_the_values_that_were_written(
    case: tuple[dict[str, Any], list[dict[str, Any]]], codec: str, interval: int
) -> None:
    schema, values = case
    data = written(schema, values, codec=codec, sync_interval=interval)
    assert values_of(data) == encoded(schema, values)
    assert parse_schema(parsed(data).schema) == parse_schema(json.dumps(schema))


@given(schemas_and_values(), st.integers(1, 5))
def test_fastavro_reads_what_is_encoded(case: tuple[dict[str, Any], list[dict[str, Any]]], size: int) -> None:
    schema, values = case
    messages = encoded(schema, values)
    data = encoded_header(json.dumps(schema), SYNC)
    for start in range(0, len(messages), size):
        data += encoded_block(messages[start : start + size], SYNC)
    assert list(fastavro.reader(io.BytesIO(data))) == values
    assert values_of(data) == messages


@given(schemas_and_values(), st.data())
def test_what_a_growing_file_has_are_its_complete_blocks(
    case: tuple[dict[str, Any], list[dict[str, Any]]], data: st.DataObject
) -> None:
    schema, values = case
    content = written(schema, values, sync_interval=1)
    header = parsed(content)
    ends = [block.end for block in split_blocks(content[header.size :], header.size, header.sync).blocks]
    length = data.draw(st.integers(0, len(content)))
    part = content[:length]
    if length < header.size:
        assert parse_header(part) is None
        return
    found = split_blocks(part[header.size :], header.size, header.sync)
    assert [block.end for block in found.blocks] == [end for end in ends if end <= length]
    if found.wanted:
        assert found.end + found.wanted in ends


@given(schemas_and_values(), st.randoms(use_true_random=False), st.sampled_from(["null", "deflate", "bzip2"]))
def test_damaged_files_give_only_documented_errors(
    case: tuple[dict[str, Any], list[dict[str, Any]]], random: random.Random, codec: str
) -> None:
    schema, values = case
    data = bytearray(written(schema, values, codec=codec, sync_interval=40))
    size = parsed(bytes(data)).size
    for _ in range(random.randint(1, 3)):
        data[random.randrange(len(data))] = random.randrange(256)
    content = bytes(data[: random.randint(0, len(data))])
    offset = index = 0
    try:
        header = parse_header(content)
        if header is None or header.codec not in supported_codecs() or header.size != size:
            return
        found = split_blocks(content[header.size :], header.size, header.sync)
        sequences = [decoded_block(block, header.codec) for block in found.blocks]
        split_sequences(parse_schema(json.dumps(schema)), sequences, [block.count for block in found.blocks])
    except ContainerError as error:
        offset = error.offset
    except SequenceError as error:
        index = error.index
    assert 0 <= offset <= len(content)
    assert 0 <= index < len(values)


# -- sequences --------------------------------------------------------------------------------------------------------


def plain_values(type: Type, sequences: Sequence[bytes], counts: Sequence[int]) -> list[bytes] | tuple[int, int]:
    """As `split_sequences`: value by value, with the reader that decodes. The sequence and value of the first error."""
    found = []
    for index, (data, count) in enumerate(zip(sequences, counts, strict=True)):
        reader = PlainReader(data)
        number = 0
        try:
            while number < count:
                start = reader.position
                reader.skip(type)
                found.append(data[start : reader.position])
                number += 1
            reader.finish()
        except DecodeError:
            return index, number
    return found


@given(st.data(), schemas_and_values(), st.randoms(use_true_random=False))
def test_values_are_found_together_as_one_by_one(
    data: st.DataObject, case: tuple[dict[str, Any], list[dict[str, Any]]], random: random.Random
) -> None:
    schema, values = case
    messages = encoded(schema, values)
    type = parse_schema(json.dumps(schema))
    numbers = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=14))
    parts = [[random.choice(messages) for _ in range(number)] for number in numbers]
    sequences, counts = [b"".join(part) for part in parts], list(numbers)
    for _ in range(data.draw(st.integers(0, 2))):
        at = random.randrange(len(sequences))
        damaged = bytearray(sequences[at])
        if damaged and random.random() < 0.7:
            damaged[random.randrange(len(damaged))] = random.randrange(256)
        else:
            counts[at] += random.choice([1, -1]) if counts[at] else 1
        sequences[at] = bytes(damaged)
    expected = plain_values(type, sequences, counts)
    try:
        found: Any = split_sequences(type, sequences, counts).to_pylist()
    except SequenceError as error:
        found = error.index, error.value
    assert found == expected


@given(schemas_and_values())
def test_a_value_is_skipped_to_where_it_is_read(case: tuple[dict[str, Any], list[dict[str, Any]]]) -> None:
    schema, values = case
    type = parse_schema(json.dumps(schema))
    for message in encoded(schema, values):
        reader = PlainReader(message)
        reader.skip(type)
        assert reader.position == len(message)


def test_blocks_of_arrays_and_maps_are_skipped() -> None:
    type = parse_schema('{"type": "map", "values": {"type": "array", "items": "string"}}')
    sized = varint_bytes(-1, 3) + b"\x02ab" + b"\0"
    plain = varint_bytes(1) + varint_bytes(1) + b"k" + varint_bytes(2, 1) + b"a" + varint_bytes(0) + b"\0" + b"\0"
    for data in (sized, plain):
        reader = PlainReader(data)
        reader.skip(type)
        assert reader.position == len(data)
    with pytest.raises(DecodeError, match="more than 1000000 items"):
        PlainReader(varint_bytes(1 << 40)).skip(parse_schema('{"type": "array", "items": "null"}'))


# -- codecs -----------------------------------------------------------------------------------------------------------

TEXT = b"to be or not to be " * 50


def snappy(data: bytes) -> bytes:
    return pa.Codec("snappy").compress(data, asbytes=True) + zlib.crc32(data).to_bytes(4, "big")


def deflate(data: bytes) -> bytes:
    stream = zlib.compressobj(9, zlib.DEFLATED, -15)
    return stream.compress(data) + stream.flush()


def zstandard(data: bytes) -> bytes:
    return pa.Codec("zstd").compress(data, asbytes=True)


ENCODERS = {"deflate": deflate, "bzip2": bz2.compress, "snappy": snappy, "zstandard": zstandard}


def block(data: bytes, count: int = 1) -> Block:
    return Block(7, 7 + len(data) + 18, count, memoryview(data))


@pytest.mark.parametrize("codec", ENCODERS)
@pytest.mark.parametrize("data", [b"", b"x", TEXT])
def test_codecs(codec: str, data: bytes) -> None:
    assert decoded_block(block(ENCODERS[codec](data)), codec) == data


@pytest.mark.parametrize("codec", ENCODERS)
@given(st.randoms(use_true_random=False))
def test_damaged_data_of_a_codec_is_an_error_of_the_block(codec: str, random: random.Random) -> None:
    data = bytearray(ENCODERS[codec](TEXT))
    if random.random() < 0.5:
        data = data[: random.randrange(len(data))]
    else:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    offset = 7
    try:
        decoded_block(block(bytes(data)), codec)
    except ContainerError as error:
        offset = error.offset
    assert offset == 7


@pytest.mark.parametrize("codec", ENCODERS)
def test_what_a_block_expands_to_is_bounded(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = ENCODERS[codec](b"\0" * 10_000_000)
    assert len(data) < 1_000_000
    monkeypatch.setattr(container, "BLOCK_BYTES_MAX", 1_000_000)
    with pytest.raises(ContainerLimitError, match="more than 1000000 bytes"):
        decoded_block(block(data), codec)


def test_a_size_of_snappy_is_not_allocated() -> None:
    with pytest.raises(ContainerLimitError):
        decoded_block(block(b"\xff\xff\xff\xff\x0f" + b"\0" * 8), "snappy")
    with pytest.raises(ContainerError, match="it has no size"):
        decoded_block(block(b"\xff" * 20), "snappy")
    with pytest.raises(ContainerError, match="checksum is wrong"):
        decoded_block(block(snappy(TEXT)[:-4] + b"1234"), "snappy")


# -- limits and errors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "error", "reason"),
    [
        (varint_bytes(1, 2 << 30), ContainerLimitError, "the block has 2147483648 bytes"),
        (varint_bytes(1 << 40, 1), ContainerLimitError, "the block has 1099511627776 values"),
        (varint_bytes(-1, 1), ContainerError, "negative"),
        (varint_bytes(1, -1), ContainerError, "negative"),
        (b"\xff" * 20, ContainerError, "integer of more than ten bytes"),
    ],
)
def test_invalid_numbers_of_a_block(data: bytes, error: type[ContainerError], reason: str) -> None:
    with pytest.raises(error, match=reason) as caught:
        split_blocks(data, 100, SYNC)
    assert caught.value.offset == 100
    assert block_prefix(data[:1], 0) is None


def test_an_invalid_block_does_not_hide_those_before_it() -> None:
    data = encoded_block([b"\x02"], SYNC)
    broken = data[:-1] + b"x"
    found = split_blocks(data + broken, 0, SYNC)
    assert ([each.offset for each in found.blocks], found.end) == ([0], len(data))
    with pytest.raises(ContainerError, match="does not end with the sync marker") as caught:
        split_blocks(broken, len(data), SYNC)
    assert caught.value.offset == len(data)


def test_invalid_headers() -> None:
    for data, reason in [
        (b"PAR1", "does not begin as an Avro container file"),
        (b"Obj\x02", "does not begin as an Avro container file"),
        (b"Obj\x01" + varint_bytes(0) + SYNC, "it has no schema"),
        (b"Obj\x01" + b"\xff" * 12, "integer of more than ten bytes"),
        (encoded_header("{}", SYNC).replace(b"null", b"\xff\xfe\xfd\xfc"), "not UTF-8"),
    ]:
        with pytest.raises(ContainerError, match=reason):
            parse_header(data)
    endless = b"Obj\x01" + varint_bytes(1, 1) + b"k" + varint_bytes(1 << 40)
    assert parse_header(endless) is None
    with pytest.raises(ContainerLimitError, match="the header has more than"):
        parse_header(endless + b"\0" * HEADER_BYTES_MAX)
