"""The PostgreSQL types that Tidewire supports: name, OID, modifiers, and the Arrow type of their values.

The whole server uses these types. The catalog stores `str(type)`, the planner uses `PgType`, RowDescription has `oid`,
`size` and `typmod`, rows are in `arrow`. OIDs are those of PostgreSQL (pg_type.dat).

Representation of values in Arrow, and as Python scalars for single values (parameters, literals):

| type                     | Arrow                   | Python scalar                                   |
|--------------------------|-------------------------|-------------------------------------------------|
| bool, int2/4/8, float4/8 | bool, int16/32/64, ...  | bool, int, float                                |
| numeric                  | decimal128(p, s)        | decimal.Decimal                                 |
| text, varchar, bpchar    | string                  | str                                             |
| json, jsonb, uuid        | string                  | str (uuid in canonical form)                    |
| bytea                    | binary                  | bytes                                           |
| inet, cidr, macaddr(8)   | binary                  | bytes, as `network` has them                    |
| date                     | date32                  | int, days since 1970-01-01                      |
| time                     | time64[us]              | int, microseconds since midnight                |
| timestamp                | timestamp[us]           | int, microseconds since 1970-01-01              |
| timestamptz              | timestamp[us, tz=UTC]   | int, microseconds since 1970-01-01 UTC          |
| interval                 | month_day_nano_interval | pyarrow.MonthDayNano (nanoseconds: whole us)    |
| oid                      | uint32                  | int                                             |
| name, "char", void       | string                  | str                                             |
| record                   | string                  | str, its text                                   |
| record with `fields`     | struct<f0, f1, ...>     | tuple                                           |
| enumerated types         | string                  | str, the position (see `enums`)                 |
| T[]                      | list<T>                 | list                                            |
| T[][], ...               | list<list<T>>, ...      | list of lists of equal length; empty only as [] |

A bare `numeric` has no declared precision or scale. Because Arrow needs one scale per column, it has an internal scale
(18 for columns, 0 for a sum of bigints, 16 for an average, ...) and 38 digits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache

import pyarrow as pa

from protocol.pgwire.enums import PREFIX, Enum, parse_enum

BARE_NUMERIC_SCALE = 18
NUMERIC_PRECISION_MAX = 38
DIMENSIONS_MAX = 6
INTERVAL_FULL_RANGE = 0x7FFF  # of the modifier of interval(n): any fields
SECOND_DIGITS_MAX = 6
NETWORK_TYPES = frozenset(("inet", "cidr", "macaddr", "macaddr8"))
VARHDRSZ = 4  # PostgreSQL adds the size of a varlena header to the modifiers of varchar, bpchar and numeric


@dataclass(frozen=True, slots=True)
class PgType:
    """One PostgreSQL type with its modifiers. Create it with `parse_type` or use a constant of this module.

    `length` is n of varchar(n) and char(n), and of timestamp(n) and the other types with seconds. `precision` is p of
    numeric(p, s), None when bare; `scale` is the scale that Arrow uses, set for every numeric. `element` is set for
    arrays only: the type of their elements, which are no arrays; `item` is the type of the values in the list that an
    array of several `dimensions` is. `enum` is set for enumerated types only; their `name` contains the id, so that it
    is unique. `fields` has the names and types of a row that a query computes with. A result has the text of a row
    instead; `sent` has the types of its fields, from which the binary format is made.
    """

    name: str
    oid: int
    size: int
    length: int | None = None
    precision: int | None = None
    scale: int | None = None
    element: PgType | None = None
    enum: Enum | None = None
    fields: tuple[tuple[str, PgType], ...] | None = None
    sent: tuple[PgType, ...] | None = None
    dimensions: int = 1

    def __eq__(self, other: object) -> bool:
        """Equality of all fields. Faster than a dataclass's for identical objects, which are the common case."""
        if self is other:
            return True
        if not isinstance(other, PgType):
            return NotImplemented
        return (
            self.name == other.name
            and self.oid == other.oid
            and (self.size, self.length, self.precision, self.scale, self.element, self.enum)
            == (other.size, other.length, other.precision, other.scale, other.element, other.enum)
            and (self.fields, self.sent, self.dimensions) == (other.fields, other.sent, other.dimensions)
        )

    def __str__(self) -> str:
        """The spelling that the catalog stores and that `parse_type` parses."""
        if self.element is not None:
            return f"{self.element}{'[]' * self.dimensions}"
        if self.enum is not None:
            return str(self.enum)
        if self.length is not None:
            return f"{self.name}({self.length})"
        if self.precision is not None:
            return f"{self.name}({self.precision},{self.scale})"
        if self.scale is not None and self.scale != BARE_NUMERIC_SCALE:
            return f"{self.name}(*,{self.scale})"
        return self.name

    @property
    def hides_zeros(self) -> bool:
        """Whether trailing zeros are not printed: those of a numeric without precision, whose scale is internal."""
        return self.name == "numeric" and self.precision is None and self.scale == BARE_NUMERIC_SCALE

    @property
    def display(self) -> str:
        """The spelling of PostgreSQL's format_type(), as error messages and SHOW COLUMNS use it.

        It does not contain the number of dimensions.
        """
        if self.element is not None:
            return f"{self.element.display}[]"
        if self.enum is not None:
            return self.enum.display
        name = _DISPLAY.get(self.name, self.name)
        if self.length is not None:
            first, space, rest = name.partition(" ") if self.has_seconds else (name, "", "")
            return f"{first}({self.length}){space}{rest}"
        if self.precision is not None:
            return f"{name}({self.precision},{self.scale})"
        return name

    @property
    def declaration(self) -> str:
        """`display` with the number of dimensions, as in a definition of a column."""
        return self.display + "[]" * (self.dimensions - 1)

    @property
    def base_display(self) -> str:
        """`display` without modifiers, as in "cannot cast type ..." and "invalid input syntax for type ..."."""
        return self.without_modifiers.display

    @property
    def without_modifiers(self) -> PgType:
        if self.element is None and self.length is None and self.precision is None:
            return self
        if self.element is not None:
            return array_of(self.element.without_modifiers, self.dimensions)
        if self.name == "numeric":
            return replace(self, precision=None)
        return replace(self, length=None)

    @property
    def item(self) -> PgType:
        """The type of the values in the list that is an array: that of an array of two dimensions is an array."""
        assert self.element is not None
        return self.element if self.dimensions == 1 else replace(self, dimensions=self.dimensions - 1)

    @property
    def representation(self) -> str:
        """The name of the built-in type as which values are stored and computed."""
        return "text" if self.enum is not None else "bytea" if self.name in NETWORK_TYPES else self.name

    @property
    def typmod(self) -> int:
        """The atttypmod of RowDescription; -1 if there is no modifier."""
        source = self.element if self.element is not None else self
        if source.length is not None and source.has_seconds:
            return source.length | (INTERVAL_FULL_RANGE << 16 if source.name == "interval" else 0)
        if source.length is not None:
            return source.length + VARHDRSZ
        if source.precision is not None:
            return ((source.precision << 16) | (source.scale or 0)) + VARHDRSZ
        return -1

    @property
    def has_seconds(self) -> bool:
        """Whether it is time, timestamp, timestamptz or interval, whose seconds can be rounded to `length` digits."""
        return self.name in ("time", "timestamp", "timestamptz", "interval")

    @property
    def second_digits(self) -> int | None:
        """n of timestamp(n) and the like; None for other types."""
        return self.length if self.has_seconds else None

    @property
    def is_numeric_family(self) -> bool:
        return self.name in ("int2", "int4", "int8", "numeric", "float4", "float8")

    @property
    def is_string_family(self) -> bool:
        return self.name in ("text", "varchar", "bpchar", "unknown")

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of this type's values."""
        return _arrow(self)


