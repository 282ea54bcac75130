"""Keeps a copy of a relation in an SQLite file, through any crash of the server or of itself.

    python docs/examples/mirror.py DSN RELATION HOLD FILE

The changes before a progress p and p itself go to the file in one transaction; then the hold moves to p - 1, where the
next start resumes. The hold has to exist before the first start.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import sys
import time

import psycopg


def main(dsn: str, relation: str, hold: str, file: str) -> None:
    store = sqlite3.connect(file)
    store.execute("CREATE TABLE IF NOT EXISTS copy (row TEXT PRIMARY KEY, count INTEGER)")
    store.execute("CREATE TABLE IF NOT EXISTS token (progress INTEGER)")
    while True:
        try:
            follow(dsn, relation, hold, store)
        except psycopg.OperationalError as error:
            print("again:", error, file=sys.stderr)
            time.sleep(0.2)


def follow(dsn: str, relation: str, hold: str, store: sqlite3.Connection) -> None:
    token = store.execute("SELECT progress FROM token").fetchone()
    options = f"WITH (PROGRESS, SNAPSHOT false) AS OF {token[0] - 1}" if token else "WITH (PROGRESS)"
    with psycopg.connect(dsn, autocommit=True) as reader, psycopg.connect(dsn, autocommit=True) as keeper:
        began, waiting = 0, []
        for moment, progressed, diff, *row in reader.cursor().stream(f"SUBSCRIBE {relation} {options}"):
            progress = int(moment)
            began = began or progress
            if not progressed:
                waiting.append((json.dumps(row, default=str), diff))
            elif progress > began:  # the first progress stands before the snapshot: it is no point to resume at
                with store:
                    store.executemany(
                        "INSERT INTO copy VALUES (?, ?) ON CONFLICT DO UPDATE SET count = count + excluded.count",
                        waiting,
                    )
                    store.execute("DELETE FROM copy WHERE count = 0")
                    store.execute("DELETE FROM token")
                    store.execute("INSERT INTO token VALUES (?)", (progress,))
                waiting.clear()
                keeper.execute(f"ALTER HOLD {hold} ADVANCE TO {progress - 1}")


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(*sys.argv[1:])
