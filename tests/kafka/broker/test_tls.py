"""Sources and sinks over TLS, with SASL, and with a schema registry over HTTPS; the errors if access is refused."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator

import psycopg
import pytest
import trustme

from tests.fix_server import ServerProcess
from tests.kafka.broker.broker import PASSWORD, SCRAM, USER, KafkaBroker
from tests.kafka.broker.reading import until, until_status
from tests.kafka.debezium import encoded
from tests.kafka.records import Record
from tests.kafka.registry import Registry, RegistryThread
from tests.kafka.sinks import message_values, read_topic

pytestmark = pytest.mark.kafka

MECHANISMS = ("PLAIN", *SCRAM)
WRONG = "wrong-horse"
LOGIN = ("reader", "battery-staple")
SCHEMA = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "int"}, {"name": "v", "type": "string"}]}
AVRO = "FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION https"
REFUSED_S = 8.0  # a refusal is reported before the time limit of requests


@pytest.fixture(scope="module")
def https(kafka: KafkaBroker) -> Iterator[Registry]:
    """A registry that asks for LOGIN."""
    with RegistryThread(_context(kafka, "registry")) as registry:
        registry.login = LOGIN
        yield registry


@pytest.fixture(scope="module")
def expired_https(kafka: KafkaBroker) -> Iterator[Registry]:
    with RegistryThread(_context(kafka, "expired-registry", expired=True)) as registry:
        yield registry


def _context(kafka: KafkaBroker, name: str, *, expired: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*kafka.authority.server(name, expired=expired))
    return context


@pytest.fixture
def session(connection: psycopg.Connection, kafka: KafkaBroker) -> psycopg.Connection:
    """A session with secrets: `ca`, `other_ca`, the password `p` of Kafka and `r` of the registry, and `wrong`."""
    other = trustme.CA().cert_pem.bytes().decode()
    for name, value in (
        ("ca", kafka.authority.file.read_text()),
        ("other_ca", other),
        ("p", PASSWORD),
        ("r", LOGIN[1]),
        ("wrong", WRONG),
    ):
        connection.execute(f"CREATE SECRET {name} AS '{value}'".encode())
    return connection


def sasl(kafka: KafkaBroker, mechanism: str = SCRAM[0], password: str = "p") -> str:
    """The options of a connection with SASL."""
    options = f"BROKER '{kafka.addresses['SASL']}', SECURITY PROTOCOL SASL_SSL, SASL MECHANISMS '{mechanism}'"
    return f"{options}, SASL USERNAME '{USER}', SASL PASSWORD SECRET {password}, SSL CERTIFICATE AUTHORITY SECRET ca"


def tls(kafka: KafkaBroker, listener: str = "SSL", authority: str = "ca") -> str:
    """The options of a connection with TLS."""
    return f"BROKER '{kafka.addresses[listener]}', SSL CERTIFICATE AUTHORITY SECRET {authority}"


def connect(session: psycopg.Connection, options: str) -> None:
    session.execute(f"CREATE CONNECTION secure TO KAFKA ({options})".encode())


def connect_registry(session: psycopg.Connection, registry: Registry, password: str = "r", ca: str = "ca") -> None:
    options = f"USERNAME '{LOGIN[0]}', PASSWORD SECRET {password}, SSL CERTIFICATE AUTHORITY SECRET {ca}"
    statement = f"CREATE CONNECTION https TO CONFLUENT SCHEMA REGISTRY (URL '{registry.url}', {options})"
    session.execute(statement.encode())


def messages(registry: Registry, topic: str, *rows: tuple[int, str]) -> list[Record]:
    id = registry.register(f"{topic}-value", SCHEMA)
    prefix = b"\0" + id.to_bytes(4, "big")
    return [Record(None, prefix + encoded(SCHEMA, {"id": n, "v": v})) for n, v in rows]


def check_no_secrets(server: ServerProcess, *texts: object) -> None:
    text = f"{texts}{server.log_path.read_text()}"
    for secret in (PASSWORD, WRONG, LOGIN[1], "BEGIN CERTIFICATE", "PRIVATE KEY"):
        assert secret not in text


@pytest.mark.parametrize("way", ["SSL", "MUTUAL", *MECHANISMS])
def test_a_source_and_a_sink(
    kafka: KafkaBroker, https: Registry, joining_server: ServerProcess, session: psycopg.Connection, way: str
) -> None:
    source, sink = f"tls-{way}-in", f"tls-{way}-out"
    kafka.create_topic(source)
    kafka.produce(source, messages(https, source, (1, "a"), (2, "b")))
    options = sasl(kafka, way) if way in MECHANISMS else tls(kafka, way)
    if way == "MUTUAL":
        certificate, key = kafka.authority.client("tidewire")
        session.execute(f"CREATE SECRET key AS '{key.read_text()}'".encode())
        options += f", SSL CERTIFICATE '{certificate.read_text()}', SSL KEY SECRET key"
    connect(session, options)
    connect_registry(session, https)
    for name in ("secure", "https"):
        session.execute(f"VALIDATE CONNECTION {name}".encode())
    session.execute(f"CREATE SOURCE items FROM KAFKA CONNECTION secure (TOPIC '{source}') {AVRO}".encode())
    into = f"INTO KAFKA CONNECTION secure (TOPIC '{sink}') KEY (id) {AVRO} ENVELOPE UPSERT"
    session.execute(f"CREATE SINK written FROM items {into}".encode())
    until(session, "items", [(1, "a"), (2, "b")])
    kafka.produce(source, messages(https, source, (3, "c")))
    until(session, "items", [(1, "a"), (2, "b"), (3, "c")])
    found: list[int] = []
    while found != [1, 2, 3]:
        topics = kafka.admin.list_topics().topics
        read = read_topic(kafka.address, sink) if sink in topics else []
        found = sorted(value["id"] for _, value in message_values(read, https.schemas))
    shown = session.execute("SHOW CREATE CONNECTION secure").fetchall()
    check_no_secrets(joining_server, [] if way == "MUTUAL" else shown)


@pytest.mark.parametrize(
    ("case", "reason", "hint"),
    [
        ("PLAIN", "SASL authentication error: Authentication failed: Invalid username or password", "SASL PASSWORD"),
        *[(mechanism, f"invalid credentials with SASL mechanism {mechanism}", "SASL PASSWORD") for mechanism in SCRAM],
        ("wrong authority", "certificate verify failed: unable to get local issuer certificate", "AUTHORITY"),
        ("no authority", "certificate verify failed: unable to get local issuer certificate", "AUTHORITY"),
        ("expired", "certificate verify failed: certificate has expired", "certificate of the broker"),
        ("no certificate", "alert", "SSL CERTIFICATE and SSL KEY"),
    ],
)
def test_refused_access_to_a_broker(
    kafka: KafkaBroker, joining_server: ServerProcess, session: psycopg.Connection, case: str, reason: str, hint: str
) -> None:
    kafka.create_topic(f"refused-{case.replace(' ', '-')}")
    options = {
        "wrong authority": tls(kafka, authority="other_ca"),
        "no authority": f"BROKER '{kafka.addresses['SSL']}', SECURITY PROTOCOL SSL",
        "expired": tls(kafka, "EXPIRED"),
        "no certificate": tls(kafka, "MUTUAL"),
    }
    connect(session, options[case] if case in options else sasl(kafka, case, "wrong"))
    begun = time.monotonic()
    with pytest.raises(psycopg.OperationalError) as caught:
        session.execute("VALIDATE CONNECTION secure")
    if case != "no certificate":  # which the broker refuses after the handshake
        assert time.monotonic() < begun + REFUSED_S
    diag = caught.value.diag
    assert diag.sqlstate == "08006"
    assert str(diag.message_primary).startswith('could not connect to Kafka at "127.0.0.1:')
    assert reason in str(diag.message_primary)
    assert hint in str(diag.message_hint)
    check_no_secrets(joining_server, diag.message_primary, diag.message_detail, diag.message_hint)


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("password", "refused access"),
        ("authority", "certificate verify failed: unable to get local issuer certificate"),
        ("expired", "certificate verify failed: certificate has expired"),
    ],
)
def test_refused_access_to_a_registry(
    kafka: KafkaBroker,
    https: Registry,
    expired_https: Registry,
    joining_server: ServerProcess,
    session: psycopg.Connection,
    case: str,
    reason: str,
) -> None:
    topic = f"registry-{case}"
    kafka.create_topic(topic)
    connect(session, tls(kafka))
    registry = expired_https if case == "expired" else https
    password, authority = "wrong" if case == "password" else "r", "other_ca" if case == "authority" else "ca"
    connect_registry(session, registry, password, authority)
    with pytest.raises(psycopg.OperationalError, match=reason) as caught:
        session.execute(f"CREATE SOURCE s FROM KAFKA CONNECTION secure (TOPIC '{topic}') {AVRO}".encode())
    diag = caught.value.diag
    assert (diag.sqlstate, diag.message_hint is not None) == ("08006", True)
    check_no_secrets(joining_server, diag.message_primary, diag.message_detail, diag.message_hint)


def until_sink(session: psycopg.Connection, status: str) -> str | None:
    """Waits until the sink has this status, and returns its error."""
    query = "SELECT error FROM mz_internal.mz_sink_statuses WHERE name = 'rotated_out' AND status = %s"
    while (row := session.execute(query, (status,)).fetchone()) is None:
        time.sleep(0.05)
    error: str | None = row[0]
    return error


def test_a_password_that_changes(
    kafka: KafkaBroker, https: Registry, joining_server: ServerProcess, session: psycopg.Connection
) -> None:
    """Source and sink stall and say why, and continue with the right password."""
    kafka.create_topic("rotated")
    kafka.produce("rotated", messages(https, "rotated", (1, "a")))
    connect(session, sasl(kafka))
    connect_registry(session, https)
    session.execute(f"CREATE SOURCE rotated FROM KAFKA CONNECTION secure (TOPIC 'rotated') {AVRO}".encode())
    session.execute(
        f"CREATE SINK rotated_out FROM rotated INTO KAFKA CONNECTION secure (TOPIC 'rotated-out') KEY (id) {AVRO} "
        "ENVELOPE UPSERT".encode()
    )
    until(session, "rotated", [(1, "a")])
    for secret, right, reason in (
        ("p", PASSWORD, f"invalid credentials with SASL mechanism {SCRAM[0]}"),
        ("r", LOGIN[1], f'schema registry "{https.url}" refused access'),
    ):
        session.execute(f"ALTER SECRET {secret} AS '{WRONG}'".encode())
        errors = [until_status(session, "rotated", "stalled")] if secret == "p" else []  # schemas are stored
        errors.append(until_sink(session, "stalled"))
        assert all(error is not None and reason in error for error in errors), errors
        check_no_secrets(joining_server, errors)
        session.execute(f"ALTER SECRET {secret} AS '{right}'".encode())
        until_status(session, "rotated", "running")
        until_sink(session, "running")
    kafka.produce("rotated", messages(https, "rotated", (2, "b")))
    until(session, "rotated", [(1, "a"), (2, "b")])
    found: list[int] = []
    while found != [1, 2]:
        values = message_values(read_topic(kafka.address, "rotated-out"), https.schemas)
        found = sorted(value["id"] for _, value in values)
