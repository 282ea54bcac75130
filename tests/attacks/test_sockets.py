"""Sockets whose clients never send a startup message, and floods of messages that are dropped."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from tests.attacks.clients import watched
from tests.fix_server import ServerProcess, server_without_spark
from tests.server.frontend.raw_client import frame, query, raw_client

pytestmark = pytest.mark.attacks

SOCKETS = 300


def test_silent_sockets_are_closed_and_others_are_served(tmp_path: Path) -> None:
    """300 sockets send nothing. Each receives an error and is closed; meanwhile other clients are served."""
    server = ServerProcess(tmp_path)
    try:
        with psycopg.connect(server.dsn, autocommit=True) as connection, ExitStack() as stack:
            connection.execute("ALTER SYSTEM SET authentication_timeout = '2s'")
            silent = [stack.enter_context(raw_client(server.port)) for _ in range(SOCKETS)]
            assert connection.execute("SELECT 1").fetchone() == (1,)
            for client in silent:
                refusal = ("FATAL", "57014", "canceling authentication due to timeout")
                assert client.until_ready() == [("E", refusal)]
            with psycopg.connect(server.dsn) as another:
                assert another.execute("SELECT 1").fetchone() == (1,)
    finally:
        server.kill()


def test_clients_are_refused_while_descriptors_are_lacking(tmp_path: Path) -> None:
    """With more sockets than descriptors, clients are refused with an error. They are served as soon as there are
    free ones."""
    server = ServerProcess(tmp_path, prefix=("prlimit", "--nofile=512:512"))
    try:
        with ExitStack() as stack:
            clients = [stack.enter_context(raw_client(server.port)) for _ in range(400)]
            answers = [client.start("materialize", "materialize") for client in clients]
            refused = [answer[-1] for answer in answers if answer[-1][0] == "E"]
            assert refused
            assert set(refused) == {("E", ("FATAL", "53300", "sorry, too many clients already"))}
            assert len(refused) < len(answers)
        assert "out of file descriptors" in server.log_path.read_text()
        while True:  # until the server has closed its sockets
            with raw_client(server.port) as client:
                if client.start("materialize", "materialize")[-1][0] == "Z":
                    break
    finally:
        server.kill()


def test_dropped_messages_delay_no_other_session(tmp_path: Path) -> None:
    """Messages after an error are dropped until Sync, and CopyData without COPY always."""
    server = server_without_spark(tmp_path)
    try:
        with watched(server), raw_client(server.port) as client:
            client.start("materialize", "materialize")
            client.send(frame(b"P", b"\0SELEC\0\0\0") + frame(b"D", b"S\0") * 1_500_000)
            assert [code for code, _ in client.exchange(frame(b"S", b""))] == ["E", "Z"]
            client.send(frame(b"d", b"") * 1_500_000)
            assert [code for code, _ in client.exchange(query("SELECT 1"))] == ["T", "D", "C", "Z"]
    finally:
        assert server.stop() == 0
