"""Requests that wait for a server that is away."""

from __future__ import annotations

import asyncio
import time

import pytest

from motif_jax.labels.openai_stream import Gate


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
