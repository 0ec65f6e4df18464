"""Requests on their way: never more than the limit, fewer after a refusal, more again with answers."""

from __future__ import annotations

import asyncio
import email.utils
import time

import pytest

from motif_jax.labels.traffic import Traffic, retry_after


def test_no_more_requests_than_the_limit_and_all_get_their_turn():
    async def main():
        traffic, most, done = Traffic(5), 0, []

        async def ask(number):
            nonlocal most
            async with traffic.turn() as sent:
                most = max(most, traffic.running)
                await asyncio.sleep(0.001 * (number % 3))
                if number == 10:
                    traffic.too_many(sent)
            done.append((number, traffic.running <= traffic.limit))

        await asyncio.wait_for(asyncio.gather(*map(ask, range(60))), 60)
        assert len(done) == 60
        assert most == 5
        assert all(within for number, within in done if number > 20)
        assert traffic.limit == 2.5
        assert traffic.running == 0

    asyncio.run(main())


def test_a_cancelled_request_gives_its_turn_away():
    async def main():
        traffic = Traffic(1)

        async def ask(seconds):
            async with traffic.turn():
                await asyncio.sleep(seconds)

        tasks = [asyncio.create_task(ask(seconds)) for seconds in (60, 60, 0)]
        await asyncio.sleep(0.01)
        for task in tasks[:2]:
            task.cancel()
        await asyncio.wait_for(tasks[2], 60)
        assert traffic.running == 0

    asyncio.run(main())


def test_halved_once_for_those_on_their_way_and_up_by_one_a_round():
    traffic = Traffic(64)
    sent = time.monotonic()
    for _ in range(64):
        traffic.too_many(sent)
    assert traffic.limit == 32
    traffic.too_many(time.monotonic() + 1)
    assert traffic.limit == 16
    for _ in range(16):
        traffic.answer()
    assert 16.9 < traffic.limit <= 17
    for _ in range(10_000):
        traffic.answer()
    assert traffic.limit == 64
    for _ in range(20):
        traffic.too_many(time.monotonic() + 1)
    assert traffic.limit == 1


def test_silence_is_kept():
    async def main():
        traffic = Traffic(2)
        async with traffic.turn() as sent:
            asked = time.monotonic()
            traffic.too_many(sent, 0.2)
        async with traffic.turn() as sent:
            assert sent - asked >= 0.2

    asyncio.run(main())


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, 0),
        ({"retry-after": "3"}, 3),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "-3"}, 0),
        ({"retry-after": "inf"}, 0),
        ({"retry-after": "soon"}, 0),
        ({"retry-after": "Fri, 31 Dec 99999999999999999999 23:59:59 GMT"}, 0),
        ({"retry-after": "Fri, 31 Dec 1999 23:59:59 GMT"}, 0),
    ],
)
def test_what_a_server_asks_for(headers, seconds):
    assert retry_after(headers) == seconds


def test_a_date_to_come_back_at():
    date = email.utils.formatdate(time.time() + 1000, usegmt=True)
    assert 900 < retry_after({"retry-after": date}) <= 1000
