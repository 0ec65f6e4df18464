"""Throughput is told in turns of the game, too, where a task counts them."""

from __future__ import annotations

import pytest

from motif_jax.rl.episode_log import EpisodeLog
from motif_jax.rl.run_writer import turns_per_second


def log_of(*fields: str) -> EpisodeLog:
    """The log of two episodes of 10 and 30 steps, whose environment counts `fields`."""
    log = EpisodeLog(None, 10, with_intrinsic=False, fields=fields)
    log.write(
        [
            {"env": 1, "episode": 0, "length": 10, **dict.fromkeys(fields, 36)},
            {"env": 3, "episode": 0, "length": 30, **dict.fromkeys(fields, 108)},
        ]
    )
    return log


def test_turns_a_second_are_those_of_the_newest_episodes() -> None:
    metrics = turns_per_second(["turns"], log_of("turns"), steps_per_second=100.0)

    assert metrics == pytest.approx({"throughput/turns_per_second": 360.0})


def test_a_game_without_turns_has_no_turns_a_second() -> None:
    assert turns_per_second([], log_of(), steps_per_second=100.0) == {}
