"""The actions on Kafka and on a schema registry.

A topic `t` of a script is the topic `testdrive-t-SEED` of the cluster. A line of a body is one message.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from testdrive.actions.registered import Arguments, action, boolean, positive
from testdrive.escapes import shown
from testdrive.kafka.avro import AvroSchema
from testdrive.kafka.cluster import Message
from testdrive.kafka.parts import NULL, Avro, Bytes, JsonText, Part
from testdrive.report import CommandFailed, Mismatch
from testdrive.script import Script

_FORMATS = ("avro", "json", "bytes")
_ITERATION = "${kafka-ingest.iteration}"
_LEFT = re.compile(r"\$\{kafka-ingest\.[^}]*\}")


@action("kafka-create-topic", required="topic", optional="partitions replication-factor compaction")
def create_topic(script: Script, arguments: Arguments, body: list[str]) -> None:
    """Creates a topic. `compaction`: its cleanup policy is compact."""
    partitions = arguments.get("partitions", str(script.options.kafka_default_partitions))
    compaction = boolean("compaction", arguments.get("compaction", "false"))
    script.kafka.create_topic(
        script.topic(arguments["topic"]),
        positive("partitions", partitions),
        positive("replication-factor", arguments.get("replication-factor", "1")),
        {"cleanup.policy": "compact"} if compaction else {},
        script.timeout_s,
    )


@action("kafka-add-partitions", required="topic total-partitions")
def add_partitions(script: Script, arguments: Arguments, body: list[str]) -> None:
    total = positive("total-partitions", arguments["total-partitions"])
    script.kafka.add_partitions(script.topic(arguments["topic"]), total, script.timeout_s)


@action("kafka-delete-topic-flaky", required="topic")
def delete_topic(script: Script, arguments: Arguments, body: list[str]) -> None:
    script.kafka.delete_topics([script.topic(arguments["topic"])], script.timeout_s)


@action("schema-registry-publish", required="subject schema-type", optional="references", has_body=True)
def publish(script: Script, arguments: Arguments, body: list[str]) -> None:
    """Registers the body as a version of the subject. `references`: subjects, separated by commas."""
    kind = arguments["schema-type"]
    if kind not in ("avro", "json", "protobuf"):
        raise CommandFailed(f"schema-type is one of avro, json, protobuf, not {kind!r}")
    references = [script.registry.latest(name, script.timeout_s) for name in _names(arguments.get("references", ""))]
    script.registry.publish(
        arguments["subject"], "\n".join(body), timeout_s=script.timeout_s, kind=kind.upper(), references=references
    )


@action(
    "kafka-ingest",
    required="topic format",
    optional="schema key-format key-schema key-terminator partition timestamp repeat start-iteration omit-key "
    "omit-value headers confluent-wire-format references key-references set-schema-id-var set-key-schema-id-var "
    "schema-id-subject",
    has_body=True,
)
def ingest(script: Script, arguments: Arguments, body: list[str]) -> None:
    """Writes the lines `repeat` times. `docs/testdrive.md` describes the arguments."""
    topic = script.topic(arguments["topic"])
    partition = _number("partition", arguments["partition"]) if "partition" in arguments else None
    timestamp_ms = positive("timestamp", arguments["timestamp"]) if "timestamp" in arguments else None
    headers = _headers(arguments.get("headers", "{}"))
    start = _number("start-iteration", arguments.get("start-iteration", "0"))
    end = start + positive("repeat", arguments.get("repeat", "1"))
    lines = _Lines(script, arguments)

    def messages() -> Iterator[Message]:
        for iteration in range(start, end):
            for number, line in enumerate(body, 1):
                key, value = lines.read(number, line.replace(_ITERATION, str(iteration)))
                yield Message(key, value, headers, partition, timestamp_ms)

    script.kafka.produce(topic, messages(), script.timeout_s)


@action(
    "kafka-verify-data",
    required="topic",
    optional="format key-format value-format key key-terminator sort-messages headers partial-search debug-print-only",
    has_body=True,
)
def verify_data(script: Script, arguments: Arguments, body: list[str]) -> None:
    """Compares all messages of a topic, by partition and offset, with the lines."""
    if ("format" in arguments) == ("value-format" in arguments):
        raise CommandFailed("kafka-verify-data needs either the argument format or value-format")
    value_format = arguments.get("value-format") or arguments["format"]
    key_format = arguments.get("key-format", arguments.get("format"))
    with_key = boolean("key", arguments.get("key", "true" if key_format else "false"))
    if with_key and not key_format:
        raise CommandFailed("kafka-verify-data key=true with value-format needs the argument key-format")
    schemas = _Schemas(script)
    key = _reader("key-format", key_format or "", schemas, arguments.get("key-terminator", ":")) if with_key else None
    value = _reader("format", value_format, schemas, None)
    headers = _names(arguments.get("headers", ""))
    limit = positive("partial-search", arguments["partial-search"]) if "partial-search" in arguments else None
    topic = script.topic(arguments["topic"])

    def lines(at_least: int) -> list[str]:
        messages = script.kafka.consume(topic, at_least, script.timeout_s)
        return [_shown(number, message, headers, key, value) for number, message in enumerate(messages, 1)]

    got = lines(len(body))
    if boolean("debug-print-only", arguments.get("debug-print-only", "false")):
        print("\n".join(got))
        return
    expected = [_canonical(number, line, headers, key, value) for number, line in enumerate(body, 1)]
    if limit is not None:
        while not _contains(got[:limit], expected):
            if len(got) >= limit or len(more := lines(len(got) + 1)) == len(got):
                raise Mismatch(expected, got[:limit], "the messages differ")
            got = more
        return
    if boolean("sort-messages", arguments.get("sort-messages", "false")):
        got, expected = sorted(got), sorted(expected)
    if got != expected:
        raise Mismatch(expected, got, "the messages differ")


def _contains(lines: Sequence[str], part: Sequence[str]) -> bool:
    """Whether the lines of `part` are consecutive in `lines`."""
    return any(lines[start : start + len(part)] == part for start in range(len(lines) - len(part) + 1))


class _Schemas:
    """The schemas of messages by id, fetched once each."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._found: dict[int, AvroSchema] = {}

    def __call__(self, id: int) -> AvroSchema:
        if id not in self._found:
            text, references = self._script.registry.schema(id, self._script.timeout_s)
            self._found[id] = AvroSchema(text, references)
        return self._found[id]


