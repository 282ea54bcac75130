"""The suite itself: what it must cover, and the documents that are generated from it."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.sql import document, manual, score

STATEMENTS_MIN = 1500  # statements that differ in more than literals


@pytest.fixture(scope="module")
def connection(postgres: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgres) as connection:
        yield connection


@pytest.mark.long
def test_the_suite_is_large_enough() -> None:
    assert score.usage().shapes >= STATEMENTS_MIN


@pytest.mark.slow
@pytest.mark.long
def test_every_row_of_the_function_table_is_used() -> None:
    rows = score.untested_rows()
    assert not rows, f"{len(rows)} rows:\n" + "\n".join(rows)


def test_the_list_of_chapters_is_that_of_postgresql(connection: psycopg.Connection) -> None:
    known = {(signature.is_operator, signature.name) for signature in score.signatures(connection)}
    assert sorted(manual.all_names() - known) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", document.DOCUMENTS)
def test_documents_are_up_to_date(name: str) -> None:
    written = (document.DOCS / name).read_text()
    assert written == document.DOCUMENTS[name](), "run python -m tests.sql.document"
