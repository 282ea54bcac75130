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
    """The statements of one transaction: inserts into some tables, or one deletion, update, merge or duplication of
    rows, which may read another table, or statements of which some are rolled back to a savepoint."""
    name = draw.choice(sorted(tables))
    columns = tables[name]
    column, type = draw.choice(list(columns))
    other = draw.choice(sorted(tables))
    match draw.choice(("insert", "insert", "delete", "update", "copy", "subquery", "merge", "savepoint")):
        case "subquery":  # every table has an int
            found = f"(SELECT max(o.c0) FROM {other} o WHERE o.c0 <> {name}.c0)"
            return [
                draw.choice(
                    (
                        f"DELETE FROM {name} WHERE c0 IN (SELECT c0 FROM {other} GROUP BY c0 HAVING count(*) > 3)",
                        f"DELETE FROM {name} USING (SELECT max(c0) AS m FROM {other}) o WHERE {name}.c0 = o.m",
                        f"UPDATE {name} SET c0 = {found} WHERE c0 < 2",
                        f"UPDATE {name} SET c0 = o.n FROM (SELECT c0, count(*) AS n FROM {other} GROUP BY c0) o "
                        f"WHERE o.c0 = {name}.c0 AND o.n < 4",
                        f"WITH gone AS (DELETE FROM {name} WHERE c0 = 2 RETURNING *) "
                        f"INSERT INTO {name} SELECT * FROM gone WHERE c0 > (SELECT min(c0) FROM {other})",
                    )
                )
            ]
        case "merge":
            source = f"(SELECT c0, count(*) AS n FROM {other} GROUP BY c0)"
            return [
                f"MERGE INTO {name} t USING {source} o ON t.c0 = o.c0 WHEN MATCHED AND o.n > 2 THEN DELETE "
                f"WHEN MATCHED THEN UPDATE SET {column} = {value(draw, type)} "
                f"WHEN NOT MATCHED THEN INSERT (c0) VALUES (o.c0 - 1)"
            ]
        case "savepoint":
            some = insert(draw, name, columns, 2)
            undone = [f"DELETE FROM {name} WHERE c0 > 0", insert(draw, other, tables[other], 2)]
            return [some, "SAVEPOINT s", *undone, "ROLLBACK TO SAVEPOINT s", insert(draw, other, tables[other], 1)]
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
