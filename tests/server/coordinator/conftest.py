"""Fixtures of the tests of the coordinator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from catalog.log import Log
from catalog.payloads import Payloads
from catalog.store import Store


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    """A log in a directory of its own."""
    directory = tmp_path_factory.mktemp("data")
    store = Store(directory)
    yield Log(store, Payloads(directory / "payloads"))
    store.close()
