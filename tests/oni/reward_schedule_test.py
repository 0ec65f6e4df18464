"""When a reward takes gradient steps, which labels they draw, and the thread that takes them."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from motif_jax.core import seeds
from motif_jax.core.errors import UserError
from motif_jax.core.interruption import StoppedError
from motif_jax.oni.label_queue import Label
from motif_jax.oni.label_set import LabelSet
from motif_jax.oni.reward_schedule import LARGE, MOST_OWED, Schedule, draws
from motif_jax.oni.reward_trainer import Trainer, TrainingBatch, TrainingJob, take_steps
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


def test_a_job_is_of_batches_that_are_filled_up() -> None:
    """Of labels 0 and 1, and of 2, whose text is long."""
    labels, seen = LabelSet(1, (0.0, 1.0), soft=True), []
    for number, text in enumerate(("a", "b", "c" * 97)):
        labels.add(Label((text,), number % 2, 0.25 * number))

    def step(state: int, batch: TrainingBatch, number: int) -> tuple[int, dict[str, Any]]:
        columns = [each.tolist() for each in (*batch[1:4], batch.messages[:, 0, 0])]
        seen.append([number, batch.length, *columns])
        metrics = {"loss": 2.0 * number, "accuracy": 0.5, "gradient_norm": number, "more": np.nan}
        return state + number, metrics

    model: Any = SimpleNamespace(right=lambda params, examples, new: (params, len(new)), step=step)
    job = TrainingJob(4, [np.array([1, 0]), np.array([2])], labels.first(3), np.array([2, 0]))
    trainer = Trainer(model, Counted(3), 3, beside=False)  # type: ignore[arg-type]
    assert trainer.take() is None
    trainer.begin(job)
    outcome = trainer.take()
    assert outcome is not None
    assert outcome.job is job
    assert outcome[1:5] == (3 + 4 + 5, {"loss": 9.0, "accuracy": 0.5, "gradient_norm": 4.5}, 7, 2)
    assert (trainer.state, trainer.take(), trainer.running) == (12, None, None)
    assert seen == [
        [4, 96, [1, 0, 0], [0.25, 0.0, 0.0], [1.0, 1.0, 0.0], [98, 97, 97]],
        [5, None, [0, 0, 0], [0.5, 0.0, 0.0], [1.0, 0.0, 0.0], [99, 97, 97]],
    ]
    said = r"^the training of the reward diverged at its step 4 \(loss inf\): a smaller --config\.reward\.training\.learning_rate in "
    model.step = lambda state, *_: (state, {"loss": np.inf})
    with pytest.raises(UserError, match=said + r"another --workdir$"):
        trainer.begin(job)
    with pytest.raises(StoppedError):
        take_steps(model, Counted(3), job, 3, stopped=lambda: True)  # type: ignore[arg-type]


class Counted(int):
    """Stands for a state; its parameters are 7."""

    params = 7

    def __add__(self, other: int) -> Counted:
        return Counted(int(self) + other)


def test_draws() -> None:
    epochs = list(draws(7, 3, 5, 10, 4, epochs=True))
    rng = seeds.rng(7, "reward epochs", 3)
    one, other = rng.permutation(10), rng.permutation(10)
    for found, wanted in zip(epochs, (one[:4], one[4:8], one[8:], other[:4], other[4:8]), strict=True):
        np.testing.assert_array_equal(found, wanted)
    for step, found in enumerate(draws(7, 3, 4, 10, 4, epochs=False), start=3):
        np.testing.assert_array_equal(found, seeds.rng(7, "reward batch", step).permutation(10)[:4])
    assert [len(chosen) for chosen in draws(7, 0, 2, 3, 4, epochs=False)] == [3, 3]
