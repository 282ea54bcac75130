"""Each client's session works, except for the steps in known_failures.toml.

TIDEWIRE_REWRITE=1 writes the table of the results to docs/clients.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.clients.matrix import CLIENTS, Client, known_failures, run_session, write_table
from tests.fix_server import ServerProcess

pytestmark = pytest.mark.clients

Results = dict[str, dict[str, str | None]]


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path_factory.mktemp("data"))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def results() -> Iterator[Results]:
    """The results of the sessions that have run."""
    results: Results = {}
    yield results
    if os.environ.get("TIDEWIRE_REWRITE"):
        write_table(results)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: Path(client.session).stem)
def test_a_session_works(client: Client, own_server: ServerProcess, results: Results) -> None:
    if not client.is_installed:
        pytest.skip(f"{client.name} could not be installed")
    database = Path(client.session).stem.lower()
    with psycopg.connect(own_server.dsn, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {database}".encode())
    errors = results[client.name] = run_session(client, "127.0.0.1", own_server.port, database)
    failed = {step: error for step, error in errors.items() if error is not None}
    known = known_failures().get(client.name, {})
    new = {step: error for step, error in failed.items() if step not in known}
    assert not new, "\n".join(f"{step}: {error}" for step, error in new.items())
    assert not known.keys() - failed.keys(), f"remove from known_failures.toml: {known.keys() - failed.keys()}"
