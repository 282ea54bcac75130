"""The functions and operators that Tidewire supports: a table, with a module for each section of the manual's part 9.

`table` defines a row; `resolve` chooses among rows.
"""

from importlib import import_module

for _chapter in (
    *("arithmetic", "mathematics", "comparison", "strings", "binary_strings", "matching", "formatting"),
    *("arrays", "json", "intervals", "datetimes", "datetime_fields", "aggregates", "windows", "sets"),
    "networks",
    "sizes",
    "hashes",
    "type_input",
    "enums",
    "json_paths",
    "records",
):  # each adds its rows to the table
    import_module(f"{__name__}.{_chapter}")
