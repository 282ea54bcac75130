"""Portals and cursors: a prepared statement, its parameters, and the rows that were not taken yet.

A cursor of DECLARE is a portal. As in PostgreSQL, both share one namespace. A portal ends with its transaction. Only a
cursor WITH HOLD remains when the transaction that declared it commits.

DECLARE runs the query of a cursor, so that FETCH returns the rows of that time. A SUBSCRIBE is planned and run by the
first FETCH.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from catalog.ids import ObjectId
from protocol.pgwire.decode import BINARY_FORMAT
from protocol.pgwire.errors import PgError, SqlState
from server.session_state.cursor_rows import CurrentRows
from server.session_state.prepared import Prepared
from server.session_state.results import Result, SubscriptionRows


@dataclass(slots=True)
class Portal:
    """A prepared statement with parameters, and its result once it has run. `cursor`: a statement of SQL declared it.

    `formats`: the result formats that Bind specified, or that FETCH from a cursor uses. `hold`: a cursor WITH HOLD.
    """

    prepared: Prepared
    parameters: tuple[object, ...] = ()
    formats: tuple[int, ...] = ()
    parameters_bytes: int = 0
    """The size of the parameters, as `size_of` estimates it."""
    cursor: bool = False
    hold: bool = False
    is_held: bool = False
    """Whether it is a cursor WITH HOLD of a transaction that has committed."""
    role: ObjectId | None = None
    """The role that opened the cursor. Its privileges are checked at each FETCH."""
    result: Result | None = None
    is_active: bool = False
    """Whether its statement is being executed. Such a portal cannot be closed by its own statement."""
    done: bool = False
    is_failed: bool = False
    """Whether its transaction block, or the part of it after a savepoint, has failed. It cannot be run any more."""
    current: CurrentRows | None = None
    """The keys of the rows of a cursor that can be used in WHERE CURRENT OF."""
    failure: PgError | None = None
    """The error for the next FETCH, if the stream was cancelled between two of them."""
    _formats: list[int] | None = None
    kept_bytes: int = 0
    """The size of the name and the parameters while the portal is open; 0 for the unnamed portal."""
    rows_bytes: int = 0
    """The size of the rows that the portal keeps in memory between two statements."""
    name: str = ""
    number: int = 0
    """The number of portals that the session had opened before."""
    text: str = ""
    """The DECLARE statement of a cursor."""
    scroll: bool = False
    created_us: int = 0
    """When it was opened, if it has a name; microseconds since 1970."""

    @property
    def is_unplanned(self) -> bool:
        """Whether it is a cursor whose statement is not planned yet."""
        return self.cursor and self.prepared.plan is None and self.prepared.fields is None

    def column_formats(self) -> list[int]:
        """Returns one format per column. 08P01 if Bind specified another number of them, 22023 if one is not 0 or 1.

        As in PostgreSQL, a statement that returns no rows ignores the formats.
        """
        if self._formats is not None:
            return self._formats
        for format in self.formats:
            if format not in (0, 1):
                raise PgError(SqlState.INVALID_PARAMETER_VALUE, f"unsupported format code: {format}")
        fields = self.prepared.fields
        if self.result is not None and self.result.rows is not None:
            fields = self.result.rows.fields  # of a FETCH that was bound before its cursor was planned
        if fields is None:
            return []
        count = len(fields)
        if len(self.formats) <= 1:
            self._formats = [self.formats[0] if self.formats else 0] * count
            return self._formats
        if len(self.formats) != count:
            raise PgError(
                SqlState.PROTOCOL_VIOLATION,
                f"bind message has {len(self.formats)} result formats but query has {count} columns",
            )
        return list(self.formats)

    def close(self) -> None:
        if self.result is not None and self.result.rows is not None:
            self.result.rows.close()

    def fail(self) -> None:
        """Releases what the portal needs only to be run."""
        self.close()
        self.is_failed = True
        self.parameters, self.parameters_bytes = (), 0
        self.result = self.current = None

    @property
    def bytes_without_rows(self) -> int:
        """The size of the name, the parameters and the text."""
        return PORTAL_BYTES_MIN + len(self.name) + self.parameters_bytes + len(self.text)


ROWS_BYTES_MAX = 8 << 20
"""The greatest size of the rows that the cursors and suspended portals of a session keep in memory together. Further
rows are kept on disk."""
PORTALS_BYTES_MAX = 64 << 20
"""The greatest size of the names and parameters of a session's portals."""
PORTAL_BYTES_MIN = 4_096
"""The least size that is assumed for a named portal."""


def size_of(value: object) -> int:
    """The approximate size of a parameter's value in memory, in bytes."""
    match value:
        case str() | bytes():
            return len(value)
        case list() | tuple() | dict():
            return 16 + sum(map(size_of, value))
        case _:
            return 16


