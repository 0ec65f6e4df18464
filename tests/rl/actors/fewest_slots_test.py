"""Actors and batcher never wait for each other with the fewest slots that a config may have, and would with one fewer."""

from __future__ import annotations

import math
import os
import random
from collections import deque

import pytest

from motif_jax.core.errors import UserError
from motif_jax.rl import settings
from motif_jax.rl.actors import pool
from tests.play.agent_runs import recall_training

GROUPS = 2  # of a worker


def stuck(per_group: int, workers: int, slots: int, columns: int, order: random.Random) -> bool:
    """Whether groups, in any order, and the batcher all wait before 50 batches; a slot is free when all its columns are in batches."""
    free = [slots] * workers * GROUPS
    waiting = deque[int | None]()
    for _ in range(50):
        while len(waiting) < columns:
            able = [group for group, count in enumerate(free) if count]
            if not able:
                return True
            group = order.choice(able) if order.random() < 0.5 else able[0]
            free[group] -= 1
            waiting.extend([None] * (per_group - 1) + [group])  # with the last column the slot is free
        for _ in range(columns):
            if (group := waiting.popleft()) is not None:
                free[group] += 1
    return False


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("per_group", [1, 3, 4, 5])
def test_the_fewest_slots_suffice_and_one_fewer_does_not(workers: int, per_group: int) -> None:
    order = random.Random(0)
    fewer_were_stuck = 0
    for columns in range(1, 60):
        changes = {"batch_size": 8 * columns, "actors__envs_per_worker": GROUPS * per_group}
        config = recall_training(actors__workers=workers, hosts__count=1, **changes)
        slots = settings.slots_per_group(config)
        assert slots >= 2
        assert not stuck(per_group, workers, slots, columns, order), columns
        # With a common divisor some remainders of a slot never come up.
        if slots > 2 and math.gcd(columns, per_group) == 1:
            assert any(stuck(per_group, workers, slots - 1, columns, order) for _ in range(20)), columns
            fewer_were_stuck += 1
    # Two is the fewest of all: a group carries the last row of its full slot into the next one.
    assert fewer_were_stuck or workers * per_group * GROUPS * 2 >= 59


def test_open_files_are_allowed_up_to_what_the_system_lets(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = len(os.listdir("/proc/self/fd")) + 100 + 256
    allowed = list[tuple[int, int]]()
    monkeypatch.setattr(pool.resource, "setrlimit", lambda _, limits: allowed.append(limits))
    for soft, hard in ((needed, needed), (needed - 1, needed), (1, -1), (-1, -1)):
        monkeypatch.setattr(pool.resource, "getrlimit", lambda _, limits=(soft, hard): limits)
        pool._allow_files(100)
    assert allowed == [(needed, needed), (needed, -1)]
    monkeypatch.setattr(pool.resource, "getrlimit", lambda _: (1, needed - 1))
    with pytest.raises(UserError, match=f"need 100 more open files, and the limit is {needed - 1} in all"):
        pool._allow_files(100)
