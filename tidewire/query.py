"""The subscribed query as a SUBSCRIBE statement, and the token that records how far its stream has been read."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Literal, Self

Envelope = Literal["upsert", "debezium"]

_IDENTIFIER = r'(?:[A-Za-z_\u0080-\uffff][\w$]*|"(?:[^"]|"")+")'
_NAME = re.compile(rf"{_IDENTIFIER}(?:\s*\.\s*{_IDENTIFIER})*")


def is_name(text: str) -> bool:
    """Returns whether the text is a single SQL name, qualified or not."""
    return _NAME.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Query:
    """A relation's name or a SELECT, and the options of its subscription.

    `key` contains names of result columns. `as_of` (inclusive) and `up_to` (exclusive) are in ms since 1970.
    """

    text: str
    key: tuple[str, ...] = ()
    envelope: Envelope | None = None
    order_by: str | None = None
    as_of: int | None = None
    up_to: int | None = None

    def __post_init__(self) -> None:
        if re.match(r"\s*SUBSCRIBE\b", self.text, re.IGNORECASE):
            raise ValueError("give the name or the query alone: SUBSCRIBE and its options are added to it")
        if self.envelope is not None and (not self.key or self.order_by is not None):
            raise ValueError("an envelope needs a key and has an order of its own")

    @property
    def fingerprint(self) -> str:
        """A hash of text, key and envelope. A token can be used only with a query of the same fingerprint."""
        parts = (self.text.strip().rstrip(";").rstrip(), *self.key, self.envelope or "")
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]

    def statement(self, as_of: int | None, *, snapshot: bool) -> str:
        """Returns the SUBSCRIBE statement that starts at `as_of` (ms since 1970); None starts at the present."""
        text = self.text.strip().rstrip(";").rstrip()
        words = ["SUBSCRIBE", text if is_name(text) else f"({text}\n)"]
        if self.envelope is not None:
            keys = ", ".join('"' + column.replace('"', '""') + '"' for column in self.key)
            words.append(f"ENVELOPE {self.envelope.upper()} (KEY ({keys}))")
        elif self.order_by is not None:
            words.append(f"WITHIN TIMESTAMP ORDER BY {self.order_by}")
        words.append("WITH (PROGRESS)" if snapshot else "WITH (PROGRESS, SNAPSHOT false)")
        if as_of is not None:
            words.append(f"AS OF {as_of}")
        if self.up_to is not None:
            words.append(f"UP TO {self.up_to}")
        return " ".join(words)


@dataclass(frozen=True, slots=True)
class Token:
    """A position in the stream of one query: exactly the timestamps before `progress` (ms since 1970) have been read.

    `str(token)` and `Token.parse` convert it to and from text, to store it in a file or a database column.
    """

    fingerprint: str
    progress: int

    def __str__(self) -> str:
        return f"tw1:{self.fingerprint}:{self.progress}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError if the text is not a token."""
        found = re.fullmatch(r"tw1:([0-9a-f]{16}):([0-9]{1,20})", text)
        if found is None:
            raise ValueError(f"this is not a token: {text!r}")
        return cls(found[1], int(found[2]))
