"""A session with polars: each step is a function, whose docstring is its title in docs/clients.md."""

import polars as pl
from steps import URL, run

FRAME = pl.DataFrame({"n": [1, 2, 3], "s": ["a", None, "c"], "x": [1.5, 2.5, None]})


def write_adbc():
    """`write_database` (ADBC)"""
    FRAME.write_database("pl_frame", URL, engine="adbc")


def write_sqlalchemy():
    """`write_database` (SQLAlchemy)"""
    FRAME.write_database("pl_frame_too", URL.replace("postgresql:", "postgresql+psycopg:"), if_table_exists="replace")


def read_adbc():
    """`read_database_uri` (ADBC)"""
    assert pl.read_database_uri("SELECT * FROM pl_frame_too ORDER BY n", URL, engine="adbc").equals(FRAME)


def read_connectorx():
    """`read_database_uri` (connectorx)"""
    frame = pl.read_database_uri("SELECT * FROM pl_frame_too ORDER BY n", URL, engine="connectorx")
    assert frame.rows() == FRAME.rows()


def partitions():
    """connectorx with partitions"""
    frame = pl.read_database_uri(
        "SELECT * FROM pl_frame_too", URL, engine="connectorx", partition_on="n", partition_num=2
    )
    assert len(frame) == 3


run(write_sqlalchemy, read_connectorx, partitions, read_adbc, write_adbc)
