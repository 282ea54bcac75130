"""Failures of Spark as errors of PostgreSQL."""

from __future__ import annotations

import pytest

from protocol.pgwire.errors import SqlState
from server.spark.errors import LINE_MAX, Failure, Fault, pg_error

TASK = "Job aborted due to stage failure: Task 0 in stage 7.0 failed 1 times, most recent failure: Lost task 0.0: "


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("java.lang.OutOfMemoryError", "Java heap space"),
        ("org.apache.spark.SparkException", f"{TASK}java.lang.OutOfMemoryError: Java heap space"),
        ("org.apache.arrow.memory.OutOfMemoryException", "Failure allocating buffer."),
        ("org.apache.spark.SparkException", f"{TASK}org.apache.arrow.memory.OutOfMemoryException: Failure allocating"),
        ("java.lang.IllegalStateException", "Memory was leaked by query. Memory leaked: (1048576)"),
        ("io.netty.util.internal.OutOfDirectMemoryError", "failed to allocate 1073741824 byte(s) of direct memory"),
    ],
)
def test_a_lack_of_memory_is_53200(kind: str, message: str) -> None:
    error = pg_error(Failure((Fault(kind, message),), ""), "SELECT 1")
    assert (error.sqlstate, error.message) == (SqlState.OUT_OF_MEMORY, "out of memory")
    assert error.hint is not None


def test_a_time_at_the_end_of_the_day_is_0a000() -> None:
    fault = Fault("java.time.DateTimeException", "Invalid value for NanoOfDay (valid values 0 - 86399999999999): 864")
    assert pg_error(Failure((fault,), ""), "SELECT 1").sqlstate is SqlState.FEATURE_NOT_SUPPORTED


def test_an_array_that_is_too_long_is_54000() -> None:
    fault = Fault(
        "org.apache.spark.SparkRuntimeException", "Can't create array", "COLLECTION_SIZE_LIMIT_EXCEEDED.PARAMETER"
    )
    error = pg_error(Failure((fault,), ""), "SELECT 1")
    assert error.sqlstate is SqlState.PROGRAM_LIMIT_EXCEEDED
    assert error.hint is not None


def test_a_message_with_a_long_value_is_shortened() -> None:
    """A value of a million spaces would take hours if the time were quadratic, and no other thread would run."""
    spaces, end = " " * 1_000_000, "is malformed. SQLSTATE: 22018; line 1 pos 7"
    assert Fault("E", f"[CAST_INVALID_INPUT] The value 'x' {end}").line == "The value 'x' is malformed."
    assert Fault("E", f"[CAST_INVALID_INPUT] The value '{spaces}x' {end}").line == f"The value '{spaces}"[:LINE_MAX]
