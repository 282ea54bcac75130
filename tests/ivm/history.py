"""Random tables and random transactions over them, with NULLs, equal rows, deletions, updates and writes to several
tables."""

from __future__ import annotations

from random import Random

from tests.ivm.queries import LITERALS, SQL_TYPES, TYPES, Columns


def tables(draw: Random) -> dict[str, Columns]:
    """Two or three tables of two to four columns; each has an int."""
    made: dict[str, Columns] = {}
    for i in range(draw.randrange(2, 4)):
        types = ["int", *(draw.choice(TYPES) for _ in range(draw.randrange(1, 4)))]
        made[f"t{i}"] = [(f"c{n}", type) for n, type in enumerate(types)]
    return made


def definition(name: str, columns: Columns) -> str:
    return f"CREATE TABLE {name} ({', '.join(f'{c} {SQL_TYPES[type]}' for c, type in columns)})"


def value(draw: Random, type: str) -> str:
    if draw.random() < 0.15:
        return "NULL"
    return LITERALS[type][0] if draw.random() < 0.3 else draw.choice(LITERALS[type])  # the first literal is frequent


def insert(draw: Random, name: str, columns: Columns, rows: int) -> str:
    lines = ", ".join(f"({', '.join(value(draw, type) for _, type in columns)})" for _ in range(rows))
    return f"INSERT INTO {name} VALUES {lines}"


def transaction(draw: Random, tables: dict[str, Columns]) -> list[str]:
    """The statements of one transaction: inserts into some tables, or one deletion, update or duplication of rows."""
    name = draw.choice(sorted(tables))
    columns = tables[name]
    column, type = draw.choice(list(columns))
    match draw.choice(("insert", "insert", "delete", "update", "copy")):
        case "delete":
            return [f"DELETE FROM {name} WHERE {column} = {draw.choice(LITERALS[type])}"]
        case "update":
            where = f"{column} {draw.choice(('= ', '<> '))}{draw.choice(LITERALS[type])}"
            target, kind = draw.choice(list(columns))
            return [f"UPDATE {name} SET {target} = {value(draw, kind)} WHERE {where}"]
        case "copy":  # duplicates rows
            return [f"INSERT INTO {name} SELECT * FROM {name} WHERE {column} IS NOT NULL AND {_few(columns)}"]
        case _:
            chosen = draw.sample(sorted(tables), draw.randrange(1, len(tables) + 1))
            return [insert(draw, n, tables[n], draw.randrange(1, 4)) for n in chosen]


def _few(columns: Columns) -> str:
    """A condition that keeps tables small: only rows with a small int are duplicated."""
    return f"{columns[0][0]} = 1"
