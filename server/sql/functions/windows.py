"""Window functions (chapter 9.22)."""

from __future__ import annotations

from server.sql.functions.table import (
    FUNCTIONS,
    Kind,
    Nulls,
    row,
)


def _window(name: str, arguments: str, result: str, spark: str, nulls: Nulls = Nulls.MAYBE) -> None:
    row(FUNCTIONS, name, arguments, result, spark, Kind.WINDOW, nulls)


for _name in ("row_number", "rank", "dense_rank"):
    _window(_name, "", "int8", f"CAST({_name}(){{f}} AS BIGINT)", Nulls.NEVER)
for _name in ("percent_rank", "cume_dist"):
    _window(_name, "", "float8", f"{_name}(){{f}}", Nulls.NEVER)
_window("ntile", "int4", "int4", "ntile({0}){f}")
for _name in ("lag", "lead"):
    _window(_name, "anyelement", "anyelement", f"{_name}({{0}}){{f}}")
    _window(_name, "anyelement int4", "anyelement", f"{_name}({{0}}, {{1}}){{f}}")
    _window(_name, "anyelement int4 anyelement", "anyelement", f"{_name}({{0}}, {{1}}, {{2}}){{f}}")
for _name in ("first_value", "last_value"):
    _window(_name, "anyelement", "anyelement", f"{_name}({{0}}){{f}}")
