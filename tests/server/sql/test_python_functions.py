"""Every function that is computed in Python returns a value or raises PgError, for the extreme values of its types."""

from __future__ import annotations

import itertools
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from catalog.enum_positions import first_positions
from protocol.pgwire.enums import Enum
from protocol.pgwire.errors import PgError
from protocol.pgwire.network import parse_cidr, parse_inet
from protocol.pgwire.types import RECORD, PgType, array_of, enum_type, row_type, scalar
from server.sql.functions.table import ANYENUM, FUNCTIONS, OPERATORS, Function, Kind
from server.sql.functions.worker import evaluator

CALLS = 400  # the maximum number per function
_US = 1_000_000
EXTREMES: dict[str, list[Any]] = {
    "bool": [True, False],
    "int2": [0, 1, -1, 7, 32767, -32768],
    "int4": [0, 1, -1, 3, 100, 2**31 - 1, -(2**31)],
    "int8": [0, 1, -1, 42, 2**63 - 1, -(2**63)],
    "float4": [0.0, -0.0, 1.5, -2.5, 3.4e38, 1e-45, float("inf"), float("-inf"), float("nan")],
    "float8": [0.0, -0.0, 1.5, -2.5, 1.7e308, -1.7e308, 5e-324, float("inf"), float("-inf"), float("nan")],
    "numeric": [Decimal(t) for t in ("0", "1", "-1", "0.5", "-2.50", "9" * 38, "-" + "9" * 20, "0." + "0" * 17 + "1")],
    "text": ["", "a", "Abc", " x ", "日本🙂", "%_\\", "(", "[a", "\\", "5", "-1e400", "nan", "{1,NULL}", '{"a": [1]}',
             "UTC", "2024-02-29", "day", "YYYY-MM-DD", "999.99", "hex", "\\x00", "i", "1 day", "infinity"],
    "bytea": [b"", b"a", b"\x00\xff", b"\\x41", bytes(range(256))],
    "date": [0, 19782, -719162, 2932896, -2440588],
    "time": [0, 1, 86_399_999_999, 43_200 * _US],
    "timestamp": [0, 1, -1, 1_700_000_000 * _US, -62_135_596_800 * _US, 253_402_300_799 * _US, 2**63 - 1],
    "interval": [pa.MonthDayNano(v) for v in ([0, 0, 0], [1, 2, 3_000], [-13, 40, -1_000], [0, 0, 2**63 - 808],
                                              [2**31 - 1, 0, 0], [0, -(2**31), 0])],
    "uuid": ["00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"],
    "inet": [parse_inet(t) for t in ("0.0.0.0/0", "10.0.0.1", "255.255.255.255/31", "::/0", "ffff::1/64", "::1")],
    "cidr": [parse_cidr(t) for t in ("0.0.0.0/0", "10/8", "255.255.255.255/32", "::/0", "ffff::/16", "::1/128")],
    "macaddr": [bytes(6), b"\x08\0\x2b\1\2\3", b"\xff" * 6],
    "macaddr8": [bytes(8), b"\x08\0\x2b\xff\xfe\1\2\3", b"\xff" * 8],
    "json": ["{}", "[]", "null", '"x"', "1.50", '{"a": {"b": [1, null]}, "a": 2}', " [1, 2] "],
}  # fmt: skip
EXTREMES |= {
    "varchar": EXTREMES["text"], "bpchar": ["", "a  ", "  "], "timestamptz": EXTREMES["timestamp"],
    "jsonb": ["{}", "[]", "null", '"x"', "1.50", '{"a": {"b": [1, null]}}', '[1, "two", null]'],
}  # fmt: skip
POSITIONS = first_positions(3)
_ENUM = enum_type(Enum("u1", 16385, 16386, "e", ("a", "", "ü"), POSITIONS))
_ELEMENTS = ("int4", "text", "numeric", "interval", "jsonb")


def meant(type: PgType, element: str) -> PgType:
    """Returns the type, or the type that replaces a pseudo-type."""
    if type == RECORD:
        return row_type(["a", "b"], [scalar(element), array_of(scalar(element))])
    if not type.name.startswith("any"):
        return type
    if type == ANYENUM:
        return _ENUM
    return array_of(scalar(element)) if type.name.endswith("array") else scalar(element)


def values(type: PgType, element: str) -> list[Any]:
    """Returns extreme values of a type. `element` is the type used for a pseudo-type."""
    type = meant(type, element)
    if type == _ENUM:
        return list(POSITIONS)
    if type.fields is not None:
        return [*itertools.zip_longest(EXTREMES[element], lists(element)), (None, None)]
    return lists(type.element.name) if type.element is not None else EXTREMES[type.name]


def lists(element: str) -> list[Any]:
    known = EXTREMES[element]
    return [[], [None], known[:1], known[:3], [*known[:2], None, known[-1]]]


def computed() -> list[tuple[str, Function]]:
    rows = itertools.chain.from_iterable((*FUNCTIONS.values(), *OPERATORS.values()))
    return sorted({str(row): row for row in rows if row.python is not None and row.kind is Kind.SCALAR}.items())


@pytest.mark.parametrize("name", sorted({row.name for _, row in computed()}))
def test_each_function_returns_a_value_or_raises_pgerror(name: str) -> None:
    draw = random.Random(name)
    faults = []
    for signature, row in (pair for pair in computed() if pair[1].name == name):
        # variadic arguments are converted to text before
        polymorphic = any(t.name.startswith(("any", "record")) for t in row.arguments) and not row.variadic
        for element in _ELEMENTS if polymorphic else ("text",):
            call = evaluator(row, "America/New_York", [meant(type, element) for type in row.arguments])
            choices = [[*values(type, element), None] for type in row.arguments]
            for _ in range(CALLS // len(_ELEMENTS)):
                arguments = [draw.choice(choice) for choice in choices]
                try:
                    call(*arguments)
                except PgError:
                    pass
                except Exception as error:
                    faults.append(f"{signature} of {arguments}: {error!r}")
                    break
    assert not faults, "\n".join(faults)
