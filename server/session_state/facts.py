"""The values of functions that describe the session's connection, query and transaction, and the server.

Only few queries call them. They are computed when a query is executed, once for each call.
"""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

from protocol.pgwire.datetime_output import MONTHS, WEEKDAYS
from protocol.pgwire.network import parse_inet
from protocol.pgwire.timezones import zone
from server.session_state.session_state import SessionState


def fact(session: SessionState, function: str) -> Any:
    """The value of one of `constant.FACTS`, as a Python scalar; None for NULL."""
    activity = session.coordinator.activity
    match function:
        case "inet_client_addr" | "inet_client_port":
            client = activity.sessions[session.process_id].endpoints.client
            return None if client is None else _inet(client.ip) if function.endswith("addr") else client.port
        case "inet_server_addr" | "inet_server_port":
            server = activity.sessions[session.process_id].endpoints.server
            return None if server is None else _inet(server.ip) if function.endswith("addr") else server.port
        case "current_query":
            return session.query.shown_text()
        case "timeofday":
            return time_of_day(time.time_ns() // 1_000, session.settings["TimeZone"])
        case "pg_conf_load_time":
            return activity.configured_us
        case "pg_last_wal_receive_lsn" | "pg_last_wal_replay_lsn" | "pg_last_xact_replay_timestamp":
            return None  # the server is no standby
        case "txid_current" | "pg_current_xact_id":
            return transaction_number(session)
        case "txid_current_if_assigned" | "pg_current_xact_id_if_assigned":
            transaction = session.transaction
            return transaction_number(session) if transaction.has_effects else transaction.number
        case "pg_current_wal_lsn" | "pg_current_wal_flush_lsn" | "pg_current_wal_insert_lsn":
            position = session.coordinator.latest_time()
            return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"
        case _:
            raise AssertionError(function)


def transaction_number(session: SessionState) -> int:
    """The number of the transaction, which no other one has. The first call assigns it."""
    transaction = session.transaction
    if transaction.number is None:
        transaction.number = session.coordinator.activity.next_transaction()
    return transaction.number


def _inet(ip: str) -> bytes:
    """The inet of an address, without the zone of a link-local one."""
    return parse_inet(ip.partition("%")[0])


def time_of_day(us: int, timezone: str) -> str:
    """A time in microseconds since 1970, as timeofday() writes it: `Thu Nov 26 15:17:20.048123 2026 UTC`."""
    seconds, fraction = divmod(us, 1_000_000)
    moment = datetime.fromtimestamp(seconds, zone(timezone))
    day, month = WEEKDAYS[moment.isoweekday() % 7], MONTHS[moment.month - 1]
    return f"{day} {month} {moment:%d %H:%M:%S}.{fraction:06} {moment:%Y} {moment.tzname()}"