_SCALARS: dict[str, tuple[int, int]] = {
    "bool": (16, 1),
    "bytea": (17, -1),
    "int8": (20, 8),
    "int2": (21, 2),
    "int4": (23, 4),
    "text": (25, -1),
    "json": (114, -1),
    "cidr": (650, -1),
    "float4": (700, 4),
    "float8": (701, 8),
    "unknown": (705, -2),
    "macaddr8": (774, 8),
    "macaddr": (829, 6),
    "inet": (869, -1),
    "bpchar": (1042, -1),
    "varchar": (1043, -1),
    "date": (1082, 4),
    "time": (1083, 8),
    "timestamp": (1114, 8),
    "timestamptz": (1184, 8),
    "interval": (1186, 16),
    "numeric": (1700, -1),
    "uuid": (2950, 16),
    "jsonb": (3802, -1),
}
_ARRAY_OIDS: dict[str, int] = {
    "bool": 1000,
    "bytea": 1001,
    "int8": 1016,
    "int2": 1005,
    "int4": 1007,
    "text": 1009,
    "json": 199,
    "float4": 1021,
    "float8": 1022,
    "bpchar": 1014,
    "varchar": 1015,
    "date": 1182,
    "time": 1183,
    "timestamp": 1115,
    "timestamptz": 1185,
    "interval": 1187,
    "numeric": 1231,
    "uuid": 2951,
    "inet": 1041,
    "cidr": 651,
    "macaddr": 1040,
    "macaddr8": 775,
    "jsonb": 3807,
    "record": 2287,
    "oid": 1028,
    "name": 1003,
    '"char"': 1002,
}
_DISPLAY: dict[str, str] = {
    "bool": "boolean",
    "int2": "smallint",
    "int4": "integer",
    "int8": "bigint",
    "float4": "real",
    "float8": "double precision",
    "bpchar": "character",
    "varchar": "character varying",
    "time": "time without time zone",
    "timestamp": "timestamp without time zone",
    "timestamptz": "timestamp with time zone",
}
_ALIASES: dict[str, str] = {
    **{display: name for name, display in _DISPLAY.items()},
    "char": "bpchar",
    "decimal": "numeric",
    "dec": "numeric",
    "int": "int4",
    "float": "float8",
    "string": "text",
    "bool": "bool",
    "mz_timestamp": "numeric(*,0)",
}


