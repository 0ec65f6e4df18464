"""Prompts and actions of episodes of BabyAI-Text, replayed from their seeds and actions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from motif_jax.datasets.trajectories.parquet import TrajectoryEpisode
from motif_jax.envs import registry
from motif_jax.envs.babyai_text.environment import decoded
from motif_jax.envs.episode import given_actions, play
from motif_jax.envs.spec import OBSERVED


def text_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """`options` of BabyAI-Text without those that a network needs."""
    return {name: value for name, value in options.items() if name not in OBSERVED}


def replayed(
    environment: str, options: Mapping[str, Any], games: Sequence[tuple[int, int, np.ndarray]]
) -> Iterator[TrajectoryEpisode]:
    """Replays games (index, seed, actions) and yields the prompts of each.

    Raises:
      RuntimeError: a game does not replay as recorded.
    """
    env = registry.make(environment, **text_options(options), fields=("prompt",))
    try:
        for index, seed, actions in games:
            prompts, rewards = [], []
            for moment in play(env, seed, given_actions(np.asarray(actions))):
                prompts.append(decoded(moment.observation["prompt"]))
                rewards.append(moment.reward)
            if len(prompts) != len(actions) + 1:
                raise RuntimeError(f"the episode with seed {seed} does not play the same way twice")
            yield TrajectoryEpisode(index, seed, prompts[:-1], actions.tolist(), rewards[1:])
    finally:
        env.close()
