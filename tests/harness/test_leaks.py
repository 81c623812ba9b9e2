"""Tests of the check that a test leaves nothing behind: each kind is found, and blamed on the test that left it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

if TYPE_CHECKING:
    from pathlib import Path

# In one process, where all of them share one run of pytest.
pytestmark = pytest.mark.xdist_group("harness")
CONFTEST = """
import socket
import pytest

pytest_plugins = ["tests.leaks"]

def pytest_sessionstart():
    import tests.leaks
    tests.leaks.GRACE_SECONDS = 0.3

@pytest.fixture(scope="session")
def listener():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server
"""
CASES = """
import asyncio, socket, subprocess, sys, threading, time
import pytest

kept = []

def test_innocent_before():
    pass

def test_thread():
    kept.append(threading.Thread(target=time.sleep, args=[600], daemon=True, name="forgotten"))
    kept[-1].start()

def test_process():
    kept.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", "forgotten"]))

def test_socket():
    kept.append(socket.create_server(("127.0.0.1", 0)))

def test_loop():
    kept.append(asyncio.new_event_loop())

def test_transport():
    async def connect():
        with socket.create_server(("127.0.0.1", 0)) as server:
            await asyncio.open_connection(*server.getsockname())
            server.accept()[0].close()
    loop = asyncio.new_event_loop()
    loop.run_until_complete(connect())
    loop.close()

def test_task():
    async def forget():
        asyncio.get_running_loop().create_task(asyncio.Event().wait(), name="forgotten")
        await asyncio.sleep(0)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(forget())
    loop.close()

def test_session_fixture(request):
    request.getfixturevalue("listener")

def test_slow_thread():
    threading.Thread(target=time.sleep, args=[0.01]).start()

def test_innocent_after():
    for process in kept:
        if isinstance(process, subprocess.Popen):
            process.kill()
            process.wait()
"""
MESSAGES = {
    "test_thread": "thread 'forgotten'",
    "test_process": "forgotten",
    "test_socket": "127.0.0.1",
    "test_loop": "open file",
    "test_transport": "_SelectorSocketTransport",
    "test_task": "Task was destroyed but it is pending",
}


@pytest.fixture(scope="module")
def blamed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The tests that failed, and why."""
    folder = tmp_path_factory.mktemp("leaking")
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_cases.py").write_text(CASES)
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    options = ("-p", "no:cacheprovider", "--basetemp", "run", "--junitxml", "report.xml")
    command = [sys.executable, "-m", "pytest", *options]
    own = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ran = subprocess.run(command, cwd=folder, env=own, check=False, stdout=subprocess.PIPE)
    assert ran.returncode == pytest.ExitCode.TESTS_FAILED, ran.stdout.decode()
    return _blamed(folder / "report.xml")


def _blamed(report: Path) -> dict[str, str]:
    failures = ET.parse(report).iter("testcase")  # noqa: S314  (pytest wrote it)
    return {case.attrib["name"]: "".join(case.itertext()) for case in failures if len(case)}


def test_only_tests_that_leave_something_are_blamed(blamed: dict[str, str]) -> None:
    assert set(blamed) == set(MESSAGES)


@pytest.mark.parametrize("kind", MESSAGES)
def test_what_was_left_is_named(blamed: dict[str, str], kind: str) -> None:
    assert MESSAGES[kind] in blamed[kind]
