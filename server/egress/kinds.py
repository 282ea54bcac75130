"""The kinds of sink, by the name that `Sink.system` has."""

from __future__ import annotations

from collections.abc import Mapping

from server.egress.file.kind import FileSink
from server.egress.kafka.kind import KafkaSink
from server.egress.postgres.kind import PostgresSink
from server.egress.sink_kind import SinkKind

KINDS: Mapping[str, SinkKind] = {"file": FileSink(), "kafka": KafkaSink(), "postgres": PostgresSink()}
