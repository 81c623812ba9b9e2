"""What a person does, in a real browser: find why a job failed, retry it, pause a queue, watch it drain."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn

import pgjq
from pgjq.web import create_app
from tests.web.chromium import Chromium
from tests.web.conftest import TOKEN, fill

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

# One browser at a time.
pytestmark = pytest.mark.xdist_group("chromium")
LISTS = ("failures", "workers", "doctor", "audit")
HOSTILE = "<img src=x onerror=document.title='run'><script>document.title='run'</script>"


@contextmanager
def served(storage: Any) -> Generator[str]:
    """Serve the page on a thread, and return its address."""
    app = create_app(storage, auth=TOKEN)
    config = uvicorn.Config(
        app,
        "127.0.0.1",
        0,
        log_level="error",
        access_log=False,
        timeout_graceful_shutdown=60,  # A busy browser takes its time to read and close.
    )
    listening = config.bind_socket()
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
    finally:
        app.state.stopping = server.should_exit = True
        thread.join(90)
        listening.close()


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Chromium]:
    with Chromium(tmp_path / "profile") as chromium:
        yield chromium


def test_a_person_finds_a_failure_and_mends_it(database: str, browser: Chromium) -> None:
    storage = pgjq.PostgresStorage(database)
    fill(storage)
    client = pgjq.Client(storage)
    client.enqueue("mail", HOSTILE, {HOSTILE: HOSTILE})
    with served(storage) as url:
        browser.open(url)
        assert "read-only" in browser.text()
        browser.click("Log in to act")
        browser.until("!!document.querySelector('input[name=token]')")
        browser.run(f"document.querySelector('input[name=token]').value = '{TOKEN}'")
        browser.click("Log in")
        browser.until("document.body.innerText.includes('Log out')")
        browser.click("Failures")
        browser.until("document.body.innerText.includes('mail.py:12 in send')")
        browser.click("2 jobs")
        browser.click("broken")
        browser.until("document.body.innerText.includes('no such order 7')")
        assert "9223372036854775807" in browser.text()
        browser.click("Retry")
        browser.until("document.body.innerText.includes('1 job queued again')")
        assert client.get_status("mail", "broken").state == "queued"
        browser.open(f"{url}queue?name=mail")
        browser.click("Pause")
        browser.until("document.body.innerText.includes('Paused. Running jobs go on.')")
        assert client.get_queue("mail").paused
        browser.open(f"{url}jobs?queue=mail")
        browser.until("document.body.innerText.includes('<img src=x')")
        assert "run" not in browser.run("document.title")
        assert browser.run("document.querySelectorAll('main img').length") == 0
    storage.close()


def test_a_page_follows_what_happens_and_keeps_what_a_person_opened(browser: Chromium) -> None:
    storage = pgjq.MemoryStorage()
    client = pgjq.Client(storage)
    client.enqueue("mail", "one", 1)
    with served(storage) as url:
        browser.open(f"{url}job?queue=mail&id=one&token={TOKEN}")
        assert "token" not in browser.run("location.href")
        browser.run("document.querySelector('details').open = false")
        browser.until("!document.getElementById('pulse').hidden")
        client.cancel("mail", "one")
        browser.until("document.querySelector('h1').innerText.includes('cancelled')")
        assert browser.run("document.querySelector('details').open") is False
        browser.run("document.body.dispatchEvent(new KeyboardEvent('keydown', {key: 'w', bubbles: true}))")
        browser.until("document.title.startsWith('Workers')")
    storage.close()


@pytest.mark.parametrize("width", [360, 800, 1400])
def test_no_page_is_wider_than_the_screen(browser: Chromium, width: int) -> None:
    storage = pgjq.MemoryStorage()
    fill(storage)
    pgjq.Client(storage).enqueue("a-queue-" + "x" * 100, "an-id-" + "y" * 200, {"long": "z" * 500})
    with served(storage) as url:
        browser.screen(width, 800, "dark" if width == 800 else "light")
        browser.open(f"{url}?token={TOKEN}")
        for page in (
            "",
            "jobs",
            "queue?name=mail",
            "job?queue=mail&id=broken",
            "failures",
            "workers",
            "doctor",
            "audit",
        ):
            browser.open(url + page)
            assert browser.run("document.documentElement.scrollWidth") <= width, page
            assert browser.run("document.styleSheets.length") == 1
    storage.close()
