"""DO with a block of one definition, compared with PostgreSQL. Sequelize and Drizzle create types and keys this way."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.fix_postgres import own_schema
from tests.fix_server import ServerThread

_SCRIPT = r"""
DO 'BEGIN CREATE TYPE "enum_Users_role" AS ENUM(''admin'', ''user''); EXCEPTION WHEN duplicate_object THEN null; END';;
DO 'BEGIN CREATE TYPE "enum_Users_role" AS ENUM(''admin'', ''user''); EXCEPTION WHEN duplicate_object THEN null; END';;
DO $$ BEGIN CREATE TYPE mood AS ENUM ('ok'); END $$;;
DO $$ BEGIN CREATE TYPE mood AS ENUM ('ok'); END; $$ LANGUAGE plpgsql;;
DO $$ BEGIN CREATE TYPE mood AS ENUM ('ok'); EXCEPTION WHEN duplicate_table OR duplicate_column THEN NULL;
    WHEN others THEN NULL; END; $$;;
DO $$ BEGIN CREATE TYPE mood AS ENUM ('ok'); EXCEPTION WHEN nothing_such THEN NULL; END $$;;
DO $$ BEGIN CREATE TYPE mood AS ENUM ('ok'); EXCEPTION WHEN sqlstate '42710' THEN NULL; END $$;;
DO LANGUAGE plpgsql $$ BEGIN CREATE TYPE mood AS ENUM ('ok'); EXCEPTION WHEN duplicate_table THEN NULL; END $$;;
DO LANGUAGE plnothing $$ BEGIN CREATE TYPE mood AS ENUM ('ok'); END $$;;
DO $$ CREATE TYPE mood AS ENUM ('ok') $$;;
DO $$ BEGIN CREATE TYPE mood AS ENUM ('ok') EXCEPTION WHEN duplicate_object THEN NULL; END $$;;
CREATE TABLE p (id int PRIMARY KEY);;
CREATE TABLE f (id int, p int);;
DO $$ BEGIN
 ALTER TABLE "f" ADD CONSTRAINT "f_p_fk" FOREIGN KEY ("p") REFERENCES "p"("id") ON DELETE no action ON UPDATE no action;
EXCEPTION
 WHEN duplicate_object THEN null;
END $$;;
DO $$ BEGIN
 ALTER TABLE "f" ADD CONSTRAINT "f_p_fk" FOREIGN KEY ("p") REFERENCES "p"("id") ON DELETE no action ON UPDATE no action;
EXCEPTION
 WHEN duplicate_object THEN null;
END $$;;
SELECT conname, contype::text FROM pg_constraint WHERE conrelid = 'f'::regclass;;
BEGIN;;
INSERT INTO p VALUES (1);;
SAVEPOINT s;;
DO $$ BEGIN CREATE TYPE mood AS ENUM ('ok'); EXCEPTION WHEN duplicate_object THEN NULL; END $$;;
INSERT INTO p VALUES (2);;
DO $$ BEGIN ALTER TABLE p ADD COLUMN x int, ADD COLUMN id int; EXCEPTION WHEN duplicate_column THEN NULL; END $$;;
DO $$ BEGIN ALTER TABLE p ADD COLUMN y int; EXCEPTION WHEN duplicate_column THEN NULL; END $$;;
COMMIT;;
SELECT * FROM p ORDER BY id;;
BEGIN;;
DO $$ BEGIN CREATE TABLE p (id int); EXCEPTION WHEN duplicate_object THEN NULL; END $$;;
SELECT 1;;
ROLLBACK;;
BEGIN READ ONLY;;
DO $$ BEGIN CREATE TABLE q (id int); EXCEPTION WHEN duplicate_table THEN NULL; END $$;;
ROLLBACK;;
CREATE TABLE q (id int); DO $$ BEGIN CREATE TABLE q (id int); EXCEPTION WHEN duplicate_table THEN NULL; END $$;;
SELECT count(*) FROM pg_class WHERE relname = 'q'
"""
_REFUSED = (
    "DO $$ DECLARE n int; BEGIN CREATE TABLE q (id int); END $$",
    "DO $$ BEGIN CREATE TABLE q (id int); CREATE TABLE r (id int); END $$",
    "DO $$ BEGIN CREATE TABLE q (id int); EXCEPTION WHEN duplicate_table THEN DROP TABLE q; END $$",
    "DO $$ BEGIN INSERT INTO q VALUES (1); END $$",
)


def _answer(connection: psycopg.Connection[Any], statement: str) -> Any:
    try:
        cursor = connection.execute(statement.encode())
        return cursor.statusmessage, cursor.fetchall() if cursor.description else None
    except psycopg.Error as error:
        return error.sqlstate, error.diag.message_primary


def test_blocks_of_one_definition(passing_server: ServerThread, postgres: str) -> None:
    with own_schema(postgres, "do_blocks") as theirs, psycopg.connect(passing_server.dsn(), autocommit=True) as ours:
        for statement in _SCRIPT.split(";;\n"):
            assert (statement, _answer(ours, statement)) == (statement, _answer(theirs, statement))


def test_other_blocks_are_refused(passing_server: ServerThread) -> None:
    with psycopg.connect(passing_server.dsn(), autocommit=True) as ours:
        for statement in _REFUSED:
            with pytest.raises(psycopg.errors.FeatureNotSupported) as refused:
                ours.execute(statement.encode())
            assert refused.value.diag.message_hint, statement


def test_an_error_in_a_block_has_no_position(passing_server: ServerThread) -> None:
    """The position would be one in the block, not in the text of the client."""
    with psycopg.connect(passing_server.dsn(), autocommit=True) as ours:
        for block in ("CREATE VIEW v AS SELECT a FROM missing;", "CREATE VIEW v AS SELEC a;"):
            with pytest.raises(psycopg.Error) as refused:
                ours.execute(f"DO $$ BEGIN {block} END $$".encode())
            assert refused.value.diag.statement_position is None
