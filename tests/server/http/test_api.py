"""The HTTP API: results, errors, streams, sessions, and the requests that it refuses. No statement needs Spark."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import aiohttp
import psycopg
import pyarrow as pa
import pytest

from server.http.request_limits import BODY_BYTES_MAX
from server.http.subscription_query import SubscriptionQuery, token_of
from tests.fix_server import ServerThread
from tests.polling import until
from tests.server.http.fix_api import Api
from tests.server.slow_engine import PassingEngine
from tidewire.query import Query, Token

ARROW = "application/vnd.apache.arrow.stream"
OWN_ORIGIN, ALLOWED, FOREIGN = "own", "https://app.example", "http://localhost:3000"


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    own = ServerThread(tmp_path_factory.mktemp("data"), PassingEngine(), http_origins=[ALLOWED])
    yield own
    own.stop()


@pytest.fixture
def api(own_server: ServerThread) -> Iterator[Api]:
    api = Api(own_server.http_port)
    api.sql("CREATE TABLE t (k int, v text); INSERT INTO t VALUES (1, 'a'), (2, NULL)")
    yield api
    api.sql("DROP TABLE IF EXISTS t CASCADE")


# -- POST /api/sql --------------------------------------------------------------------------------------------------


def test_rows_and_columns(api: Api) -> None:
    (result,) = api.sql("SELECT * FROM t ORDER BY k")
    assert result == {
        "columns": [{"name": "k", "type": "integer", "oid": 23}, {"name": "v", "type": "text", "oid": 25}],
        "rows": [[1, "a"], [2, None]],
        "tag": "SELECT 2",
    }


def test_parameters(api: Api) -> None:
    assert api.rows("SELECT $1::int, $2::text, $3::bool, $4::jsonb, $5::int[]", 1, None, True, {"a": [1]}, "{1,2}") == [
        [1, None, True, {"a": [1]}, [1, 2]]
    ]
    assert api.rows("SELECT k FROM t WHERE v = $1", "a") == [[1]]


def test_numbers_keep_all_of_their_digits(api: Api) -> None:
    number = "12.345678901234567891"
    query = "SELECT $1::numeric::text, $2::jsonb ->> 'a', $3::jsonb #>> '{0,0}', $4::float8"
    values = f'[{number}, {{"a": {number}, "b": "\\u00e4"}}, [[{number}]], 1.5e300]'
    reply = api.post(f'{{"query": "{query}", "parameters": {values}}}'.encode())
    assert reply.json["results"][0]["rows"] == [[number, number, number, 1.5e300]]


def test_an_unknown_property_is_named_in_part(api: Api) -> None:
    reply = api.post({"x" * 5_000: 1})
    assert reply.status == 400
    assert len(reply.json["error"]["message"]) < 200


def test_statements_are_one_transaction(api: Api) -> None:
    insert = {"query": "INSERT INTO t VALUES ($1, $2)", "parameters": [3, "c"]}
    reply = api.post({"statements": [insert, {"query": "SELECT k FROM t"}]})
    assert [result["tag"] for result in reply.json["results"]] == ["INSERT 0 1", "SELECT 3"]
    reply = api.post({"statements": [insert, {"query": "SELECT 1 / $1::int", "parameters": [0]}]})
    assert reply.status == 400
    assert [result["tag"] for result in reply.json["results"]] == ["INSERT 0 1"]
    assert reply.json["error"]["sqlstate"] == "22012"
    assert len(api.rows("SELECT k FROM t")) == 3


def test_numbers_are_passed_on_as_they_are_written(api: Api) -> None:
    numbers = ["9" * 5_000, "-0", "1.50", "2.5e3"]
    body = f'{{"query": "SELECT $1::text, $2::text, $3::text, $4::text", "parameters": [{", ".join(numbers)}]}}'
    assert api.post(body.encode()).json["results"][0]["rows"] == [numbers]


def test_an_error_has_all_fields(api: Api) -> None:
    reply = api.post({"query": "SELECT 1; SELECT k, nothing FROM t"})
    assert reply.status == 400
    assert reply.json["error"] == {
        "severity": "ERROR",
        "sqlstate": "42703",
        "message": 'column "nothing" does not exist',
        "detail": None,
        "hint": None,
        "position": 21,
    }


def test_notices_and_settings(api: Api) -> None:
    (result,) = api.sql("DROP TABLE IF EXISTS nothing")
    assert result["tag"] == "DROP TABLE"
    assert "does not exist" in result["notices"][0]["message"]
    reply = api.post({"query": "SHOW timezone", "settings": {"timezone": "Asia/Tokyo"}})
    assert reply.json["results"][0]["rows"] == [["Asia/Tokyo"]]
    assert api.post({"query": "SELECT 1", "settings": {"nothing": "1"}}).status == 400
    assert api.post({"query": "SELECT 1"}, "/api/sql?database=nothing").json["error"]["sqlstate"] == "3D000"


def test_arrow(api: Api) -> None:
    reply = api.post({"query": "SELECT * FROM t"}, Accept=ARROW)
    assert (reply.status, reply.headers["Content-Type"]) == (200, ARROW)
    table = pa.ipc.open_stream(reply.body).read_all()
    assert sorted(table.to_pylist(), key=lambda row: row["k"]) == [{"k": 1, "v": "a"}, {"k": 2, "v": None}]
    assert table.schema.field("k").metadata == {b"pg_type": b"integer"}
    empty = api.post({"query": "SELECT * FROM t WHERE k = $1", "parameters": [7]}, Accept=ARROW)
    assert pa.ipc.open_stream(empty.body).read_all().schema.names == ["k", "v"]
    for query in ("SELECT 1; SELECT 2", "DROP TABLE t", "SELECT nothing"):
        assert api.post({"query": query}, Accept=ARROW).json["error"]["message"]


def test_a_large_result_is_streamed(own_server: ServerThread, api: Api) -> None:
    with psycopg.connect(own_server.dsn(), autocommit=True) as connection:
        with connection.cursor().copy("COPY t FROM STDIN") as copy:
            for number in range(30_000):
                copy.write_row((number + 10, "x" * 100))
    rows = api.rows("SELECT * FROM t")
    assert len(rows) == 30_002
    assert {row[0] for row in rows} >= set(range(10, 30_010))
    reply = api.post({"query": "SELECT * FROM t"}, Accept=ARROW)
    assert pa.ipc.open_stream(reply.body).read_all().num_rows == 30_002
    reply = api.post({"query": "SELECT * FROM t; SELECT nothing"})
    assert reply.status == 200  # it was sent before the error
    assert reply.json["error"]["sqlstate"] == "42703"


def test_statements_that_need_another_form_are_refused(api: Api) -> None:
    for query in ("SUBSCRIBE t", "COPY t TO STDOUT", "COPY t FROM STDIN", "COPY (SUBSCRIBE t) TO STDOUT"):
        reply = api.post({"query": query})
        assert (reply.status, reply.json["error"]["sqlstate"]) == (400, "0A000")
    rows = api.rows("BEGIN; DECLARE c CURSOR FOR SUBSCRIBE t; FETCH 2 c")
    assert sorted(row[1:] for row in rows) == [["1", 1, "a"], ["1", 2, None]]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"[]", 400),
        (b'{"query":', 400),
        (b"[" * 100_000, 400),
        (b'{"query": 1}', 400),
        (b'{"query": "SELECT 1", "statements": []}', 400),
        (b'{"query": "SELECT 1", "parameters": {}}', 400),
        (b'{"query": "SELECT 1", "unknown": 1}', 400),
        (b'{"statements": [{"query": "SELECT 1", "params": []}]}', 400),
        (b'{"statements": 1}', 400),
        (b'{"query": "SELECT \\u0000"}', 400),
        (b'{"query": "SELECT 1", "settings": {"timezone": 1}}', 400),
        (json.dumps({"query": "SELECT 1", "settings": {f"a.b{n}": "" for n in range(1_001)}}).encode(), 400),
        (b'{"query": "\xff"}', 400),
        (b'{"query": "SELECT \xed\xa0\x80"}', 400),
        (b'{"query": "SELECT \\ud800"}', 400),
        (b'{"statements": [{"query": "SELECT \\udc00"}]}', 400),
        (b'{"query": "SELECT $1", "parameters": ["\\ud800"]}', 400),
        (b'{"query": "SELECT 1", "settings": {"application_name": "\\ud800"}}', 400),
        (b'{"query": "SELECT 1", "settings": {"\\ud800": ""}}', 400),
        (b'{"query": "SELECT 1", "settings": {"application_name": "a\\u0000timezone\\u0000UTC"}}', 400),
        (b'{"query": "SELECT 1\\u0000\\u0000\\u0000", "parameters": []}', 400),
    ],
)
def test_invalid_bodies(api: Api, body: bytes, status: int) -> None:
    reply = api.post(body)
    assert reply.status == status
    assert reply.json["error"]["message"]


def test_a_comment_does_not_hide_the_options_of_a_subscription(api: Api) -> None:
    """Without PROGRESS, the columns of the stream would be others."""
    with api.events("t", order_by="k WITH (PROGRESS false) --") as stream:
        assert (stream.status, stream.error["sqlstate"]) == (400, "42601")
    with api.events("SELECT * FROM t --", order_by="k DESC --") as stream:
        events = iter(stream)
        assert next(events).name == "start"
        rows = next(events)
        assert (rows.name, [row[2] for row in rows.data]) == ("rows", [2, 1])


@pytest.mark.parametrize("character", ["\0", "\ud800"])
def test_characters_that_texts_cannot_contain(api: Api, character: str) -> None:
    """They are refused as in messages of PostgreSQL's protocol."""
    sequence = {"\0": "0x00", "\ud800": "0xed 0xa0 0x80"}[character]
    text = f"t{character}"
    for body in ({"query": text}, {"query": text, "parameters": []}, {"query": "t", "settings": {text: text}}):
        error = api.post(body).json["error"]
        assert (error["sqlstate"], error["message"]) == (
            "22021",
            f'invalid byte sequence for encoding "UTF8": {sequence}',
        )
    with api.events("t", envelope="upsert", key=json.dumps([text])) as stream:
        assert (stream.status, stream.error["sqlstate"]) == (400, "22021")
    with api.events("t\0") as stream:
        assert (stream.status, stream.error["sqlstate"]) == (400, "22021")


