"""The learner's batches: made ahead by threads, or in turns with acting."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable

from motif_jax.core.devices.services import Services
from motif_jax.core.interruption import never
from motif_jax.rl import settings
from motif_jax.rl.actors.rollouts import Ready
from motif_jax.rl.batcher import Batch, put
from motif_jax.rl.reward_lookup import IntrinsicReturn
from motif_jax.rl.system import System

_WAIT_SECONDS = 0.2


class BatchStream:
    """Gives the learner its batches, of which few wait. With threads, inference and batcher run beside the caller.

    `while_playing` is called again and again with the number of steps that were played in turns, with the learner waiting.
    """

    def __init__(
        self,
        system: System,
        stopped: Callable[[], bool] = never,
        while_playing: Callable[[int], None] = lambda played: None,
    ) -> None:
        self._system, self._stopped = system, stopped
        self._played = 0
        self._while_playing = while_playing
        self._in_turns = settings.takes_turns(system.config)
        self._batches = 0
        self._services = Services()
        self._ready: queue.SimpleQueue[Batch] = queue.SimpleQueue()
        self._room = threading.Semaphore(system.config.max_waiting_batches)

    def __enter__(self) -> BatchStream:
        try:
            self._system.start(self._stopped)
        except BaseException:
            self._system.close()
            raise
        if not self._in_turns:
            for number, source in enumerate(self._system.sources):
                inference = source.inference
                # On a CPU the device's work takes the host's cores: calls side by side gain nothing there.
                serve = inference.serve_ahead if inference.on_gpu else inference.serve
                self._services.start(f"inference {number}", serve)  # type: ignore[arg-type]
            self._services.start("batcher", self.assemble)
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            self._services.stop()
        finally:
            self._system.close()

    def assemble(self) -> None:
        """The batcher's thread: takes a slot, or makes a batch of full ones; returns after a timeout in any case."""
        system, meters = self._system, self._system.meters
        if not system.batcher.is_full():
            with meters.time("batcher/wait"), contextlib.suppress(queue.Empty):
                system.batcher.add(system.finished.get(timeout=_WAIT_SECONDS))
            return
        with meters.time("batcher/blocked"):
            room = self._room.acquire(timeout=_WAIT_SECONDS)
        if room:
            batch = system.batcher.next()
            with meters.time("batcher/put"):
                self._ready.put(put(batch, system.parallel))

    def get(self) -> Batch | None:
        """The next batch, None if none is ready. Raises ServiceFailedError: a thread failed."""
        if self._in_turns:
            return self._get_in_turn()
        self._services.check()
        if not self._ready.qsize():
            self._system.learner.settle()  # has its own meter; what follows counts as waiting
        with self._system.meters.time("learner/wait"), contextlib.suppress(queue.Empty):
            batch = self._ready.get(timeout=_WAIT_SECONDS)
            self._room.release()
            return batch
        return None

    def _get_in_turn(self) -> Batch | None:
        system = self._system
        system.learner.settle()
        while True:
            if self._is_full():
                batch = system.batcher.next()
                self._batches += 1
                if not system.config.serial:
                    system.note_play()
                return put(batch, system.parallel)
            served = 0
            for number, source in enumerate(system.sources):
                served += source.inference.serve(_WAIT_SECONDS / len(system.sources), self._hold(number))
            self._played += served
            if served:
                self._while_playing(self._played)
            if not served and not system.config.serial and not self._is_full():
                return None

    def _hold(self, source: int) -> Callable[[Ready], bool] | None:
        """Which groups wait: on policy, those at a slot's last observation wait for the next parameters; None for none."""
        system = self._system
        if not system.config.on_policy:
            return None
        return lambda each: each.row == 0 and system.finished_slots[source][each.group] > self._batches

    def _is_full(self) -> bool:
        system = self._system
        while not system.finished.empty() and not system.batcher.is_full():
            system.batcher.add(system.finished.get())
        return system.batcher.is_full()

    def waiting(self) -> int:
        return self._ready.qsize()

    def rest(self) -> list[IntrinsicReturn]:
        batches = [self._ready.get() for _ in range(self._ready.qsize())]
        return [value for batch in batches for value in batch.intrinsic_returns]
