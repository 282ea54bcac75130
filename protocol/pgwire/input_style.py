"""The session settings that affect the text input of dates, timestamps and intervals. TimeZone is another one."""

from __future__ import annotations

from typing import NamedTuple


class InputStyle(NamedTuple):
    """`date_order`: MDY, DMY or YMD, how PostgreSQL reads a date of three short numbers.

    `sql_intervals`: IntervalStyle is sql_standard, in which a leading minus applies to all fields without a sign.
    """

    date_order: str = "MDY"
    sql_intervals: bool = False


DEFAULT_INPUT = InputStyle()