def test_bodies_that_are_not_read(api: Api) -> None:
    assert api.post({"query": "SELECT 1"}, Content_Type="text/plain").status == 415
    assert api.post({"query": "SELECT 1"}, Content_Encoding="gzip").status == 415
    assert api.post(b" " * (BODY_BYTES_MAX + 1)).status == 413
    assert api.request("GET", "/api/sql").headers["Allow"] == "POST"


# -- sessions -------------------------------------------------------------------------------------------------------


def test_each_request_has_a_session(own_server: ServerThread, api: Api) -> None:
    sessions = own_server.app.coordinator.activity.sessions
    until(lambda: not sessions)
    assert len(api.rows("SELECT * FROM mz_internal.mz_sessions")) == 1
    api.sql("BEGIN; INSERT INTO t VALUES (9, 'not committed')")
    until(lambda: not sessions)
    assert len(api.rows("SELECT * FROM t")) == 2


def test_a_disconnect_cancels_the_statement(own_server: ServerThread, api: Api) -> None:
    activity = own_server.app.coordinator.activity
    with api.events("t") as stream:
        assert next(iter(stream)).name == "start"
        assert len(activity.subscriptions) == 1
    until(lambda: not activity.subscriptions and not activity.sessions)


def test_a_session_can_be_cancelled_and_terminated(own_server: ServerThread, api: Api) -> None:
    for function, sqlstate in (("pg_cancel_backend", "57014"), ("pg_terminate_backend", "57P01")):
        with api.events("t") as stream:
            events = iter(stream)
            assert next(events).name == "start"
            (pid,) = own_server.app.coordinator.activity.sessions
            assert api.rows(f"SELECT {function}({pid})") == [[True]]
            last = [event for event in events if event.name != "progress"][-1]
            assert (last.name, last.data["sqlstate"]) == ("failure", sqlstate)


