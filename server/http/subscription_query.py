"""The query of GET /api/subscribe: its parameters, its SUBSCRIBE statement, and its tokens.

A token is that of the client library: it states that exactly the times before its progress have been received, by a
stream of the query with this fingerprint.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.utf8 import check_text

_IDENTIFIER = r'(?:[A-Za-z_\u0080-\uffff][\w$]*|"(?:[^"]|"")+")'
_NAME = re.compile(rf"{_IDENTIFIER}(?:\s*\.\s*{_IDENTIFIER})*")
_TOKEN = re.compile(r"tw1:([0-9a-f]{16}):([0-9]{1,20})")
_TIME = re.compile(r"[0-9]{1,20}")

PARAMETERS = ("query", "parameters", "key", "envelope", "order_by", "as_of", "up_to", "snapshot", "token", "database")


@dataclass(frozen=True, slots=True)
class SubscriptionQuery:
    """`resume`: the progress of the token, None to begin with the snapshot or at `as_of`."""

    text: str
    parameters: str | None
    key: tuple[str, ...]
    envelope: str | None
    order_by: str | None
    as_of: int | None
    up_to: int | None
    snapshot: bool
    resume: int | None

    @classmethod
    def of(cls, values: Mapping[str, str], last_event_id: str | None) -> Self:
        """Reads the parameters of the query string. `last_event_id`: a token, which wins over `token`. PgError."""
        for name in values:
            if name not in PARAMETERS:
                raise _invalid(f'unknown parameter "{name}"')
            check_text(values[name])
        text = values.get("query", "").strip().rstrip(";").rstrip()
        if not text:
            raise _invalid('the parameter "query" is required', "It is the name of a relation, or a SELECT.")
        if re.match(r"SUBSCRIBE\b", text, re.IGNORECASE):
            raise _invalid('"query" must be a name or a SELECT', "SUBSCRIBE and its options are added to it.")
        envelope = values.get("envelope", "").lower() or None
        if envelope not in (None, "upsert", "debezium"):
            raise _invalid('"envelope" must be upsert or debezium')
        key = _key(values.get("key", ""))
        for column in key:
            check_text(column)
        order_by = values.get("order_by") or None
        if envelope is not None and not key:
            raise _invalid(
                '"envelope" needs the parameter "key"', 'It is a column, or a JSON array of columns: ["a", "b"].'
            )
        if envelope is not None and order_by is not None:
            raise _invalid('"envelope" and "order_by" exclude each other')
        if key and envelope is None:
            raise _invalid('"key" needs the parameter "envelope"', "It is upsert or debezium.")
        snapshot = values.get("snapshot", "true").lower()
        if snapshot not in ("true", "false"):
            raise _invalid('"snapshot" must be true or false')
        query = cls(
            text,
            values.get("parameters"),
            key,
            envelope,
            order_by,
            _time("as_of", values),
            _time("up_to", values),
            snapshot == "true",
            None,
        )
        token = last_event_id or values.get("token")
        return query if not token else query._resumed(token)

    def _resumed(self, token: str) -> Self:
        found = _TOKEN.fullmatch(token)
        if found is None:
            raise _invalid("malformed token")
        if found[1] != self.fingerprint:
            raise _invalid("the token was made for another query, another key or another envelope")
        return type(self)(
            self.text,
            self.parameters,
            self.key,
            self.envelope,
            self.order_by,
            self.as_of,
            self.up_to,
            self.snapshot,
            int(found[2]),
        )

    @property
    def fingerprint(self) -> str:
        """A text that is the same for queries whose tokens can be exchanged."""
        parts = [self.text, *self.key, self.envelope or ""]
        if self.parameters is not None:
            parts.append(self.parameters)
        return hashlib.sha256("\0".join(parts).encode(errors="replace")).hexdigest()[:16]

    def position(self, of_statement: int) -> int | None:
        """Converts a position in `statement` to one in the query; None if it is outside."""
        position = of_statement - len("SUBSCRIBE ") - (not self._is_name)
        return position if 0 < position <= len(self.text) + 1 else None

    @property
    def _is_name(self) -> bool:
        return _NAME.fullmatch(self.text) is not None

    def statement(self) -> str:
        words = ["SUBSCRIBE", self.text if self._is_name else f"({self.text}\n)"]
        if self.envelope is not None:
            keys = ", ".join('"' + column.replace('"', '""') + '"' for column in self.key)
            words.append(f"ENVELOPE {self.envelope.upper()} (KEY ({keys}))")
        elif self.order_by is not None:
            words.append(f"WITHIN TIMESTAMP ORDER BY {self.order_by}\n")  # it may end with a comment
        as_of = self.as_of if self.resume is None else self.resume - 1
        has_snapshot = self.snapshot and self.resume is None
        words.append("WITH (PROGRESS)" if has_snapshot else "WITH (PROGRESS, SNAPSHOT false)")
        if as_of is not None:
            words.append(f"AS OF {as_of}")
        if self.up_to is not None:
            words.append(f"UP TO {self.up_to}")
        return " ".join(words)


def token_of(fingerprint: str, progress: int) -> str:
    return f"tw1:{fingerprint}:{progress}"


def _key(text: str) -> tuple[str, ...]:
    """Parses a column's name, or a JSON array of names."""
    if not text.startswith("["):
        return (text,) if text else ()
    try:
        names = json.loads(text)
    except (ValueError, RecursionError):
        raise _invalid('"key" must be a name or a JSON array of names') from None
    if not all(isinstance(name, str) for name in names):
        raise _invalid('"key" must be a name or a JSON array of names')
    return tuple(names)


def _time(name: str, values: Mapping[str, str]) -> int | None:
    text = values.get(name)
    if not text:
        return None
    if _TIME.fullmatch(text) is None:
        raise _invalid(f'"{name}" must be a number of milliseconds since 1970')
    return int(text)


def _invalid(message: str, hint: str | None = None) -> PgError:
    return PgError(SqlState.INVALID_PARAMETER_VALUE, message, hint=hint)
