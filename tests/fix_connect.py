"""A Spark Connect server of the tests' own, as somebody else would run one: a process, a port, settings of its own."""

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
    """A port for a server that must come back at the same place."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


class ConnectServer:
    """A Connect server's process, which can be killed and started again; its log is `directory`/connect.log."""

    def __init__(self, directory: Path) -> None:
        """Returns when it listens."""
        self.port = free_port()
        self.directory = directory
        self.log = directory / "connect.log"
        directory.mkdir(parents=True, exist_ok=True)
        self.start()

    def start(self) -> None:
        """Returns when it listens."""
        properties = {
            "java.io.tmpdir": str(self.directory),
            "user.timezone": "America/St_Johns",  # what Tidewire needs it says itself
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
        with self.log.open("ab") as words:
            self.process = subprocess.Popen(
                command,
                env={
                    **os.environ,
                    "SPARK_HOME": str(spark_home()),
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "PYSPARK_PYTHON": sys.executable,  # Connect takes no setting for it, and else python3
                },
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=words,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._listens():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)  # nothing tells when a port is opened

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
        """kill -9."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()
