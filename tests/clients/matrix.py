"""The clients of the matrix, their sessions, and the table of the results in docs/clients.md."""

from __future__ import annotations

import json
import os
import subprocess
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.fix_postgres import binaries

ROOT = Path(__file__).parents[2]
SESSIONS = Path(__file__).parent / "sessions"
INSTALLED = ROOT / ".venv/clients"  # `make test-clients` fills it
PAGE = ROOT / "docs/clients.md"
BEGIN, END = "<!-- matrix: written by make test-clients -->", "<!-- end of matrix -->"
SESSION_S = 300

PYTHON = (str(INSTALLED / "python/bin/python"),)
DBT = (str(INSTALLED / "dbt/bin/python"),)
NODE = ("node",)
JAVA = ("java", "-cp", str(INSTALLED / "jdbc/*"))


@dataclass(frozen=True, slots=True)
class Client:
    """`command`: runs the session's file. `needs`: files without which the client is not installed."""

    name: str
    session: str
    command: Sequence[str] = PYTHON
    needs: Sequence[Path] = (INSTALLED / "python/bin/python",)

    @property
    def is_installed(self) -> bool:
        return all(path.exists() for path in self.needs)


RUST = INSTALLED / "rust/debug"
LIBRARIES = Path("/usr/lib") / f"{os.uname().machine}-linux-gnu"
ACTIVE_RECORD = (Path("/usr/lib/ruby/vendor_ruby/pg.rb"), Path("/usr/share/doc/ruby-activerecord"))
ODBC = (LIBRARIES / "odbc/psqlodbcw.so", LIBRARIES / "libodbc.so.2")
CLIENTS = (
    Client("psql", "psql_session.py"),
    Client("pgcli", "pgcli_session.py"),
    Client("pgbench", "pgbench_session.py"),
    Client("pg_dump, pg_restore", "pg_dump_session.py"),
    Client("psycopg 3", "psycopg3_session.py"),
    Client("psycopg 2", "psycopg2_session.py"),
    Client("asyncpg", "asyncpg_session.py"),
    Client("pg8000", "pg8000_session.py"),
    Client("SQLAlchemy 2", "sqlalchemy_session.py"),
    Client("Alembic", "alembic_session.py"),
    Client("Django", "django_session.py"),
    Client("pandas", "pandas_session.py"),
    Client("polars", "polars_session.py"),
    Client("ADBC", "adbc_session.py"),
    Client("ibis", "ibis_session.py"),
    Client("DuckDB's postgres extension", "duckdb_session.py", needs=(INSTALLED / "duckdb-extension",)),
    Client("node `pg`", "node_pg_session.mjs", NODE, (INSTALLED / "node/node_modules/pg",)),
    Client("postgres.js", "postgres_js_session.mjs", NODE, (INSTALLED / "node/node_modules/postgres",)),
    *(
        Client(name, f"{name.lower()}_session.mjs", NODE, (INSTALLED / "node/node_modules" / package,))
        for name, package in (("knex", "knex"), ("Sequelize", "sequelize"), ("TypeORM", "typeorm"))
    ),
    Client("Drizzle", "drizzle_session.mjs", NODE, (INSTALLED / "node/node_modules/drizzle-orm",)),
    Client("JDBC (pgjdbc)", "Jdbc.java", JAVA, (INSTALLED / "jdbc",)),
    Client("Hibernate ORM", "Hibernate.java", JAVA, (INSTALLED / "jdbc",)),
    Client("Flyway", "Flyway.java", JAVA, (INSTALLED / "jdbc",)),
    Client("Liquibase", "Liquibase.java", JAVA, (INSTALLED / "jdbc",)),
    Client("jOOQ", "Jooq.java", JAVA, (INSTALLED / "jdbc",)),
    Client("ActiveRecord", "active_record.rb", ("ruby",), ACTIVE_RECORD),
    *(
        Client(
            f"{name} (Go)",
            f"go/{program}/{program}_session.go",
            (str(INSTALLED / "go" / program),),
            (INSTALLED / "go" / program,),
        )
        for name, program in (("pgx", "pgx"), ("lib/pq", "libpq"), ("GORM", "gorm"))
    ),
    *(
        Client(f"{name} (Rust)", f"rust/src/bin/{program}.rs", (str(RUST / program),), (RUST / program,))
        for name, program in (("tokio-postgres", "tokio_postgres_session"), ("SQLx", "sqlx_session"))
    ),
    Client("ODBC (psqlodbc)", "odbc_session.py", needs=ODBC),
    Client("dbt-postgres", "dbt_session.py", DBT, (INSTALLED / "dbt/bin/dbt",)),
)


def run_session(client: Client, host: str, port: int, database: str) -> dict[str, str | None]:
    """Runs a session. Returns the error of each step, None if it works. AssertionError if the session itself fails."""
    environment = {
        **{name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")},
        "PSQL": str(binaries() / "psql"),
        "PGBENCH": str(binaries() / "pgbench"),
        "NODE_PACKAGES": str(INSTALLED / "node/package.json"),
    }
    done = subprocess.run(
        [*client.command, str(SESSIONS / client.session), host, str(port), database],
        capture_output=True,
        text=True,
        timeout=SESSION_S,
        env=environment,
    )
    print(done.stderr)
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"step"')]
    assert results, done.stdout + done.stderr
    return {result["step"]: result["error"] for result in results}


def known_failures() -> dict[str, dict[str, str]]:
    """The steps that do not work, by client, with the reason."""
    return tomllib.loads((Path(__file__).parent / "known_failures.toml").read_text())


def table(results: Mapping[str, Mapping[str, str | None]]) -> str:
    """The table of the documentation. `results`: the errors of each client's steps; none: it could not be installed."""
    known = known_failures()
    lines = ["| client | works | does not work |", "|---|---|---|"]
    for client in CLIENTS:
        steps = results.get(client.name, {})
        works = "; ".join(step for step, error in steps.items() if error is None)
        fails = "; ".join(f"{s} ({known.get(client.name, {}).get(s, e)})" for s, e in steps.items() if e is not None)
        lines.append(f"| {client.name} | {works or 'not tested: it could not be installed'} | {fails} |")
    return "\n".join(lines) + "\n"


def write_table(results: Mapping[str, Mapping[str, str | None]]) -> None:
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    assert rest
    PAGE.write_text(f"{before}{BEGIN}\n\n{table(results)}\n{END}{after}")
