"""A session with pg_dump and pg_restore: each step is a function, whose docstring is its title in docs/clients.md."""

import os
import re
import subprocess
import tempfile
from pathlib import Path

from steps import URL, run

PROGRAMS = Path(os.environ["PSQL"]).parent
SCHEMA = """
CREATE TYPE size AS ENUM ('small', 'large');
CREATE DOMAIN quantity AS integer CHECK (VALUE > 0);
CREATE TABLE products (id serial PRIMARY KEY, name text NOT NULL UNIQUE, size size DEFAULT 'small');
CREATE TABLE orders (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, product integer REFERENCES products, n quantity
);
CREATE INDEX ON orders (product);
CREATE VIEW named AS SELECT o.id, p.name FROM orders o JOIN products p ON p.id = o.product;
CREATE MATERIALIZED VIEW per_product AS SELECT product, count(*) AS orders FROM orders GROUP BY product;
COMMENT ON TABLE orders IS 'what was ordered';
INSERT INTO products (name, size) VALUES ('tea', 'small'), (E'two\\nlines', 'large');
INSERT INTO orders (product, n) VALUES (1, 2), (1, 1), (2, 7);
"""


def program(name, *arguments, given=None):
    done = subprocess.run([PROGRAMS / name, *arguments], input=given, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr.strip().splitlines()[-1]
    return done.stdout


def execute(url, sql):
    return program("psql", url, "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", given=sql)


def dump(url, *options):
    """The dump without the lines that differ from run to run."""
    return re.sub(r"^\\(un)?restrict .*\n", "", program("pg_dump", *options, url), flags=re.MULTILINE)


def copy(name):
    execute(URL, f"CREATE DATABASE {name}")
    return f"{URL.rpartition('/')[0]}/{name}"


def plain():
    """`pg_dump` and `psql`"""
    execute(URL, SCHEMA)
    restored = copy("dump_plain")
    execute(restored, dump(URL))
    assert dump(restored) == dump(URL)
    assert execute(restored, "SELECT orders FROM per_product ORDER BY 1") == "1\n2\n"


def archives():
    """`pg_dump -Fc`, `-Fd`, `pg_restore -j`"""
    with tempfile.TemporaryDirectory() as directory:
        for name, form in (("dump_custom", "-Fc"), ("dump_directory", "-Fd")):
            archive, restored = f"{directory}/{name}", copy(name)
            program("pg_dump", form, "-f", archive, URL)
            program("pg_restore", "-j", "2", "-d", restored, archive)
            assert execute(restored, "SELECT orders FROM per_product ORDER BY 1") == "1\n2\n"


def parts():
    """`--schema-only`, `--data-only`, `--inserts`, `-t`, `--clean --if-exists`"""
    restored = copy("dump_parts")
    execute(restored, dump(URL, "--schema-only"))
    execute(restored, dump(URL, "--data-only", "--inserts"))
    execute(restored, dump(URL, "--clean", "--if-exists"))
    assert execute(restored, "SELECT orders FROM per_product ORDER BY 1") == "1\n2\n"
    assert "CREATE TABLE public.orders" not in dump(URL, "-t", "products")


def roles():
    """`pg_dumpall -l materialize --globals-only`"""
    assert "CREATE ROLE materialize" in program("pg_dumpall", "-l", "materialize", "--globals-only", "-d", URL)


run(plain, archives, parts, roles)
