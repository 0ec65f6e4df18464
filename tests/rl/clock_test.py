"""What is due when, by a clock of the test."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from motif_jax.rl import clock as clock_module
from motif_jax.rl.clock import Clock


def dues(clock: Clock) -> tuple[bool, ...]:
    return clock.save_is_due(), clock.log_is_due(), clock.show_is_due(), clock.save_step_is_passed()


def test_intervals_rates_and_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(clock_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    clock = Clock(2_000, save_every_steps=500, save_every_seconds=60.0, log_every_seconds=10.0)
    clock.resume({"env_steps": 400, "seconds": 1_000.0})
    now[0] = 105.0
    clock.start()
    assert (clock.saved_steps, clock.logged_steps, clock.seconds()) == (400, 400, 1_005.0)
    for after, steps, due in (
        (0.4, 499, (False, False, False, False)),
        (0.5, 500, (False, False, True, True)),
        (10.0, 999, (False, True, True, True)),
        (60.0, 1_999, (True, True, True, True)),
    ):
        now[0] = 105.0 + after
        clock.steps = steps
        assert dues(clock) == due
    assert clock.logged() == pytest.approx((1_999 - 400) / 60)
    clock.saved()
    clock.shown()
    assert dues(clock) == (False, False, False, False)
    assert not clock.finished
    clock.steps = 2_000
    assert clock.finished
    assert clock.save_step_is_passed()
