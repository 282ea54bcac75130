"""A Tidewire server of our own: started as a child, awaited through its log, stopped with us."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path

PORT = 6875  # where `tidewire serve` listens by default, so that the lines to paste are short
START_S = 30.0
STOP_S = 15.0


class ServerFailed(Exception):
    """The server did not start, or ended too early; the message holds its last words."""


class LocalServer:
    """`tidewire serve` on loopback. It is in a session of its own, so that Ctrl-C reaches only us and we stop it."""

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
        """ServerFailed if it does not within START_S seconds."""
        if not self._listening.wait(START_S) or not self.port:
            self.check(grace_s=1.0)
            raise ServerFailed(f"the server did not listen within {START_S:.0f} s")

    @property
    def url(self) -> str:
        return f"postgres://materialize@127.0.0.1:{self.port}/materialize"

    def check(self, grace_s: float = 0.0) -> None:
        """ServerFailed if it has ended, or does within `grace_s`."""
        self._reader.join(grace_s)
        if not self._reader.is_alive():
            # What it says to a person is no JSON; if it said nothing, its log may help.
            words = "\n".join([word for word in self._last_words if not word.startswith("{")] or self._last_words)
            raise ServerFailed(f"the server ended with exit code {self._process.returncode}:\n{words}")

    def stop(self) -> None:
        """Asks it to stop, and makes it if it does not within STOP_S seconds."""
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(1.0)

    def _read_log(self) -> None:
        """Reads to the end: a full pipe would stop the server."""
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
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server will
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
