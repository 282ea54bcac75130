"""What a session executes now, or has executed last."""

from __future__ import annotations

import re
import time

TEXT_CHARS_MAX = 1_023  # PostgreSQL shows as many bytes
_SECRET = re.compile(r"\b(?:password|secret)\b", re.IGNORECASE)


class CurrentQuery:
    """The text of the current query, or of the last one while the session is idle. Called for each message.

    `begun_us`, `changed_us`: when the query began, and when the session became active or idle; microseconds since 1970.
    """

    __slots__ = ("_text", "begun_us", "changed_us", "is_active")

    def __init__(self) -> None:
        self._text = ""
        self.is_active = False
        self.begun_us = 0
        self.changed_us = 0

    def begin(self, text: str) -> None:
        """`text`: of a whole Query message, or of a prepared statement."""
        self._text = text[:TEXT_CHARS_MAX]
        self.begun_us = self.changed_us = time.time_ns() // 1_000
        self.is_active = True

    def end(self) -> None:
        """The client may send the next query."""
        self.is_active = False
        self.changed_us = time.time_ns() // 1_000

    def shown_text(self) -> str:
        """The text without passwords and secrets: it ends after the word that announces one."""
        secret = _SECRET.search(self._text)
        return self._text if secret is None else f"{self._text[: secret.end()]} ..."
