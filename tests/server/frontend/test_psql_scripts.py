"""Scripts that psql executes: on Tidewire they print what they print on PostgreSQL, also on stderr.

A script begins with psql's options, if it needs some. `pg_catalog/test_pg_catalog.py` tests describing commands.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.fix_postgres import binaries, own_schema

SCHEMA = """
    CREATE TABLE t (
        id int PRIMARY KEY, name text NOT NULL DEFAULT 'x', n numeric(8,2), at timestamptz,
        CONSTRAINT gain CHECK (n > 0)
    );
    INSERT INTO t VALUES (1, 'a', 1.5, '2024-01-01 00:00+00'), (2, 'b,"c', NULL, NULL);
    CREATE VIEW v AS SELECT id, name FROM t;
"""
SCRIPTS = {
    "gdesc": r"""
        SELECT id, n, at, id::bigint AS big FROM t \gdesc
        SELECT \gdesc
        INSERT INTO t (id) VALUES (7) \gdesc
        INSERT INTO t (id) VALUES (7) RETURNING id, at \gdesc
        SELECT nope FROM t \gdesc
    """,
    "crosstabview": r"""
        SELECT * FROM (VALUES ('a', 'x', 1), ('a', 'y', 2), ('b', 'x', 3)) v (r, c, n) \crosstabview
        SELECT id, name, n FROM t ORDER BY id \crosstabview name id n
        SELECT * FROM (VALUES ('a', 'x', 1), ('a', 'x', 2)) v (r, c, n) \crosstabview
    """,
    "copy out": r"""
        \copy t to stdout csv header
        \copy (select id, name from t order by id) to stdout with (format csv, header, force_quote *)
        \copy (select id, name from t order by id) to program 'cat > /dev/null'
        \copy t (name, id) to stdout delimiter '|' null 'NULL'
        \copy nope to stdout
        COPY (SELECT 1 AS a, 'x' AS b) TO STDOUT WITH (FORMAT csv, HEADER);
    """,
    "copy in": r"""
        \copy t (id, name) from pstdin csv header
id,name
7,seven
8,"eight, quoted"
\.
        \copy t (id, name) from program 'echo 9,nine' csv
        \copy t (id, name) from '/nonexistent/file'
        \copy nope from pstdin
        \copy t (id, nope) from pstdin
        \copy t (id) from pstdin
bad
\.
        COPY t (id, n) FROM STDIN;
