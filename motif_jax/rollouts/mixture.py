"""Draws the player of each episode of a collection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from motif_jax.envs.nethack.random_players import ReplayedActions
from motif_jax.envs.nethack.scripted_players import PLAYERS
from motif_jax.rollouts.sampling_worker import EpisodeJob
from motif_jax.support import seeds


class Players:
    """Draws a player for every episode; the draw depends on the seed and the episode's index alone.

    Attributes:
      names: the players, by the numbers that info/player.npy has.
    """

    def __init__(
        self, weights: Mapping[str, float], seed: int, policies: Mapping[str, Any] = PLAYERS
    ) -> None:
        """`weights`: player -> how often it plays, relative to the others; `policies`: player -> what plays, but for agents."""
        self.names = tuple(sorted(weights))
        self._policies = policies
        self._seed = seed
        probabilities = np.array([weights[name] for name in self.names], np.float64)
        self._bounds = (probabilities / probabilities.sum()).cumsum()

    def name(self, episode: int) -> str:
        """The player of `episode`."""
        return self.names[self.number(episode)]

    def number(self, episode: int) -> int:
        """The number of the player of `episode`."""
        uniform = seeds.rng(self._seed, "player", episode).random()
        return min(int(np.searchsorted(self._bounds, uniform, side="right")), len(self.names) - 1)

    def seed(self, episode: int) -> int:
        """The seed of the game of `episode`."""
        return seeds.derive(self._seed, "episode", episode)

    def job(self, episode: int, actions: np.ndarray | None = None) -> EpisodeJob:
        """The job of a recording process for `episode`.

        Args:
          episode: its index.
          actions: those of its player, needed if that is an agent.

        Raises:
          KeyError: the player is an agent, and there are no actions.
        """
        policy = self._policies[self.name(episode)] if actions is None else ReplayedActions(actions)
        return EpisodeJob(episode, self.seed(episode), self.number(episode), policy)