def scalar(name: str) -> PgType:
    """The type with this internal name, without modifiers. KeyError if there is none."""
    oid, size = _SCALARS[name]
    return PgType(name, oid, size, scale=BARE_NUMERIC_SCALE if name == "numeric" else None)


def array_of(element: PgType, dimensions: int = 1) -> PgType:
    """The type of arrays of `element`. KeyError if there is none."""
    oid = element.enum.array_oid if element.enum is not None else _ARRAY_OIDS[element.name]
    return PgType(f"_{element.name}", oid, -1, element=element, dimensions=dimensions)


def with_dimensions(type: PgType, dimensions: int) -> PgType:
    """The type of arrays with the same elements and this number of dimensions. A type that is no array is unchanged."""
    return type if type.element is None or type.dimensions == dimensions else replace(type, dimensions=dimensions)


def enum_type(enum: Enum) -> PgType:
    """The type of an enumeration."""
    return PgType(f"{PREFIX}{enum.id}", enum.oid, 4, enum=enum)


BOOL, BYTEA, INT8, INT2, INT4 = (scalar(n) for n in ("bool", "bytea", "int8", "int2", "int4"))
TEXT, JSON, FLOAT4, FLOAT8, UNKNOWN = (scalar(n) for n in ("text", "json", "float4", "float8", "unknown"))
BPCHAR, VARCHAR, DATE, TIME = (scalar(n) for n in ("bpchar", "varchar", "date", "time"))
TIMESTAMP, TIMESTAMPTZ, INTERVAL = (scalar(n) for n in ("timestamp", "timestamptz", "interval"))
VOID = PgType("void", 2278, 4)  # the result of functions that return nothing, which is an empty text
RECORD = PgType("record", 2249, -1)  # the text of a row
RECORD_ARRAY = array_of(RECORD)
# Types of the system catalogs. Results and parameters have them; queries compute with numbers and text instead.
OID, NAME, CHAR = PgType("oid", 26, 4), PgType("name", 19, 64), PgType('"char"', 18, 1)
INT2VECTOR = PgType("int2vector", 22, -1, element=INT2)  # printed with spaces between the numbers, without brackets
OIDVECTOR = PgType("oidvector", 30, -1, element=OID)
NUMERIC, UUID, JSONB, INET = (scalar(n) for n in ("numeric", "uuid", "jsonb", "inet"))
MZ_TIMESTAMP = replace(NUMERIC, scale=0)

