"""A session with odbc: each step is a function, whose docstring is its title in docs/clients.md."""

import datetime
import decimal

import pyodbc
from steps import DATABASE, HOST, PORT, USER, run

DSN = f"DRIVER={{PostgreSQL Unicode}};SERVER={HOST};PORT={PORT};DATABASE={DATABASE};UID={USER}"


def transactions():
    """Default transactions, parameters, `executemany`"""
    connection = pyodbc.connect(DSN)
    cursor = connection.cursor()
    cursor.execute("CREATE TABLE od (id int, name varchar(40), amount numeric(8,2), at timestamp)")
    row = (1, "it's", decimal.Decimal("1.50"), datetime.datetime(2024, 2, 29, 12))
    cursor.execute("INSERT INTO od VALUES (?, ?, ?, ?)", row)
    cursor.executemany("INSERT INTO od (id, name) VALUES (?, ?)", [(2, "b"), (3, None)])
    connection.commit()
    cursor.execute("DELETE FROM od")
    connection.rollback()
    assert tuple(cursor.execute("SELECT * FROM od WHERE id = ?", 1).fetchone()) == row
    connection.close()


def catalog():
    """Tables, columns, keys, types"""
    connection = pyodbc.connect(DSN)
    cursor = connection.cursor()
    assert "od" in [table.table_name for table in cursor.tables()]
    assert [column.column_name for column in cursor.columns(table="od")] == ["id", "name", "amount", "at"]
    cursor.primaryKeys("od").fetchall()
    cursor.statistics("od").fetchall()
    cursor.getTypeInfo().fetchall()
    connection.close()


def declare_fetch():
    """`UseDeclareFetch`"""
    connection = pyodbc.connect(DSN + ";UseDeclareFetch=1;Fetch=2")
    assert len(connection.cursor().execute("SELECT * FROM od").fetchall()) == 3
    connection.close()


run(transactions, catalog, declare_fetch)
