"""The stream of batches that the learner reads: made ahead by threads, or in turns with acting."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable

from motif_jax.core.devices.services import Services
from motif_jax.core.interruption import Patience, never
from motif_jax.rl import settings
from motif_jax.rl.actors.rollouts import Ready
from motif_jax.rl.batcher import Batch, put
from motif_jax.rl.reward_lookup import IntrinsicReturn
from motif_jax.rl.system import System

# Batches that wait for the learner until the actors wait. The published tool allows two; each one
# makes the policy that plays an update older.
MAX_WAITING_BATCHES = 1
# The longest wait of a thread's round, after which it sees that it is to stop.
WAIT_SECONDS = 0.2


class BatchStream:
    """Gives the learner its batches, of which at most `MAX_WAITING_BATCHES` wait.

    Usually inference and batcher run in threads beside the caller. In a serial run and on policy
    they take turns with it: `get` plays until a batch is full.

    Args:
      stopped: returns True once the run was asked to stop, while actors start.
      while_playing: called with the number of steps that `get` has played so far.
      patience: with a stop while `get` plays; None: a stop waits for the batch.

    Attributes:
      services: the threads of inference and of the batcher.
    """

    def __init__(
        self,
        system: System,
        stopped: Callable[[], bool] = never,
        while_playing: Callable[[int], None] = lambda played: None,
        patience: Patience | None = None,
    ) -> None:
        self._system = system
        self._stopped = stopped
        self._while_playing = while_playing
        self._patience = patience
        self._in_turns = settings.takes_turns(system.config)
        self._steps_played = 0  # by `_get_in_turn`
        self._batches = 0  # that `_get_in_turn` has returned
        self.services = Services()
        self._ready: queue.SimpleQueue[Batch] = queue.SimpleQueue()
        # A permit for each batch that waits. Without one none is made: full slots are not released,
        # and the actors wait, so that the learner gets no old rollouts.
        self._room = threading.Semaphore(MAX_WAITING_BATCHES)

    def __enter__(self) -> BatchStream:
        try:
            self._system.start(self._stopped)
        # `__exit__` is not called after an error here, and actors may have started.
        except BaseException:
            self._system.close()
            raise
        if not self._in_turns:
            for number, source in enumerate(self._system.sources):
                inference = source.inference
                # On a CPU the device's work takes the host's cores: calls side by side gain nothing
                # there.
                serve = inference.serve_ahead if inference.on_gpu else inference.serve
                self.services.start(f"inference {number}", serve)  # type: ignore[arg-type]
            # A service calls its function again and again, and looks for a stop in between.
            self.services.start("batcher", self.assemble)
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            self.services.stop()
        finally:
            self._system.close()

    def assemble(self) -> None:
        """One round of the batcher's thread: takes a finished slot, or makes a batch where enough
        are there.
        """
        system = self._system
        meters = system.meters
        if not system.batcher.is_full():
            with meters.time("batcher/wait"), contextlib.suppress(queue.Empty):
                system.batcher.add(system.finished.get(timeout=WAIT_SECONDS))
            return
        # Before the batch is made: what it pays is then as new as can be.
        with meters.time("batcher/blocked"):
            room = self._room.acquire(timeout=WAIT_SECONDS)
        if room:
            batch = system.batcher.next()
            with meters.time("batcher/put"):
                self._ready.put(put(batch, system.parallel))

    def get(self) -> Batch | None:
        """The next batch, None if none is ready.

        Raises:
          ServiceFailedError: a thread failed.
          StoppedError: `patience` with a requested stop is at its end.
        """
        if self._in_turns:
            return self._get_in_turn()
        self.services.check()
        if not self._ready.qsize():
            # Its time has a meter of its own; the time below counts as waiting for a batch.
            self._system.learner.finish_update()
        with self._system.meters.time("learner/wait"), contextlib.suppress(queue.Empty):
            batch = self._ready.get(timeout=WAIT_SECONDS)
            self._room.release()
            return batch
        return None

    def _get_in_turn(self) -> Batch | None:
        system = self._system
        # Play goes on with the parameters of the newest update.
        system.learner.finish_update()
        while True:
            if self._is_full():
                batch = system.batcher.next()
                self._batches += 1
                return put(batch, system.parallel)
            if self._patience is not None:
                self._patience.check()
            served = 0
            for number, source in enumerate(system.sources):
                served += source.inference.serve(
                    WAIT_SECONDS / len(system.sources), self._hold(number)
                )
            self._steps_played += served
            if served:
                self._while_playing(self._steps_played)
            # Processes still play: the caller looks for a stop. Inline actors have played by now.
            elif not system.config.serial and not self._is_full():
                return None

    def _hold(self, source: int) -> Callable[[Ready], bool] | None:
        """A predicate of groups that have to wait for the next parameters; None where none has to.

        On policy these are the groups that begin a slot and have filled one for each update so far.
        """
        system = self._system
        if not system.config.on_policy:
            return None

        def must_wait(ready: Ready) -> bool:
            return ready.row == 0 and system.finished_slots[source][ready.group] > self._batches

        return must_wait

    def _is_full(self) -> bool:
        """Whether the finished slots fill a batch; the batcher receives them."""
        system = self._system
        while not system.finished.empty() and not system.batcher.is_full():
            system.batcher.add(system.finished.get())
        return system.batcher.is_full()

    def waiting(self) -> int:
        """The number of batches that wait for the learner."""
        return self._ready.qsize()

    def rest(self) -> list[IntrinsicReturn]:
        """Drops the batches that wait, at the end of a run; returns the intrinsic returns of their
        episodes.
        """
        batches = [self._ready.get() for _ in range(self._ready.qsize())]
        return [value for batch in batches for value in batch.intrinsic_returns]