SCALAR_TYPES: tuple[PgType, ...] = tuple(scalar(n) for n in _SCALARS if n != "unknown")


def numeric(precision: int, scale: int = 0) -> PgType:
    """numeric(precision, scale). ValueError outside 1..38 and 0..precision, the limits of Arrow and Spark."""
    if not 1 <= precision <= NUMERIC_PRECISION_MAX or not 0 <= scale <= precision:
        raise ValueError(f"numeric({precision},{scale})")
    return replace(NUMERIC, precision=precision, scale=scale)


def row_type(names: Sequence[str], types: Sequence[PgType]) -> PgType:
    """The type of a row with these fields."""
    return replace(RECORD, fields=tuple(zip(names, types, strict=True)))


def is_row(type: PgType) -> bool:
    """Whether it is a row that a query computes with, or an array of such rows."""
    return (type.element or type).fields is not None


def returned_type(type: PgType) -> PgType:
    """The type of a value as a client receives it: of a row that of its text."""
    if type.element is not None:
        return replace(type, element=returned_type(type.element))
    if type.fields is None:
        return type
    return replace(RECORD, sent=tuple(returned_type(field) for _, field in type.fields))


def bare_numeric(scale: int) -> PgType:
    """A numeric without declared precision whose Arrow column has the given scale."""
    return replace(NUMERIC, scale=scale)


ANY_NUMERIC = replace(NUMERIC, scale=None)
"""As which a numeric is read with all of its digits. No column and no expression is of this type."""


def exact_numeric_type(value: Decimal) -> PgType:
    """The bare numeric that keeps the value's scale, and prints it; NUMERIC itself if the value fits in it."""
    scale = max(-int(value.as_tuple().exponent), 0)
    fits = scale <= BARE_NUMERIC_SCALE and value.adjusted() < NUMERIC_PRECISION_MAX - BARE_NUMERIC_SCALE
    return NUMERIC if fits else bare_numeric(scale)


SPELLING_MAX = 1_000
_SPELLING = re.compile(
    r"([a-z_][a-z_0-9 ]*+)\s*+(?:\(\s*+(\*|\d++)\s*+(?:,\s*+(\d++)\s*+)?\)([^\[]*+))?((?:\[\d*+\])*)"
)
"""Possessive: two lists of spaces in a row would take quadratic time, in which no other thread runs."""


def parse_type(spelling: str) -> PgType:
    """The type with this spelling in the catalog: that of an enumerated type, or as `named_type`."""
    if not spelling.startswith(PREFIX):
        return named_type(spelling)
    return _short_enum(spelling) if len(spelling) <= SHORT_ENUM_CHARS else _long_enum(spelling)


SHORT_ENUM_CHARS = 8_192


def _stored_enum(spelling: str) -> PgType:
    dimensions = 0
    while spelling.endswith("[]"):
        spelling = spelling.removesuffix("[]")
        dimensions += 1
    scalar = enum_type(parse_enum(spelling))
    return array_of(scalar, dimensions) if dimensions else scalar


_short_enum = lru_cache(4_096)(_stored_enum)
_long_enum = lru_cache(32)(_stored_enum)  # each takes up to 4 MB