def test_statement_timeout(api: Api) -> None:
    body = {"query": "BEGIN; DECLARE c CURSOR FOR SUBSCRIBE t; FETCH 99 c WITH (TIMEOUT '9s')"}
    reply = api.post({**body, "settings": {"statement_timeout": "50ms"}})
    assert (reply.status, reply.json["error"]["sqlstate"]) == (408, "57014")


def test_roles_and_limits(own_server: ServerThread, api: Api) -> None:
    api.sql("CREATE ROLE reader LOGIN CONNECTION LIMIT 0")
    try:
        reader = Api(own_server.http_port, "reader")
        assert reader.post({"query": "SELECT 1"}).json["error"]["sqlstate"] == "53300"
        api.sql("ALTER ROLE reader CONNECTION LIMIT 5")
        assert reader.rows("SELECT current_user") == [["reader"]]
        reply = reader.post({"query": "SELECT * FROM t"})
        assert (reply.status, reply.json["error"]["sqlstate"]) == (403, "42501")
        assert reader.events("t").error["sqlstate"] == "42501"
        assert Api(own_server.http_port, "unknown").post({"query": "SELECT 1"}).status == 401
    finally:
        api.sql("DROP ROLE reader")


# -- GET /api/subscribe ---------------------------------------------------------------------------------------------


