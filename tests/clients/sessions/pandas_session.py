"""A session with pandas: each step is a function, whose docstring is its title in docs/clients.md."""

import pandas as pd
import sqlalchemy as sa
from steps import URL, run

ENGINE = sa.create_engine(URL.replace("postgresql://", "postgresql+psycopg://"))
FRAME = pd.DataFrame({"n": range(100), "x": [n / 2 for n in range(100)], "s": [f"s{n}" for n in range(100)]}).assign(
    at=pd.Timestamp("2024-01-01")
)


def to_sql():
    """`to_sql`: create, append, replace"""
    FRAME.to_sql("pd_frame", ENGINE, index=False)
    FRAME.to_sql("pd_frame", ENGINE, index=False, if_exists="append", method="multi")
    FRAME.to_sql("pd_frame", ENGINE, index=False, if_exists="replace")


def read_sql():
    """`read_sql`, `read_sql_table`, in chunks"""
    frame = pd.read_sql("SELECT * FROM pd_frame ORDER BY n", ENGINE)
    pd.testing.assert_frame_equal(frame, FRAME, check_dtype=False)
    assert len(pd.read_sql_table("pd_frame", ENGINE)) == 100
    chunks = list(pd.read_sql("SELECT * FROM pd_frame", ENGINE, chunksize=30))
    assert [len(chunk) for chunk in chunks] == [30, 30, 30, 10]


def index():
    """`to_sql` with an index"""
    FRAME.set_index("s").to_sql("pd_indexed", ENGINE)
    assert len(pd.read_sql("SELECT * FROM pd_indexed", ENGINE, index_col="s")) == 100


run(to_sql, read_sql, index)
