"""The options of CREATE CONNECTION ... TO KAFKA reach librdkafka, and secrets reach nothing else."""

from __future__ import annotations

import logging
import socket
import subprocess
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import psycopg
import pytest
from confluent_kafka import KafkaError
from structlog.testing import capture_logs

from catalog.objects.secrets import Secret
from protocol.pgwire.errors import PgError
from server.ingest.kafka import consumer as consumers
from server.ingest.kafka.brokers import Brokers
from server.ingest.kafka.consumer import TopicConsumer, configuration
from server.ingest.source_definition import SourceDefinition
from server.ingest.upstream import UpstreamError
from server.sql.grammar.rules.sources import CONNECTION_OPTIONS
from tests.fix_server import ServerThread

PASSWORD = "correct-horse"
PROPERTIES = {
    "broker": "bootstrap.servers",
    "brokers": "bootstrap.servers",
    "security protocol": "security.protocol",
    "sasl mechanisms": "sasl.mechanisms",
    "sasl username": "sasl.username",
    "sasl password": "sasl.password",
    "ssl key": "ssl.key.pem",
    "ssl certificate": "ssl.certificate.pem",
    "ssl certificate authority": "ssl.ca.pem",
    "progress topic": None,  # of sinks
}
SASL = {"sasl mechanisms": "PLAIN", "sasl username": "u", "sasl password": Secret(PASSWORD)}


