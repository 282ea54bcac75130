"""Spark Connect connection strings: `sc://host:port/;key=value;...`.

Source: Spark's connector/connect/docs/client-connection-string.md. `token`, `use_ssl` and `user_id` are supported.
Other keys are sent as headers of that name. `session_id` is refused: each Spark session of the server has its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import unquote

DEFAULT_PORT = 15002
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")  # to other hosts a token is sent over TLS only
_URL = re.compile(r"sc://(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s/:;\[\]]+)(?::(?P<port>\d{1,5}))?(?:/(?:;(?P<keys>\S*))?)?")


@dataclass(frozen=True, slots=True)
class ConnectUrl:
    """`target` is HOST:PORT. `headers` are sent with every call; their keys are lower case."""

    target: str
    user_id: str = "tidewire"
    use_ssl: bool = False
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        """The address without the keys, which may be secret."""
        return f"sc://{self.target}"

    @classmethod
    def parse(cls, text: str) -> ConnectUrl:
        """Parses a connection string. ValueError with a message for the user."""
        match = _URL.fullmatch(text)
        if match is None or int(match["port"] or DEFAULT_PORT) > 65_535:
            raise ValueError("use sc://HOST:PORT, such as sc://spark.example:15002")
        pairs = [part.partition("=") for part in (match["keys"] or "").split(";") if part]
        for key, _, value in pairs:
            if not key or not value:
                raise ValueError("what follows the address must be ;key=value;key=value")
        keys = {key.lower(): unquote(value) for key, _, value in pairs}
        if "session_id" in keys:
            raise ValueError("session_id cannot be chosen: each of Tidewire's Spark sessions has its own")
        secure = keys.pop("use_ssl", "false").lower()
        if secure not in ("true", "false"):
            raise ValueError("use_ssl must be true or false")
        token, user_id = keys.pop("token", None), keys.pop("user_id", "tidewire")
        use_ssl = secure == "true" or (token is not None and match["host"] not in LOOPBACK)
        if token is not None:
            keys["authorization"] = f"Bearer {token}"
        return cls(
            target=f"{match['host']}:{match['port'] or DEFAULT_PORT}",
            user_id=user_id,
            use_ssl=use_ssl,
            headers=tuple(keys.items()),
        )
