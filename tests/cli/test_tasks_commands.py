"""Tasks on the command line: `enqueue --task`, `tasks`, completion, and a worker that ends by itself."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from click.shell_completion import ShellComplete

import pgjq
from pgjq.cli import main
from tests.cli.run_command import PGJQ, answer, complaint, run, started

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHOP = """
import os
import pgjq

url = os.environ["PGJQ_URL"]
storage = pgjq.open_storage(url) if ":" in url else pgjq.PostgresStorage(url)
mail = pgjq.Queue("mail", storage=storage, concurrency=2)
orders = pgjq.AsyncQueue("orders", storage=storage)
hog: list[bytes] = []


def connect() -> str:
    return "connection"


@mail.task(max_attempts=5, retry_on=(ConnectionError,), aliases=["bill"])
def receipt(order: int, *, copy: bool = False, db: str = pgjq.Depends(connect)) -> list[object]:
    return [order, copy, os.getpid()]


@mail.task
def grow(megabytes: int, further: int = 0) -> int:
    hog.append(b"x" * megabytes * 2**20)
    if further:
        grow.using(id=f"g{further}").enqueue(megabytes, further - 1)
    return os.getpid()


@orders.task(version=2)
async def ship(order: int) -> int:
    return order
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(SHOP)
    return tmp_path


def work(directory: Path, url: str, *arguments: str, **environment: str) -> list[dict[str, Any]]:
    """Run a worker that ends by itself, and return its log."""
    done = subprocess.run(
        [PGJQ, "worker", *arguments, "--json"],
        cwd=directory,
        env={**os.environ, "PGJQ_URL": url, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stderr.splitlines()]


def test_a_task_is_enqueued_by_name_with_its_arguments_and_drained(shop: Path, database: str) -> None:
    for job_id, more in {"a": ["--kwarg", "copy=true"], "b": ["--kwarg", "copy=no"], "c": ["--delay", "1h"]}.items():
        said = answer("enqueue", "mail", "--task", "receipt", "--arg", "7", "--id", job_id, *more, url=database)
        assert said["status"] == "queued"
    answer("enqueue", "orders", "--task", "ship", "--arg", "1", "--task-version", "2", "--id", "d", url=database)
    with pgjq.Client(pgjq.PostgresStorage(database)) as client:
        log = work(shop, database, "shop", "--drain", "--queue", "mail")
        assert log[-2]["message"] == "nothing is due"
        assert client.get_result("mail", "a")[:2] == [7, True]
        states = {job.id: (job.state, job.task) for job in client.find_jobs()}
    assert states == {
        "a": ("completed", "receipt"),
        "b": ("failed", "receipt"),  # The text no is not a bool.
        "c": ("queued", "receipt"),
        "d": ("queued", "ship"),
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["mail"], "write a PAYLOAD, or --task and its arguments"),
        (["mail", "7", "--task", "receipt"], "--task has no PAYLOAD"),
        (["mail", "7", "--arg", "1"], "--arg, --kwarg and --task-version are for --task"),
        (["mail", "--task", "receipt", "--kwarg", "copy"], "'copy' is not a keyword argument"),
        (["mail", "--task", "receipt", "--arg", "[1,"], "this is not JSON"),
        (["mail", "--task", ""], "a task's name must be"),
    ],
)
def test_an_unclear_enqueue_of_a_task_is_refused(arguments: list[str], said: str, tmp_path: Path) -> None:
    assert said in complaint("enqueue", *arguments, url=f"file://{tmp_path}", code=2)


def test_jobs_of_tasks_are_retried_with_backoff_as_those_of_python(tmp_path: Path) -> None:
    for job_id, words in {
        "task": ["--task", "fail"],
        "payload": ['{"task": "fail"}'],
        "set": ["--task", "fail", "--no-retry-backoff"],
    }.items():
        answer("enqueue", "mail", *words, "--id", job_id, url=f"file://{tmp_path}")
    storage = pgjq.FileStorage(tmp_path)
    mail = pgjq.Queue("mail", storage=storage)

    @mail.task
    def fail() -> None:
        raise ConnectionError

    pgjq.Worker(mail, drain=True).run()
    states = {job.id: job.state for job in mail.client.find_jobs()}
    storage.close()
    assert states == {"task": "failing", "payload": "failed", "set": "failed"}