class _Lines:
    """The formats of a kafka-ingest. Creating them registers the Avro schemas, the key's first."""

    def __init__(self, script: Script, arguments: Arguments) -> None:
        self._script = script
        self._arguments = arguments
        self._omits_value = boolean("omit-value", arguments.get("omit-value", "false"))
        omits_key = boolean("omit-key", arguments.get("omit-key", "false"))
        topic = script.topic(arguments["topic"])
        key_format = arguments.get("key-format")
        if "key-terminator" in arguments and key_format != "bytes":
            raise CommandFailed("key-terminator needs key-format=bytes")
        self._key = None
        if key_format is not None:
            key = self._part("key-", key_format, f"{topic}-key", arguments.get("key-terminator", ":"))
            self._key = None if omits_key else key
        subject = arguments.get("schema-id-subject", f"{topic}-value")
        self._value = self._part("", arguments["format"], subject, None)

    def read(self, number: int, line: str) -> tuple[bytes | None, bytes | None]:
        """Returns the key and the value of a line. `number`: of the line in the body."""
        try:
            if left := _LEFT.search(line):
                raise ValueError(f"variable {left[0]} is not set")
            key, rest = (None, line) if self._key is None else self._key.read(line)
            value, rest = (None, rest) if self._omits_value else self._value.read(rest)
            if rest.strip():
                raise ValueError(f"unexpected text at its end: {rest.strip()}")
        except ValueError as error:
            raise CommandFailed(f"message {number}, {line!r}: {error}") from error
        return key, value

    def _part(self, prefix: str, format: str, subject: str, terminator: str | None) -> Part:
        arguments = self._arguments
        name = f"{prefix}schema"
        if format == "avro" and name not in arguments:
            raise CommandFailed(f"{prefix}format=avro needs the argument {name}")
        if format != "avro":
            if name in arguments:
                raise CommandFailed(f"{name} needs {prefix}format=avro")
            return _reader(f"{prefix}format", format, _Schemas(self._script), terminator)
        script = self._script
        references = [
            script.registry.latest(reference, script.timeout_s)
            for reference in _names(arguments.get(f"{prefix}references", ""))
        ]
        try:
            schema = AvroSchema(arguments[name], [reference.schema for reference in references])
        except ValueError as error:
            raise CommandFailed(f"{name}: {error}") from error
        id = None
        if boolean("confluent-wire-format", arguments.get("confluent-wire-format", "true")):
            id = script.registry.publish(subject, arguments[name], timeout_s=script.timeout_s, references=references)
            if variable := arguments.get(f"set-{prefix}schema-id-var"):
                script.variables[variable] = str(id)
        return Avro(schema, id, _Schemas(script))


