"""`pgjq web`: it prints its token, serves, and stops when asked, also while a page is open."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.error import HTTPError

import pytest

import pgjq

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

WITHOUT = """
import sys
sys.modules[sys.argv[1]] = None
import pgjq
from pgjq.web import create_app
try:
    create_app(pgjq.MemoryStorage(), auth="x")
except pgjq.MissingExtraError as error:
    print(error.extra)
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with pgjq.Client(pgjq.FileStorage(tmp_path / "jobs")) as client:
        client.enqueue("mail", "one", {"secret": 1})
    return tmp_path / "jobs"


@contextmanager
def served(directory: Path, *options: str) -> Generator[subprocess.Popen[str]]:
    environment = {**os.environ, "PGJQ_URL": f"file://{directory}", "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "pgjq", "web", "--port", "0", *options]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_the_command_prints_a_token_and_stops_while_a_page_is_open(directory: Path) -> None:
    with served(directory) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        address, _, token = line.split(": ", 1)[1].strip().partition("?token=")
        assert len(token) >= 24
        with urllib.request.urlopen(f"{address}job?queue=mail&id=one", timeout=30) as page:  # noqa: S310
            text = page.read().decode()
        assert "read-only" in text
        assert "secret" not in text
        request = urllib.request.Request(  # noqa: S310
            f"{address}job?queue=mail&id=one", headers={"authorization": f"Bearer {token}"}
        )
        with urllib.request.urlopen(request, timeout=30) as page:  # noqa: S310
            assert "secret" in page.read().decode()
        stranger = urllib.request.Request(address, headers={"x-forwarded-for": "203.0.113.9"})  # noqa: S310
        with pytest.raises(HTTPError, match="401") as refused:
            urllib.request.urlopen(stranger, timeout=30)  # noqa: S310
        refused.value.close()
        with urllib.request.urlopen(f"{address}live", timeout=30) as stream:  # noqa: S310
            assert stream.readline() == b"retry: 3000\n"
            process.send_signal(signal.SIGTERM)
            errors = process.communicate(timeout=30)[1]
    assert "Traceback" not in errors
    assert token not in errors


@pytest.mark.parametrize("package", ["starlette", "jinja2"])
def test_a_missing_extra_is_named(package: str) -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT, package], capture_output=True, text=True, check=True)
    assert done.stdout == "web\n"