def test_events_and_resumption(api: Api) -> None:
    with api.events("t") as stream:
        events = iter(stream)
        start = next(events)
        assert start.name == "start"
        assert [column["name"] for column in start.data["columns"]] == ["mz_timestamp", "mz_diff", "k", "v"]
        rows = next(events)
        as_of = start.data["as_of"]
        assert sorted(rows.data) == [[as_of, 1, 1, "a"], [as_of, 1, 2, None]]
        progress = next(events)
        assert (progress.name, progress.id) == ("progress", progress.data["token"])
        assert progress.data["progress"] > as_of
        api.sql("CREATE HOLD h ON t")
        api.sql("INSERT INTO t VALUES (3, 'line\nbreak')")
        update = next(event for event in events if event.name == "rows")
        assert update.data == [[update.data[0][0], 1, 3, "line\nbreak"]]
        token = next(event.id for event in events if event.id)
    api.sql("DELETE FROM t WHERE k = 1")
    for resumed in (api.events("t", {"Last-Event-ID": str(token)}), api.events("t", token=str(token))):
        with resumed:
            events = iter(resumed)
            assert next(events).name == "start"
            update = next(event for event in events if event.name == "rows")
            assert [row[1:] for row in update.data] == [[-1, 1, "a"]]


def test_options_of_subscriptions(api: Api) -> None:
    with api.events("SELECT * FROM t WHERE k = $1", parameters='["2"]') as stream:
        assert next(event.data[0][2:] for event in stream if event.name == "rows") == [2, None]
    with api.events("t", key="k", envelope="upsert") as stream:
        events = iter(stream)
        assert [column["name"] for column in next(events).data["columns"]] == ["mz_timestamp", "mz_state", "k", "v"]
        assert [row[1:] for row in next(events).data] == [["upsert", 1, "a"], ["upsert", 2, None]]
    with api.events("t", order_by="k DESC", snapshot="true") as stream:
        assert [row[2] for row in next(event.data for event in stream if event.name == "rows")] == [2, 1]
    (now,) = api.rows("SELECT mz_now()::text")[0]
    with api.events("t", as_of=now, up_to=str(int(now) + 1)) as stream:
        assert [event.name for event in stream] == ["start", "rows", "end"]
    with api.events("VALUES (1)") as stream:
        assert [event.name for event in stream] == ["start", "rows", "end"]


