"""Parameters with more digits than a bare numeric keeps: 18 decimals, and 20 digits before the point."""

from __future__ import annotations

from decimal import Decimal

import psycopg
import pytest
from psycopg import errors

from tests.fix_server import ServerThread

SMALL, LARGE = Decimal("1E-27"), Decimal("123456789012345678901234567890")


@pytest.mark.parametrize("mark", ["%t", "%b"])
def test_parameters_keep_their_digits(passing_server: ServerThread, mark: str) -> None:
    with psycopg.connect(passing_server.dsn(), autocommit=True) as connection:
        connection.execute("CREATE TABLE t (a numeric, b numeric(38, 30), c numeric(38, 0))")
        connection.execute("INSERT INTO t VALUES (1.5, '1E-27', '123456789012345678901234567890')")

        def found(condition: str, *values: Decimal) -> bool:
            query = f"SELECT a FROM t WHERE {condition}".replace("%", mark)
            return connection.execute(query.encode(), values, prepare=True).fetchall() == [(Decimal("1.5"),)]

        for _ in range(2):  # the second time with the statement that the first one prepared
            assert found("b = %", SMALL)
            assert not found("b = %", SMALL * 2)
            assert not found("b = %", Decimal(0))
            assert found("c = %", LARGE)
            assert not found("c = %", LARGE + 1)
            assert found("a = %", Decimal("1.50"))
            assert not found("a = %", Decimal("1.5000000000000000000000001"))
        for value in (SMALL, LARGE, Decimal("12345678901234567890.123456789012345678"), Decimal("0E-20")):
            (printed,) = connection.execute(f"SELECT ({mark}::numeric)::text".encode(), (value,)).fetchone() or ()
            assert printed == f"{value:f}"
        with pytest.raises(errors.NumericValueOutOfRange):
            connection.execute(f"SELECT {mark}::numeric".encode(), (LARGE * 10**9,))
        with pytest.raises(errors.NumericValueOutOfRange):  # a column without precision keeps 18 decimals
            connection.execute(f"INSERT INTO t (a) VALUES ({mark})".encode(), (LARGE,))
