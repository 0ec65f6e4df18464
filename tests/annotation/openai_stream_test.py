"""Servers that are away, or want to be left alone."""

from __future__ import annotations

import asyncio
import contextlib
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


def test_a_process_that_leaves_its_server_alone_is_not_taken_for_one_that_hangs(tmp_path, monkeypatch):
    monkeypatch.setattr(supervised, "_HANG_SECONDS", 0.5)
    server, config = Server(), load_config("oni", "")
    config.annotator.kind, config.annotator.store_dir = "openai", str(tmp_path / "store")
    config.annotator.openai.base_url, config.annotator.openai.model = server.url, "judge"
    config.annotator.openai.timeout_seconds, config.annotator.openai.concurrency = 0.4, 2
    with contextlib.closing(server), contextlib.closing(online.make_source(config, SINGLE)) as source:
        source.start()
        busy = iter([(429, {"error": "too many"}, ("Retry-After", "3"))])
        server.behave = lambda number, request: next(busy, None)
        source.meet([("You kill the newt!",), ("It's a wall.",)], [1, 1], None, 0)
        told = []
        wait_until(lambda: told.extend(source.poll()) or len(told) == 2, "labels", 240, 0.01)
        assert source.metrics()["annotator/restarts"] == 0
