"""A Spark Connect server as a user would run one: a separate process with its own settings."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from server.spark.embedded.java_runtime import find_java
from server.spark.embedded.jvm import class_path, flags
from server.spark.installation import spark_home

MEMORY_MB = 1024
START_TIMEOUT_S = 120
MAIN_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"


def free_port() -> int:
    """Returns a free port, for a server that must listen on the same port after a restart."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


class ConnectServer:
    """The process of a Connect server, which can be killed and restarted. It writes `directory`/connect.log."""

    def __init__(self, directory: Path) -> None:
        """Starts the process and returns when it listens."""
        self.port = free_port()
        self.directory = directory
        self.log = directory / "connect.log"
        directory.mkdir(parents=True, exist_ok=True)
        self.start()

    def start(self) -> None:
        """Starts the process and returns when it listens."""
        properties = {
            "java.io.tmpdir": str(self.directory),
            "user.timezone": "America/St_Johns",  # Tidewire must set the time zone that it needs
            "spark.master": "local[2]",
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.sql.catalogImplementation": "in-memory",
            "spark.sql.warehouse.dir": str(self.directory / "warehouse"),
        }
        command = [str(find_java().executable), *flags(), f"-Xmx{MEMORY_MB}m", "-cp", class_path()]
        command += [*(f"-D{key}={value}" for key, value in properties.items()), MAIN_CLASS]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                env={
                    **os.environ,
                    "SPARK_HOME": str(spark_home()),
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "PYSPARK_PYTHON": sys.executable,  # Connect has no setting for it; the default is python3
                },
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._listens():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)  # there is no notification of an open port

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    @property
    def url(self) -> str:
        return f"sc://127.0.0.1:{self.port}"

    def kill(self) -> None:
        """Sends SIGKILL."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()