class Portals:
    """A session's portals by name. The unnamed portal's name is empty."""

    def __init__(self) -> None:
        self._portals: dict[str, Portal] = {}
        self._bytes = 0  # of the named portals
        self.opened = 0
        """The number of portals that the session has opened."""
        self._rows_bytes = 0

    def add(self, name: str, portal: Portal) -> None:
        """Adds a portal. The unnamed portal is replaced.

        42P03 if the name is in use; 53200 if the names and parameters of the others are too large.
        """
        self.check_unused(name)
        self.close(name)
        portal.name = name
        if name:
            portal.kept_bytes = portal.bytes_without_rows
            portal.created_us = time.time_ns() // 1_000
            if self._bytes and self._bytes + portal.kept_bytes > PORTALS_BYTES_MAX:
                portal.close()
                raise PgError(
                    SqlState.OUT_OF_MEMORY,
                    "out of memory",
                    detail=f"The names and parameters of a session's open portals and cursors may have "
                    f"{PORTALS_BYTES_MAX} bytes.",
                    hint="Close those that are not needed any more.",
                )
            self._bytes += portal.kept_bytes
        self._rows_bytes += portal.rows_bytes
        self._portals[name] = portal
        portal.number = self.opened
        self.opened += 1

    @property
    def keeps_rows(self) -> bool:
        """Whether open portals have rows in memory."""
        return self._rows_bytes > 0

    def fits_in_memory(self, rows_bytes: int) -> bool:
        """Whether rows of this size may be kept in memory, in addition to those of the open portals."""
        return self._rows_bytes + rows_bytes <= ROWS_BYTES_MAX

    def keep_rows(self, portal: Portal, rows_bytes: int) -> None:
        """Counts the rows of an open portal in `fits_in_memory` until it is closed."""
        self._rows_bytes += rows_bytes - portal.rows_bytes
        portal.rows_bytes = rows_bytes

    def check_unused(self, name: str) -> None:
        """42P03 if a portal has this name."""
        if name and name in self._portals:
            raise PgError(SqlState.DUPLICATE_CURSOR, f'cursor "{name}" already exists')

    def get(self, name: str) -> Portal:
        portal = self._portals.get(name)
        if portal is None:
            raise PgError(SqlState.INVALID_CURSOR_NAME, f'portal "{name}" does not exist')
        return portal

    def find(self, name: str) -> Portal | None:
        """Returns the portal, if there is one that has not failed."""
        portal = self._portals.get(name)
        return None if portal is None or portal.is_failed else portal

    def cursor(self, name: str) -> Portal:
        portal = self._portals.get(name)
        if portal is None:
            raise PgError(SqlState.INVALID_CURSOR_NAME, f'cursor "{name}" does not exist')
        return portal

    def prepared(self) -> dict[str, Prepared]:
        return {name: portal.prepared for name, portal in self._portals.items()}

    def rows(self) -> list[dict[str, object]]:
        """The rows of pg_cursors: those of the portals that have names."""
        return [
            {
                "name": name,
                "statement": portal.text or portal.prepared.text,
                "is_holdable": portal.hold,
                "is_binary": portal.cursor and portal.formats == (BINARY_FORMAT,),
                "is_scrollable": portal.scroll,
                "creation_time": portal.created_us,
            }
            for name, portal in self._portals.items()
            if name
        ]

    def close(self, name: str) -> None:
        portal = self._portals.pop(name, None)
        if portal is not None:
            self._bytes -= portal.kept_bytes
            self._rows_bytes -= portal.rows_bytes
            portal.close()

    def cancel_streams(self, reason: PgError) -> None:
        """Ends the subscriptions of all portals. Later FETCHes of them fail with `reason`."""
        for portal in self._portals.values():
            if portal.result is not None and isinstance(portal.result.rows, SubscriptionRows):
                portal.close()
                portal.failure = reason

    def close_all(self) -> None:
        """Closes all portals, except one whose statement does this."""
        for name in [name for name, portal in self._portals.items() if not portal.is_active]:
            self.close(name)

    def fail(self, opened: int = 0) -> None:
        """Releases the resources of the portals of a transaction block that fails, until `roll_back` closes them.

        As in PostgreSQL, their names remain in use. `opened`: `self.opened` at its savepoint.
        """
        for portal in self._since(opened):
            portal.fail()
            self.keep_rows(portal, 0)
            if portal.name:
                self._bytes += portal.bytes_without_rows - portal.kept_bytes
                portal.kept_bytes = portal.bytes_without_rows

    def roll_back(self, opened: int = 0) -> None:
        """Closes the portals of a transaction that rolls back. `opened`: `self.opened` at its savepoint."""
        for portal in self._since(opened):
            self.close(portal.name)

    def _since(self, opened: int) -> list[Portal]:
        return [portal for portal in self._portals.values() if not portal.is_held and portal.number >= opened]

    def end(self) -> None:
        """Closes the portals of a transaction that commits, except the cursors WITH HOLD."""
        if self._portals:
            for name in [name for name, portal in self._portals.items() if not portal.hold]:
                self.close(name)

    @property
    def has_unheld(self) -> bool:
        """Whether `keep` has an effect."""
        return any(portal.hold and not portal.is_held for portal in self._portals.values())

    def keep(self) -> None:
        """Called after a commit: from here on a rollback does not close the cursors WITH HOLD."""
        for portal in self._portals.values():
            portal.is_held = portal.hold
