"""The types inet, cidr, macaddr and macaddr8: texts, binary format, and the form in which values are stored.

An inet or cidr is stored as these bytes, whose order is that of PostgreSQL (network_cmp() of network.c):

    family (2: IPv4, 3: IPv6) | network: the address without the bits after the mask | length of the mask | address

A macaddr is stored as its 6 bytes, a macaddr8 as its 8 bytes. Equal values thus have equal bytes, and Spark, Arrow and
Python compare, group and join them as they are. The parsers accept what PostgreSQL's accept: inet_net_pton.c, mac.c and
mac8.c of src/backend/utils/adt.
"""

from __future__ import annotations

import re
from functools import cache
from ipaddress import IPv6Address
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from protocol.columnar.buffers import joined, patched, string_array, string_parts
from protocol.pgwire.errors import PgError, SqlState

IPV4, IPV6 = 2, 3  # the families, as PostgreSQL's binary format has them
_SIZES = {IPV4: 4, IPV6: 16}  # bytes of an address
NETWORK_SIZES = {IPV4: 10, IPV6: 34}
"""The number of bytes of a stored inet or cidr, by its family."""


class Address(NamedTuple):
    """An inet or cidr. `number`: the address as an integer. `bits`: the length of the mask."""

    family: int
    number: int
    bits: int

    @property
    def size(self) -> int:
        """The number of bits of an address."""
        return 8 * _SIZES[self.family]

    @property
    def host_mask(self) -> int:
        """The bits after the mask, all set."""
        return (1 << (self.size - self.bits)) - 1

    @property
    def network(self) -> int:
        return self.number & ~self.host_mask

    @property
    def broadcast(self) -> int:
        return self.number | self.host_mask

    def contains(self, other: Address) -> bool:
        """Whether `other` is this network or a part of it."""
        return (
            self.family == other.family
            and self.bits <= other.bits
            and (self.number ^ other.number) >> (self.size - self.bits) == 0
        )


def network_of(address: Address) -> Address:
    """The network of an address: the address without the bits after the mask."""
    return address._replace(number=address.network)


def stored(address: Address) -> bytes:
    """The form in which an inet or cidr is stored."""
    size = _SIZES[address.family]
    network, number = address.network.to_bytes(size), address.number.to_bytes(size)
    return b"%c%b%c%b" % (address.family, network, address.bits, number)


def address_of(value: bytes) -> Address:
    """The inverse of `stored`."""
    size = _SIZES[value[0]]
    return Address(value[0], int.from_bytes(value[size + 2 :]), value[size + 1])


# ---- input of inet and cidr

_V4 = re.compile(r"([0-9]+(?:\.[0-9]+){0,3})\.?(?:/([0-9]+))?")
_V4_NETWORK = re.compile(r"(?:0[xX]([0-9a-fA-F]{1,8})|([0-9]+(?:\.[0-9]+){0,3}))(?:/([0-9]+))?")
_V4_PART = re.compile(r"(?:(?:0|[1-9][0-9]{0,2})?\.){1,3}(?:0|[1-9][0-9]{0,2})?")
_V6 = re.compile(r"([0-9a-fA-F:]*:)([0-9a-fA-F]{0,4}|[0-9.]+)(?:/(0|[1-9][0-9]{0,2}))?")


def parse_inet(text: str) -> bytes:
    """The stored form of an inet's text. PgError 22P02."""
    found = _parsed_v6(text) if ":" in text else _parsed_v4(text)
    if found is None:
        raise _syntax("inet", text)
    return stored(found)


def parse_cidr(text: str) -> bytes:
    """The stored form of a cidr's text. PgError 22P02, also for bits to the right of the mask."""
    found = _parsed_v6(text) if ":" in text else _parsed_v4_network(text)
    if found is None:
        raise _syntax("cidr", text)
    if found.number & found.host_mask:
        raise PgError(
            SqlState.INVALID_TEXT_REPRESENTATION,
            f'invalid cidr value: "{text}"',
            detail="Value has bits set to right of mask.",
        )
    return stored(found)


def _syntax(type: str, text: str) -> PgError:
    return PgError(SqlState.INVALID_TEXT_REPRESENTATION, f'invalid input syntax for type {type}: "{text}"')


def _octets(text: str) -> bytes | None:
    """The octets of a dotted text of digits; None if one is greater than 255."""
    parts = [part.lstrip("0") or "0" for part in text.split(".")]
    if any(len(part) > 3 or int(part) > 255 for part in parts):
        return None
    return bytes(map(int, parts))


