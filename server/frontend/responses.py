"""The ends of statements and messages: errors, ReadyForQuery with changed settings, and the metrics of statements."""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import Callable

from protocol.pgwire.errors import PgError, Severity, SqlState
from protocol.pgwire.messages.backend import ErrorResponse, ParameterStatus, ReadyForQuery
from server.frontend.notification_sender import NotificationSender
from server.frontend.transactions import Transactions
from server.runtime.metrics import CANCELED, ERROR, OK
from server.session_state.context import Context
from server.session_state.sender import Sender
from server.sql.grammar.statements import Statement

_IDLE = ReadyForQuery("I").serialize()
_IN_BLOCK = ReadyForQuery("T").serialize()
_IN_FAILED_BLOCK = ReadyForQuery("E").serialize()

_TIMEOUTS = {
    "idle_in_transaction_session_timeout": (
        SqlState.IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
        "terminating connection due to idle-in-transaction timeout",
    ),
    "idle_session_timeout": (SqlState.IDLE_SESSION_TIMEOUT, "terminating connection due to idle-session timeout"),
    "transaction_timeout": (SqlState.TRANSACTION_TIMEOUT, "terminating connection due to transaction timeout"),
}
"""The errors of the settings that limit the time until a client's next message, and the time of a transaction."""

UNKNOWN, SELECT, COMMIT = "unknown", "select", "commit"


class Responses:
    """Reports to the client, and counts by kind of statement. `kind`: that of the current statement.

    `terminate` ends the session if it is idle for too long, or its transaction lasts too long.
    """

    def __init__(
        self, context: Context, sender: Sender, transactions: Transactions, terminate: Callable[[PgError], None]
    ) -> None:
        self.kind = UNKNOWN
        self._context = context
        self._metrics = context.coordinator.metrics
        self._sender = sender
        self._transactions = transactions
        self._terminate = terminate
        self._idle_timer: asyncio.TimerHandle | None = None
        self._transaction_timer: asyncio.TimerHandle | None = None
        self.notifications = NotificationSender(sender, lambda: self._is_idle, terminate)
        self._is_idle = True  # the client awaits no answer, and no transaction is open
        self._reported = context.settings.reported()
        self._reported_revision = context.settings.revision

    def ready(self) -> None:
        """Sends the changed settings, notifications and ReadyForQuery."""
        self._context.end_query()
        transaction = self._context.transaction
        if self._context.settings.revision is not self._reported_revision:
            self._report_settings()
        connection = self._sender.connection
        self._sender.is_due = True
        if transaction.explicit:
            connection.send_encoded(_IN_FAILED_BLOCK if transaction.failed else _IN_BLOCK)
            self._idle_timer = self._start_timer("idle_in_transaction_session_timeout")
            self.start_transaction_timer()
        else:
            self.stop_transaction_timer()
            self._is_idle = True
            self.notifications.send()
            self._idle_timer = self._start_timer("idle_session_timeout")
            connection.send_encoded(_IN_FAILED_BLOCK if transaction.failed else _IDLE)

    def fail(self, error: PgError) -> None:
        """Sends an error, and fails or rolls back the transaction."""
        self.count(CANCELED if error.sqlstate == SqlState.QUERY_CANCELED else ERROR)
        self._sender.send_notices(self._context.notices)
        self._sender.connection.send(ErrorResponse.of(error))
        self._transactions.fail()

    def count(self, outcome: str = OK) -> None:
        """Counts the current statement."""
        self._metrics.count_statement(self.kind, outcome)

    def stop_idling(self) -> None:
        """Called when a message is handled, and when the session ends."""
        self._is_idle = False
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None

    def start_transaction_timer(self) -> None:
        """Called when a statement begins that waits, and after each statement of a block."""
        if self._transaction_timer is None:
            self._transaction_timer = self._start_timer("transaction_timeout")

    def stop_transaction_timer(self) -> None:
        """Called when the transaction has ended."""
        if self._transaction_timer is not None:
            self._transaction_timer.cancel()
            self._transaction_timer = None

    def _start_timer(self, name: str) -> asyncio.TimerHandle | None:
        """Starts a timer that ends the session after the time of a setting. None if the setting has no limit."""
        timeout_s = self._context.settings.timeout_s(name)
        if timeout_s is None:
            return None
        sqlstate, message = _TIMEOUTS[name]
        error = PgError(sqlstate, message, severity=Severity.FATAL)
        return asyncio.get_running_loop().call_later(timeout_s, self._terminate, error)

    def _report_settings(self) -> None:
        settings = self._context.settings
        reported = settings.reported()
        for name, value in reported.items():
            if self._reported.get(name) != value:
                self._sender.connection.send(ParameterStatus(name, value))
        self._reported, self._reported_revision = reported, settings.revision


def kind_of(statement: Statement | None) -> str:
    """A statement's class as metrics name it, such as `create_table`."""
    return "empty" if statement is None else _snake_case(type(statement).__name__)


@functools.cache
def _snake_case(name: str) -> str:
    return re.sub("(?<!^)(?=[A-Z])", "_", name).lower()
