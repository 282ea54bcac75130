"""The dates and timestamps infinity and -infinity in Spark SQL and as Python scalars.

They are the limits of the integers that represent the types, so that comparisons, joins and groups need nothing. Every
other function needs a rule (`functions.table.Infinite`), because Spark and Python compute with integers.
"""

from __future__ import annotations

from protocol.pgwire.datetime_output import DATE_INFINITY, DATE_MINUS_INFINITY, INFINITY, MINUS_INFINITY
from protocol.pgwire.types import PgType

_LIMITS = {
    "date": (DATE_MINUS_INFINITY, DATE_INFINITY),
    "timestamp": (MINUS_INFINITY, INFINITY),
    "timestamptz": (MINUS_INFINITY, INFINITY),
}
_SPARK = {
    "date": "date_from_unix_date({})",
    "timestamp": "CAST(timestamp_micros({}L) AS TIMESTAMP_NTZ)",
    "timestamptz": "timestamp_micros({}L)",
}


def has_infinities(type: PgType) -> bool:
    """Whether values of the type, or the elements of its arrays, may be infinite."""
    return (type.element or type).name in _LIMITS


def is_infinite(type: PgType, value: int) -> bool:
    """Whether a value of a date or timestamp type is infinity or -infinity."""
    return value in _LIMITS[type.name]


def converted(value: int, target: PgType) -> int:
    """An infinite value as one of the date or timestamp type `target`."""
    return _LIMITS[target.name][value > 0]


def spark_infinity(type: PgType, *, negative: bool = False) -> str:
    """Spark SQL of infinity or -infinity."""
    least, greatest = _LIMITS[type.name]
    return _SPARK[type.name].format(least if negative else greatest)


def spark_is_infinite(type: PgType, text: str) -> str:
    """Spark SQL of whether `text` is infinity or -infinity; NULL for NULL."""
    return f"{text} IN ({spark_infinity(type)}, {spark_infinity(type, negative=True)})"


def spark_converted(source: PgType, target: PgType, text: str) -> str:
    """Spark SQL of an infinite value as one of the type `target`."""
    if source.name == target.name:
        return text
    return f"IF({text} = {spark_infinity(source)}, {spark_infinity(target)}, {spark_infinity(target, negative=True)})"
