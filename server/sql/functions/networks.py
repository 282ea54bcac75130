"""Network addresses (chapter 9.12): inet, cidr, macaddr and macaddr8, in the form of `protocol.pgwire.network`.

Most functions return texts or numbers that Spark cannot compute, so that Python does. The operators that compare
networks have Spark forms. A network and its parts are consecutive in the order of the stored bytes: `x <<= n` is
`family, network, length of n <= x <= family, broadcast of n, 255`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.network import (
    IPV4,
    Address,
    abbreviated_network,
    address_of,
    full_text,
    host_text,
    inet_text,
    narrowed,
    network_of,
    stored,
    widened,
)
from server.sql.casts import NETWORK
from server.sql.expressions import Expression, Literal
from server.sql.functions.table import FUNCTIONS, GRAMMAR, OPERATORS, Form, let, row

_INT8_MIN = -1 << 63
_LONGEST = b"\xff"  # as the length of a mask, it is greater than all others


def _invalid(message: str) -> PgError:
    return PgError(SqlState.INVALID_PARAMETER_VALUE, message)


def _out_of_range() -> PgError:
    return PgError(SqlState.NUMERIC_VALUE_OUT_OF_RANGE, "result is out of range")


# -- texts ------------------------------------------------------------------------------------------------------------

row(GRAMMAR, "text of inet", "inet", "text", python=lambda value: inet_text(address_of(value)))
(TEXT_OF_INET,) = GRAMMAR["text of inet"]
row(FUNCTIONS, "abbrev", "inet", "text", python=lambda value: inet_text(address_of(value)))
row(FUNCTIONS, "abbrev", "cidr", "text", python=lambda value: abbreviated_network(address_of(value)))
row(FUNCTIONS, "host", "inet", "text", python=lambda value: host_text(address_of(value)))
row(FUNCTIONS, "text", "inet", "text", python=lambda value: full_text(address_of(value)))

# -- parts ------------------------------------------------------------------------------------------------------------

_HALF = "octet_length({0}) DIV 2"  # the number of bytes of the family and the network


def _merged(left: bytes, right: bytes) -> bytes:
    """The smallest network that contains both."""
    a, b = address_of(left), address_of(right)
    if a.family != b.family:
        raise _invalid("cannot merge addresses from different families")
    bits = min(a.bits, b.bits, a.size - (a.number ^ b.number).bit_length())
    return stored(network_of(a._replace(bits=bits)))


def _with_length(value: bytes, bits: int) -> Address:
    address = address_of(value)
    bits = address.size if bits == -1 else bits
    if not 0 <= bits <= address.size:
        raise _invalid(f"invalid mask length: {bits}")
    return address._replace(bits=bits)


def _single(number: Callable[[Address], int]) -> Callable[[bytes], bytes]:
    """A function that returns a single address of the argument's family."""

    def python(value: bytes) -> bytes:
        address = address_of(value)
        return stored(Address(address.family, number(address), address.size))

    return python


def _broadcast(value: bytes) -> bytes:
    address = address_of(value)
    return stored(address._replace(number=address.broadcast))


row(FUNCTIONS, "broadcast", "inet", "inet", python=_broadcast)
row(FUNCTIONS, "family", "inet", "int4", "CASE octet_length({0}) WHEN 10 THEN 4 WHEN 34 THEN 6 END",
    python=lambda value: 4 if value[0] == IPV4 else 6)  # fmt: skip
row(FUNCTIONS, "hostmask", "inet", "inet", python=_single(lambda address: address.host_mask))
row(FUNCTIONS, "inet_merge", "inet inet", "cidr", python=_merged)
row(FUNCTIONS, "inet_same_family", "inet inet", "bool", "(octet_length({0}) = octet_length({1}))",
    python=lambda left, right: left[0] == right[0])  # fmt: skip
row(FUNCTIONS, "masklen", "inet", "int4", f"CAST(conv(hex(substring({{0}}, {_HALF} + 1, 1)), 16, 10) AS INT)",
    python=lambda value: address_of(value).bits)  # fmt: skip
row(FUNCTIONS, "netmask", "inet", "inet",
    python=_single(lambda address: (1 << address.size) - 1 - address.host_mask))  # fmt: skip
for _name in ("network", "cidr"):
    row(FUNCTIONS, _name, "inet", "cidr", NETWORK, python=lambda value: stored(network_of(address_of(value))))
row(FUNCTIONS, "set_masklen", "inet int4", "inet", python=lambda value, bits: stored(_with_length(value, bits)))
row(FUNCTIONS, "set_masklen", "cidr int4", "cidr",
    python=lambda value, bits: stored(network_of(_with_length(value, bits))))  # fmt: skip

# -- networks that contain others -------------------------------------------------------------------------------------


def _contains(whole: bytes, part: bytes, *, strictly: bool) -> bool:
    a, b = address_of(whole), address_of(part)
    return a.contains(b) and (a.bits < b.bits or not strictly)


def _within_constant(part: str, whole: bytes, *, strictly: bool) -> str:
    address = address_of(whole)
    head = len(whole) // 2
    low = whole[:head] + bytes((address.bits + strictly,))
    high = whole[:1] + stored(address._replace(number=address.broadcast, bits=address.size))[1:head] + _LONGEST
    return f"({part} >= X'{low.hex()}' AND {part} < X'{high.hex()}')"


