"""The time of pools in a test."""

from __future__ import annotations

from motif_jax.rl.actors.pool import ActorPool
from tests.clocks import AheadClock
from tests.processes import wait_until


class PoolTime(AheadClock):
    """The real time, with leaps."""

    def leap(self, pool: ActorPool) -> None:
        """Lets a thousand seconds pass, and returns when the pool has looked at its processes after
        that.
        """
        before = pool.clock
        self.ahead += 1000.0
        wait_until(lambda: pool.clock > before + 1000.5, "some looks after the leap")
