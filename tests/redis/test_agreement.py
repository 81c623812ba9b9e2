"""Redis and memory agree: random operations on both, at the same moments, must have the same answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from hypothesis import HealthCheck, settings
from hypothesis.stateful import initialize, rule, run_state_machine_as_test

from pgjq import MemoryStorage
from pgjq.blocking import drive
from pgjq.testing import ManualClock, RedisClock
from tests.postgres.test_agreement import Agreement

if TYPE_CHECKING:
    from pgjq import RedisStorage
    from tests.redis_server import RedisServer


class RedisAgreement(Agreement):
    """The same rules as for PostgreSQL, on Redis."""

    server: ClassVar[RedisServer]
    redis: ClassVar[RedisStorage]

    @initialize()
    def start_empty(self) -> None:
        self.server.client().flushall()
        self.moved = RedisClock(self.redis)
        self.clock = ManualClock()
        self.memory = MemoryStorage(clock=self.clock)
        self.pg: Any = self.redis.operations("blocking")
        self.mem: Any = self.memory.operations("blocking")

    @rule()
    def prune(self) -> None:
        """Redis forgets a job at once when its id is used again, memory when it is pruned: the counts differ."""
        drive(self.pg.prune())
        drive(self.mem.prune())


def test_redis_and_memory_agree(redis_server: RedisServer, storage: RedisStorage) -> None:
    RedisAgreement.server, RedisAgreement.redis = redis_server, storage
    run_state_machine_as_test(
        RedisAgreement,
        settings=settings(
            max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
