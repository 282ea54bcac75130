"""The JavaScript client of the HTTP API, and the parts of the console that need no browser, in Node.js."""

from __future__ import annotations

import os
import shutil
import subprocess
import urllib.request
from pathlib import Path

import pytest

from tests.fix_server import server_without_spark

pytestmark = pytest.mark.clients

TESTS = Path(__file__).parent / "javascript"


@pytest.mark.parametrize(
    ("tests", "transport"),
    [("client_test.mjs", "events"), ("client_test.mjs", "websocket"), ("console_test.mjs", "events")],
)
def test_javascript(tmp_path: Path, tests: str, transport: str) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node.js is not installed")
    server = server_without_spark(tmp_path / "data")
    try:
        url = f"http://127.0.0.1:{server.http_port}"
        for name in ("client", "tables"):
            served = urllib.request.urlopen(f"{url}/{name}.js", timeout=10).read()
            (tmp_path / f"{name}.mjs").write_bytes(served)
        run = subprocess.run(
            # Node.js 20 has WebSocket only with this option, 22 has it without.
            [node, "--experimental-websocket", "--test", "--test-timeout=60000", str(TESTS / tests)],
            env={
                **os.environ,
                "TIDEWIRE_URL": url,
                "TIDEWIRE_FILES": str(tmp_path),
                "TIDEWIRE_TRANSPORT": transport,
            },
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert run.returncode == 0, run.stdout + run.stderr
    finally:
        assert server.stop() == 0
