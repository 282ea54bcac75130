"""Errors from a Spark Connect server that cannot be used. A mock serves Spark Connect's gRPC service."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest

from protocol.pgwire.errors import PgError, SqlState
from server.spark import EngineUnavailable
from server.spark import engine as module
from server.spark.connect.messages import base_pb2, base_pb2_grpc
from server.spark.connect.path import ConnectPath, ConnectService
from server.spark.connect.url import ConnectUrl
from server.spark.engine import SparkEngine
from server.spark.errors import Failure
from tests.polling import HANG_S

OURS = version("pyspark")


@contextmanager
def played(**methods: Any) -> Iterator[str]:
    """Serves these methods as a Spark Connect server. Yields its URL."""
    service = type(
        "Played", (base_pb2_grpc.SparkConnectServiceServicer,), {n: staticmethod(f) for n, f in methods.items()}
    )
    with ThreadPoolExecutor(4) as threads:
        server = grpc.server(threads)
        base_pb2_grpc.add_SparkConnectServiceServicer_to_server(service(), server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield f"sc://127.0.0.1:{port}"
        finally:
            server.stop(None).wait()


def spark_version(text: str) -> Any:
    response = base_pb2.AnalyzePlanResponse
    return lambda request, context: response(spark_version=response.SparkVersion(version=text))


def configured(request: Any, context: grpc.ServicerContext) -> Any:
    return base_pb2.ConfigResponse()


async def refusal(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EngineUnavailable:
    """Returns the error with which an engine on this server fails to start. Statements get its message as DETAIL."""
    monkeypatch.setattr(module, "START_TRIES", 1)
    engine = SparkEngine(directory=tmp_path, remote=url)
    with pytest.raises(EngineUnavailable) as unavailable:
        await engine.start()
    with pytest.raises(PgError) as refused:
        await engine.run("SELECT 1", {})
    assert (refused.value.sqlstate, refused.value.detail) == (SqlState.CANNOT_CONNECT_NOW, unavailable.value.message)
    await engine.close()
    return unavailable.value


async def test_another_spark_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with played(AnalyzePlan=spark_version("3.5.1")) as url:
        error = await refusal(url, tmp_path, monkeypatch)
    assert error.message == f"the Spark Connect server at {url} is Spark 3.5.1, and this Tidewire needs {OURS}"
    assert error.hint == f"Run a Connect server of Spark {OURS}."


async def test_a_server_without_spark_connect_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with played() as url:
        error = await refusal(url, tmp_path, monkeypatch)
    assert error.message.startswith(f"the Spark Connect server at {url} cannot be reached: UNIMPLEMENTED")


async def test_a_port_without_a_server_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with played() as url:
        pass
    error = await refusal(url, tmp_path, monkeypatch)
    assert error.message.startswith(f"the Spark Connect server at {url} cannot be reached: UNAVAILABLE")


async def test_a_missing_package_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    monkeypatch.delitem(sys.modules, "server.spark.connect.messages")
    error = await refusal("sc://127.0.0.1", tmp_path, monkeypatch)
    assert "Spark Connect needs a package that is not installed" in error.message
    assert error.hint == "run: pip install 'tidewire[connect]'"


@pytest.mark.parametrize(
    ("status", "details", "sqlstate"),
    [
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "message larger than max", SqlState.PROGRAM_LIMIT_EXCEEDED),
        (grpc.StatusCode.UNKNOWN, "Java heap space", SqlState.OUT_OF_MEMORY),
    ],
)
async def test_errors_that_are_only_a_grpc_status(
    tmp_path: Path, status: grpc.StatusCode, details: str, sqlstate: SqlState
) -> None:
    """The error concerns the statement, so the statement fails and is not run again."""
    runs = []

    def execute(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        runs.append(request.plan.root.sql.query)
        context.abort(status, details)
        yield base_pb2.ExecutePlanResponse()

    with played(AnalyzePlan=spark_version(OURS), Config=configured, ExecutePlan=execute) as url:
        engine = SparkEngine(directory=tmp_path, remote=url)
        await engine.start()
        with pytest.raises(PgError) as raised:
            await engine.run("SELECT 1", {})
        await engine.close()
    assert raised.value.sqlstate == sqlstate
    assert runs == ["SELECT 1"]


async def test_a_statement_whose_connection_is_lost_runs_again(tmp_path: Path) -> None:
    """The second run uses a new session, and only its rows are returned."""
    sessions: list[str] = []
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("a", pa.int32())])) as writer:
        writer.write_table(pa.table({"a": pa.array([7], pa.int32())}))
    rows = sink.getvalue().to_pybytes()

    def execute(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        sessions.append(request.session_id)
        yield base_pb2.ExecutePlanResponse(arrow_batch=base_pb2.ExecutePlanResponse.ArrowBatch(row_count=1, data=rows))
        if len(sessions) == 1:
            context.abort(grpc.StatusCode.UNAVAILABLE, "gone in the middle")

    with played(AnalyzePlan=spark_version(OURS), Config=configured, ExecutePlan=execute) as url:
        engine = SparkEngine(directory=tmp_path, remote=url)
        await engine.start()
        assert (await engine.run("SELECT 7 AS a", {})).to_pylist() == [{"a": 7}]
        await asyncio.wait_for(engine.close(), HANG_S)
    assert len(sessions) == len(set(sessions)) == 2


def test_a_statement_that_is_cancelled_before_it_begins_is_not_sent() -> None:
    """The pool cancels a statement as soon as it has a slot; the slot's thread may begin it later."""
    runs: list[str] = []

    def execute(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        runs.append(request.plan.root.sql.query)
        yield base_pb2.ExecutePlanResponse()

    with played(ExecutePlan=execute) as url:
        service = ConnectService(ConnectUrl.parse(url))
        path = ConnectPath(service)
        path.interrupt("slot-0/1")
        with pytest.raises(Failure, match="interrupted"):
            path.run("slot-0/1", "SELECT 1", {}, [])
        assert runs == []
        service.close()