@pytest.mark.parametrize(
    ("parameters", "sqlstate"),
    [
        ({"query": ""}, "22023"),
        ({"query": "SUBSCRIBE t"}, "22023"),
        ({"query": "t; DROP TABLE t"}, "42601"),
        ({"query": "t) TO STDOUT; DROP TABLE t; SELECT (1"}, "42601"),
        ({"query": "t", "key": "k"}, "22023"),
        ({"query": "t", "envelope": "upsert"}, "22023"),
        ({"query": "t", "envelope": "upsert", "key": "[1]"}, "22023"),
        ({"query": "t", "envelope": "upsert", "key": "["}, "22023"),
        ({"query": "t", "envelope": "upsert", "key": "nothing"}, "42703"),
        ({"query": "t", "as_of": "now"}, "22023"),
        ({"query": "t", "snapshot": "maybe"}, "22023"),
        ({"query": "t", "token": "tw1:x:1"}, "22023"),
        ({"query": "t", "token": f"tw1:{'0' * 16}:1"}, "22023"),
        ({"query": "t", "parameters": "[["}, "22023"),
        ({"query": "t", "unknown": "1"}, "22023"),
        ({"query": "t", "as_of": "1"}, "22000"),
        ({"query": "nothing"}, "42P01"),
    ],
)
def test_invalid_subscriptions(api: Api, parameters: dict[str, str], sqlstate: str) -> None:
    with api.events(**parameters) as stream:
        assert stream.error["sqlstate"] == sqlstate
    assert len(api.rows("SELECT * FROM t")) == 2


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"envelope": "upsert"}, '"envelope" needs the parameter "key"'),
        ({"envelope": "upsert", "key": "k", "order_by": "k"}, '"envelope" and "order_by" exclude each other'),
        ({"key": "k"}, '"key" needs the parameter "envelope"'),
    ],
)
def test_parameters_that_do_not_fit_together_are_named(api: Api, parameters: dict[str, str], message: str) -> None:
    with api.events("t", **parameters) as stream:
        assert (stream.error["sqlstate"], stream.error["message"]) == ("22023", message)


def test_the_position_of_an_error_is_that_in_the_query(api: Api) -> None:
    assert api.events("nothing").error["position"] == 1
    assert api.events("SELECT nothing FROM t").error["position"] == 8


def test_tokens_are_those_of_the_client_library() -> None:
    for text, key, envelope in (("t", (), None), (" t ; ", ("k", "l"), "upsert")):
        query = Query(text, key=key, envelope=envelope)  # type: ignore[arg-type]
        values = {"query": text, "key": json.dumps(key), "envelope": envelope or ""}
        values = values if key else {"query": text}
        ours = SubscriptionQuery.of(values, None)
        assert token_of(ours.fingerprint, 5) == str(Token(query.fingerprint, 5))
        resumed = SubscriptionQuery.of(values, token_of(ours.fingerprint, 5))
        assert resumed.statement() == query.statement(4, snapshot=False)
        assert ours.statement() == query.statement(None, snapshot=True)


def test_web_socket(own_server: ServerThread, api: Api) -> None:
    async def session() -> None:
        url = f"http://127.0.0.1:{own_server.http_port}/api/subscribe?query=t"
        async with aiohttp.ClientSession() as client:
            async with client.ws_connect(url, origin=f"http://127.0.0.1:{own_server.http_port}") as socket:
                start = await socket.receive_json()
                assert start["event"] == "start"
                assert sorted((await socket.receive_json())["data"])[0][1:] == [1, 1, "a"]
                await asyncio.to_thread(api.sql, "INSERT INTO t VALUES (3, 'c')")
                names = []
                while not names or names[-1] != "rows":
                    names.append((await socket.receive_json())["event"])
                await socket.send_str("what?")
                while (message := await socket.receive()).type is aiohttp.WSMsgType.TEXT:
                    pass
                assert (message.type, message.data) == (aiohttp.WSMsgType.CLOSE, 1008)
            with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
                await client.ws_connect(url, origin=FOREIGN)
            with pytest.raises(aiohttp.WSServerHandshakeError, match="400"):
                await client.ws_connect(url + "x")

    asyncio.run(session())
    until(lambda: not own_server.app.coordinator.activity.sessions)


