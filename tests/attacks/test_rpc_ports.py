"""Every port that the engine's JVM opens refuses a client that does not know its secret.

Source of the frames: Spark's org.apache.spark.network.protocol (`RpcRequest` and others) and
org.apache.spark.rpc.netty.RequestMessage; py4j's protocol.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import struct
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from server.spark import EngineUnavailable
from server.spark.engine import SparkEngine
from tests.fix_spark import MASTER

pytestmark = pytest.mark.attacks

RPC_REQUEST, ONE_WAY, CHUNK_FETCH, STREAM_REQUEST = 3, 9, 0, 6
ANSWERS = {1: "a chunk", 4: "an answer to an RPC", 7: "a stream"}  # the types of frames that indicate success
ANSWER_S = 20.0
SILENCE_S = 2.0  # the server answers most attacks with nothing
JAVA_TEXT = bytes.fromhex("aced0005740003") + b"abc"  # the string "abc", serialized by Java


@pytest.fixture(scope="module", params=["local[*]", MASTER])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkEngine]:
    engine = SparkEngine(directory=tmp_path_factory.mktemp("spark"), master=request.param, memory_mb=768, sessions=1)
    try:
        asyncio.run(engine.start())
        yield engine
    except EngineUnavailable as error:
        pytest.fail(str(error))
    finally:
        asyncio.run(engine.close())


def processes(pid: int) -> list[int]:
    """The process and its descendants."""
    found = [pid]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").iterdir():
            with contextlib.suppress(FileNotFoundError):  # the thread has ended
                found += [int(child) for child in (task / "children").read_text().split()]
    return found


def listening(pid: int) -> set[int]:
    """The TCP ports on which a process listens."""
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(entry)
        except OSError:  # the descriptor was closed meanwhile
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in inodes:
                ports.add(int(words[1].rpartition(":")[2], 16))
    return ports


def ports(engine: SparkEngine) -> list[int]:
    assert engine.jvm_pid is not None
    return sorted(port for pid in processes(engine.jvm_pid) for port in listening(pid))


def text(value: str) -> bytes:
    """As Java's DataOutput.writeUTF."""
    encoded = value.encode()
    return struct.pack("!H", len(encoded)) + encoded


def frame(kind: int, body: bytes) -> bytes:
    return struct.pack("!qb", 9 + len(body), kind) + body


def message(port: int) -> bytes:
    """The content of an RPC: its sender (none), the endpoint that it addresses, and a Java object."""
    return b"\0\1" + text("127.0.0.1") + struct.pack("!i", port) + text("endpoint-verifier") + JAVA_TEXT


def attacks(port: int) -> dict[str, bytes]:
    content = message(port)
    length = struct.pack("!i", len(content))
    return {
        "request": frame(RPC_REQUEST, struct.pack("!q", 77) + length + content),
        "one way": frame(ONE_WAY, length + content),
        "chunk": frame(CHUNK_FETCH, struct.pack("!qi", 0, 0)),
        "stream": frame(STREAM_REQUEST, struct.pack("!i", 14) + b"/classes/a.txt"),
    }


def exchange(port: int, data: bytes, wait_s: float = ANSWER_S) -> bytes:
    """What the other side sends until it closes the connection, or its first answer.

    The payload ends with a line feed, because the gateway reads lines.
    """
    with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S) as client:
        client.sendall(data + b"\n")
        came = b""
        deadline = time.monotonic() + wait_s
        while select.select([client], [], [], max(0.0, deadline - time.monotonic()))[0]:
            try:
                piece = client.recv(1 << 16)
            except ConnectionError:
                break
            came += piece
            if not piece or (len(came) >= 9 and len(came) >= struct.unpack_from("!q", came)[0]):
                break
        return came


def test_spark_answers_no_frame_of_a_client_without_the_secret(engine: SparkEngine) -> None:
    refusals = 0
    for port in ports(engine):
        answer = exchange(port, attacks(port)["request"])
        if answer.startswith((b"HTTP/1.1 400", b"!z")):  # the web pages of a local cluster; the gateway is tested below
            continue
        assert len(answer) > 8, f"port {port} did not answer"
        assert answer[8] not in ANSWERS, f"port {port} sent {ANSWERS[answer[8]]}: {answer[:300]!r}"
        assert b"Unknown challenge message" in answer
        refusals += 1
    assert refusals >= 2, "the driver's port and the block manager's"


def test_spark_sends_nothing_to_a_client_without_the_secret(engine: SparkEngine) -> None:
    tried = [(port, data) for port in ports(engine) for kind, data in attacks(port).items() if kind != "request"]
    with ThreadPoolExecutor(len(tried)) as attackers:
        answers = list(attackers.map(lambda attack: exchange(*attack, SILENCE_S), tried))
    for (port, _), answer in zip(tried, answers, strict=True):
        if not answer.startswith(b"HTTP/1.1 400") and len(answer) > 8:
            assert answer[8] not in ANSWERS, f"port {port} sent {ANSWERS[answer[8]]}: {answer[:300]!r}"


def test_the_gateway_runs_no_command_without_the_token(engine: SparkEngine) -> None:
    refused = 0
    for port in ports(engine):
        with socket.create_connection(("127.0.0.1", port), timeout=1) as client:
            client.sendall(b"r\nu\njava.lang.System\nrj\ne\n")
            try:
                answer = client.recv(4096)
            except TimeoutError:  # Spark's own ports wait for the rest of a frame
                continue
            assert not answer.startswith(b"!y"), answer
            refused += answer.startswith(b"!x") or not answer
    assert refused


def test_no_secret_is_in_an_argument_list(engine: SparkEngine) -> None:
    assert engine.jvm_pid is not None
    found = processes(engine.jvm_pid)
    environment = Path(f"/proc/{found[-1]}/environ").read_bytes()
    secrets = [line.partition(b"=")[2] for line in environment.split(b"\0") if line.startswith(b"_SPARK_AUTH_SECRET=")]
    for pid in found:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes()
        assert b"spark.authenticate.secret" not in arguments
        assert all(secret not in arguments for secret in secrets)
        assert Path(f"/proc/{pid}/environ").stat().st_mode & 0o077 == 0
