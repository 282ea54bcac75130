"""A session with psql: each step is a function, whose docstring is its title in docs/clients.md."""

import os
import subprocess

from steps import URL, run

PSQL = os.environ["PSQL"]


def psql(script, *arguments):
    done = subprocess.run([PSQL, "-X", *arguments, URL], input=script, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    assert "ERROR" not in done.stderr, done.stderr
    return done.stdout


def statements():
    """Statements, `\\gset`, `\\if`, `\\watch`, `\\gexec`"""
    output = psql(
        """CREATE TABLE ps (id int PRIMARY KEY, name text NOT NULL DEFAULT 'x');
        INSERT INTO ps VALUES (1), (2);
        SELECT count(*) AS n FROM ps \\gset
        \\echo found :n
        SELECT format('INSERT INTO ps VALUES (%s)', n) FROM generate_series(3, 4) AS g (n) \\gexec
        SELECT count(*) FROM ps \\watch c=2 i=0.01
        """,
        "-v",
        "ON_ERROR_STOP=1",
    )
    assert "found 2" in output
    assert output.count("4\n") >= 2


def describe():
    """`\\d`, `\\d+`, `\\dt`, `\\dv`, `\\di`, `\\df`, `\\dn`, `\\du`, `\\l`, `\\dp`, `\\ds`, `\\dT`"""
    for command in (
        "d",
        "d ps",
        "d+ ps",
        "dt+",
        "dv",
        "dm",
        "di",
        "df",
        "dn+",
        "du",
        "l",
        "dp",
        "ds",
        "dT",
        "dx",
    ):
        psql(f"\\{command}\n", "-v", "ON_ERROR_STOP=1")


def copy():
    """`\\copy` from and to files"""
    psql("\\copy ps (id, name) from pstdin with (format csv)\n10,ten\n11,eleven\n\\.\n")
    assert psql("\\copy (select id from ps where id > 9 order by id) to stdout\n") == "10\n11\n"


def transactions():
    """`--single-transaction`, `ON_ERROR_ROLLBACK`"""
    psql("INSERT INTO ps VALUES (20); INSERT INTO ps VALUES (21);", "--single-transaction")
    script = "\\set ON_ERROR_ROLLBACK on\nBEGIN;\nINSERT INTO ps VALUES (30);\nSELECT 1/0;\nCOMMIT;\n"
    subprocess.run([PSQL, "-X", URL], input=script, capture_output=True, text=True, timeout=180)
    assert psql("SELECT id FROM ps WHERE id >= 20 ORDER BY 1", "-At") == "20\n21\n30\n"


def cursors():
    """`FETCH_COUNT`"""
    assert psql("\\set FETCH_COUNT 2\nSELECT id FROM ps ORDER BY id;\n", "-At").split()[:3] == ["1", "2", "3"]


def notifications():
    """LISTEN"""
    assert 'notification "c" with payload "hi"' in psql("LISTEN c;\nNOTIFY c, 'hi';\n")


run(statements, describe, copy, transactions, cursors, notifications)