def test_processes_are_replaced_after_some_jobs_or_above_some_memory(shop: Path, tmp_path: Path) -> None:
    url = f"file://{tmp_path / 'jobs'}"
    with pgjq.Client(pgjq.FileStorage(tmp_path / "jobs")) as client:
        client.enqueue_many("mail", [(str(n), {"task": "receipt", "args": [n]}) for n in range(5)])
        log = work(shop, url, "shop", "--drain", "--max-jobs", "2")
        assert [entry["message"] for entry in log].count("worker process has reached its limit, starting another") == 2
        assert len({client.get_result("mail", str(n))[2] for n in range(5)}) == 3
        client.enqueue("mail", "g3", {"task": "grow", "args": [300, 2]})
        work(shop, url, "shop", "--drain", "--max-memory", "256M", "--concurrency", "1")
        assert len({client.get_result("mail", job_id) for job_id in ("g3", "g2", "g1")}) > 1


def test_a_drain_works_for_all_processes_and_ends_at_its_deadline(shop: Path, tmp_path: Path) -> None:
    url = f"file://{tmp_path / 'jobs'}"
    (shop / "shop.py").write_text(f"{SHOP}\n@mail.task\ndef hang() -> None:\n    import time\n    time.sleep(600)\n")
    with pgjq.Client(pgjq.FileStorage(tmp_path / "jobs")) as client:
        client.enqueue_many("mail", [(str(n), {"task": "receipt", "args": [n]}) for n in range(20)])
        log = work(shop, url, "shop", "--drain", "--processes", "2")
        assert [entry["message"] for entry in log].count("worker process ended: nothing is due") == 2
        assert {job.state for job in client.find_jobs()} == {"completed"}
        client.enqueue("mail", "hang", {"task": "hang"})
        log = work(shop, url, "shop", "--drain", "--deadline", "2s")
        assert log[-2]["message"] == "the deadline has passed"
        status = client.get_status("mail", "hang")
        assert status is not None
        assert (status.state, status.attempts) == ("queued", 0)
    assert "--deadline is for --drain" in complaint("worker", "shop", "--deadline", "2", url=url, code=2)


def test_a_drain_waits_for_the_schedules_that_are_due(shop: Path, tmp_path: Path) -> None:
    with pgjq.Client(pgjq.FileStorage(tmp_path / "jobs")) as client:
        client.create_schedule("often", "mail", {"task": "receipt", "args": [1]}, every=1)
        time.sleep(1.1)  # Until it is due: a file has the real clock.
        work(shop, f"file://{tmp_path / 'jobs'}", "shop", "--drain")
        assert "completed" in {job.state for job in client.find_jobs()}


