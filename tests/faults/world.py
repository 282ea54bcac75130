"""One run: a server that is started repeatedly, clients that write and subscribe, and faults that a seed chooses.

with World(directory, seed) as world:
    world.live(seconds)         starts the server repeatedly; kill -9 ends each process at a random time
    report = world.end()        a last start without faults; then all records are checked
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import struct
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from catalog.log import Log
from catalog.payloads import Payloads
from catalog.store import Store
from tests.client.proxy import Proxy
from tests.faults.history import Account, Segment, Violation, repeated_values, violations
from tests.faults.moments import MOMENTS
from tests.faults.recorder import await_end, recording
from tests.faults.subscriber import kept
from tests.faults.writers import PARITIES, SETUP, Drawn, Operation, Row, Teller, Writer
from tests.fix_server import ServerProcess

FLAGS = ("--timestamp-interval", "50ms", "--spark-master", "local[1]")
START_S = 90.0  # at most, until Spark has started and computed the first results
CLOCK_MS_MAX = 30 * 60 * 1_000  # the clock is wrong by at most half an hour: less than a hold's MAX LAG
HOLDS = {"h_events_1": "events", "h_events_2": "events", "h_ledger": "ledger", "h_totals": "totals"}
HOLDS["h_accounts"] = HOLDS["h_parities"] = "accounts"


class Unstartable(Exception):
    """The server does not start from the data directory that its last process left."""


class Unsettled(Exception):
    """An expected event did not occur, or a client observed what a correct server never does."""


@dataclass
class Advances:
    """The times to which a hold was advanced, and when each was acknowledged, in ns."""

    hold: str
    acknowledged: list[tuple[int, int]]

    def acknowledged_before(self, ns: int) -> int:
        return max((time for time, at in self.acknowledged if at < ns), default=0)


@dataclass
class Report:
    """The figures of a run, and the violations."""

    seed: int
    counts: Counter[str]
    violations: list[Violation]

    def __str__(self) -> str:
        c, kinds = self.counts, Counter(violation.kind for violation in self.violations)
        return (
            f"seed {self.seed}: {c['kills']} kills of the server survived ({c['kills at moments']} at named moments, "
            f"{c['kills at start']} before it listened), {c['stops']} stops, {c['JVM kills']} of its JVM, "
            f"{c['client kills']} of clients; {c['cuts']} connections cut; {c['clock steps']} steps of the clock; "
            f"{c['compactions']} compactions\n"
            f"{c['acknowledged']} writes acknowledged, {c['unknown']} of unknown outcome, {c['refused']} refused; "
            f"{c['updates']} updates at {c['progress']} progresses, {c['values']} values of sequences checked\n"
            f"losses {kinds.pop('loss', 0)}, doubles {kinds.pop('double', 0)}, others {sum(kinds.values())}"
        )


@dataclass
class Client:
    """A subscriber process that is started repeatedly and keeps its file."""

    name: str
    relation: str
    query: str
    file: Path
    arguments: list[str]
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.faults.subscriber", *self.arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def ask(self, query: str) -> Any:
        if not self.file.exists():
            return None
        with closing(sqlite3.connect(self.file)) as store:
            try:
                return (store.execute(query).fetchone() or [None])[0]
            except sqlite3.OperationalError:  # its tables have not been created yet
                return None

    @property
    def place(self) -> int:
        """The last progress that it stored."""
        return int(self.ask("SELECT max(time) FROM progress") or 0)

    @property
    def acknowledged(self) -> int:
        """The greatest time to which an ADVANCE of its hold was acknowledged."""
        return int(self.ask("SELECT max(time) FROM advances WHERE acknowledged_ns") or 0)

    @property
    def has_begun(self) -> bool:
        """Whether its file has all tables: they are created in one transaction, `broken` last."""
        return self.ask("SELECT 1 FROM sqlite_master WHERE name = 'broken'") is not None

    @property
    def advances(self) -> list[tuple[int, int]]:
        if not self.has_begun:
            return []
        with closing(sqlite3.connect(self.file)) as store:
            return store.execute("SELECT time, acknowledged_ns FROM advances WHERE acknowledged_ns").fetchall()

    @property
    def tried(self) -> int:
        return int(self.ask("SELECT max(time) FROM advances") or 0)


@dataclass
class World:
    """`holds` False: subscribers take a new snapshot after every interruption. `spark` False: no JVM, and no
    computation."""

    directory: Path
    seed: int
    spark: bool = True
    holds: bool = True
    mistake: str | None = None
    disk: Path | None = None
    """The directory that contains the server's data directory, if it is not `directory`."""
    trace: Path | None = None
    """A file to which the server's disk operations are recorded."""
    patience_s: float = 120.0
    """The timeout for events that occur on any healthy server."""
    counts: Counter[str] = field(default_factory=Counter)
    found: list[Violation] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._dice = random.Random(self.seed)
        self._data = (self.disk or self.directory) / "data"
        self._clock = self.directory / "clock"
        self._clock.write_bytes(bytes(8))
        self._server: ServerProcess | None = None
        self._proxy = Proxy("postgresql://materialize@127.0.0.1:1/materialize", self._budget)
        self._quiet = self._ceased = False
        self._due: str | None = None  # when this process is to be killed: at a moment, or after some seconds
        self._clients: list[Client] = []
        self._writers: list[Writer] = []
        self._created_at: dict[str, int] = {}

    def __enter__(self) -> World:
        try:
            self._begin()
        except BaseException:
            self.cease()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if not self._ceased:
            self.cease()

    # -- the server ---------------------------------------------------------------------------------------------

    def _start(self, die: str | None = None, *, spark: bool) -> ServerProcess | None:
        """Starts a process. None if it died, as it was made to, before it listened."""
        self._due = die
        env = {"FAULTS_CLOCK": str(self._clock), "FAULTS_PAGES": "100"}
        if die is not None:
            env["FAULTS_DIE"] = die
        if not spark:
            env["FAULTS_SPARK"] = "none"
        if self.mistake is not None:
            env["FAULTS_MISTAKE"] = self.mistake
        flags = (*FLAGS, "--data-dir", str(self._data))
        prefix = recording(self.trace) if self.trace else []
        try:
            self._server = ServerProcess(
                self.directory / "log", *flags, env=env, module="tests.faults.child", prefix=prefix
            )
        except AssertionError as error:
            if die is None or "Traceback" in str(error):
                raise Unstartable(str(error)) from error
            return None
        self._proxy.retarget(self._server.port)
        return self._server

    def _kill(self) -> None:
        assert self._server is not None
        self.counts["compactions"] += _metric(self._server, "tidewire_compactions_total")
        if self._due is None and self._dice.random() < 0.2:
            self.counts["stops"] += 1
            if (code := self._server.stop()) != 0:
                self.found.append(Violation("other", f"SIGTERM ended the server with {code}"))
        else:
            self.counts["kills"] += 1
            at_moment = self._due is not None and ":" in self._due and self._server.process.poll() is not None
            self.counts["kills at moments"] += at_moment
            self._server.kill()
            if self._server.process.returncode != -signal.SIGKILL:
                self.found.append(Violation("other", f"the server ended by itself, see {self._server.log_path}"))
        self._server = None

    def _query(self, statement: str) -> list[Row]:
        """Executes a query on a connection of its own, not through the proxy."""
        assert self._server is not None
        with psycopg.connect(self._server.dsn, autocommit=True, connect_timeout=10) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    # -- a run --------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Creates tables, holds and clients. All clients are subscribed before the first write."""
        self._start(spark=self.spark)
        for statement in SETUP:
            self._query(statement)
        followed = ["h_events_1", "h_events_2", "h_ledger", "h_accounts"]
        if self.spark:
            followed += ["h_totals", "h_parities"]
        for hold in followed:
            if self.holds:
                self._query(f"CREATE HOLD {hold} ON {HOLDS[hold]}")
            query = PARITIES if hold == "h_parities" else HOLDS[hold]
            relation = "parities" if hold == "h_parities" else HOLDS[hold]
            file = self.directory / f"{hold}.sqlite"
            # The ledger's hold is never advanced: at the end the whole history is read again.
            advanced = hold if self.holds and hold != "h_ledger" else "-"
            resume = "resume" if self.holds else "snapshot"
            arguments = [self._proxy.dsn, str(file), query, resume, advanced]
            self._clients.append(Client(hold, relation, query, file, arguments))
        if self.holds:
            self._created_at = dict(self._query("SELECT name, at FROM mz_catalog.mz_holds"))
        for client in self._clients:
            client.start()
        self._await(
            "every subscriber has progress",
            lambda: all(client.place for client in self._clients),
            patience_s=max(self.patience_s, START_S),
        )
        kinds = (Writer, Writer, Teller) if self.spark else (Writer, Writer)
        for number, kind in enumerate(kinds, start=1):
            self._writers.append(kind(self._proxy.dsn, number, self._dice.randrange(2**32)))
            self._writers[-1].start()

    @property
    def pid(self) -> int:
        """The process id of the server, 0 if there is none."""
        return 0 if self._server is None else self._server.process.pid

    def start(self) -> None:
        """Starts the server. Unstartable, with the server's message."""
        self._start(spark=self.spark)

    def kill(self) -> None:
        self._kill()

    def await_refusals(self) -> None:
        """Waits until a write of every writer has been refused."""
        for writer in self._writers:
            refused = writer.refusals
            self._await(f"{writer.name} is refused", lambda w=writer, n=refused: w.refusals > n)  # type: ignore[misc]

    def await_writes(self) -> None:
        """Waits until writes of every writer have been acknowledged."""
        for writer in self._writers:
            count = writer.acknowledgements
            self._await(f"{writer.name} continues", lambda w=writer, n=count: w.acknowledgements > n + 3)  # type: ignore[misc]

    def live(self, seconds: float) -> None:
        """Starts the server repeatedly, with faults, until the time is over."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self.found and not any(map(self._broken, self._clients)):
            self._faults(self._dice.uniform(0.1, 1.5))
            self._kill()
            try:
                while (time.monotonic() < deadline) and not self._live_again():
                    pass
            except Unstartable as error:
                self.found.append(Violation("repair", str(error)))

    def _live_again(self) -> bool:
        """Starts the server, which may be made to die at some time. Returns whether it listened."""
        die = None
        match self._dice.randrange(10):
            case 0 | 1 | 2 | 3 | 4:
                name = self._dice.choice(list(MOMENTS))
                die = f"{name}:{self._dice.randrange(MOMENTS[name].passes_max) + 1}"
            case 5 | 6:
                die = f"{self._dice.uniform(0, 1.5):.3f}"
        server = self._start(die, spark=self.spark and self._dice.random() < 0.4)
        if server is None:
            self.counts["kills"] += 1
            self.counts["kills at start"] += 1
            self.counts["kills at moments"] += die is not None and ":" in die
            return False
        self._check_holds()
        return True

    def _faults(self, seconds: float) -> None:
        """Injects the faults of one process, other than its end."""
        assert self._server is not None
        deadline = time.monotonic() + seconds
        dice = self._dice
        while time.monotonic() < deadline and self._server.process.poll() is None:
            match dice.randrange(40):
                case 0 | 1:
                    self.counts["cuts"] += 1
                    self._proxy.cut()
                case 2:
                    self.counts["client kills"] += 1
                    client = dice.choice(self._clients)
                    client.kill()
                    client.start()
                case 3 | 4 | 5 | 6:
                    self._step_clock(dice.choice([0, dice.randrange(-CLOCK_MS_MAX, CLOCK_MS_MAX)]))
                case 7 if jvms := _children(self._server.process.pid, "java"):
                    self.counts["JVM kills"] += 1
                    os.kill(dice.choice(jvms), signal.SIGKILL)
                    deadline += 2.0
            time.sleep(0.05)

    def _step_clock(self, offset_ms: int) -> None:
        self.counts["clock steps"] += 1
        with self._clock.open("r+b") as file:
            file.write(struct.pack("<q", offset_ms))

    def _budget(self) -> int | None:
        """The number of bytes until a connection breaks, which is mostly in the middle of a row."""
        if self._quiet or self._dice.random() < 0.7:
            return None
        return self._dice.randrange(1, 20_000)

    def _check_holds(self) -> None:
        if not self.holds:
            return
        acknowledged = {client.name: client.acknowledged for client in self._clients}
        try:
            found = dict(self._query("SELECT name, at FROM mz_catalog.mz_holds"))
        except psycopg.OperationalError:
            return  # a fault killed it
        for client in self._clients:
            lower = max(acknowledged[client.name], int(self._created_at[client.name]))
            upper = max(client.tried, lower)
            if not lower <= int(found.get(client.name, 0)) <= upper:
                text = f"{client.name} is at {found.get(client.name)}, but was advanced to {lower} (tried: {upper})"
                self.found.append(Violation("hold", text))

    def _await(self, what: str, condition: Callable[[], bool], *, patience_s: float | None = None) -> None:
        deadline = time.monotonic() + (patience_s or self.patience_s)
        while not condition():
            if broken := [text for client in self._clients if (text := self._broken(client))]:
                raise Unsettled(broken[0])
            if time.monotonic() > deadline:
                raise Unsettled(f"in vain: {what}")
            time.sleep(0.05)

    def _broken(self, client: Client) -> str | None:
        """What a client observed that a correct server never does."""
        found = client.ask("SELECT max(what) FROM broken")
        return None if found is None else str(found)

    def end(self) -> Report:
        """Starts the server without faults, waits until all clients are up to date, and checks their records."""
        self._quiet = True
        contents: dict[str, Counter[Row]] = {}
        accounts: list[Account] = []
        try:
            if self._server is not None:
                self._kill()  # it may have been made to die
            self._start(spark=self.spark)
            self._check_holds()
            self._proxy.cut()  # connections that the proxy would still break
            now = self._settle()
            for client in self._clients:
                if client.relation not in contents:
                    rows = self._query(f"SELECT * FROM {client.query} AS q")
                    contents[client.relation] = Counter(tuple(kept(value) for value in row) for row in rows)
            if self.holds:
                accounts.append(Account("ledger", [self._history("ledger", "h_ledger", now)]))
        except Unstartable as error:
            self.found.append(Violation("repair", str(error)))
        except (Unsettled, psycopg.Error) as error:
            self.found.append(Violation("other", f"in a quiet life: {type(error).__name__}: {error}"))
        finally:
            operations, read, _ = self.cease()
        accounts += read
        self.found += [Violation("other", text) for writer in self._writers for text in writer.unexplained]
        self.found += repeated_values(writer.drawn for writer in self._writers)
        if len(contents) == len({client.relation for client in self._clients}):
            self.found += violations(operations, accounts, contents)
        else:
            self.found += [Violation("other", what) for account in accounts for what in account.broken]
        self._check_directory()
        self._count(operations, accounts)
        return Report(self.seed, self.counts, self.found)

    def cease(self) -> tuple[list[Operation], list[Account], list[Advances]]:
        """Stops the clients and the server immediately. Returns their operations, what was received, and the
        advances of holds."""
        self._ceased = True
        for writer in self._writers:
            writer.stop()
        for client in self._clients:
            if client.process is not None:
                client.kill()
        if self._server is not None:
            self._server.stop()
            if self.trace is not None:
                await_end(self.trace, self._server.process.pid)
            self._server = None
        self._proxy.__exit__()
        for writer in self._writers:
            writer.join(self.patience_s)
        operations = [operation for writer in self._writers for operation in writer.operations]
        accounts = [Account.read(client.file, client.relation) for client in self._clients if client.has_begun]
        return operations, accounts, [Advances(client.name, client.advances) for client in self._clients]

    @property
    def drawn(self) -> list[Drawn]:
        """The values of sequences that the writers have received."""
        return [one for writer in self._writers for one in writer.drawn]

    def _settle(self) -> int:
        """Waits until all clients continue, stops the writers, and waits for the subscribers. Returns a time after
        all writes."""
        self.await_writes()
        for writer in self._writers:
            writer.stop()
        for writer in self._writers:
            writer.join(self.patience_s)
        ((now,),) = self._query("SELECT mz_now()")
        self._await("all subscribers catch up", lambda: all(c.place > int(now) for c in self._clients))
        return int(now)

    def _history(self, relation: str, hold: str, until: int) -> Segment:
        """The whole history of a relation from a hold's time on, read by one statement."""
        assert self._server is not None
        at = int(self._created_at[hold])
        changes: dict[int, Counter[Row]] = {}
        with psycopg.connect(self._server.dsn, autocommit=True) as connection:
            statement = f"SUBSCRIBE {relation} AS OF {at} UP TO {until + 1}"
            for timestamp, diff, *values in connection.cursor().stream(statement.encode()):
                row = tuple(kept(value) for value in values)
                changes.setdefault(int(timestamp), Counter())[row] += int(diff)
        return Segment(relation, at, changes, [(until + 1, time.monotonic_ns())])

    def _check_directory(self) -> None:
        """No data is damaged, and the directory has no file that the catalog does not name."""
        store = Store(self._data)
        try:
            if (result := store.read("PRAGMA integrity_check")) != [("ok",)]:
                self.found.append(Violation("other", f"catalog.sqlite: {result}"))
            payloads = Payloads(self._data / "payloads")
            log = Log(store, payloads)
            named = {batch.file for id in log.collections() for batch in log.batches(id)} - {None}
            if named != payloads.names():
                self.found.append(Violation("other", f"files named {named}, files there {payloads.names()}"))
        finally:
            store.close()

    def _count(self, operations: list[Operation], accounts: list[Account]) -> None:
        self.counts["cuts"] += self._proxy.broken
        self.counts["values"] = len(self.drawn)
        for operation in operations:
            outcome = "acknowledged" if operation.acknowledged_ns else "refused" if operation.refused else "unknown"
            self.counts[outcome] += 1
        self.counts["updates"] += sum(account.updates for account in accounts)
        self.counts["progress"] += sum(len(s.progress) for account in accounts for s in account.segments)


def _metric(server: ServerProcess, name: str) -> int:
    """A counter of the server; 0 if the server does not answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
    except OSError:
        return 0
    return next((int(float(line.split()[1])) for line in lines if line.startswith(f"{name} ")), 0)


def _children(pid: int, name: str) -> list[int]:
    """The child processes with that name."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, tail = entry.read_text().rpartition(")")
        except OSError:
            continue  # the process has ended
        if head.endswith(f"({name}") and int(tail.split()[1]) == pid:
            found.append(int(entry.parent.name))
    return found
