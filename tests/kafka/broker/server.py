"""`python -m tests.kafka.broker.server serve ...`: `tidewire serve` without Spark: old rows are found by `JoinEngine`.

FAULTS_DIE kills it, as `tests.faults.child` describes. Sources look for new partitions every METADATA_S.
"""

from __future__ import annotations

import functools
from typing import Any

from server import app
from server.ingest.kafka import kind
from server.ingest.kafka.upstream import KafkaUpstream
from tests.faults import child
from tests.kafka.outputs import JoinEngine

METADATA_S = 0.5


class Engine(JoinEngine):
    def __init__(self, **_: Any) -> None:
        """Has no settings."""


def main() -> None:
    app.SparkEngine = Engine  # type: ignore[misc, assignment]
    kind.KafkaUpstream = functools.partial(KafkaUpstream, metadata_s=METADATA_S)  # type: ignore[misc, assignment]
    child.main()


if __name__ == "__main__":
    main()
