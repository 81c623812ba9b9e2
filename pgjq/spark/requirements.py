"""Check that Java and a new enough Spark are installed, with clear errors."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from pgjq.errors import PgjqError

JAVA: Final = 17
SPARK: Final = (4, 2)
_INSTALL: Final = (
    "Spark needs Java 17 or newer. On Debian and Ubuntu: apt install openjdk-17-jre-headless; on macOS: brew install "
    "openjdk@17; elsewhere: https://adoptium.net. JAVA_HOME names the one to use."
)


class RequirementError(PgjqError):
    """A requirement of Spark is missing or too old; the message says how to install it."""


def check_java() -> str:
    """Return the Java program that Spark will run; RequirementError if it is missing or too old."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if program is None:
        raise RequirementError(f"Java not found. {_INSTALL}")
    try:
        told = subprocess.run((program, "-version"), capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RequirementError(f"{program} could not be run: {error}. {_INSTALL}") from error
    said = (told.stderr + told.stdout).strip()
    version = java_version(said)
    if version is None:
        first = said.splitlines()[0] if said else "nothing"
        raise RequirementError(f"{program} prints no version but: {first}. {_INSTALL}")
    if version < JAVA:
        raise RequirementError(f"{program} is Java {version}. {_INSTALL}")
    return program


def java_version(said: str) -> int | None:
    """Parse the output of `java -version`; 1.8 was the last version to begin with 1."""
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return None if found is None else int(found[1])


def check_spark(version: str) -> None:
    """Refuse a Spark version whose Python data sources lack required features."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or (int(found[1]), int(found[2])) < SPARK:
        wanted = ".".join(str(part) for part in SPARK)
        raise RequirementError(f'pgjq needs Spark {wanted} or newer, and this is {version}: pip install "pgjq[spark]"')
