"""Environments of any kind behind the interface of a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from motif_jax.envs.spec import RUNNING, Environment, empty_observation, row


class SingleEnvironments:
    """A group (`motif_jax.envs.spec.EnvironmentGroup`) of environments that are stepped one after the other."""

    def __init__(self, environments: Sequence[Environment]) -> None:
        self._environments = list(environments)
        self.spec = self._environments[0].spec
        self.count = len(self._environments)
        self._newest = empty_observation(self.spec, (self.count,))
        self._rows = [row(self._newest, column) for column in range(self.count)]

    def start(self, column: int, seed: int) -> None:
        """Starts the episode of `seed` in `column`."""
        self._environments[column].reset(seed, self._rows[column])

    def step(self, actions: Sequence[int], columns: Sequence[int]) -> tuple[list[float], list[int]]:
        """Plays `actions[column]` in each of `columns`; returns rewards and ends of all columns."""
        rewards, ends = [0.0] * self.count, [RUNNING] * self.count
        for column in columns:
            environment = self._environments[column]
            rewards[column], ends[column] = environment.step(actions[column], self._rows[column])
        return rewards, ends

    def observe(self, out: Mapping[str, np.ndarray]) -> None:
        """Writes the newest observations, [count, ...] each."""
        for name, array in self._newest.items():
            out[name][...] = array

    def episode_info(self, column: int) -> dict[str, float]:
        """The numbers of the episode in `column`."""
        return self._environments[column].episode_info()

    def close(self) -> None:
        """Closes the environments."""
        for environment in self._environments:
            environment.close()
