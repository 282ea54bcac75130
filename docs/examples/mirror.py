"""Maintains a copy of a relation in an SQLite file. The copy stays correct if the server or this program crashes.

    python docs/examples/mirror.py DSN RELATION HOLD FILE

The updates that a progress message p closes are written in one transaction with p. Then the hold is advanced to p - 1,
which is the time at which the next start resumes. The hold must exist before the first start.
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
            elif progress > began:  # the first progress precedes the snapshot, so it is not a time to resume at
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
