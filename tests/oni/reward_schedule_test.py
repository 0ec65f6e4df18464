"""When a reward takes gradient steps, which labels they draw, and the thread that takes them."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import optax
import pytest

from motif_jax.core import seeds
from motif_jax.core.errors import UserError
from motif_jax.core.interruption import StoppedError
from motif_jax.core.training.ensembles import EnsembleState
from motif_jax.oni.label_queue import Label
from motif_jax.oni.network_reward import (
    LARGE,
    MAX_OWED,
    Examples,
    LabelSet,
    Model,
    Schedule,
    Trainer,
    TrainingBatch,
    TrainingJob,
    draws,
    take_steps,
)


def test_a_labels_steps_are_spread_over_several_updates() -> None:
    schedule = Schedule("budget", 32, 2, 100)
    assert schedule.amount() == 0

    schedule.update(5, 5, 7)
    assert schedule.owed == 32
    assert schedule.amount() == 2

    schedule.count_taken(2)
    schedule.update(0, 5, 7)
    assert schedule.owed == 30


def test_steps_beyond_the_rate_of_labels_are_counted_as_dropped() -> None:
    schedule = Schedule("budget", 32, 2, 100)

    for size in range(1, 200):
        schedule.update(1, size, 7)

    assert schedule.owed == MAX_OWED
    assert schedule.owed + schedule.dropped == 199 * 32


def test_an_arrivals_own_steps_are_never_dropped() -> None:
    schedule = Schedule("budget", MAX_OWED + 500, 2, 100)

    schedule.update(1, 1, 7)
    assert (schedule.owed, schedule.dropped) == (MAX_OWED + 500, 0)

    schedule.update(1, 2, 7)
    assert (schedule.owed, schedule.dropped) == (MAX_OWED + 500, MAX_OWED + 500)


@pytest.mark.parametrize("size", [100, LARGE - 1])
def test_a_published_arrival_is_trained_in_one_piece(size: int) -> None:
    schedule = Schedule("published", 32, 1, 100)

    schedule.update(100, size, 0)
    assert schedule.amount() == 32

    schedule.count_taken(32)
    schedule.update(0, size, 0)
    assert schedule.amount() == 0


def test_from_25000_labels_on_every_update_takes_one_step() -> None:
    schedule = Schedule("published", 32, 1, 100)

    # The published code trains at exactly 25,000 labels in neither way.
    for size in (LARGE, LARGE + 1):
        schedule.update(0, size, 0)
        assert schedule.amount() == 1
        schedule.count_taken(1)


def test_single_answers_of_a_call_of_100_are_one_arrival() -> None:
    schedule = Schedule("published", 32, 1, 100)

    for number in range(1, 100):
        schedule.update(1, number, 101 - number)
        assert schedule.amount() == 0
    schedule.update(1, 100, 1)

    assert schedule.amount() == 32


def test_a_smaller_call_is_an_arrival_when_none_is_pending() -> None:
    schedule = Schedule("published", 32, 1, 100)

    for number in range(3):
        schedule.update(1, 101 + number, 3 - number)
        assert schedule.amount() == 0
    schedule.update(0, 103, 0)

    assert schedule.amount() == 32


def test_calls_before_the_steps_do_not_join_pieces() -> None:
    schedule = Schedule("published", 32, 1, 100)

    for number in range(100):
        schedule.update(100, 200 + 100 * number, 0)

    assert schedule.amount() == 32
    assert schedule.owed == MAX_OWED


@pytest.mark.parametrize(("size", "lengths"), [(10, [4, 4, 2] * 2), (8, [4, 4] * 3), (3, [3] * 6)])
def test_an_epoch_shows_every_label_once(size: int, lengths: list[int]) -> None:
    batches = list(draws(seed=5, first=0, amount=6, size=size, batch_size=4, epochs=True))

    assert [len(batch) for batch in batches] == lengths
    in_order = np.concatenate(batches).reshape(-1, size)
    np.testing.assert_array_equal(
        np.sort(in_order, axis=1), np.tile(np.arange(size), (len(in_order), 1))
    )
    assert len({tuple(epoch) for epoch in in_order.tolist()}) > 1


@pytest.mark.parametrize(("size", "length"), [(10, 4), (3, 3)])
def test_a_batch_outside_epochs_has_no_label_twice(size: int, length: int) -> None:
    batches = list(draws(seed=5, first=0, amount=20, size=size, batch_size=4, epochs=False))

    assert all(len(batch) == len(set(batch.tolist())) == length for batch in batches)
    assert set(np.concatenate(batches).tolist()) == set(range(size))


def test_batches_outside_epochs_depend_on_the_step_alone() -> None:
    at_once = draws(seed=5, first=0, amount=6, size=10, batch_size=4, epochs=False)
    later = draws(seed=5, first=4, amount=2, size=10, batch_size=4, epochs=False)

    np.testing.assert_array_equal(list(at_once)[4:], list(later))


class RecordedModel(Model):
    """A model without a network: its only parameter counts the numbers of its steps, and it has
    every new example right.
    """

    def __init__(self, loss: float = 0.0, before_step: Callable[[], None] = lambda: None) -> None:
        super().__init__(network=None, optimizer=optax.sgd(0.1), members=1)
        self.loss = loss
        self.before_step = before_step
        self.batches: list[tuple[int, TrainingBatch]] = []

    def step(
        self, state: EnsembleState, batch: TrainingBatch, step: int
    ) -> tuple[EnsembleState, dict[str, Any]]:
        self.before_step()
        self.batches.append((step, batch))
        metrics = {"loss": self.loss * step, "accuracy": 0.5, "gradient_norm": step, "more": np.nan}
        return state._replace(params=state.params + step), metrics

    def count_correct(
        self, params: Any, examples: Examples, indices: np.ndarray
    ) -> tuple[int, int]:
        return params, len(indices)


def state_with(params: int) -> EnsembleState:
    return EnsembleState(params, ())


def three_labels() -> LabelSet:
    """The last text is longer than the short program reads."""
    labels = LabelSet(1, (0.0, 1.0), soft=True)
    labels.add(Label(("a",), 0, 0.0))
    labels.add(Label(("b",), 1, 0.25))
    labels.add(Label(("c" * 97,), 0, 0.5))
    return labels


def two_steps() -> TrainingJob:
    return TrainingJob(
        first=4,
        draws=[np.array([1, 0]), np.array([2])],
        examples=three_labels().first(3),
        new=np.array([2, 0]),
    )


def test_a_closed_training_ends_after_its_current_step() -> None:
    starts: queue.Queue[None] = queue.Queue()

    def step_slowly() -> None:
        starts.put(None)
        time.sleep(0.01)

    model = RecordedModel(before_step=step_slowly)
    trainer = Trainer(model, state_with(0), 1, in_thread=True)
    steps = 1000  # 10 s of work
    trainer.begin(
        TrainingJob(0, [np.zeros(1, np.int64)] * steps, three_labels().first(1), np.arange(1))
    )
    starts.get(timeout=60)
    job = trainer.running
    assert job is not None

    trainer.close()

    assert isinstance(job.exception(timeout=0), StoppedError)
    assert len(model.batches) == 1 + starts.qsize() < steps


def test_batches_of_a_job_are_padded_with_weight_0() -> None:
    model = RecordedModel()

    take_steps(model, state_with(0), two_steps(), 3)

    (first_number, first), (second_number, second) = model.batches
    assert [first_number, second_number] == [4, 5]
    np.testing.assert_array_equal(first.weights, [1.0, 1.0, 0.0])
    np.testing.assert_array_equal(first.labels[:2], [1, 0])
    np.testing.assert_array_equal(first.targets[:2], [0.25, 0.0])
    assert bytes(first.messages[:2, 0, 0]) == b"ba"
    np.testing.assert_array_equal(second.weights, [1.0, 0.0, 0.0])
    np.testing.assert_array_equal(second.targets[:1], [0.5])
    assert bytes(second.messages[0, 0]).rstrip(b"\0") == b"c" * 97


def test_a_batch_with_a_long_text_has_the_long_program() -> None:
    model = RecordedModel()

    take_steps(model, state_with(0), two_steps(), 3)

    assert [batch.length for _, batch in model.batches] == [96, None]


def test_the_outcome_of_a_job_becomes_the_trainers_state_once() -> None:
    trainer = Trainer(RecordedModel(loss=2.0), state_with(3), 3, in_thread=False)
    job = two_steps()
    assert trainer.take() is None

    trainer.begin(job)
    outcome = trainer.take()

    assert outcome is not None
    assert outcome.job is job
    assert outcome.state.params == 3 + 4 + 5
    assert trainer.state is outcome.state
    assert trainer.take() is None
    assert trainer.running is None


def test_an_outcome_has_its_steps_means_and_their_prior_accuracy() -> None:
    outcome = take_steps(RecordedModel(loss=2.0), state_with(7), two_steps(), 3)

    assert outcome.means == {"loss": 9.0, "accuracy": 0.5, "gradient_norm": 4.5}
    assert outcome.correct == 7
    assert outcome.counted == 2


def test_a_training_that_diverges_ends_the_run_with_a_remedy() -> None:
    trainer = Trainer(RecordedModel(loss=np.inf), state_with(0), 3, in_thread=False)

    message = (
        r"^the training of the reward diverged at its step 4 \(loss inf\): "
        r"a smaller --config\.reward\.training\.learning_rate in another --workdir$"
    )
    with pytest.raises(UserError, match=message):
        trainer.begin(two_steps())


def test_a_stop_between_two_steps_ends_a_job() -> None:
    with pytest.raises(StoppedError):
        take_steps(RecordedModel(), state_with(0), two_steps(), 3, stopped=lambda: True)


def test_published_draws_run_through_shuffled_epochs() -> None:
    batches = list(draws(7, 3, 5, 10, 4, epochs=True))

    rng = seeds.rng(7, "reward epochs", 3)
    first_epoch = rng.permutation(10)
    second_epoch = rng.permutation(10)
    expected = [
        first_epoch[:4],
        first_epoch[4:8],
        first_epoch[8:],
        second_epoch[:4],
        second_epoch[4:8],
    ]
    for batch, expected_batch in zip(batches, expected, strict=True):
        np.testing.assert_array_equal(batch, expected_batch)


def test_a_step_draws_by_its_number_without_replacement() -> None:
    for step, batch in enumerate(draws(7, 3, 4, 10, 4, epochs=False), start=3):
        np.testing.assert_array_equal(batch, seeds.rng(7, "reward batch", step).permutation(10)[:4])


def test_with_few_labels_a_step_draws_all_of_them() -> None:
    batches = list(draws(7, 0, 2, 3, 4, epochs=False))

    assert [sorted(batch.tolist()) for batch in batches] == [[0, 1, 2], [0, 1, 2]]
