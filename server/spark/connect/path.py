"""Exchanges Arrow tables with a Spark session over Spark Connect (gRPC).

A statement is one ExecutePlan request, answered by a stream of Arrow batches. Each new table needs one more request
before it, which creates the temporary view; a table larger than PART_BYTES needs several. The requests are built here
because PySpark's client sends up to five per statement and requires pandas. Executions are not reattachable: if the
connection breaks, the statement runs again, which is correct for pure queries and simpler than resuming.

Cancellation is by operation tag, which is the pool's job group. A statement can be cancelled before it begins. An
interrupt may reach the server before its operation, so it is repeated until the statement has ended. Warning: when a
statement with subqueries fails or is cancelled, the server cancels only the jobs that have been submitted. A job that
is submitted later runs to its end and cannot be cancelled.

Source: Spark's sql/connect/common/src/main/protobuf/spark/connect/*.proto.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from server.spark.arrow_types import from_spark, spark_schema, to_spark
from server.spark.connect.messages import (
    base_pb2,
    base_pb2_grpc,
    catalog_pb2,
    commands_pb2,
    error_details_pb2,
    expressions_pb2,
    grpc,
    relations_pb2,
    status_pb2,
    types_pb2,
)
from server.spark.connect.url import ConnectUrl
from server.spark.errors import Failure, Fault
from server.spark.python_functions import SQL_SCALAR_ARROW_UDF, PythonFunctions, pickled, python_version
from server.spark.session_path import Disconnected

CALL_TIMEOUT_S = 30.0  # for the calls in `_call`; a server that does not answer in time counts as lost
INTERRUPT_PAUSES_S = (0.02, 0.02, 0.05, 0.1, 0.5)
PART_BYTES = 16 << 20  # messages and tasks are limited to 128 MiB, and a task contains a part in row format
STOPPED_MESSAGES = ("SparkContext was shut down", "stopped SparkContext", "SparkContext has been shutdown")
OUT_OF_MEMORY_MESSAGES = (
    "Java heap space",
    "GC overhead limit exceeded",
)  # such an error has no details
_CLIENT = "tidewire"


class ConnectService:
    """One connection to a server, for all its sessions. Its methods may be called from any thread."""

    def __init__(self, url: ConnectUrl) -> None:
        options = [
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
            # The supervisor retries itself; gRPC's own backoff would grow to minutes.
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 1000),
            ("grpc.use_local_subchannel_pool", 1),  # otherwise a new channel inherits the backoff of an earlier one
        ]
        if url.use_ssl:
            self._channel = grpc.secure_channel(url.target, grpc.ssl_channel_credentials(), options=options)
        else:
            self._channel = grpc.insecure_channel(url.target, options=options)
        self.stub = base_pb2_grpc.SparkConnectServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self.headers = url.headers
        self.user = base_pb2.UserContext(user_id=url.user_id)

    def close(self) -> None:
        """Closes the connection, which fails all calls in progress."""
        self._channel.close()


class ConnectPath:
    """One session; see `session_path.SessionPath`. `interrupt` and `ping` may be called from other threads."""

    parts: Mapping[str, float] = {}

    def __init__(self, service: ConnectService) -> None:
        self._service = service
        self._id = str(uuid.uuid4())
        self._server_side = ""  # the server's id of this session; it changes when the server is restarted
        self._lock = threading.Lock()
        self._group = ""  # of the running statement; "" if none runs
        self._interrupted = ""  # of the last statement that was interrupted; it may not have begun

    def run(
        self, group: str, sql: str, views: Mapping[str, pa.Table], drop: Sequence[str], repeats: bool = False
    ) -> pa.Table:
        with self._lock:
            self._group = group
        try:
            for name in drop:
                self._drop(name)
            for name, table in views.items():
                self._view(name, table)
            answer = list(self._execute(relations_pb2.Relation(sql=relations_pb2.SQL(query=sql))))
        finally:
            with self._lock:
                self._group = ""
        return from_spark(pa.concat_tables([pa.ipc.open_stream(block).read_all() for block in answer]))

    def close(self) -> None:
        """Nothing is held open."""

    def interrupt(self, group: str) -> None:
        """Cancels the statement of that group, also if `run` has not begun. Does not wait.

        Must be called for one statement after the other, in the order in which they run.
        """
        with self._lock:
            self._interrupted = group
            is_running = self._group == group
        if is_running:
            name = f"tidewire-cancel-{group}"
            threading.Thread(target=self._interrupt, name=name, args=(group,), daemon=True).start()

    def _interrupt(self, group: str) -> None:
        pauses = itertools.chain(INTERRUPT_PAUSES_S, itertools.repeat(INTERRUPT_PAUSES_S[-1]))
        while self._group == group:
            request = self._request(
                base_pb2.InterruptRequest,
                interrupt_type=base_pb2.InterruptRequest.INTERRUPT_TYPE_TAG,
                operation_tag=_tag(group),
            )
            try:
                self._call("Interrupt", request)
            except (Disconnected, Failure):  # the session or the server is gone
                return
            time.sleep(next(pauses))

    def ping(self) -> str:
        """Keeps the session alive. Returns Spark's version. `Disconnected` if the server or the session is gone."""
        request = self._request(base_pb2.AnalyzePlanRequest, spark_version=base_pb2.AnalyzePlanRequest.SparkVersion())
        return str(self._call("AnalyzePlan", request).spark_version.version)

    def configure(self, settings: Mapping[str, str]) -> None:
        """Changes settings of the session. `Failure` for one that cannot be set in a session."""
        pairs = [base_pb2.KeyValue(key=key, value=value) for key, value in settings.items()]
        operation = base_pb2.ConfigRequest.Operation(set=base_pb2.ConfigRequest.Set(pairs=pairs))
        self._call("Config", self._request(base_pb2.ConfigRequest, operation=operation))

    def register(self, functions: PythonFunctions) -> None:
        """Makes `functions` callable in the session's SQL. The server's Python workers must be able to import them."""
        for name, (function, result) in functions.items():
            python = expressions_pb2.PythonUDF(
                output_type=_data_type(json.loads(result)),
                eval_type=SQL_SCALAR_ARROW_UDF,
                command=pickled(function, result),
                python_ver=python_version(),
            )
            made = expressions_pb2.CommonInlineUserDefinedFunction(
                function_name=name, deterministic=True, python_udf=python
            )
            self._command(register_function=made)

    def release(self, service: ConnectService, timeout_s: float) -> None:
        """Releases the session on the server. Uses `service`, since the path's own connection may be closed."""
        request = base_pb2.ReleaseSessionRequest(session_id=self._id, user_context=service.user, client_type=_CLIENT)
        try:
            service.stub.ReleaseSession(request, timeout=timeout_s, metadata=service.headers)
        except grpc.RpcError as error:
            raise self._to_exception(error) from None

    def _drop(self, name: str) -> None:
        dropped = catalog_pb2.Catalog(drop_temp_view=catalog_pb2.DropTempView(view_name=name))
        list(self._execute(relations_pb2.Relation(catalog=dropped)))

    def _view(self, name: str, table: pa.Table) -> None:
        rows = to_spark(table)
        schema = spark_schema(table.schema)
        size = max(1, rows.num_rows * PART_BYTES // max(rows.nbytes, 1))
        parts = [rows.slice(start, size) for start in range(0, rows.num_rows, size)] or [rows]
        if len(parts) == 1:
            self._make_view(name, _local(rows, schema))
            return
        names = [f"{name}__{number}" for number in range(len(parts))]
        for part_name, part in zip(names, parts, strict=True):
            self._make_view(part_name, _local(part, schema))
        union = " UNION ALL ".join(f"SELECT * FROM `{part_name}`" for part_name in names)
        self._make_view(name, relations_pb2.Relation(sql=relations_pb2.SQL(query=union)))
        for part_name in names:  # the view of the union does not need them any more
            self._drop(part_name)

    def _make_view(self, name: str, relation: relations_pb2.Relation) -> None:
        made = commands_pb2.CreateDataFrameViewCommand(input=relation, name=name, replace=True)
        self._command(create_dataframe_view=made)

    def _command(self, **command: Any) -> None:
        list(self._execute_plan(base_pb2.Plan(command=commands_pb2.Command(**command))))

    def _execute(self, relation: relations_pb2.Relation) -> Iterator[bytes]:
        return self._execute_plan(base_pb2.Plan(root=relation))

    def _execute_plan(self, plan: base_pb2.Plan) -> Iterator[bytes]:
        """Executes a plan and yields the Arrow streams of its answer."""
        if self._group and self._interrupted == self._group:
            raise Failure((Fault("", "interrupted", "OPERATION_CANCELED"),), "")
        request = self._request(
            base_pb2.ExecutePlanRequest,
            plan=plan,
            tags=[_tag(self._group)] if self._group else [],
        )
        try:
            for response in self._service.stub.ExecutePlan(request, metadata=self._service.headers):
                self._server_side = response.server_side_session_id
                if response.HasField("arrow_batch"):
                    yield response.arrow_batch.data
        except grpc.RpcError as error:
            raise self._to_exception(error) from None
        except ValueError as closed:  # gRPC raises it if the channel is closed
            raise Disconnected(str(closed)) from closed

    def _request(self, kind: Any, **fields: Any) -> Any:
        seen = {"client_observed_server_side_session_id": self._server_side} if self._server_side else {}
        return kind(session_id=self._id, user_context=self._service.user, client_type=_CLIENT, **seen, **fields)

    def _call(self, method: str, request: Any) -> Any:
        try:
            call = getattr(self._service.stub, method)
            response = call(request, timeout=CALL_TIMEOUT_S, metadata=self._service.headers)
        except grpc.RpcError as error:
            raise self._to_exception(error) from None
        except ValueError as closed:
            raise Disconnected(str(closed)) from closed
        self._server_side = response.server_side_session_id
        return response

    def _to_exception(self, error: Any) -> Exception:
        """Converts an error of gRPC: a `Failure` if it concerns the statement, otherwise `Disconnected`."""
        info = error_details_pb2.ErrorInfo()
        packed = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin", b"")
        if not any(detail.Unpack(info) for detail in status_pb2.Status.FromString(packed).details):
            line = f"{error.code().name}: {error.details()}"
            if error.code() is grpc.StatusCode.UNKNOWN and error.details() in OUT_OF_MEMORY_MESSAGES:
                return Failure((Fault("java.lang.OutOfMemoryError", error.details()),), line)
            if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:  # a row is larger than the message limit
                return Failure((Fault("RESOURCE_EXHAUSTED", line),), line)
            return Disconnected(line)
        condition = info.metadata.get("errorClass", "")
        if condition.startswith("INVALID_HANDLE."):
            return Disconnected(error.details())
        try:
            chain = self._chain(info.metadata.get("errorId", ""))
        except (Disconnected, Failure):  # use only the details that came with the error
            chain = ()
        if not chain:
            parameters = json.loads(info.metadata.get("messageParameters", "{}"))
            state = info.metadata.get("sqlState", "")
            chain = (Fault(info.reason, error.details(), condition, state, parameters),)
        gone = any(words in fault.message for fault in chain for words in STOPPED_MESSAGES)
        return Failure(chain, "\nCaused by: ".join(f"{f.kind}: {f.message}" for f in chain), spark_stopped=gone)

    def _chain(self, error_id: str) -> tuple[Fault, ...]:
        """Fetches an exception and its causes. The server keeps them for a limited time."""
        if not error_id:
            return ()
        details = self._call("FetchErrorDetails", self._request(base_pb2.FetchErrorDetailsRequest, error_id=error_id))
        chain: list[Fault] = []
        index = details.root_error_idx if details.HasField("root_error_idx") else None
        while index is not None and len(chain) < len(details.errors):
            error = details.errors[index]
            known = error.spark_throwable
            kind = next(iter(error.error_type_hierarchy), "")
            chain.append(Fault(kind, error.message, known.error_class, known.sql_state, dict(known.message_parameters)))
            index = error.cause_idx if error.HasField("cause_idx") else None
        return tuple(chain)


def _tag(group: str) -> str:
    return group.replace(",", "_")


def _local(table: pa.Table, schema: str) -> relations_pb2.Relation:
    """Returns a LocalRelation with the rows of `table`, in Spark's layout, and the Spark schema `schema` (JSON)."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    data = sink.getvalue().to_pybytes()
    return relations_pb2.Relation(local_relation=relations_pb2.LocalRelation(data=data, schema=schema))


def _data_type(spark: Any) -> types_pb2.DataType:
    """Converts a Spark type from JSON to a message. Supports the types that functions return."""
    if isinstance(spark, str):
        return types_pb2.DataType(**{spark: getattr(types_pb2.DataType, spark.capitalize())()})
    if spark["type"] == "array":
        element = _data_type(spark["elementType"])
        return types_pb2.DataType(
            array=types_pb2.DataType.Array(element_type=element, contains_null=spark["containsNull"])
        )
    fields = [
        types_pb2.DataType.StructField(name=f["name"], data_type=_data_type(f["type"]), nullable=f["nullable"])
        for f in spark["fields"]
    ]
    return types_pb2.DataType(struct=types_pb2.DataType.Struct(fields=fields))