@pytest.fixture(scope="module")
def pems(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A certificate and its key."""
    directory = tmp_path_factory.mktemp("certificate")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -out certificate -keyout key"
    subprocess.run(command.split(), check=True, capture_output=True, cwd=directory)
    return (directory / "certificate").read_text(), (directory / "key").read_text()


@pytest.fixture
def closed_address() -> str:
    """An address at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def test_every_option_is_known() -> None:
    assert set(PROPERTIES) == set(CONNECTION_OPTIONS["kafka"])


@pytest.mark.parametrize(("option", "property"), PROPERTIES.items())
@pytest.mark.parametrize("value", ["plain", Secret("plain")])
def test_each_option_is_a_property_of_librdkafka(option: str, property: str | None, value: str | Secret) -> None:
    others = {"broker": "b:1", "security protocol": "SASL_SSL", "sasl mechanisms": "PLAIN"}
    found = configuration({**others, option: value})
    expected = {
        "security.protocol": "plain" if option == "security protocol" else "sasl_ssl",
        "sasl.mechanisms": "PLAIN",
        "bootstrap.servers": "b:1",
    }
    if property is not None and property not in ("security.protocol", "sasl.mechanisms"):
        expected[property] = "plain"
    assert found == expected


@pytest.mark.parametrize(
    ("options", "protocol"),
    [
        ({}, "plaintext"),
        (SASL, "sasl_ssl"),
        ({"ssl certificate authority": "x"}, "ssl"),
        ({**SASL, "ssl key": Secret("x")}, "sasl_ssl"),
        ({**SASL, "security protocol": "SASL_PLAINTEXT"}, "sasl_plaintext"),
        ({"security protocol": "SSL"}, "ssl"),
    ],
)
def test_the_security_protocol_follows_from_the_options(options: dict[str, str | Secret], protocol: str) -> None:
    assert configuration({"broker": "b", **options})["security.protocol"] == protocol


@pytest.mark.parametrize(
    ("given", "used"), [("plain", "PLAIN"), ("SCRAM-SHA-256", "SCRAM-SHA-256"), ("scram-sha-512", "SCRAM-SHA-512")]
)
async def test_the_case_of_mechanisms_does_not_matter(given: str, used: str) -> None:
    options = {"broker": "b", **SASL, "sasl mechanisms": given}
    assert configuration(options)["sasl.mechanisms"] == used
    await TopicConsumer(options, "t", "g").close()


@pytest.mark.parametrize("mechanism", [None, "GSSAPI", "x"])
def test_other_mechanisms_are_refused(mechanism: str | None) -> None:
    options: dict[str, str | Secret] = {"broker": "b", **SASL}
    del options["sasl mechanisms"]
    if mechanism is not None:
        options["sasl mechanisms"] = mechanism
    with pytest.raises(PgError, match="SASL MECHANISMS") as caught:
        configuration(options)
    assert caught.value.hint == "Use one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512."


async def test_consumers_and_admin_clients_get_the_properties(
    monkeypatch: pytest.MonkeyPatch, pems: tuple[str, str]
) -> None:
    passed: list[dict[str, Any]] = []

    def client(create: Any) -> Any:
        def created(options: dict[str, Any], **others: Any) -> Any:
            passed.append(options)
            return create(options, **others)  # librdkafka refuses what it does not know

        return created

    monkeypatch.setattr(confluent_kafka, "Consumer", client(confluent_kafka.Consumer))
    monkeypatch.setattr(consumers, "AdminClient", client(consumers.AdminClient))
    monkeypatch.setattr(consumers, "CONFIGURATION_S", 0.01)
    monkeypatch.setattr(TopicConsumer, "_has_controller", lambda _: True)  # no broker is asked
    certificate, key = pems
    tls = {"ssl certificate authority": certificate, "ssl certificate": certificate, "ssl key": Secret(key)}
    options = {"broker": "127.0.0.1:1", **SASL, **tls}
    consumer = TopicConsumer(options, "t", "g")
    assert not await consumer.is_compacted()
    await consumer.close()
    assert len(passed) == 2
    for found in passed:
        assert found.items() >= configuration(options).items()


@pytest.mark.parametrize("option", ["sasl password", "ssl key", "ssl certificate", "ssl certificate authority"])
async def test_errors_do_not_have_secrets(option: str, closed_address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "REQUEST_S", 0.2)
    options: dict[str, str | Secret] = {"broker": closed_address, **SASL, option: Secret(PASSWORD)}
    logged: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            logged.append(record.getMessage())

    logger, handler = logging.getLogger("librdkafka"), Handler()
    logger.addHandler(handler)
    try:
        with pytest.raises((PgError, UpstreamError)) as caught:
            consumer = TopicConsumer(options, "t", "g")
            try:
                await consumer.partitions()
            finally:
                await consumer.close()
    finally:
        logger.removeHandler(handler)
    error = caught.value
    shown = [str(error), repr(error), error.message, str(error.hint), str(vars(error)), *logged]
    shown += [repr(options), repr(SourceDefinition("kafka", options))]
    assert PASSWORD not in str(shown)


def test_a_broker_that_repeats_the_password() -> None:
    """An error of the broker is part of the error of the source, unless it contains a secret."""
    connection: dict[str, str | Secret] = {"broker": "b:1", **SASL}
    brokers = Brokers(connection, configuration(connection))
    for text, shown in (("unknown user", "unknown user"), (f"no {PASSWORD}", "SASL authentication failed")):
        text = f"sasl_ssl://b:1/bootstrap: {text} (after 3ms in state AUTH_REQ)"
        brokers.failed(KafkaError(KafkaError._AUTHENTICATION, text))
        brokers.failed(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
        assert brokers.unreachable("timeout").message == f'could not connect to Kafka at "b:1": {shown}'
        assert (brokers.have_refused, brokers.down_since is not None) == (True, True)
    brokers.failed(KafkaError(KafkaError._TRANSPORT, "b:1/bootstrap: Connection refused (after 0ms in state CONNECT)"))
    assert brokers.unreachable("timeout").message == 'could not connect to Kafka at "b:1": Connection refused'
    brokers.reached()
    assert (brokers.have_refused, brokers.down_since) == (False, None)
    assert brokers.unreachable("timeout").message == 'could not connect to Kafka at "b:1": timeout'


@pytest.fixture
def connection(passing_server: ServerThread) -> Iterator[psycopg.Connection]:
    with psycopg.connect(passing_server.dsn(), autocommit=True) as connection:
        yield connection


@pytest.mark.parametrize("option", ["BROKER", "SECURITY PROTOCOL", "SASL MECHANISMS", "PROGRESS TOPIC"])
def test_options_that_errors_name_cannot_be_secrets(connection: psycopg.Connection, option: str) -> None:
    connection.execute(f"CREATE SECRET s AS '{PASSWORD}'".encode())
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=f"option {option} cannot be a secret"):
        connection.execute(f"CREATE CONNECTION k TO KAFKA ({option} = SECRET s)".encode())


def test_statements_and_the_log_do_not_have_secrets(
    connection: psycopg.Connection, pems: tuple[str, str], closed_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "REQUEST_S", 0.2)
    certificate, key = pems
    answers: list[object] = []
    options = "SASL MECHANISMS = PLAIN, SASL USERNAME = SECRET u, SASL PASSWORD = SECRET p, SSL KEY = SECRET k, "
    options += "SSL CERTIFICATE = SECRET c, SSL CERTIFICATE AUTHORITY = SECRET c"
    with capture_logs() as logged:
        for name, value in (("u", "user-name"), ("p", PASSWORD), ("k", key), ("c", certificate)):
            connection.execute(f"CREATE SECRET {name} AS '{value}'".encode())
        for statement in (
            f"CREATE CONNECTION kafka TO KAFKA (BROKER '{closed_address}', {options})",
            "VALIDATE CONNECTION kafka",
            "CREATE SOURCE s FROM KAFKA CONNECTION kafka (TOPIC 't') FORMAT TEXT",
            "SHOW CREATE CONNECTION kafka",
            "EXPLAIN SELECT * FROM mz_connections",
            "SELECT * FROM mz_connections",
            "SELECT * FROM mz_secrets",
            "ALTER CONNECTION kafka SET (SASL PASSWORD = SECRET k) WITH (VALIDATE)",
        ):
            try:
                found = connection.execute(statement.encode())
                answers.append(found.fetchall() if found.description else found.statusmessage)
            except psycopg.Error as error:
                answers += [getattr(error.diag, field) for field in dir(error.diag) if not field.startswith("_")]
    text = f"{answers}{logged}"
    assert f'could not connect to Kafka at "{closed_address}"' in text
    assert "SASL PASSWORD = SECRET materialize.public.p" in text
    for marker in ("user-name", PASSWORD, key.splitlines()[1], certificate.splitlines()[1]):
        assert marker not in text
