"""How many episodes collect_trajectories plays for the steps that are asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from motif_jax.glam import collect_trajectories
from motif_jax.glam.config import CollectTrajectoriesConfig
from motif_jax.glam.eval_agents import EvalAgent
from motif_jax.glam.generalisation import PlayedLevel

# Of `play_policy`: the number of episodes -> their rows.
Player = Callable[[int], list[dict[str, Any]]]


@pytest.fixture
def play(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Player], tuple[list[int], Any]]:
    """Collects 70 steps with a made-up player; the numbers of episodes that it was asked for, and
    the rows that were used.
    """

    def play(rows_of: Player) -> tuple[list[int], Any]:
        counts: list[int] = []

        def play_policy(
            journal, title, game, policy, episode_seeds, *arguments: Any
        ) -> list[dict[str, Any]]:
            counts.append(len(episode_seeds))
            return rows_of(len(episode_seeds))

        monkeypatch.setattr(collect_trajectories, "play_policy", play_policy)
        level = PlayedLevel("BabyAI-GoToLocal-v0", {})
        player = EvalAgent("bot", level, lambda played_level: None, abilities=frozenset())
        config = CollectTrajectoriesConfig(lanes=2, steps=70, seed=4)
        stop: Any = None
        return counts, collect_trajectories.play_until_enough(config, tmp_path, player, stop)

    return play


def episodes(count: int) -> list[dict[str, Any]]:
    return [{"length": 3, "success": False}] * count


def test_more_episodes_are_played_until_they_have_the_steps(play) -> None:
    """24 episodes of 3 steps have 70: ten times the first two, then as many as are expected to
    do.
    """
    counts, rows = play(episodes)

    assert counts == [2, 20, 23, 25]
    assert len(rows) == 24


def test_a_stop_within_the_episodes_has_no_rows(play) -> None:
    counts, rows = play(lambda count: episodes(count - 1))

    assert counts == [2]
    assert rows is None
