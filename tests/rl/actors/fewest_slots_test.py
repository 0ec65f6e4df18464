"""Actors and batcher never wait for each other with the fewest slots that a config may have, and
would with one fewer.
"""

from __future__ import annotations

import math
import os
import random
from collections import deque

import pytest

from motif_jax.rl import settings
from motif_jax.rl.actors import pool
from motif_jax.rl.config import AgentConfig
from tests.play.agent_runs import recall_training

GROUPS_PER_WORKER = 2
BATCHES = 50
# Of a batch: all small numbers, and some large ones.
COLUMNS = (*range(1, 14), 17, 24, 31, 40, 59)
all_sizes = pytest.mark.parametrize(
    ("workers", "per_group"), [(w, n) for w in (1, 2, 4) for n in (1, 3, 4, 5)]
)


def config_of(workers: int, per_group: int, columns: int) -> AgentConfig:
    """A training whose batches have so many columns, each a rollout of 8 steps of one
    environment.
    """
    return recall_training(
        batch_size=8 * columns,
        actors__workers=workers,
        actors__envs_per_worker=GROUPS_PER_WORKER * per_group,
        hosts__count=1,
    )


def is_stuck(per_group: int, workers: int, slots: int, columns: int, order: random.Random) -> bool:
    """Whether groups, in any order, and the batcher all wait before 50 batches; a slot is free when
    all its columns are in batches.
    """
    free_slots = [slots] * workers * GROUPS_PER_WORKER
    # Columns that are in no batch yet. The last one of a slot holds its group, and the others None.
    columns_ready = deque[int | None]()
    for _ in range(BATCHES):
        while len(columns_ready) < columns:
            able = [group for group, count in enumerate(free_slots) if count]
            if not able:
                return True
            group = order.choice(able) if order.random() < 0.5 else able[0]
            free_slots[group] -= 1
            columns_ready.extend([*[None] * (per_group - 1), group])
        for _ in range(columns):
            finished_group = columns_ready.popleft()
            if finished_group is not None:
                free_slots[finished_group] += 1
    return False


@pytest.mark.slow
@all_sizes
def test_the_fewest_slots_suffice(workers: int, per_group: int) -> None:
    order = random.Random(0)
    for columns in COLUMNS:
        slots = settings.slots_per_group(config_of(workers, per_group, columns))

        # A group carries the last row of its full slot into the next one.
        assert slots >= 2
        assert not is_stuck(per_group, workers, slots, columns, order), columns


@pytest.mark.slow
@all_sizes
def test_one_slot_fewer_does_not_suffice(workers: int, per_group: int) -> None:
    order = random.Random(0)
    compared = 0
    for columns in COLUMNS:
        slots = settings.slots_per_group(config_of(workers, per_group, columns))
        # With a common divisor some remainders of a slot never come up.
        if slots > 2 and math.gcd(columns, per_group) == 1:
            compared += 1
            assert any(
                is_stuck(per_group, workers, slots - 1, columns, order) for _ in range(20)
            ), columns

    # Where two slots hold every batch, none is fewer.
    has_larger_batches = workers * per_group * GROUPS_PER_WORKER * 2 < 59
    assert compared or not has_larger_batches


def limit_open_files(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int
) -> list[tuple[int, int]]:
    """Gives this process limits of open files; returns a list of those that it sets itself."""
    new_limits: list[tuple[int, int]] = []
    monkeypatch.setattr(pool.resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(pool.resource, "setrlimit", lambda _, limits: new_limits.append(limits))
    return new_limits


def files_for(count: int) -> int:
    """The limit that `count` more files need: those that are open, the `count`, and 256 for
    everything else.
    """
    return len(os.listdir("/proc/self/fd")) + count + 256


@pytest.mark.parametrize(("missing", "is_hard"), [(1, True), (1, False), (50, False)])
def test_the_limit_of_open_files_rises_as_needed(
    missing: int, is_hard: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = files_for(100)
    hard = needed if is_hard else pool.resource.RLIM_INFINITY
    new_limits = limit_open_files(monkeypatch, needed - missing, hard)

    pool.allow_open_files(100)

    assert new_limits == [(needed, hard)]


def test_the_limit_of_open_files_rises_no_higher_than_the_systems(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    new_limits = limit_open_files(monkeypatch, 50, 60)

    pool.allow_open_files(100)

    assert new_limits == [(60, 60)]


@pytest.mark.parametrize("is_unlimited", [False, True])
def test_a_sufficient_limit_of_open_files_stays(
    is_unlimited: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = pool.resource.RLIM_INFINITY if is_unlimited else files_for(100)
    new_limits = limit_open_files(monkeypatch, limit, limit)

    pool.allow_open_files(100)

    assert new_limits == []
