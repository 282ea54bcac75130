"""The Spark types of PostgreSQL's types."""

from __future__ import annotations

from protocol.pgwire.types import PgType

_SPARK_TYPES: dict[str, str] = {
    "bool": "BOOLEAN", "int2": "SMALLINT", "int4": "INT", "int8": "BIGINT", "float4": "FLOAT", "float8": "DOUBLE",
    "text": "STRING", "varchar": "STRING", "bpchar": "STRING", "json": "STRING", "jsonb": "STRING", "uuid": "STRING",
    "bytea": "BINARY", "date": "DATE", "time": "TIME(6)", "timestamp": "TIMESTAMP_NTZ", "timestamptz": "TIMESTAMP_LTZ",
    "interval": "STRUCT<months: INT, days: INT, us: BIGINT>", "unknown": "STRING", "record": "STRING",
}  # fmt: skip


def spark_type(type: PgType, digits: int = 0) -> str:
    """The Spark type of a PgType. `digits`: the precision of a numeric; 0: that of the type, or 38."""
    if type.element is not None:
        return f"ARRAY<{spark_type(type.item)}>"
    if type.fields is not None:
        fields = (f"f{number}: {spark_type(field)}" for number, (_, field) in enumerate(type.fields))
        return f"STRUCT<{', '.join(fields)}>"
    if type.name == "numeric":
        return f"DECIMAL({digits or type.precision or 38},{type.scale})"
    return _SPARK_TYPES[type.representation]
