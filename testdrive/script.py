"""What a running `.td` file carries along: options, variables, regex, timeout, connections.

Variables, `${name}`: `arg.NAME` from the command line, `env.NAME` from the environment, what `$ set` and its like
define, and testdrive.seed, .temp-dir, .url, .materialize-sql-addr (host:port), .materialize-user.
`testdrive.url` is this program's own: the whole URL, for `$ postgres-connect` and `$ postgres-execute`.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from psycopg import ProgrammingError, conninfo

from testdrive.client import Client
from testdrive.report import CommandFailed

DEFAULT_URL = "postgres://materialize@localhost:6875/materialize"
_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_VARIABLE = re.compile(r"\$\{([^}]*)\}")


def seconds(duration: str) -> float:
    """`50ms`, `1.5s`, `2m` or `2min`, `1h`. Raises ValueError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([a-z]+)", duration)
    if not found or found[2] not in _UNITS_S:
        raise ValueError(f"{duration!r} is not a duration such as 50ms, 30s or 2m")
    return float(found[1]) * _UNITS_S[found[2]]


def random_seed() -> int:
    return random.randrange(2**32)


@dataclass(frozen=True, slots=True)
class Options:
    """How files are run; `variables` are the `arg.` ones, without that prefix. A `.pt` file uses only `url`,
    `default_timeout_s` and `rewrite`. `temp_dir` None gives each file a directory of its own that is removed."""

    url: str = DEFAULT_URL
    variables: Mapping[str, str] = field(default_factory=dict)
    seed: int = field(default_factory=random_seed)
    default_timeout_s: float = 30.0
    initial_backoff_s: float = 0.05
    backoff_factor: float = 1.5
    reset: bool = True
    temp_dir: Path | None = None
    rewrite: bool = False


class Script:
    """The state of one file. `timeout_s` is for each statement; `regex` and its replacement apply to results."""

    def __init__(self, options: Options, temp_dir: Path) -> None:
        try:
            server = conninfo.conninfo_to_dict(options.url)
        except ProgrammingError as error:
            raise CommandFailed(f"cannot read the URL {options.url}: {error}") from error
        self.options = options
        self.timeout_s = options.default_timeout_s
        self.skipping = False
        self.regex: tuple[re.Pattern[str], str] | None = None
        self.client = Client(options.url)
        self.clients: dict[str, Client] = {}
        self.variables = {f"env.{name}": value for name, value in os.environ.items()}
        self.variables |= {f"arg.{name}": value for name, value in options.variables.items()}
        self.variables |= {
            "testdrive.seed": str(options.seed),
            "testdrive.temp-dir": str(temp_dir),
            "testdrive.url": options.url,
            "testdrive.materialize-sql-addr": f"{server.get('host') or 'localhost'}:{server.get('port') or 5432}",
            "testdrive.materialize-user": str(server.get("user") or ""),
        }

    def substitute(self, text: str, quote: Callable[[str], str] = str) -> str:
        """`text` with its variables replaced by their values, each through `quote`."""

        def value(found: re.Match[str]) -> str:
            if found[1] not in self.variables:
                raise CommandFailed(f"variable ${{{found[1]}}} is not set")
            return quote(self.variables[found[1]])

        return _VARIABLE.sub(value, text)

    def masked(self, text: str) -> str:
        return text if self.regex is None else self.regex[0].sub(self.regex[1], text)

    def close(self) -> None:
        for client in (self.client, *self.clients.values()):
            client.close()
