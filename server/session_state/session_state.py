"""The interface of a session's state for the modules that `Context`, its implementation, uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from catalog.ids import ObjectId
from catalog.objects.namespaces import Schema
from catalog.state import CatalogState
from protocol.pgwire.errors import Notice
from server.coordinator.coordinator import Coordinator
from server.session_state.current_query import CurrentQuery
from server.session_state.listening import Listening
from server.session_state.transaction import Transaction
from server.settings.session_settings import Settings


class SessionState(Protocol):
    """The part of `Context` that commits, checks and the functions of a session use. They cannot import `context`."""

    coordinator: Coordinator
    process_id: int
    query: CurrentQuery
    settings: Settings
    transaction: Transaction
    signals: Mapping[str, Callable[[int], bool]]
    listening: Listening
    has_temporary: bool

    @property
    def state(self) -> CatalogState: ...
    @property
    def role(self) -> ObjectId: ...
    @property
    def search_path(self) -> tuple[str, ...]: ...
    @property
    def temporary_schema(self) -> Schema | None: ...
    @property
    def lock_timeout_s(self) -> float | None: ...
    def notice(self, notice: Notice) -> None: ...
    def __hash__(self) -> int:
        """Sessions own locks."""