def _reader(argument: str, format: str, schemas: _Schemas, terminator: str | None) -> Part:
    match format:
        case "avro":
            return Avro(None, None, schemas)
        case "json":
            return JsonText()
        case "bytes" if terminator != "":
            return Bytes(terminator)
        case "bytes":
            raise CommandFailed("key-terminator is empty")
    raise CommandFailed(f"{argument} is one of {', '.join(_FORMATS)}, not {format!r}")


def _shown(number: int, message: Message, headers: Sequence[str], key: Part | None, value: Part) -> str:
    """Formats a message as a line: the values of the headers, the key, the value."""
    last = dict(message.headers)
    try:
        parts = [_shown_header(last.get(name)) for name in headers]
        shown_key = "" if key is None else key.show(message.key)
        shown_value = value.show(message.value)
    except ValueError as error:
        raise CommandFailed(f"message {number} of the topic: {error}") from error
    return _joined([*parts, shown_key], shown_value, key)


def _canonical(number: int, line: str, headers: Sequence[str], key: Part | None, value: Part) -> str:
    """Formats an expected line as `_shown` does."""
    try:
        *parts, rest = line.split(" ", len(headers))
        if len(parts) < len(headers):
            raise ValueError(f"needs a value for each of the {len(headers)} headers")
        expected_key, rest = ("", rest) if key is None else key.canonical(rest)
        expected_value, rest = value.canonical(rest)
        if rest.strip():
            raise ValueError(f"unexpected text at its end: {rest.strip()}")
    except ValueError as error:
        raise CommandFailed(f"message {number}, {line!r}: {error}") from error
    return _joined([*parts, expected_key], expected_value, key)


def _joined(parts: Sequence[str], value: str, key: Part | None) -> str:
    """A bytes key ends with its terminator, and a bytes value begins right after the key."""
    *headers, shown_key = parts
    if key is None:
        return " ".join([*headers, value])
    between = "" if isinstance(key, Bytes) or value.startswith(" ") else " "
    return " ".join([*headers, shown_key + between + value])


def _shown_header(value: bytes | None) -> str:
    return NULL if value is None else shown(value).replace(" ", "\\x20")


def _headers(text: str) -> list[tuple[str, bytes | None]]:
    """Parses `{"name": value, ...}`, or a list of such objects. A value is text, null, or a list of bytes."""
    try:
        given = json.loads(text)
        found = [item for part in (given if isinstance(given, list) else [given]) for item in part.items()]
        return [(name, _header(value)) for name, value in found]
    except (ValueError, TypeError, AttributeError) as error:
        raise CommandFailed(
            f'headers is a JSON object such as {{"name": "text", "bytes": [0, 255], "none": null}}, not {text}'
        ) from error


def _header(value: object) -> bytes | None:
    match value:
        case None:
            return None
        case str():
            return value.encode()
        case list():
            return bytes(value)
    raise ValueError(f"{value!r} is no header")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _number(name: str, text: str) -> int:
    if not text.isdecimal():
        raise CommandFailed(f"{name} is a number from 0, not {text!r}")
    return int(text)
