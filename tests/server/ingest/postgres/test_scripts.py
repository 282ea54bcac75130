"""testdrive scripts with a PostgreSQL: tests/scripts/postgres."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

SCRIPTS = Path(__file__).parents[3] / "scripts/postgres"


@pytest.mark.slow
@pytest.mark.parametrize("script", sorted(SCRIPTS.glob("*.td")), ids=lambda path: path.stem)
async def test_postgres_scripts(script: Path, dsn: str, logical: str) -> None:
    database = f"script_{script.stem}"
    async with await psycopg.AsyncConnection.connect(logical, autocommit=True) as connection:
        await connection.execute(f"CREATE DATABASE {database}".encode())
    url = urlsplit(logical)
    given = {"upstream": url._replace(path=f"/{database}").geturl(), "host": url.hostname, "port": url.port}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "testdrive", "--url", dsn, "--no-reset", "--default-timeout", "60s"),
        *(f"--var={name}={value}" for name, value in {**given, "database": database}.items()),
        script,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await process.communicate()
    assert process.returncode == 0, printed.decode()