def _bits(text: str, greatest: int) -> int | None:
    """The length of a mask; None if it is too great."""
    digits = text.lstrip("0") or "0"
    return int(digits) if len(digits) <= 3 and int(digits) <= greatest else None


def _v4(octets: bytes, bits: int) -> Address:
    return Address(IPV4, int.from_bytes(octets.ljust(4, b"\0")), bits)


def _parsed_v4(text: str) -> Address | None:
    """inet_net_pton_ipv4(). Omitted octets are zero, if the mask does not include them."""
    match = _V4.fullmatch(text)
    if match is None or (octets := _octets(match[1])) is None:
        return None
    if match[2] is None:
        return _v4(octets, 32) if len(octets) == 4 else None
    bits = _bits(match[2], 32)
    return None if bits is None or bits // 8 > len(octets) else _v4(octets, bits)


def _parsed_v4_network(text: str) -> Address | None:
    """inet_cidr_pton_ipv4(). Without a mask, its length is that of the address's class, or of the octets if longer."""
    match = _V4_NETWORK.fullmatch(text)
    if match is None:
        return None
    digits = match[1]
    octets = _octets(match[2]) if digits is None else bytes.fromhex(digits + "0" * (len(digits) % 2))
    if octets is None:
        return None
    if match[3] is not None:
        bits = _bits(match[3], 32)
        return None if bits is None else _v4(octets, bits)
    first = octets[0]
    bits = 32 if first >= 240 else 8 if first >= 224 else 24 if first >= 192 else 16 if first >= 128 else 8
    bits = max(bits, 8 * len(octets))
    return _v4(octets, 4 if bits == 8 and first == 224 else bits)


def _parsed_v6(text: str) -> Address | None:
    """inet_cidr_pton_ipv6(): hexadecimal words, of which :: omits zeros, and IPv4 octets at the end."""
    match = _V6.fullmatch(text)
    if match is None or (bits := _bits(match[3] or "128", 128)) is None:
        return None
    words, last = match[1] + match[2], match[2]
    if "." in last:
        octets = _octets(last) if _V4_PART.fullmatch(last) else None
        if octets is None or (last.endswith(".") and match[3] is None):
            return None
        octets = octets.ljust(4, b"\0")
        words = f"{match[1]}{octets[:2].hex()}:{octets[2:].hex()}"
    if match[3] is not None and words.endswith(":") and not words.endswith("::"):
        words = words[:-1]  # as in PostgreSQL, 1::2:/64 is 1::2/64
    head, gap, tail = words.partition("::")
    if "::" in tail or tail.startswith(":"):
        return None
    before, after = (part.split(":") if part else [] for part in (head, tail))
    if any(not 1 <= len(word) <= 4 for word in (*before, *after)):
        return None
    omitted = 8 - len(before) - len(after)
    if omitted < 1 if gap else omitted:
        return None
    digits = "".join(word.zfill(4) for word in (*before, *(["0"] * omitted), *after))
    return Address(IPV6, int(digits, 16), bits)


# ---- output of inet and cidr


def host_text(address: Address) -> str:
    """The address without the mask."""
    if address.family == IPV4:
        return ".".join(map(str, address.number.to_bytes(4)))
    return _v6_text(address.number)


def _v6_text(number: int) -> str:
    """inet_net_ntop_ipv6(): addresses that contain an IPv4 address end with its octets."""
    if 0xFFFF < number < 1 << 32 or number >> 32 == 0xFFFF:
        prefix = "::ffff:" if number >> 32 else "::"
        return prefix + ".".join(map(str, (number & 0xFFFFFFFF).to_bytes(4)))
    return IPv6Address(number).compressed


def full_text(address: Address) -> str:
    """The address with the mask."""
    return f"{host_text(address)}/{address.bits}"


def inet_text(address: Address) -> str:
    """The text of an inet: with the mask if it is not that of a single address."""
    return host_text(address) if address.bits == address.size else full_text(address)


