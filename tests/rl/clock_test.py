"""What is due when, by a clock of the test."""

from __future__ import annotations

import pytest

from motif_jax.rl import clock as clock_module
from motif_jax.rl.clock import Clock
from tests.clocks import HandClock

START = 105.0


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> HandClock:
    time = HandClock(100.0)
    monkeypatch.setattr(clock_module, "time", time)
    return time


@pytest.fixture
def clock(time: HandClock) -> Clock:
    """Of a run of 2,000 steps that resumed from a checkpoint of step 400 and started five seconds
    later.
    """
    clock = Clock(2_000, save_every_steps=500, save_every_seconds=60.0, log_every_seconds=10.0)
    clock.resume({"env_steps": 400, "seconds": 1_000.0})
    time.now = START
    clock.start()
    return clock


def test_a_resumed_clock_goes_on_from_its_checkpoint(clock: Clock) -> None:
    assert clock.saved_steps == 400
    assert clock.logged_steps == 400
    assert clock.seconds() == 1_005.0


@pytest.mark.parametrize(("seconds", "is_due"), [(59.9, False), (60.0, True)])
def test_a_save_is_due_after_its_seconds(
    clock: Clock, time: HandClock, seconds: float, is_due: bool
) -> None:
    time.now = START + seconds

    assert clock.save_is_due() == is_due


@pytest.mark.parametrize(("steps", "is_passed"), [(499, False), (500, True), (999, True)])
def test_a_multiple_of_the_steps_between_saves_is_passed(
    clock: Clock, steps: int, is_passed: bool
) -> None:
    clock.steps = steps

    assert clock.save_step_is_passed() == is_passed


@pytest.mark.parametrize(("seconds", "is_due"), [(9.9, False), (10.0, True)])
def test_a_row_is_due_after_its_seconds(
    clock: Clock, time: HandClock, seconds: float, is_due: bool
) -> None:
    time.now = START + seconds

    assert clock.log_is_due() == is_due


@pytest.mark.parametrize(("seconds", "is_due"), [(0.4, False), (0.5, True)])
def test_progress_is_shown_twice_a_second(
    clock: Clock, time: HandClock, seconds: float, is_due: bool
) -> None:
    time.now = START + seconds

    assert clock.show_is_due() == is_due


def test_a_row_has_the_steps_a_second_since_the_last(clock: Clock, time: HandClock) -> None:
    clock.steps = 1_999
    time.now = START + 60.0

    assert clock.logged() == pytest.approx((1_999 - 400) / 60)


def test_nothing_is_due_just_after_it_was_done(clock: Clock, time: HandClock) -> None:
    clock.steps = 1_999
    time.now = START + 60.0

    clock.logged()
    clock.saved()
    clock.shown()

    assert not clock.save_is_due()
    assert not clock.log_is_due()
    assert not clock.show_is_due()
    assert not clock.save_step_is_passed()


@pytest.mark.parametrize(("steps", "is_finished"), [(1_999, False), (2_000, True)])
def test_a_run_is_finished_at_its_last_step(clock: Clock, steps: int, is_finished: bool) -> None:
    clock.steps = steps

    assert clock.finished == is_finished
