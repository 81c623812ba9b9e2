"""Several worker processes on Redis: what the parent has used before it forks is the parent's."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from pgjq import Client
from tests.worker.test_supervisor import SCRIPT

if TYPE_CHECKING:
    from pgjq import RedisStorage
    from tests.redis_server import RedisServer


def test_processes_share_the_work_and_one_that_dies_is_replaced(
    redis_server: RedisServer, storage: RedisStorage
) -> None:
    client = Client(storage)
    script = SCRIPT.replace("PostgresStorage", "RedisStorage")
    command = [sys.executable, "-c", script, redis_server.url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        client.enqueue_many("q", [(f"{n}", "die" if n % 10 == 0 else None) for n in range(40)])
        while client.get_queue_stats("q").completed < 40:
            assert parent.poll() is None
        pids = {job.result for job in client.find_jobs("q", state="completed")}
        said, _ = parent.communicate("stop\n")
    assert len(pids) >= 2
    assert parent.pid not in pids
    assert (said, parent.returncode) == ("started\nstopped\n", 0)
