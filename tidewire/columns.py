"""Changes as Arrow tables, whose types are those of the server's columns.

pyarrow, pandas and polars are optional: each is imported by the function that needs it. This is the only module that
uses them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow


class ColumnType(NamedTuple):
    """The type of a column. `precision` and `scale` are those of a numeric column that declares them.

    `json_text`: the driver returns JSON as text instead of Python objects.
    """

    oid: int
    precision: int | None = None
    scale: int | None = None
    json_text: bool = False


def concatenate(tables: Sequence[pyarrow.Table]) -> pyarrow.Table:
    return _pyarrow().concat_tables(tables)


def changes_table(
    columns: Sequence[str],
    types: Sequence[ColumnType],
    time: int,
    rows: Sequence[tuple[Any, ...]],
    diffs: Sequence[int],
) -> pyarrow.Table:
    """Returns `mz_timestamp`, `mz_diff` and the columns of the rows. Without `types` Arrow infers them."""
    pa = _pyarrow()
    by_column: Sequence[Sequence[Any]] = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
    if types:
        arrays = [_array(pa, values, each) for values, each in zip(by_column, types, strict=True)]
    else:
        arrays = [pa.array(values) for values in by_column]
    return pa.table(
        [pa.repeat(pa.scalar(time, pa.int64()), len(rows)), pa.array(diffs, pa.int64()), *arrays],
        names=["mz_timestamp", "mz_diff", *columns],
    )


def to_pandas(table: pyarrow.Table) -> pandas.DataFrame:
    try:
        import pandas  # noqa: F401
    except ImportError as error:
        raise ImportError("to_pandas() needs pandas: pip install pandas") from error
    return table.to_pandas()


def to_polars(table: pyarrow.Table) -> polars.DataFrame:
    try:
        import polars
    except ImportError as error:
        raise ImportError("to_polars() needs polars: pip install polars") from error
    frame = polars.from_arrow(table)
    assert isinstance(frame, polars.DataFrame)  # a Series only for an array
    return frame


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError("Arrow tables need pyarrow: pip install pyarrow") from error
    return pyarrow


_NUMERIC = 1700
_JSON = (114, 3802)
# PostgreSQL's OIDs. All other types become strings.
_ARROW_TYPES: dict[int, Callable[[Any], Any]] = {
    16: lambda pa: pa.bool_(),
    17: lambda pa: pa.binary(),
    20: lambda pa: pa.int64(),
    21: lambda pa: pa.int16(),
    23: lambda pa: pa.int32(),
    26: lambda pa: pa.uint32(),
    700: lambda pa: pa.float32(),
    701: lambda pa: pa.float64(),
    1082: lambda pa: pa.date32(),
    1083: lambda pa: pa.time64("us"),
    1114: lambda pa: pa.timestamp("us"),
    1184: lambda pa: pa.timestamp("us", tz="UTC"),
    1186: lambda pa: pa.duration("us"),
}
# The OIDs of array types and of their elements.
_ELEMENTS = {
    199: 114,
    1000: 16,
    1001: 17,
    1005: 21,
    1007: 23,
    1009: 25,
    1014: 1042,
    1015: 1043,
    1016: 20,
    1021: 700,
    1022: 701,
    1028: 26,
    1115: 1114,
    1182: 1082,
    1183: 1083,
    1185: 1184,
    1187: 1186,
    1231: 1700,
    2951: 2950,
    3807: 3802,
}


def _array(pa: Any, values: Sequence[Any], of: ColumnType) -> Any:
    """The driver has decoded the values. Arrow converts a column of them at once, except to strings."""
    element = _ELEMENTS.get(of.oid)
    arrow_type, to_text = _type(pa, of if element is None else of._replace(oid=element))
    if element is not None:
        if to_text is not None:
            values = [None if array is None else _texts(array, to_text) for array in values]
        return pa.array(values, pa.list_(arrow_type))
    return pa.array(values if to_text is None else _texts(values, to_text), arrow_type)


def _type(pa: Any, of: ColumnType) -> tuple[Any, Callable[[Any], str] | None]:
    """Returns the Arrow type, and what makes text of a value that Arrow itself does not convert to that type."""
    if (make := _ARROW_TYPES.get(of.oid)) is not None:
        return make(pa), None
    if of.oid == _NUMERIC:
        precision, scale = of.precision, of.scale
        if precision is None or scale is None or not 0 <= scale <= precision <= 76:
            return pa.string(), lambda value: format(value, "f")
        return (pa.decimal128 if precision <= 38 else pa.decimal256)(precision, scale), None
    if of.oid in _JSON and not of.json_text:
        return pa.string(), lambda value: json.dumps(value, ensure_ascii=False)
    return pa.string(), str


def _texts(values: Sequence[Any], to_text: Callable[[Any], str]) -> list[str | None]:
    if to_text is str and all(value is None or type(value) is str for value in values):
        return list(values)
    return [None if value is None else to_text(value) for value in values]
