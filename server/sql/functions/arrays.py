"""Arrays (chapter 9.19)."""

from __future__ import annotations

from server.sql.functions.table import (
    FUNCTIONS,
    Nulls,
    row,
)

row(FUNCTIONS, "cardinality", "anyarray", "int4", "size({0})")
row(FUNCTIONS, "array_length", "anyarray int4", "int4", "IF({1} = 1, nullif(size({0}), 0), NULL)", nulls=Nulls.MAYBE)
