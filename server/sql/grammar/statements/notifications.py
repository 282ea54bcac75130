"""LISTEN, UNLISTEN and NOTIFY."""

from __future__ import annotations

from dataclasses import dataclass

from server.sql.grammar.statements.parts import Ident, Parsed


@dataclass(frozen=True, slots=True)
class Listen(Parsed):
    """LISTEN channel."""

    channel: Ident


@dataclass(frozen=True, slots=True)
class Unlisten(Parsed):
    """channel None: ALL, written `*`."""

    channel: Ident | None


@dataclass(frozen=True, slots=True)
class Notify(Parsed):
    """NOTIFY channel [, payload]."""

    channel: Ident
    payload: str
