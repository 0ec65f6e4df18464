"""Servers that are away, or want to be left alone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time

import pytest

from motif_jax.annotation import online, supervised
from motif_jax.annotation.openai_stream import Gate
from motif_jax.datasets.verdicts import SINGLE
from tests.chat_server import Server
from tests.processes import wait_until
from tests.reward_fixtures import load_config


@pytest.mark.parametrize("end", [Gate.answered, Gate._probe])
def test_a_request_that_was_cancelled_takes_nobodys_turn(end) -> None:
    async def turns() -> list[bool]:
        gate = Gate(asyncio.get_running_loop(), lambda event: None)
        gate.failed(time.monotonic(), "away")
        waiting = [asyncio.create_task(gate.turn()) for _ in range(2)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        end(gate)
        await asyncio.wait_for(waiting[1], 60)
        gate.answered()
        return [task.cancelled() for task in waiting]

    assert asyncio.run(turns()) == [True, False]


class Clock:
    """Of the parent alone: may be put forward, and counts how often the annotator's thread has asked it."""

    def __init__(self):
        self.ahead, self.asked = 0.0, 0

    def monotonic(self):
        self.asked += threading.current_thread().name == "annotator"
        return time.monotonic() + self.ahead

    def time(self):
        return time.time()

    def put(self, ahead):
        """Returns when whatever was said before has been heard, and whoever is looked after was looked after by the new time."""
        for self.ahead in (self.ahead, ahead):  # noqa: B020
            until = self.asked + 30
            wait_until(
                lambda until=until: self.asked > until, "the annotator's thread goes round", interval=0.01
            )


@pytest.mark.slow
def test_a_process_hangs_after_minutes_but_not_while_its_server_wants_to_be_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(supervised, "time", clock := Clock())
    monkeypatch.setattr(supervised, "_LOOK_SECONDS", 0.01)
    server, config = Server(), load_config("oni", "")
    config.annotator.kind, config.annotator.store_dir = "openai", str(tmp_path / "store")
    config.annotator.openai.base_url, config.annotator.openai.model = server.url, "judge"
    config.annotator.openai.concurrency = 2
    with contextlib.closing(server), contextlib.closing(online.make_source(config, SINGLE)) as source:
        source.start()
        busy = iter([(429, {"error": "too many"}, ("Retry-After", "3000"))])
        server.behave = lambda number, request: next(busy, None)
        source.meet([("You kill the newt!",)], [1], None, 0)
        wait_until(lambda: source.metrics()["annotator/rests_seconds"] > 2000, "the process rests")
        source.meet([("It's a wall.",)], [1], None, 0)
        wait_until(lambda: source.metrics()["annotator/in_flight"] > 0, "a question is on its way")
        process = source.pid
        os.kill(process, signal.SIGSTOP)  # from now on it says nothing
        clock.put(2000.0)
        assert source.metrics()["annotator/restarts"] == 0
        clock.put(3000.0 + 700.0)
        wait_until(lambda: source.metrics()["annotator/restarts"] == 1, "it hangs and is ended")
        told = []
        wait_until(lambda: told.extend(source.poll()) or len(told) == 2, "labels", 240, 0.01)
        assert source.pid != process
