"""`python -m tests.server.spark.impatient_server serve ...`: a server with short timeouts for starting Java."""

from __future__ import annotations

from server import __main__ as command
from server.spark.embedded import jvm
from server.spark.embedded.driver import EmbeddedSpark

if __name__ == "__main__":
    jvm.START_TIMEOUT_S = 1
    EmbeddedSpark.pause_max_s = 0.1
    command.main()