10	1.25
11	\N
\.
        SELECT id, name, n FROM t ORDER BY id;
    """,
    "bind": r"""
        SELECT $1::int + $2 AS s, $3 AS t \bind 1 2 three \g
        SELECT id FROM t WHERE name = $1 \bind a \g
        SELECT 1 \bind 1 \g
    """,
    "variables": r"""
        SELECT count(*) AS n, NULL AS nothing FROM t \gset c_
        \echo :c_n :c_nothing
        SELECT :c_n + 1 AS next, :'c_n' AS quoted, :"c_n" FROM (SELECT 1) AS one ("2");
        SELECT generate_series(1, 2) \gset
        SELECT id FROM t WHERE false \gset
        \set name 'it''s'
        SELECT :'name';
        SELECT true AS yes \gset
        \if :yes
        \echo yes
        \elif :c_n
        \echo never
        \else
        \echo no
        \endif
    """,
    "gexec": r"""
        SELECT format('INSERT INTO t (id) VALUES (%s)', n) FROM generate_series(3, 4) AS g (n) \gexec
        SELECT format('SELECT %L AS %I', name, 'col ' || id) FROM t WHERE id < 3 ORDER BY id \gexec
        SELECT 'SELECT nope' UNION ALL SELECT 'SELECT 1' ORDER BY 1 DESC \gexec
        SELECT count(*) FROM t \watch c=2 i=0.01
    """,
    "several statements": r"""
        SELECT 1\; SELECT 2\; SELECT 1/0;
        \echo :ERROR :SQLSTATE :LAST_ERROR_MESSAGE
        INSERT INTO t (id) VALUES (5), (6)\; SELECT count(*) FROM t;
        UPDATE t SET n = 1 WHERE id > 4;
        \echo :ROW_COUNT :ERROR :SQLSTATE
        \echo :SERVER_VERSION_NUM :ENCODING
    """,
    "errors": r"""
        \set VERBOSITY verbose
        \set SHOW_CONTEXT never
        SELECT nope FROM t;
        SELECT * FROM nope;
        INSERT INTO t (id) VALUES (1);
        INSERT INTO t VALUES (NULL);
        INSERT INTO t (id, n) VALUES (8, -1);
        INSERT INTO t (id, n) SELECT id + 10, -n FROM t;
        UPDATE t SET name = NULL;
        \set VERBOSITY sqlstate
        SELECT 1/0;
        SELECT 'x'::int;
        \set VERBOSITY terse
        SELECT id FORM t;
        SELECT lower(id) FROM t;
        \errverbose
    """,
    "ON_ERROR_ROLLBACK": r"""
        \set ON_ERROR_ROLLBACK on
        BEGIN;
        INSERT INTO t (id) VALUES (30);
        SELECT 1/0;
        SELECT nope;
        INSERT INTO t (id) VALUES (1);
        INSERT INTO t (id) VALUES (31);
        COMMIT;
        SELECT id FROM t ORDER BY id;
    """,
    "ON_ERROR_STOP": r"""-v ON_ERROR_STOP=1
        SELECT 1/0;
        SELECT 2;
    """,
    "AUTOCOMMIT": r"""
        \set AUTOCOMMIT off
        INSERT INTO t (id) VALUES (40);
        SELECT count(*) FROM t;
        ROLLBACK;
        SELECT count(*) FROM t;
        SELECT nope;
        SELECT 1;
        COMMIT;
    """,
    "FETCH_COUNT": r"""-A
        \set FETCH_COUNT 2
        SELECT n FROM generate_series(1, 5) AS g (n) ORDER BY n;
        TABLE v ORDER BY id;
        SELECT 1 WHERE false;
        SELECT nope;
        BEGIN;
        SELECT 1 AS a UNION ALL SELECT 2 ORDER BY a;
        COMMIT;
    """,
    "single transaction": r"""--single-transaction
        INSERT INTO t (id) VALUES (50);
        INSERT INTO t (id) VALUES (1);
        INSERT INTO t (id) VALUES (51);
    """,
    "single transaction that stops": r"""-1 -v ON_ERROR_STOP=1
        INSERT INTO t (id) VALUES (50);
        INSERT INTO t (id) VALUES (1);
        INSERT INTO t (id) VALUES (51);
    """,
    "single step of quiet output": r"""-q -A -t -F ; -P null=NULL
        SELECT id, name, n FROM t ORDER BY id;
        INSERT INTO t (id) VALUES (60);
    """,
    "csv": r"""--csv
        SELECT * FROM t ORDER BY id;
    """,
    "html": r"""-H
        SELECT * FROM t ORDER BY id;
    """,
    "expanded": r"""-x
        SELECT * FROM t ORDER BY id;
        \pset format wrapped
        SELECT id, repeat(name, 2) AS twice FROM t ORDER BY id \gx
    """,
    "client encodings": r"""
        \encoding
        \encoding nope
        \encoding utf8
        SELECT 'é' AS accented, length('日本');
    """,
    "prepared statements and cursors": r"""
        PREPARE p (int) AS SELECT name FROM t WHERE id = $1;
        EXECUTE p (1);
        DEALLOCATE p;
        EXECUTE p (1);
        BEGIN;
        DECLARE c SCROLL CURSOR FOR SELECT id FROM t ORDER BY id;
        FETCH 1 FROM c;
        FETCH LAST FROM c;
        CLOSE c;
        END;
    """,
    "notifications": r"""-q
        LISTEN channel;
        NOTIFY other, 'not';
        UNLISTEN *;
    """,
}


def printed(dsn: str, script: str) -> tuple[str, str, int]:
    """What psql writes to stdout and stderr, and its exit status."""
    options, _, text = script.partition("\n")
    lines = "\n".join(line.strip() if line.startswith("        ") else line for line in text.splitlines())
    done = subprocess.run(
        [binaries() / "psql", "-X", *options.split(), dsn],
        input=lines + "\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PGCLIENTENCODING": "UTF8", "PAGER": ""},
    )
    output = re.sub(r"^.* \(every .*\)$", "", done.stdout, flags=re.MULTILINE)  # the times of \watch
    return output, shared(done.stderr), done.returncode


def shared(errors: str) -> str:
    """Errors without lines of PostgreSQL's source, the schema, which has another name there, and positions in COPY."""
    errors = re.sub(r"^LINE 1: COPY .*\n +\^\n", "", errors, flags=re.MULTILINE)
    return re.sub(r"^(LOCATION|SCHEMA NAME): .*\n", "", errors, flags=re.MULTILINE)


@pytest.fixture
def oracle(postgres: str) -> Iterator[str]:
    with own_schema(postgres, "scripts"):
        yield f"{postgres}?options=-csearch_path%3Dscripts"


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_print_what_they_print_on_postgresql(dsn: str, oracle: str, name: str) -> None:
    for server in (dsn, oracle):
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(SCHEMA.encode())
    for ours, theirs in zip(printed(dsn, SCRIPTS[name]), printed(oracle, SCRIPTS[name]), strict=True):
        assert ours == theirs


def test_copy_to_and_from_files(dsn: str, tmp_path: Path) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(SCHEMA.encode())
    file = tmp_path / "rows.csv"
    script = f"""-q -A -t
        \\copy t to '{file}' csv header
        TRUNCATE t;
        \\copy t from '{file}' with (format csv, header match)
        SELECT count(*), max(name) FROM t;
    """
    assert printed(dsn, script) == ('2|b,"c\n', "", 0)
    assert file.read_text().splitlines()[0] == "id,name,n,at"


def test_large_objects_are_refused(dsn: str, tmp_path: Path) -> None:
    file = tmp_path / "object"
    file.write_text("content")
    script = f"-A -t\n\\lo_import {file}\n\\lo_unlink 1\n\\lo_export 1 {file}\n\\lo_list\nSELECT 'continues';\n"
    assert printed(dsn, script) == ("continues\n", "cannot determine OID of function lo_open\n" * 3, 0)
    assert file.read_text() == "content"
