"""Which errors are retried and for how long, and when a hold is advanced."""

from __future__ import annotations

import inspect
import logging
from dataclasses import MISSING, fields
from types import ModuleType

import pytest

from tests.client.test_reader import feed, progress
from tidewire import Retry, Token, TokenTooOld, aio, sync
from tidewire.errors import Verdict, judge
from tidewire.resumption import Hold, Options, ResumableStream

TOO_OLD = "could not find a valid timestamp for the query"


def test_which_errors_are_retried() -> None:
    for sqlstate in (None, "08006", "08003", "53300", "54000", "57P01", "57P02", "57P03", "25P03"):
        assert judge(sqlstate, "") is Verdict.RETRY, sqlstate
    for sqlstate in ("42601", "42P01", "42704", "42501", "22012", "57014", "XX000", "28000", "0A000"):
        assert judge(sqlstate, "") is Verdict.RAISE, sqlstate
    assert judge("22000", TOO_OLD) is Verdict.TOO_OLD
    assert judge("22000", "subscription lower bound (`AS OF`) is greater than its upper bound") is Verdict.RAISE


def test_delays_are_random_and_double_up_to_the_longest() -> None:
    retry = Retry(first_s=1.0, longest_s=5.0)
    for failures, most in ((1, 1.0), (2, 2.0), (3, 4.0), (4, 5.0), (1000, 5.0)):
        delays = {retry.delay_s(failures) for _ in range(200)}
        assert 0 <= min(delays) < most / 2 < max(delays) <= most


def test_attempts_are_bounded_and_a_batch_resets_their_count(caplog: pytest.LogCaptureFixture) -> None:
    stream = ResumableStream("t", Options(retry=Retry(attempts=2, first_s=0.0)))
    lost = OSError("gone")
    with caplog.at_level(logging.WARNING):
        stream.failed(lost, None)
        stream.failed(lost, None)
    assert "attempt 2" in caplog.text
    stream.reader.statement()
    feed(stream.reader, progress(5))
    stream.reader.receive(progress(6))
    assert stream.next_batch() is not None
    stream.failed(lost, None)
    stream.failed(lost, None)
    with pytest.raises(OSError, match="gone") as raised:
        stream.failed(lost, None)
    assert raised.value.__notes__ == ["tidewire gave up after 2 attempts to reconnect"]


def test_a_token_that_is_too_old_is_an_error_or_causes_a_new_snapshot() -> None:
    error = ValueError(TOO_OLD)
    token = str(Token(ResumableStream("t", Options()).reader._query.fingerprint, 7))
    stream = ResumableStream("t", Options(token=token))
    with pytest.raises(TokenTooOld, match=token) as raised:
        stream.failed(error, "22000")
    assert raised.value.__cause__ is error
    stream = ResumableStream("t", Options(token=token, on_too_old="reset"))
    assert stream.failed(error, "22000") == 0.0
    assert stream.reader.statement() == "SUBSCRIBE t WITH (PROGRESS)"
    with pytest.raises(TokenTooOld, match="at the requested AS OF"):
        ResumableStream("t", Options(as_of=7)).failed(error, "22000")


def token(time: int) -> Token:
    return Token("0" * 16, time)


def test_a_hold_is_advanced_to_one_before_the_acknowledged_progress_and_never_back() -> None:
    hold = Hold('s."my hold"', every_s=1.0)
    assert hold.advance(10.0) is None
    hold.acknowledge(token(7))
    assert hold.advance(10.0) == 'ALTER HOLD s."my hold" ADVANCE TO 6'
    hold.acknowledge(token(5))
    assert hold.advance(20.0) is None


def test_acknowledgements_within_the_interval_are_one_advance() -> None:
    hold = Hold("h", every_s=1.0)
    hold.acknowledge(token(7))
    assert hold.advance(10.0) == "ALTER HOLD h ADVANCE TO 6"
    hold.acknowledge(token(8))
    hold.acknowledge(token(9))
    assert hold.advance(10.9) is None
    assert hold.advance(11.0) == "ALTER HOLD h ADVANCE TO 8"
    hold.acknowledge(token(12))
    assert hold.advance(11.1, final=True) == "ALTER HOLD h ADVANCE TO 11"
    assert hold.advance(11.1, final=True) is None


def test_a_lost_advance_is_logged_and_a_refused_one_is_raised(caplog: pytest.LogCaptureFixture) -> None:
    hold = Hold("h", every_s=0.0)
    hold.failed(OSError("gone"), None)
    assert "hold h was not advanced: gone" in caplog.text
    with pytest.raises(LookupError):
        hold.failed(LookupError("no such hold"), "42704")


@pytest.mark.parametrize("name", ["", "h; DROP TABLE t", "a b", "1h"])
def test_the_name_of_a_hold_must_be_an_identifier(name: str) -> None:
    with pytest.raises(ValueError, match="not the name"):
        Hold(name, 1.0)


def test_acknowledgements_are_automatic_unless_disabled() -> None:
    for automatic in (True, False):
        stream = ResumableStream("t", Options(hold="h", auto_ack=automatic))
        stream.reader.statement()
        feed(stream.reader, progress(5))
        stream.reader.receive(progress(6))
        batch = stream.next_batch()
        assert batch is not None
        assert stream.hold is not None
        assert stream.hold.advance(0.0) is None, "it has only been handed over"
        stream.acknowledge_last()
        if not automatic:
            assert stream.hold.advance(0.0) is None
            batch.ack()
        assert stream.hold.advance(0.0) == "ALTER HOLD h ADVANCE TO 5"


@pytest.mark.parametrize("module", [sync, aio])
def test_the_parameters_of_subscribe_are_keywords_with_the_defaults_of_options(module: ModuleType) -> None:
    parameters = dict(inspect.signature(module.subscribe).parameters)
    assert [parameters.pop(name).kind.name for name in ("dsn", "query")] == ["POSITIONAL_OR_KEYWORD"] * 2
    assert all(parameter.kind is inspect.Parameter.KEYWORD_ONLY for parameter in parameters.values())
    for name in parameters:
        assert f"- `{name}`: " in module.subscribe.__doc__
    parameters.pop("silence_s", None)
    assert {name: parameter.default for name, parameter in parameters.items()} == {
        option.name: option.default_factory() if option.default is MISSING else option.default  # type: ignore[misc]
        for option in fields(Options)
    }
    with pytest.raises(TypeError, match="unexpected keyword argument 'keys'"):
        module.subscribe("", "t", keys=("k",))
