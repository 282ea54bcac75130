"""Runs a Tidewire server as a child process. Its log shows when it listens; it is stopped with the demo."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path

PORT = 6875  # the default port of `tidewire serve`
START_S = 30.0
STOP_S = 15.0


class ServerFailed(Exception):
    """The server did not start, or ended too early. The message has the last lines of its log."""


class LocalServer:
    """`tidewire serve` on loopback, in a session of its own, so that Ctrl-C reaches only the demo."""

    def __init__(self, data_dir: Path) -> None:
        data_dir.parent.mkdir(parents=True, exist_ok=True)
        self.port = 0
        self._listening = threading.Event()
        self._last_words: deque[str] = deque(maxlen=12)
        listen = f"127.0.0.1:{PORT if _is_free(PORT) else 0}"
        command = [sys.executable, "-m", "server", "serve", "--listen", listen, "--data-dir", str(data_dir.absolute())]
        command += ["--http-listen", "127.0.0.1:0"]
        self._process = subprocess.Popen(
            [*command, "--log-format", "json"], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
        )
        self._reader = threading.Thread(target=self._read_log, name="server-log", daemon=True)
        self._reader.start()

    def wait_until_listening(self) -> None:
        """Waits for the server to listen. ServerFailed after START_S seconds."""
        if not self._listening.wait(START_S) or not self.port:
            self.check(grace_s=1.0)
            raise ServerFailed(f"the server did not listen within {START_S:.0f} s")

    @property
    def url(self) -> str:
        return f"postgres://materialize@127.0.0.1:{self.port}/materialize"

    def check(self, grace_s: float = 0.0) -> None:
        """ServerFailed if the server has ended, or ends within `grace_s` seconds."""
        self._reader.join(grace_s)
        if not self._reader.is_alive():
            # Messages for users are not JSON. Without any, show the log entries.
            words = "\n".join([word for word in self._last_words if not word.startswith("{")] or self._last_words)
            raise ServerFailed(f"the server ended with exit code {self._process.returncode}:\n{words}")

    def stop(self) -> None:
        """Terminates the server, and kills it if it has not ended after STOP_S seconds."""
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(1.0)

    def _read_log(self) -> None:
        """Reads the log to its end, because the server would block on a full pipe."""
        assert self._process.stderr is not None
        with self._process.stderr as log:
            for line in log:
                text = line.decode(errors="replace").rstrip()
                try:
                    entry = json.loads(text)
                except ValueError:
                    entry = None
                if isinstance(entry, dict) and entry.get("event") == "listening":
                    self.port = int(entry["port"])
                    self._listening.set()
                elif text:
                    self._last_words.append(text)
        self._process.wait()
        self._listening.set()


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
