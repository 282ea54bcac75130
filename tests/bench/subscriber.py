"""A subscriber in a process of its own, and the freshness of the commits that it receives.

Freshness is the time from the acknowledgement of a COMMIT to a progress message beyond the time of the acknowledgement:
from then on the subscriber may act on the commit.
"""

from __future__ import annotations

import multiprocessing
import socket
import time
from multiprocessing.connection import Connection

from protocol.pgwire.messages.frontend import Query
from protocol.pgwire.messages.startup import StartupMessage

DIGITS = 13  # of a timestamp


class Subscriber:
    """Reads `COPY (SUBSCRIBE query WITH (PROGRESS, SNAPSHOT false))` as raw bytes and records the progress.

    The constructor returns when the subscription has begun.
    """

    def __init__(self, port: int, query: str) -> None:
        self._pipe, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("spawn").Process(target=_follow, args=(port, query, theirs))
        self._process.start()
        theirs.close()
        self._pipe.recv()

    def progress(self, moment: float, timeout_s: float) -> list[tuple[int, float]]:
        """Waits for a progress beyond a time and ends the subscription. Returns timestamps of progress, and when each
        arrived. They end before `moment` if it is not reached in `timeout_s`."""
        self._pipe.send((moment, timeout_s))
        found: list[tuple[int, float]] = self._pipe.recv()
        self._process.join()
        return found


def freshness(acknowledged: list[float], progress: list[tuple[int, float]]) -> list[float]:
    """Seconds from each acknowledgement to the first progress beyond its time. Shorter if progress ends before."""
    fresh, at = [], 0
    for moment in acknowledged:
        while at < len(progress) and progress[at][0] <= moment * 1_000:
            at += 1
        if at == len(progress):
            break
        fresh.append(max(0.0, progress[at][1] - moment))
    return fresh


def _follow(port: int, query: str, pipe: Connection) -> None:
    client = socket.create_connection(("127.0.0.1", port))
    client.sendall(StartupMessage({"user": "materialize", "database": "materialize"}).serialize())
    client.sendall(Query(f"COPY (SUBSCRIBE {query} WITH (PROGRESS, SNAPSHOT false)) TO STDOUT").serialize())
    client.settimeout(1)
    progress: list[tuple[int, float]] = []
    received, end, deadline = b"", float("inf"), float("inf")
    ready = False
    while not (progress and progress[-1][0] > end) and time.time() < deadline:
        try:
            data = client.recv(1 << 20)
            if not data:
                raise ConnectionError(received.decode(errors="replace"))
            received += data
        except TimeoutError:
            pass
        if b"SERROR\0" in received:  # an ErrorResponse; lines of numbers contain no such bytes
            raise RuntimeError(received[received.index(b"SERROR\0") :].decode(errors="replace"))
        complete = received.rfind(b"\n")
        last = received.rfind(b"\tt\t", 0, complete + 1)  # the last progress that has arrived implies the others
        if last >= 0:
            progress.append((int(received[last - DIGITS : last]), time.time()))
        received = received[complete + 1 :]
        if not ready and len(progress) > 1:
            ready = True
            pipe.send(None)
        if end == float("inf") and pipe.poll():
            moment, timeout_s = pipe.recv()
            end, deadline = moment * 1_000, time.time() + timeout_s
    client.close()
    pipe.send(progress)