def abbreviated_network(address: Address) -> str:
    """abbrev(cidr): inet_cidr_ntop() of inet_cidr_ntop.c, which omits what is after the mask."""
    if address.family == IPV4:
        octets = address.network.to_bytes(4)[: -(-address.bits // 8)]
        return f"{'.'.join(map(str, octets)) or '0'}/{address.bits}"
    if not address.bits:
        return "::/0"
    return f"{_abbreviated_words(address.network.to_bytes(16), address.bits)}/{address.bits}"


def _abbreviated_words(data: bytes, bits: int) -> str:
    count = max(-(-bits // 16), 2)  # the words to print
    words = [int.from_bytes(data[2 * i : 2 * i + 2]) for i in range(count)]
    start = length = found_start = found = 0  # the zeros to omit, and those found last
    for i, word in enumerate(words):
        if word == 0:
            found_start = found_start if found else i
            found += 1
        elif length < found:  # as in PostgreSQL, a run that is not longer is counted together with the next
            start, length, found = found_start, found, 0
    if length < found:
        start, length = found_start, found
    mapped = length == 5 and data[10:12] == b"\xff\xff"
    is_v4 = length != count and start == 0 and (length == 6 or mapped or (length == 7 and data[14] and data[15] != 1))
    text, position = "", 0
    for i, word in enumerate(words):
        if start <= i < start + length:
            text += (":" if i == start else "") + (":" if i == count - 1 else "")
        elif is_v4 and i > 5:
            text += f"{':' if i == 6 else '.'}{data[position]}"
            position += 1
            if i != 7 or bits > 120:  # else the last octet is after the mask
                text += f".{data[position]}"
                position += 1
            continue
        else:
            text += f"{':' if text else ''}{word:x}"
        position += 2
    return text


# ---- binary format of inet and cidr


def sent(value: bytes, *, is_cidr: bool) -> bytes:
    """network_send(): family, mask length, whether it is a cidr, number of bytes, address."""
    size = _SIZES[value[0]]
    return bytes((value[0], value[size + 1], is_cidr, size)) + value[size + 2 :]


def received(data: bytes, *, is_cidr: bool) -> bytes:
    """network_recv(): the stored form. PgError 08P01 if bytes are missing, 22P03 if they are invalid."""
    name = "cidr" if is_cidr else "inet"
    if data and data[0] not in _SIZES:
        raise _invalid(f'invalid address family in external "{name}" value')
    if len(data) > 1 and data[1] > 8 * _SIZES[data[0]]:
        raise _invalid(f'invalid bits in external "{name}" value')
    if len(data) > 3 and data[3] != _SIZES[data[0]]:
        raise _invalid(f'invalid length in external "{name}" value')
    if len(data) < 4 or len(data) < 4 + data[3]:
        raise too_short()
    family, bits, _, size = data[:4]
    if len(data) > 4 + size:
        raise _invalid("incorrect binary data format")
    address = Address(family, int.from_bytes(data[4:]), bits)
    if is_cidr and address.number & address.host_mask:
        raise _invalid('invalid external "cidr" value', "Value has bits set to right of mask.")
    return stored(address)


def too_short() -> PgError:
    """The error of pq_getmsgbyte(), which reads these values."""
    return PgError(SqlState.PROTOCOL_VIOLATION, "no data left in message")


def _invalid(message: str, detail: str | None = None) -> PgError:
    return PgError(SqlState.INVALID_BINARY_REPRESENTATION, message, detail=detail)


# ---- macaddr and macaddr8

_SPACES = " \t\n\v\f\r"
_NUMBER = rf"[{_SPACES}]*+([+-]?(?:0[xX][0-9a-fA-F]*+|[0-9a-fA-F]++))"  # %x of sscanf()
_PAIR = rf"[{_SPACES}]*+([+-][0-9a-fA-F]|0[xX]|[0-9a-fA-F]{{1,2}}+)"  # %2x
_MACADDRS = tuple(
    re.compile(form.replace("#", _NUMBER).replace("%", _PAIR) + rf"[{_SPACES}]*+")
    for form in ("#:#:#:#:#:#", "#-#-#-#-#-#", "%%%:%%%", "%%%-%%%", r"%%\.%%\.%%", "%%-%%-%%", "%%%%%%")
)
_HEX_PAIR = re.compile("[0-9a-fA-F]{2}")


def parse_macaddr(text: str) -> bytes:
    """macaddr_in(). PgError 22P02, 22003 for an octet that is greater than 255."""
    for form in _MACADDRS:
        if (match := form.fullmatch(text)) is not None:
            octets = [_scanned(digits) for digits in match.groups()]
            if not all(0 <= octet <= 255 for octet in octets):
                message = f'invalid octet value in "macaddr" value: "{text}"'
                raise PgError(SqlState.NUMERIC_VALUE_OUT_OF_RANGE, message)
            return bytes(octets)
    raise _syntax("macaddr", text)


def _scanned(digits: str) -> int:
    """The int that sscanf() stores for a hexadecimal number."""
    number = min(int(re.sub("^[+-]?(0[xX])?", "0", digits), 16), (1 << 64) - 1)
    number = (-number if digits[0] == "-" else number) & 0xFFFFFFFF
    return number - (1 << 32) if number >> 31 else number


def parse_macaddr8(text: str) -> bytes:
    """macaddr8_in(): 8 bytes, or the 6 of a macaddr. PgError 22P02."""
    body, position, spacer, octets = text.lstrip(_SPACES), 0, "", ""
    while position + 1 < len(body):  # as in PostgreSQL, a single character at the end is ignored
        if len(octets) in (12, 16) and not body[position:].strip(_SPACES):
            break
        pair = body[position : position + 2]
        if len(octets) == 16 or not _HEX_PAIR.fullmatch(pair):
            raise _syntax("macaddr8", text)
        octets += pair
        position += 2
        if (mark := body[position : position + 1]) and mark in ":-.":
            if spacer not in ("", mark):
                raise _syntax("macaddr8", text)
            spacer = mark
            position += 1
    if len(octets) not in (12, 16):
        raise _syntax("macaddr8", text)
    return widened(bytes.fromhex(octets))


def widened(data: bytes) -> bytes:
    """The macaddr8 of 6 bytes; 8 bytes are returned as they are."""
    return data if len(data) == 8 else data[:3] + b"\xff\xfe" + data[3:]


def narrowed(data: bytes) -> bytes:
    """The macaddr of a macaddr8. PgError 22003 if it is not that of one."""
    if data[3:5] != b"\xff\xfe":
        raise PgError(
            SqlState.NUMERIC_VALUE_OUT_OF_RANGE,
            "macaddr8 data out of range to convert to macaddr",
            hint="Only addresses that have FF and FE as values in the 4th and 5th bytes from the left, for example "
            "xx:xx:xx:ff:fe:xx:xx:xx, are eligible to be converted from macaddr8 to macaddr.",
        )
    return data[:3] + data[5:]


def mac_text(value: bytes) -> str:
    """The text of a macaddr or macaddr8."""
    return value.hex(":")


def received_mac(data: bytes, size: int) -> bytes:
    """macaddr_recv() and macaddr8_recv(): `size` bytes; a macaddr8 may also have the 6 of a macaddr."""
    if len(data) < 6:
        raise too_short()
    wanted = 6 if len(data) == 6 else size
    if len(data) < wanted:
        raise too_short()
    if len(data) > wanted:
        raise _invalid("incorrect binary data format")
    return data if size == 6 else widened(data)


# ---- columns

_OCTETS = pa.array([str(octet) for octet in range(256)])
_PAIRS = pa.array([f"{byte:02x}" for byte in range(256)])
_DOT, _SLASH, _COLON = pa.scalar("."), pa.scalar("/"), pa.scalar(":")
_EMPTY = pa.scalar(b"", pa.binary())
_NO_TEXT = pa.scalar(None, pa.string())
_EMIT_NULL = pc.JoinOptions("emit_null", "")
_V4_TEXTS = r"^(?P<a>[0-9]{1,3})\.(?P<b>[0-9]{1,3})\.(?P<c>[0-9]{1,3})\.(?P<d>[0-9]{1,3})(?:/(?P<mask>[0-9]{1,2}))?$"


@cache
def _hexadecimal_words() -> pa.Array:
    return pa.array([f"{word:x}" for word in range(1 << 16)])


def parsed_column(texts: pa.Array, *, is_cidr: bool) -> pa.Array | None:
    """The stored forms of texts that are complete IPv4 addresses, of a cidr with masks. None if there are others."""
    parts = pc.extract_regex(pc.fill_null(texts, "0.0.0.0/0"), _V4_TEXTS)
    if parts.null_count:
        return None
    *octets, masks = parts.flatten()
    if is_cidr and pc.any(pc.equal(masks, "")).as_py():
        return None
    given = np.asarray(texts.is_valid())
    address = np.stack([octet.cast(pa.int32()).to_numpy() for octet in octets], axis=1)
    bits = pc.if_else(pc.equal(masks, ""), "32", masks).cast(pa.int32()).to_numpy()
    if (address > 255).any() or (bits > 32).any():
        return None
    mask = np.clip(bits[:, None] - np.arange(0, 32, 8), 0, 8)
    network = address & (0xFF00 >> mask)
    if is_cidr and (network != address).any():
        return None
    rows = np.empty((len(texts), NETWORK_SIZES[IPV4]), np.uint8)
    rows[:, 0], rows[:, 1:5], rows[:, 5], rows[:, 6:] = IPV4, network, bits, address
    ends = np.zeros(len(texts) + 1, np.int32)
    np.cumsum(given * NETWORK_SIZES[IPV4], out=ends[1:])
    return string_array(ends, rows[given], texts).view(pa.binary())


def inet_texts(column: pa.Array) -> pa.Array:
    """The texts of a column of inet."""
    return _network_texts(column, is_cidr=False)


def cidr_texts(column: pa.Array) -> pa.Array:
    """The texts of a column of cidr, which always have the mask."""
    return _network_texts(column, is_cidr=True)


def _network_texts(column: pa.Array, *, is_cidr: bool) -> pa.Array:
    offsets, values = string_parts(column)
    lengths = np.diff(offsets)
    found = pa.nulls(len(column), pa.string())
    for family, text in ((IPV4, _v4_hosts), (IPV6, _v6_hosts)):
        of_family = lengths == NETWORK_SIZES[family]
        if not of_family.any():
            continue
        # the rows of the other family get the text of some value of this one, which is not used
        starts = np.where(of_family, offsets[:-1], offsets[:-1][of_family][0])
        size = _SIZES[family]
        hosts, bits = text(values, starts + size + 2), values[starts + size + 1]
        masked = joined(hosts, _SLASH, _OCTETS.take(pa.array(bits)))
        texts = masked if is_cidr else pc.if_else(pa.array(bits < 8 * size), masked, hosts)
        found = pc.if_else(pa.array(of_family), texts, found)
    return pc.if_else(column.is_valid(), found, _NO_TEXT) if column.null_count else found


def _v4_hosts(values: NDArray[np.uint8], starts: NDArray[np.int32]) -> pa.Array:
    a, b, c, d = (_OCTETS.take(pa.array(values[starts + octet])) for octet in range(4))
    return joined(a, _DOT, b, _DOT, c, _DOT, d)


def _v6_hosts(values: NDArray[np.uint8], starts: NDArray[np.int32]) -> pa.Array:
    octets = values[starts[:, None] + np.arange(16)]
    words = octets[:, 0::2].astype(np.int32) << 8 | octets[:, 1::2]
    parts: list[pa.Array | pa.Scalar] = []
    for number in range(8):
        parts += [_COLON, _hexadecimal_words().take(pa.array(words[:, number]))]
    texts = joined(*parts[1:])
    for length in range(8, 1, -1):  # :: takes the place of the first of the longest runs of zeros
        shorter = pc.replace_substring_regex(texts, f"(^|:)0(:0){{{length - 1}}}(:|$)", "::", max_replacements=1)
        texts = pc.if_else(pc.match_substring(texts, "::"), texts, shorter)
    with_v4 = (words[:, :5] == 0).all(axis=1) & (
        (words[:, 5] == 0) & (words[:, 6] != 0) | (words[:, 5] == 0xFFFF)
    )  # as in _v6_text
    return patched(texts, texts, with_v4, lambda rows: [_v6_text(int.from_bytes(octets[row])) for row in rows])


def mac_texts(column: pa.Array) -> pa.Array:
    """The texts of a column of macaddr or macaddr8."""
    offsets, values = string_parts(column)
    lengths = np.diff(offsets)
    size = int(lengths.max())
    if not size:
        return pa.nulls(len(column), pa.string())
    starts = np.where(lengths == size, offsets[:-1], offsets[:-1][lengths == size][0])
    parts: list[pa.Array | pa.Scalar] = []
    for position in range(size):
        parts += [_COLON, _PAIRS.take(pa.array(values[starts + position]))]
    texts = joined(*parts[1:])
    return pc.if_else(column.is_valid(), texts, _NO_TEXT) if column.null_count else texts


def sent_column(column: pa.Array, *, is_cidr: bool) -> pa.Array:
    """`sent` of each value of a column."""
    is_v4 = pc.equal(pc.binary_length(column), NETWORK_SIZES[IPV4])
    forms = []
    for family, size in _SIZES.items():
        bits, address = pc.binary_slice(column, -size - 1, -size), pc.binary_slice(column, -size)
        head, tail = pa.scalar(bytes((family,)), pa.binary()), pa.scalar(bytes((is_cidr, size)), pa.binary())
        parts = [head, bits, tail, address, _EMPTY]
        forms.append(pc.call_function("binary_join_element_wise", parts, _EMIT_NULL))
    return pc.if_else(is_v4, *forms)
