"""LOAD GENERATOR AUCTION: auctions, each followed by bids, over fixed users. One auction or bid per tick."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from catalog.objects.columns import Column
from server.ingest.generators.columns import Ints, numbered, random_ints, random_words, table, times
from server.ingest.option_values import OptionValues
from server.ingest.source_definition import Output

ORGANIZATIONS, USERS = 100, 1_000
BIDS = 10  # per auction
DURATION_US = 10_000_000  # of an auction
EVENT_US = 1_000  # between two events, if the interval is 0
_ITEMS = (
    *("Signed Memorabilia", "City Bar Crawl", "Best Pizza in Town", "Gift Basket"),
    *("Custom Art", "Concert Tickets", "Cooking Class", "Weekend Trip"),
)


def _column(name: str, type: str) -> Column:
    return Column(name, type, nullable=False)


class Auction:
    """Tick 0 inserts the organizations, users and accounts. Each later tick n inserts event n - 1."""

    outputs = (
        Output("organizations", "organizations", (_column("id", "int8"), _column("name", "text")), ("id",)),
        Output("users", "users", (_column("id", "int8"), _column("org_id", "int8"), _column("name", "text")), ("id",)),
        Output(
            "accounts",
            "accounts",
            (_column("id", "int8"), _column("org_id", "int8"), _column("balance", "int8")),
            ("id",),
        ),
        Output(
            "auctions",
            "auctions",
            (
                _column("id", "int8"),
                _column("seller", "int8"),
                _column("item", "text"),
                _column("end_time", "timestamptz"),
            ),
            ("id",),
        ),
        Output(
            "bids",
            "bids",
            (
                _column("id", "int8"),
                _column("buyer", "int8"),
                _column("auction_id", "int8"),
                _column("amount", "int4"),
                _column("bid_time", "timestamptz"),
            ),
            ("id",),
        ),
    )
    snapshot_ticks = 1
    interval_us: int | None = 1_000_000

    def __init__(self, options: OptionValues) -> None:
        self._seed = options.integer("seed", 0, 0)
        self._event_us = options.microseconds("tick interval") or (
            self.interval_us if "tick interval" not in options.given else EVENT_US
        )

    def changes(self, references: Sequence[str], first: int, end: int, start_us: int) -> Mapping[str, list[pa.Table]]:
        found: dict[str, list[pa.Table]] = {}
        events = np.arange(max(first, 1) - 1, end - 1, dtype=np.int64)
        for reference in references:
            if reference in ("auctions", "bids"):
                found[reference] = [self._events(reference == "auctions", events, start_us)]
            elif first == 0:
                found[reference] = [self._static(reference)]
        return found

    def _static(self, reference: str) -> pa.Table:
        organizations, users = (np.arange(1, n + 1, dtype=np.int64) for n in (ORGANIZATIONS, USERS))
        match reference:
            case "organizations":
                return table(organizations, numbered("Organization ", organizations))
            case "users":
                return table(users, random_ints(self._seed, 1, users, 1, ORGANIZATIONS), numbered("User ", users))
            case _:
                return table(organizations, organizations, random_ints(self._seed, 2, organizations, 0, 100_000))

    def _events(self, auctions: bool, events: Ints, start_us: int) -> pa.Table:
        """Event n is the auction n / 11 if 11 divides n, else a bid for it."""
        number, step = np.divmod(events, BIDS + 1)
        chosen = (step == 0) if auctions else (step > 0)
        number, step, events = number[chosen], step[chosen], events[chosen]
        at = start_us + events * (self._event_us or EVENT_US)
        if auctions:
            seller = random_ints(self._seed, 3, number, 1, USERS)
            return table(number + 1, seller, random_words(self._seed, 4, number, _ITEMS), times(at + DURATION_US))
        ids = number * BIDS + step
        amount = random_ints(self._seed, 6, ids, 1, 100).astype(np.int32)
        return table(ids, random_ints(self._seed, 5, ids, 1, USERS), number + 1, pa.array(amount), times(at))
