"""The functions and operators that Tidewire knows: a table, a module for each chapter of the manual's part 9.

`resolve` chooses among its rows; `table` tells what a row is.
"""

from importlib import import_module

for _chapter in (
    *("arithmetic", "mathematics", "comparison", "strings", "binary_strings", "matching", "formatting"),
    *("arrays", "json", "intervals", "datetimes", "datetime_fields", "aggregates", "windows", "sets"),
    "sizes",
):  # each adds its rows
    import_module(f"{__name__}.{_chapter}")