@lru_cache(4_096)  # of texts of clients, such as those of to_regtype()
def named_type(spelling: str) -> PgType:
    """Parses `int4`, `integer`, `numeric(10,2)`, `varchar(20)[]`, `_int4`, `timestamp with time zone`, ...

    ValueError for an unknown name, a modifier out of range, or too many dimensions; its text is the message.
    """
    if len(spelling) > SPELLING_MAX:
        raise ValueError(f'type "{spelling}" does not exist')
    match = _SPELLING.fullmatch(spelling.lower().strip())
    if match is None:
        raise ValueError(f'type "{spelling}" does not exist')
    name, first, second, rest, dimensions = match.groups()
    name = re.sub(r"\s+", " ", f"{name} {rest or ''}".strip())
    count = dimensions.count("[")
    if count > DIMENSIONS_MAX:
        raise ValueError(too_many_dimensions(count))
    alias = _ALIASES.get(name, name)
    if alias == "numeric(*,0)":
        result = MZ_TIMESTAMP
    elif alias in _SCALARS and alias != "unknown":
        result = _modified(scalar(alias), name, first, second)
    elif alias[0] == "_" and alias[1:] in _SCALARS and alias[1:] in _ARRAY_OIDS and first is None and not dimensions:
        result = array_of(scalar(alias[1:]))  # the name that pg_type has for an array type
    else:
        raise ValueError(f'type "{name}" does not exist')
    return array_of(result, count) if dimensions else result


def too_many_dimensions(count: int) -> str:
    """The message of the error 54000 for an array of more than DIMENSIONS_MAX dimensions."""
    return f"number of array dimensions ({count}) exceeds the maximum allowed ({DIMENSIONS_MAX})"


def _modified(base: PgType, spelled: str, first: str | None, second: str | None) -> PgType:
    if base.name == "numeric":
        if first is None:
            return base
        if first == "*":
            return bare_numeric(int(second or 0))
        precision, scale = int(first), int(second or 0)
        if not 1 <= precision <= NUMERIC_PRECISION_MAX:
            raise ValueError(f"NUMERIC precision {precision} must be between 1 and {NUMERIC_PRECISION_MAX}")
        if scale > precision:
            raise ValueError(f"NUMERIC scale {scale} must be between 0 and precision {precision}")
        return numeric(precision, scale)
    if base.name in ("varchar", "bpchar"):
        if first is None:
            # As in PostgreSQL, `char` means char(1), but the internal name `bpchar` has no limit.
            return replace(base, length=1) if spelled in ("char", "character") else base
        length = int(first)
        if not 1 <= length <= 10_485_760:
            raise ValueError(f"length for type {spelled} must be between 1 and 10485760")
        return replace(base, length=length)
    if first is not None and base.has_seconds:
        return replace(base, length=min(int(first), SECOND_DIGITS_MAX))
    if first is not None and spelled == "float":
        return FLOAT4 if int(first) <= 24 else FLOAT8
    if first is not None:
        raise ValueError(f'type modifier is not allowed for type "{base.name}"')
    return base


@lru_cache(10_000)
def _arrow(type: PgType) -> pa.DataType:
    if type.element is not None:
        return pa.list_(type.item.arrow)
    if type.name == "numeric":
        return pa.decimal128(type.precision or NUMERIC_PRECISION_MAX, type.scale or 0)
    if type.fields is not None:
        return pa.struct([(f"f{number}", field.arrow) for number, (_, field) in enumerate(type.fields)])
    return _ARROW[type.representation]


_ARROW: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "bytea": pa.binary(),
    "int8": pa.int64(),
    "int2": pa.int16(),
    "int4": pa.int32(),
    "text": pa.string(),
    "json": pa.string(),
    "float4": pa.float32(),
    "float8": pa.float64(),
    "unknown": pa.string(),
    "bpchar": pa.string(),
    "varchar": pa.string(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "interval": pa.month_day_nano_interval(),
    "uuid": pa.string(),
    "jsonb": pa.string(),
    "oid": pa.uint32(),
    "name": pa.string(),
    '"char"': pa.string(),
    "void": pa.string(),
    "record": pa.string(),
}

BY_OID: dict[int, PgType] = {
    **{t.oid: t for t in SCALAR_TYPES},
    **{array_of(t).oid: array_of(t) for t in SCALAR_TYPES},
    UNKNOWN.oid: UNKNOWN,
    **{t.oid: t for type in (OID, NAME, CHAR) for t in (type, array_of(type))},
}
