"""The JavaScript client of the HTTP API, in Node.js."""

from __future__ import annotations

import os
import shutil
import subprocess
import urllib.request
from pathlib import Path

import pytest

from tests.fix_server import ServerProcess

pytestmark = pytest.mark.clients

TESTS = Path(__file__).parent / "javascript" / "client_test.mjs"


def test_the_javascript_client(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node.js is not installed")
    server = ServerProcess(tmp_path / "data", module="tests.faults.child", env={"FAULTS_SPARK": "none"})
    try:
        url = f"http://127.0.0.1:{server.http_port}"
        client = tmp_path / "client.mjs"
        client.write_bytes(urllib.request.urlopen(f"{url}/client.js", timeout=10).read())
        run = subprocess.run(
            [node, "--test", "--test-timeout=60000", str(TESTS)],
            env={**os.environ, "TIDEWIRE_URL": url, "TIDEWIRE_CLIENT": str(client)},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert run.returncode == 0, run.stdout + run.stderr
    finally:
        assert server.stop() == 0
