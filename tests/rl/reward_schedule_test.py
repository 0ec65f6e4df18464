"""When a reward takes gradient steps, which labels they draw, and the thread that takes them."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np

from motif_jax.labels.label_queue import Label
from motif_jax.rewards.label_set import LabelSet
from motif_jax.rl.reward_schedule import LARGE, MOST_OWED, Schedule, draws
from motif_jax.rl.reward_trainer import Trainer, TrainingJob
from tests.processes import wait_until


def test_schedules() -> None:
    budget = Schedule("budget", 32, 2, 100)
    assert budget.amount() == 0
    budget.update(5, 5, 7)
    assert (budget.owed, budget.amount()) == (32, 2)
    budget.taken(2)
    budget.update(0, 5, 7)
    assert budget.owed == 30
    for size in range(6, 200):
        budget.update(1, size, 7)
    assert budget.owed == MOST_OWED
    # What labels called for is taken, owed or dropped, so that a budget that is too small is seen.
    assert budget.owed + budget.dropped == 195 * 32 - 2
    published = Schedule("published", 32, 1, 100)
    for size in (100, LARGE - 1):
        published.update(100, size, 0)
        assert published.amount() == 32
        published.taken(32)
        published.update(0, size, 0)
        assert published.amount() == 0
    for size in (LARGE, LARGE + 1):  # published: at exactly 25,000 labels nothing is trained
        published.update(0, size, 0)
        assert published.amount() == 1
        published.taken(1)


def test_a_published_call_is_one_arrival_however_its_answers_come() -> None:
    schedule = Schedule("published", 32, 1, 100)
    for number in range(1, 100):  # one by one, of a call of 100
        schedule.update(1, number, 101 - number)
        assert schedule.amount() == 0
    schedule.update(1, 100, 1)
    assert schedule.amount() == 32
    schedule.taken(32)
    for number in range(3):  # a call of three questions
        schedule.update(1, 101 + number, 3 - number)
        assert schedule.amount() == 0
    schedule.update(0, 103, 0)
    assert schedule.amount() == 32
    # Where calls are quicker than the steps, a piece is still one of 32.
    for number in range(100):
        schedule.update(100, 200 + 100 * number, 0)
    assert (schedule.amount(), schedule.owed) == (32, MOST_OWED)


def test_a_training_that_is_closed_ends_after_the_step_that_it_is_at() -> None:
    taken, go = [], threading.Event()

    def step(state: Any, *_: Any) -> tuple[Any, dict[str, Any]]:
        taken.append(1)
        assert go.wait(60)
        return state, dict.fromkeys(("loss", "accuracy", "gradient_norm"), 0.0)

    slow: Any = SimpleNamespace(right=lambda *_: (0, 0), step=step)

    labels = LabelSet(1, (0.0, 1.0), soft=False)
    labels.add(Label(("a",), 1))
    trainer = Trainer(slow, SimpleNamespace(params=None), 1, beside=True)
    trainer.begin(TrainingJob(0, [np.zeros(1, np.int64)] * 1000, labels.first(1), np.arange(1)))
    wait_until(lambda: bool(taken), "the first step")
    closing = threading.Thread(target=trainer.close)
    closing.start()
    wait_until(lambda: trainer._closing.is_set(), "it is to end")
    go.set()
    closing.join(60)
    assert not closing.is_alive()
    assert len(taken) == 1


def test_draws() -> None:
    epochs = list(draws(7, 0, 5, 10, 4, epochs=True))
    assert [len(chosen) for chosen in epochs] == [4, 4, 2, 4, 4]
    assert sorted(np.concatenate(epochs[:3])) == list(range(10))
    fresh = list(draws(7, 3, 4, 10, 4, epochs=False))
    assert all(len(set(chosen)) == 4 for chosen in fresh)
    np.testing.assert_array_equal(fresh[2], next(draws(7, 5, 1, 10, 4, epochs=False)))
    assert [len(chosen) for chosen in draws(7, 0, 2, 3, 4, epochs=False)] == [3, 3]
