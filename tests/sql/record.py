"""Records PostgreSQL's answers to the suite: `python -m tests.sql.record [CHAPTER ...]`, by default to all chapters.

It starts a PostgreSQL 16 of its own. Read the changes before you commit them.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import psycopg

from tests.fix_postgres import PostgresServer
from tests.sql import answers
from tests.sql.answers import Answer
from tests.sql.differences import known
from tests.sql.oracle import Oracle
from tests.sql.sessions import Step, play, session_chapters, write
from tests.sql.statements import TABLES, Statement, chapters, statements

FIRST_NORMAL_OID = 16384  # lower OIDs are PostgreSQL's own, which are the same on every server
ROWS_MAX = 200  # of one statement, so that the files remain readable


def stable(oracle: Oracle, statement: Statement) -> Answer:
    """PostgreSQL's answer without the parts that differ between runs: the OIDs of the tables, and the rows of
    statements that Tidewire refuses anyway (random(), TABLESAMPLE, ...)."""
    answer = oracle.answer(statement)
    if answer.sqlstate is not None:
        return answer
    difference = known(statement)
    answer = without_oids(answer)
    return replace(answer, rows=()) if difference is not None and difference.kind == "refused" else answer


def without_oids(answer: Answer) -> Answer:
    """An answer in which the OIDs of user-defined types are 0: they differ between servers."""
    columns = tuple(replace(column, oid=0) if column.oid >= FIRST_NORMAL_OID else column for column in answer.columns)
    return replace(answer, columns=columns)


def record(oracle: Oracle, chapter: str) -> int:
    """Writes a chapter's answers. Returns their number."""
    answered = [(statement, stable(oracle, statement)) for statement in statements(chapter)]
    for statement, answer in answered:
        assert len(answer.rows) <= ROWS_MAX, f"{chapter} has one of {len(answer.rows)} rows: {statement.sql}"
    answers.write(chapter, answered)
    return len(answered)


def recorded_session(dsn: str, chapter: str) -> list[Step]:
    """PostgreSQL's answers to the statements of a session, in a database of its own."""
    with psycopg.connect(dsn, autocommit=True) as maker:
        maker.execute("DROP DATABASE IF EXISTS session")
        maker.execute("CREATE DATABASE session")
        with psycopg.connect(dsn, dbname="session", autocommit=True) as connection:
            steps = play(connection, chapter)
        maker.execute("DROP DATABASE session")
    return steps


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.sql.record", description=__doc__)
    parser.add_argument("chapters", nargs="*", metavar="CHAPTER", help=", ".join([*chapters(), *session_chapters()]))
    given = parser.parse_args().chapters
    sessions = [name for name in session_chapters() if not given or name in given]
    names = [name for name in given or [TABLES, *chapters()] if name not in sessions]
    server = PostgresServer()
    try:
        with Oracle(server.dsn) as oracle:
            for name in names:
                print(f"{name}: {record(oracle, name)} statements")
        for name in sessions:
            steps = recorded_session(server.dsn, name)
            write(name, steps)
            print(f"{name}: {len(steps)} steps")
    finally:
        server.stop()


if __name__ == "__main__":
    main()
