"""Network addresses (chapter 9.12): inet, cidr, macaddr and macaddr8, in the form of `protocol.pgwire.network`."""

from __future__ import annotations

from protocol.pgwire.network import address_of, inet_text
from server.sql.functions.table import GRAMMAR, row

row(GRAMMAR, "text of inet", "inet", "text", python=lambda value: inet_text(address_of(value)))
(TEXT_OF_INET,) = GRAMMAR["text of inet"]
