"""The command line: `testdrive --url URL FILE.td FILE.pt ...`; exit code 0 only if every file passed."""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

from testdrive import RUNNERS, Options, run_file
from testdrive.script import DEFAULT_KAFKA_ADDR, DEFAULT_SCHEMA_REGISTRY_URL, DEFAULT_URL, random_seed, seconds


def main() -> int:
    arguments = _parser().parse_args()
    options = Options(
        url=arguments.url,
        internal_url=arguments.materialize_internal_url,
        kafka_addr=arguments.kafka_addr,
        kafka_default_partitions=arguments.kafka_default_partitions,
        schema_registry_url=arguments.schema_registry_url,
        variables=dict(arguments.var),
        seed=arguments.seed,
        default_timeout_s=arguments.default_timeout,
        initial_backoff_s=arguments.initial_backoff,
        backoff_factor=arguments.backoff_factor,
        max_tries=arguments.default_max_tries,
        reset=not arguments.no_reset,
        temp_dir=arguments.temp_dir,
        rewrite=arguments.rewrite,
    )
    print(f"seed {options.seed}")
    failed = 0
    for path in arguments.files:
        started = time.monotonic()
        with _Reminder(path, arguments.still_running) as reminder:
            failures = run_file(path, replace(options, at_line=reminder.at_line))
        print(f"{'FAIL' if failures else 'ok  '} {path} ({time.monotonic() - started:.2f} s)", flush=True)
        for failure in failures:
            print(failure, file=sys.stderr, flush=True)
        failed += bool(failures)
        if failed >= arguments.max_errors:
            print(f"stopped after {failed} failed files (--max-errors)", file=sys.stderr)
            break
    return 1 if failed else 0


class _Reminder:
    """A context manager that prints every `interval_s` that the file is still running, and at which line."""

    def __init__(self, path: Path, interval_s: float) -> None:
        self._path, self._interval_s = path, interval_s
        self._line = 1
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._remind, daemon=True)

    def at_line(self, line: int) -> None:
        self._line = line

    def __enter__(self) -> _Reminder:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._left.set()
        self._thread.join()

    def _remind(self) -> None:
        started = time.monotonic()
        while not self._left.wait(self._interval_s):
            seconds = time.monotonic() - started
            print(f"...  {self._path}:{self._line} is still running ({seconds:.0f} s)", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="testdrive",
        description="Run scripts of SQL (.td) and of protocol messages (.pt) against a server.",
        epilog="A DURATION has a unit: 50ms, 30s, 2m, 1h. The exit code is 0 only if every file passed.",
    )
    add = parser.add_argument
    add("files", nargs="+", type=_script, metavar="FILE", help="scripts, run in this order")
    add("--url", "--materialize-url", default=DEFAULT_URL, help="the server (default: %(default)s)")
    add("--materialize-internal-url", metavar="URL", help="the server's internal port, if it has one (default: --url)")
    add("--kafka-addr", metavar="ADDRESS", default=DEFAULT_KAFKA_ADDR, help="Kafka's brokers (default: %(default)s)")
    add(
        "--kafka-default-partitions",
        type=_number,
        metavar="PARTITIONS",
        default=1,
        help="of a topic that kafka-create-topic creates (default: %(default)s)",
    )
    add(
        "--schema-registry-url",
        metavar="URL",
        default=DEFAULT_SCHEMA_REGISTRY_URL,
        help="the schema registry (default: %(default)s)",
    )
    add("--var", action="append", default=[], type=_variable, metavar="NAME=VALUE", help="sets ${arg.NAME}")
    add("--seed", type=int, default=random_seed(), help="${testdrive.seed} (default: random)")
    add(
        "--default-timeout",
        type=_duration,
        metavar="DURATION",
        default="30s",
        help="of a statement and its retries (default: 30s)",
    )
    add(
        "--initial-backoff",
        type=_duration,
        metavar="DURATION",
        default="50ms",
        help="pause before the second try (default: 50ms)",
    )
    add(
        "--backoff-factor",
        type=float,
        metavar="FACTOR",
        default=1.5,
        help="growth of that pause from try to try (default: 1.5)",
    )
    add(
        "--default-max-tries",
        type=_number,
        metavar="TRIES",
        help="how often a statement is tried (default: until its timeout)",
    )
    add(
        "--still-running",
        type=_interval,
        metavar="DURATION",
        default="10s",
        help="how often a file that runs longer says so (default: 10s)",
    )
    add("--max-errors", type=int, default=10, metavar="FILES", help="stop after so many failed files (default: 10)")
    add("--no-reset", action="store_true", help="do not drop the server's databases before each .td file")
    add("--temp-dir", type=Path, metavar="DIR", help="${testdrive.temp-dir} (default: a new directory for each file)")
    add(
        "--rewrite",
        action="store_true",
        default=os.environ.get("REWRITE") == "1",
        help="write the server's answers into the scripts where they differ; so does REWRITE=1 in the environment",
    )
    return parser


def _script(text: str) -> Path:
    path = Path(text)
    if path.suffix not in RUNNERS:
        raise argparse.ArgumentTypeError(f"{text} ends neither in .td nor in .pt")
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"there is no file {text}")
    return path


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text} is not NAME=VALUE")
    return name, value


def _number(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 1")
    return int(text)


def _interval(text: str) -> float:
    if not (interval_s := _duration(text)):
        raise argparse.ArgumentTypeError("must be greater than zero")
    return interval_s


def _duration(text: str) -> float:
    try:
        return seconds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


if __name__ == "__main__":
    sys.exit(main())