def _within(part: str, whole: str, *, strictly: bool) -> str:
    """The form for a network that is no constant: the bytes before the end of its mask are equal, and so are the bits
    of the byte in which it ends."""
    half = f"octet_length({whole}) DIV 2"
    length = f"CAST(conv(hex(substring({whole}, {half} + 1, 1)), 16, 10) AS INT)"

    def byte(text: str, first: str) -> str:
        return f"CAST(conv(hex(substring({text}, {first} + {length} DIV 8, 1)), 16, 10) AS INT)"

    changed = f"{byte(part, f'{half} + 2')} ^ {byte(whole, '2')}"
    return (
        f"(octet_length({part}) = octet_length({whole})"
        f" AND substring({part}, {half} + 1, 1) {'>' if strictly else '>='} substring({whole}, {half} + 1, 1)"
        f" AND substring({part}, {half} + 2, {length} DIV 8) = substring({whole}, 2, {length} DIV 8)"
        f" AND ({length} % 8 = 0 OR shiftright({changed}, 8 - {length} % 8) = 0))"
    )


def _relation(part: int, *, strictly: bool, either: bool = False) -> Form:
    """The form of an operator. `part`: the number of the argument that is a part of the other; `either`: or the
    other way round."""

    def form(args: Sequence[Expression], texts: Sequence[str]) -> str:
        whole = args[1 - part]
        if isinstance(whole, Literal) and whole.value is not None and not either:
            value: bytes = whole.value
            return let(texts[part], lambda x: _within_constant(x, value, strictly=strictly))

        def tested(a: str, b: str) -> str:
            if either:
                return f"({_within(a, b, strictly=False)} OR {_within(b, a, strictly=False)})"
            return _within(*((a, b) if part == 0 else (b, a)), strictly=strictly)

        if all(text.isidentifier() for text in texts):
            return tested(texts[0], texts[1])
        pair = f"named_struct('a', {texts[0]}, 'b', {texts[1]})"  # a lambda must not contain a call of Python
        return let(pair, lambda r: tested(f"{r}.a", f"{r}.b"))

    return form


row(OPERATORS, "<<", "inet inet", "bool", _relation(0, strictly=True),
    python=lambda a, b: _contains(b, a, strictly=True))  # fmt: skip
row(OPERATORS, "<<=", "inet inet", "bool", _relation(0, strictly=False),
    python=lambda a, b: _contains(b, a, strictly=False))  # fmt: skip
row(OPERATORS, ">>", "inet inet", "bool", _relation(1, strictly=True),
    python=lambda a, b: _contains(a, b, strictly=True))  # fmt: skip
row(OPERATORS, ">>=", "inet inet", "bool", _relation(1, strictly=False),
    python=lambda a, b: _contains(a, b, strictly=False))  # fmt: skip
row(OPERATORS, "&&", "inet inet", "bool", _relation(0, strictly=False, either=True),
    python=lambda a, b: _contains(a, b, strictly=False) or _contains(b, a, strictly=False))  # fmt: skip

# -- bits and numbers -------------------------------------------------------------------------------------------------


def _combined(name: str, combine: Callable[[int, int], int]) -> Callable[[bytes, bytes], bytes]:
    def python(left: bytes, right: bytes) -> bytes:
        a, b = address_of(left), address_of(right)
        if a.family != b.family:
            raise _invalid(f"cannot {name} inet values of different sizes")
        return stored(Address(a.family, combine(a.number, b.number), max(a.bits, b.bits)))

    return python


def _negated(value: bytes) -> bytes:
    address = address_of(value)
    return stored(address._replace(number=(1 << address.size) - 1 - address.number))


def _plus(value: bytes, addend: int) -> bytes:
    address = address_of(value)
    number = address.number + addend
    if not 0 <= number < 1 << address.size:
        raise _out_of_range()
    return stored(address._replace(number=number))


def _minus(left: bytes, right: bytes) -> int:
    a, b = address_of(left), address_of(right)
    if a.family != b.family:
        raise _invalid("cannot subtract inet values of different sizes")
    difference = a.number - b.number
    if not _INT8_MIN <= difference < -_INT8_MIN:
        raise _out_of_range()
    return difference


def _bytewise(combine: Callable[[int, int], int]) -> Callable[[bytes, bytes], bytes]:
    return lambda left, right: bytes(map(combine, left, right))


row(OPERATORS, "~", "inet", "inet", python=_negated)
row(OPERATORS, "+", "inet int8", "inet", python=_plus)
row(OPERATORS, "+", "int8 inet", "inet", python=lambda addend, value: _plus(value, addend))
row(OPERATORS, "-", "inet int8", "inet",  # as in PostgreSQL, the least bigint is its own negation
    python=lambda value, number: _plus(value, number if number == _INT8_MIN else -number))  # fmt: skip
row(OPERATORS, "-", "inet inet", "int8", python=_minus)
for _symbol, _word, _combine in (("&", "AND", int.__and__), ("|", "OR", int.__or__)):
    row(OPERATORS, _symbol, "inet inet", "inet", python=_combined(_word, _combine))
    for _mac in ("macaddr", "macaddr8"):
        row(OPERATORS, _symbol, f"{_mac} {_mac}", _mac, python=_bytewise(_combine))
for _mac, _zeros in (("macaddr", "000000"), ("macaddr8", "0000000000")):
    row(OPERATORS, "~", _mac, _mac, python=lambda value: bytes(255 - byte for byte in value))
    row(FUNCTIONS, "trunc", _mac, _mac, f"concat(substring({{0}}, 1, 3), X'{_zeros}')",
        python=lambda value: value[:3] + bytes(len(value) - 3))  # fmt: skip
row(FUNCTIONS, "macaddr", "macaddr8", "macaddr", python=narrowed)
row(FUNCTIONS, "macaddr8", "macaddr", "macaddr8", python=widened)
row(FUNCTIONS, "macaddr8_set7bit", "macaddr8", "macaddr8", python=lambda value: bytes((value[0] | 2,)) + value[1:])
