"""What the keys of the live view do."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest

from motif_jax.core.interruption import Interruption
from motif_jax.play import terminal
from motif_jax.play.ratings import TextReward
from motif_jax.play.terminal import Playback
from motif_jax.play.watching import WatchedAction, WatchedStep

LAST = 5
REWARDED = 3


def step_of(step: int, with_reward: bool) -> WatchedStep:
    """A step of an episode of five actions; the third pays an intrinsic reward, or one of the
    task.
    """
    pays = float(step == REWARDED)
    return WatchedStep(
        step=step,
        observation={},
        frame=None,
        text=None,
        count=1,
        reward=TextReward(pays, pays, pays) if with_reward else None,
        intrinsic=pays if with_reward else 0.0,
        task_reward=0.0 if with_reward else pays,
        choice=None if step == LAST else WatchedAction(0),
        end=int(step == LAST),
    )


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for keys."""
    monkeypatch.setattr(terminal, "LOOK_SECONDS", 0.0)


def drawn_steps(keys: Iterable[str | None], with_reward: bool = True) -> tuple[list[int], Playback]:
    """Shows the episode at full speed; each look for a key gets the next of `keys`, and any key at
    the end of the episode.
    """
    drawn: list[int] = []
    typed = iter(keys)

    def key_of(seconds: float) -> str | None:
        return "x" if drawn[-1] == LAST else next(typed, None)

    steps = (step_of(step, with_reward) for step in range(LAST + 1))
    view = Playback(speed=math.inf)
    view.show(steps, lambda watched: drawn.append(watched.step), key_of, Interruption())
    return drawn, view


def test_without_keys_every_step_is_drawn() -> None:
    drawn, view = drawn_steps([])

    assert drawn == [0, 1, 2, 3, 4, 5]
    assert not view.quit


@pytest.mark.parametrize("with_reward", [True, False])
def test_n_skips_to_the_next_reward(with_reward: bool) -> None:
    drawn, _ = drawn_steps(["n"], with_reward)

    assert drawn == [0, 3, 4, 5]


def test_e_skips_to_the_end() -> None:
    drawn, _ = drawn_steps(["e"])

    assert drawn == [0, 5]


def test_q_ends_the_view() -> None:
    drawn, view = drawn_steps(["right", "q"])

    assert drawn == [0, 1]
    assert view.quit


def test_the_space_bar_pauses_and_continues() -> None:
    # Each look without a key draws the paused step again.
    drawn, _ = drawn_steps([" ", None, " ", None, "q"])

    assert drawn == [0, 0, 0, 0, 1]


def test_a_request_to_stop_ends_the_view() -> None:
    stop = Interruption()
    drawn: list[int] = []

    def draw(watched: WatchedStep) -> None:
        drawn.append(watched.step)
        stop.requested = watched.step == 2

    Playback(speed=math.inf).show(
        (step_of(step, True) for step in range(LAST + 1)), draw, lambda _: None, stop
    )

    assert drawn == [0, 1, 2]


def test_full_speed_is_above_all_others() -> None:
    view = Playback(speed=math.inf)
    speeds = []

    for key in ("+", "-", "-", "+", "+", "+"):
        view.press(key)
        speeds.append(view.speed)

    assert speeds == [math.inf, 120, 60, 120, math.inf, math.inf]
