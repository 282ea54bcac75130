"""The feeds of collections: what happens to one of them while a commit is appended."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa

from catalog import updates
from catalog.ids import ObjectId, Timestamp
from server.coordinator.collection_feeds import CollectionFeeds

A, B, C = ObjectId("u1"), ObjectId("u2"), ObjectId("u3")


async def test_a_reader_falls_behind_while_a_commit_is_appended(tmp_path: Path) -> None:
    """Its feed is removed then, and the feeds after it get the commit and its progress."""
    upper = Timestamp(10)
    frontiers = SimpleNamespace(upper=lambda _: upper)
    feeds = CollectionFeeds(cast(Any, None), cast(Any, frontiers), cast(Any, None), tmp_path)
    slow, *others = [feeds.feed(id).join() for id in (A, B, C)]
    slow.bound(1)
    slow.on_overrun = slow.close
    for id in (A, B, C):
        feeds.feed(id).committed(Timestamp(10), [updates.with_diff(pa.table({"c0": np.arange(3)}), 1)])
    upper = Timestamp(11)
    feeds.close_times()
    assert feeds.collections == {B, C}
    assert [feeds.feed(id).upper for id in (B, C)] == [11, 11]
    assert [[entry.time for entry in reader.take()] for reader in others] == [[10], [10]]