def test_rows_of_all_sizes_over_a_web_socket_that_is_full_at_times(own_server: ServerThread, api: Api) -> None:
    sizes = [0, 1, 60, 70, 80, 125, 126, 127, 1_000, 65_000, 66_000, 3_000_000, 5, 2_000_000, 6]

    async def session() -> None:
        url = f"http://127.0.0.1:{own_server.http_port}/api/subscribe?query=t&snapshot=false"
        origin = f"http://127.0.0.1:{own_server.http_port}"
        async with (
            aiohttp.ClientSession() as client,
            client.ws_connect(url, origin=origin, max_msg_size=0) as slow,
            client.ws_connect(url, origin=origin, max_msg_size=0) as socket,
        ):
            for stream in (slow, socket):
                assert (await stream.receive_json())["event"] == "start"
            sent: list[object] = []
            for number, size in enumerate(sizes):
                await asyncio.to_thread(api.sql, f"INSERT INTO t VALUES ({number}, repeat('x', {size}))")
                rows = await _next_rows(socket)
                assert [row[2] for row in rows] == [number]
                sent.append(rows)
            assert [await _next_rows(slow) for _ in sizes] == sent

    asyncio.run(session())


async def _next_rows(socket: aiohttp.ClientWebSocketResponse) -> list[Any]:
    """The rows of the next commit."""
    while (event := await socket.receive_json())["event"] != "rows":
        assert event["event"] == "progress"
    rows: list[Any] = event["data"]
    return rows


@pytest.mark.parametrize("name", ["Connection", "Upgrade", "Sec-WebSocket-Version", "Sec-WebSocket-Key"])
def test_handshakes_that_are_not_ascii(api: Api, name: str) -> None:
    headers = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    headers["Sec-WebSocket-Key"] = "dGhlIHNhbXBsZSBub25jZQ=="
    with api.events("t", {**headers, name: "\xe9"}) as stream:
        assert stream.status == 200


# -- other origins --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": OWN_ORIGIN}, 200),
        ({"Origin": ALLOWED}, 200),
        ({"Origin": FOREIGN}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1"}, 403),
        ({"Sec_Fetch_Site": "same-origin"}, 200),
        ({"Sec_Fetch_Site": "none"}, 200),
        ({"Sec_Fetch_Site": "same-site"}, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}, 403),
    ],
)
def test_pages_of_other_origins(api: Api, headers: dict[str, str], status: int) -> None:
    if headers.get("Origin") == OWN_ORIGIN:
        headers = {"Origin": f"http://127.0.0.1:{api.port}"}
    reply = api.post({"query": "INSERT INTO t VALUES (5, 'e')"}, **headers)
    assert reply.status == status
    assert len(api.rows("SELECT * FROM t")) == (3 if status == 200 else 2)
    with api.events("t", {name.replace("_", "-"): value for name, value in headers.items()}) as stream:
        assert stream.status == status
    allowed = reply.headers.get("Access-Control-Allow-Origin")
    assert allowed == (ALLOWED if headers.get("Origin") == ALLOWED else None)


def test_preflight_requests(api: Api) -> None:
    reply = api.request("OPTIONS", "/api/sql", Origin=ALLOWED, Access_Control_Request_Method="POST")
    assert (reply.status, reply.headers["Access-Control-Allow-Methods"]) == (204, "POST")
    assert reply.headers["Access-Control-Allow-Origin"] == ALLOWED
    reply = api.request("OPTIONS", "/api/sql", Origin=FOREIGN, Access_Control_Request_Method="POST")
    assert reply.status == 403
    assert "Access-Control-Allow-Origin" not in reply.headers


def test_errors_of_the_port(api: Api) -> None:
    assert api.request("GET", "/api/nothing").json["error"]["message"]
    assert api.post({"query": "SELECT 1"}, Host="rebound.example").status == 403
    assert api.post({"query": "SELECT 1"}, Authorization="Basic !").status == 400
