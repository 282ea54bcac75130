"""The state of a running `.td` file: options, variables, regex, timeout, connections.

Variables, `${name}`: `arg.NAME` from the command line, `env.NAME` from the environment, those that `$ set` and similar
actions define, and testdrive.seed, .temp-dir, .url, .materialize-sql-addr and .materialize-internal-sql-addr
(host:port), .materialize-user, .kafka-addr and .schema-registry-url. `testdrive.url`, the whole URL (e.g. for
`$ postgres-connect`), does not exist in Materialize's testdrive. `${kafka-ingest.NAME}` is not replaced: only an action
interprets it.
"""

from __future__ import annotations

import os
import random
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from psycopg import ProgrammingError, conninfo

from testdrive.client import Client
from testdrive.kafka.cluster import Cluster
from testdrive.kafka.registry import Registry
from testdrive.report import CommandFailed

DEFAULT_URL = "postgres://materialize@localhost:6875/materialize"
DEFAULT_KAFKA_ADDR = "localhost:9092"
DEFAULT_SCHEMA_REGISTRY_URL = "http://localhost:8081"
_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_VARIABLE = re.compile(r"\$\{([^}]*)\}")
_OF_AN_ACTION = "kafka-ingest."


def seconds(duration: str) -> float:
    """Parses a duration such as `50ms`, `1.5s`, `2m`, `2min` or `1h` to seconds. Raises ValueError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([a-z]+)", duration)
    if not found or found[2] not in _UNITS_S:
        raise ValueError(f"{duration!r} is not a duration such as 50ms, 30s or 2m")
    return float(found[1]) * _UNITS_S[found[2]]


def random_seed() -> int:
    return random.randrange(2**32)


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a run.

    `variables` are those with the prefix `arg.`, without the prefix. `internal_url` None means `url`; `max_tries` None
    means no limit; `temp_dir` None means a temporary directory for each file. `at_line` is called with the line of each
    command before it runs. A `.pt` file uses only `url`, `default_timeout_s`, `rewrite` and `at_line`.
    """

    url: str = DEFAULT_URL
    variables: Mapping[str, str] = field(default_factory=dict)
    seed: int = field(default_factory=random_seed)
    default_timeout_s: float = 30.0
    initial_backoff_s: float = 0.05
    backoff_factor: float = 1.5
    max_tries: int | None = None
    internal_url: str | None = None
    kafka_addr: str = DEFAULT_KAFKA_ADDR
    kafka_default_partitions: int = 1
    schema_registry_url: str = DEFAULT_SCHEMA_REGISTRY_URL
    reset: bool = True
    temp_dir: Path | None = None
    rewrite: bool = False
    at_line: Callable[[int], None] = lambda line: None


class Background:
    """Queries that run on a separate connection in the background. `line`: of the command that started them."""

    def __init__(self, line: int, client: Client, queries: Sequence[str], timeout_s: float) -> None:
        self.line = line
        self._client = client
        self._failure: CommandFailed | None = None
        self._thread = threading.Thread(target=self._run, args=(queries, timeout_s))
        self._thread.start()

    def _run(self, queries: Sequence[str], timeout_s: float) -> None:
        try:
            for query in queries:
                self._client.simple(query, timeout_s)
        except CommandFailed as error:
            self._failure = error

    def end(self) -> CommandFailed | None:
        """Returns the failure of queries that have finished. Interrupts queries that still run and returns None."""
        if not self._thread.is_alive():
            return self._failure
        while self._thread.is_alive():
            self._client.interrupt()
            self._thread.join(0.1)
        return None

    def close(self) -> None:
        self.end()
        self._client.close()


class Script:
    """The state of one file.

    `timeout_s` and `max_tries` apply to each statement. `regex` and its replacement apply to results and error
    messages. `line` is that of the current command.
    """

    def __init__(self, options: Options, temp_dir: Path) -> None:
        server, internal = _server(options.url), _server(options.internal_url or options.url)
        self.options = options
        self.temp_dir = temp_dir
        self.line = 1
        self.timeout_s = options.default_timeout_s
        self.max_tries = options.max_tries
        self.skipping = False
        self.regex: tuple[re.Pattern[str], str] | None = None
        self.client = self.connection(options.url)
        self.clients: dict[str, Client] = {}
        self.background: list[Background] = []
        self.registry = Registry(options.schema_registry_url)
        self._kafka: Cluster | None = None
        self.variables = {f"env.{name}": value for name, value in os.environ.items()}
        self.variables |= {f"arg.{name}": value for name, value in options.variables.items()}
        self.variables |= {
            "testdrive.seed": str(options.seed),
            "testdrive.temp-dir": str(temp_dir),
            "testdrive.url": options.url,
            "testdrive.materialize-sql-addr": _address(server),
            "testdrive.materialize-internal-sql-addr": _address(internal),
            "testdrive.materialize-user": str(server.get("user") or ""),
            "testdrive.kafka-addr": options.kafka_addr,
            "testdrive.schema-registry-url": options.schema_registry_url,
        }

    def connection(self, url: str) -> Client:
        """Returns a client for this URL, which is not connected yet."""
        return Client(url, self.options.url)

    @property
    def kafka(self) -> Cluster:
        """The brokers. The first use in a file deletes the topics of this seed, unless `reset` is off."""
        if self._kafka is None:
            self._kafka = Cluster(self.options.kafka_addr)
            if self.options.reset:
                prefix, suffix = self.topic("*").split("*")
                self._kafka.delete_matching(prefix, suffix, self.timeout_s)
        return self._kafka

    def topic(self, name: str) -> str:
        """Returns the name in Kafka of a topic of the script."""
        return f"testdrive-{name}-{self.options.seed}"

    def substitute(self, text: str, quote: Callable[[str], str] = str) -> str:
        """Replaces the variables in `text` by `quote(value)`. CommandFailed for a variable that is not set."""

        def value(found: re.Match[str]) -> str:
            if found[1].startswith(_OF_AN_ACTION):
                return found[0]
            if found[1] not in self.variables:
                raise CommandFailed(f"variable ${{{found[1]}}} is not set")
            return quote(self.variables[found[1]])

        return _VARIABLE.sub(value, text)

    def masked(self, text: str) -> str:
        return text if self.regex is None else self.regex[0].sub(self.regex[1], text)

    def close(self) -> None:
        for background in self.background:
            background.close()
        for client in (self.client, *self.clients.values()):
            client.close()


def _server(url: str) -> Mapping[str, object]:
    try:
        return conninfo.conninfo_to_dict(url)
    except ProgrammingError as error:
        raise CommandFailed(f"cannot read the URL {url}: {error}") from error


def _address(server: Mapping[str, object]) -> str:
    return f"{server.get('host') or 'localhost'}:{server.get('port') or 5432}"