@pytest.fixture
def imported(shop: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory whose module `shop` may be imported here, during the test."""
    monkeypatch.chdir(shop)
    monkeypatch.setattr(sys, "path", [str(shop), *sys.path])
    monkeypatch.setenv("PGJQ_URL", "memory:")
    yield shop
    sys.modules.pop("shop", None)


@pytest.mark.usefixtures("imported")
def test_the_tasks_of_a_module_are_listed() -> None:
    receipt, grow, ship = answer("tasks", "shop", url="memory:")
    assert receipt == {
        "task": "receipt",
        "queue": "mail",
        "version": 1,
        "aliases": ["bill"],
        "signature": "(order: int, *, copy: bool = False) -> list[object]",
        "options": {"max_attempts": 5, "retry_on": ["ConnectionError"]},
    }
    assert (grow["task"], ship["version"], ship["signature"]) == ("grow", 2, "async (order: int) -> int")
    text = run("tasks", "shop:mail", url="memory:").stdout
    shown = r"aliases=\['bill'\] max_attempts=5 retry_on=\['ConnectionError'\]"
    assert re.search(rf"receipt\s+mail\s+1\s+\(order: int.*{shown}", text)
    assert "ship" not in text


def completions(words: str, url: str) -> list[str]:
    """Return what a shell would offer for the last word."""
    os.environ["PGJQ_URL"] = url
    *args, incomplete = words.split(" ")
    found = ShellComplete(main, {}, "pgjq", "_PGJQ_COMPLETE").get_completions(args, incomplete)
    return [item.value for item in found]


@pytest.mark.usefixtures("imported")
def test_completion_knows_queues_tasks_and_schedules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"file://{tmp_path / 'jobs'}"
    with pgjq.Client(pgjq.FileStorage(tmp_path / "jobs")) as client:
        client.enqueue("mail", None, {"task": "receipt", "args": [1]})
        client.enqueue("orders", None, {"task": "ship", "args": [1]})
        client.create_schedule("nightly", "mail", cron="@daily")
    assert completions("enqueue ", url) == ["mail", "orders"]
    assert completions("enqueue mail --task ", url) == ["receipt"]
    assert completions("jobs find --task s", url) == ["ship"]
    assert completions("queues pause m", url) == ["mail"]
    assert completions("schedules explain ", url) == ["nightly"]
    assert completions("worker shop --queue ", "memory:") == ["mail", "orders"]
    assert completions("worker shop:", "memory:") == ["shop:mail", "shop:orders"]
    assert completions("worker nowhere:", "memory:") == []
    assert completions("enqueue ", "postgresql://localhost:1/none") == []
    assert completions("enqueue ", "") == []
    assert capsys.readouterr() == ("", "")


def test_a_framework_is_set_up_before_the_import(shop: Path, tmp_path: Path) -> None:
    (shop / "site_settings.py").write_text("USE_TZ = True\nPGJQ_NAME = 'mail'\n")
    (shop / "app.py").write_text(
        "import os\nimport pgjq\nfrom django.conf import settings\n"
        "storage = pgjq.open_storage(os.environ['PGJQ_URL'])\n"
        "queue = pgjq.Queue(settings.PGJQ_NAME, storage=storage)\n"
        "@queue.task\ndef ready() -> bool:\n    from django.apps import apps\n    return apps.ready\n"
    )
    url = f"file://{tmp_path / 'jobs'}"
    with pgjq.Client(pgjq.FileStorage(tmp_path / "jobs")) as client:
        client.enqueue("mail", "a", {"task": "ready"})
        work(shop, url, "app", "--setup", "django:setup", "--drain", DJANGO_SETTINGS_MODULE="site_settings")
        assert client.get_result("mail", "a") is True
    failed = subprocess.run(
        [PGJQ, "worker", "app"],
        cwd=shop,
        env={**os.environ, "PGJQ_URL": url},
        capture_output=True,
        text=True,
        check=False,
    )
    assert failed.returncode == 1
    assert "importing app failed: ImproperlyConfigured: " in failed.stderr
    assert "set DJANGO_SETTINGS_MODULE, and pass --setup django:setup" in failed.stderr


@pytest.mark.parametrize(
    ("setup", "said"),
    [
        ("django", "--setup 'django' does not say MODULE:FUNCTION, as in django:setup"),
        ("json:nothing", "there is no 'nothing' in module 'json'"),
        ("json:__name__", "--setup json:__name__ is a str; it must be a function"),
        ("nowhere_at_all:f", "there is no module 'nowhere_at_all'"),
    ],
)
def test_a_setup_that_is_no_function_is_refused(setup: str, said: str) -> None:
    assert said in complaint("worker", "json", "--setup", setup, url=None, code=2)


@pytest.mark.usefixtures("imported")
def test_a_queue_that_the_module_does_not_have_is_refused() -> None:
    said = complaint("worker", "shop", "--queue", "mial", url="memory:", code=2)
    assert said == "there is no queue 'mial' here; the queues are mail, orders"
    assert "is not a size: write bytes, or 512M, 2G" in run("worker", "x", "--max-memory", "much", url=None).stderr


def test_a_worker_starts_again_when_its_code_changes(shop: Path, tmp_path: Path) -> None:
    url = f"file://{tmp_path / 'jobs'}"
    with (
        pgjq.Client(pgjq.FileStorage(tmp_path / "jobs")) as client,
        started("worker", "shop", "--reload", url=url, directory=shop) as worker,
    ):
        worker.wait_for(" serves ")
        first = client.enqueue_and_wait("mail", None, {"task": "grow", "args": [0]}, timeout=60)
        (shop / "shop.py").write_text("this is a mistake")
        worker.wait_for("code changed, starting again")
        (shop / "shop.py").write_text(SHOP.replace("return os.getpid()", "return -os.getpid()"))
        worker.wait_for(" serves ")
        second = client.enqueue_and_wait("mail", None, {"task": "grow", "args": [0]}, timeout=60)
        assert first > 0 > second
        assert worker.end() == 0
