"""A group of any environments, stepped one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from motif_jax.envs.spec import RUNNING, Environment, empty_observation, row


class SingleEnvironments:
    """An `EnvironmentGroup` that steps its environments one after the other."""

    def __init__(self, environments: Sequence[Environment]) -> None:
        self._environments = list(environments)
        self.spec = self._environments[0].spec
        self.count = len(self._environments)
        # Each environment writes into its own row; `observe` copies all rows of a field at once.
        self._newest = empty_observation(self.spec, (self.count,))
        self._rows = [row(self._newest, column) for column in range(self.count)]

    def start(self, column: int, seed: int) -> None:
        self._environments[column].reset(seed, self._rows[column])

    def step(self, actions: Sequence[Any], columns: Sequence[int]) -> tuple[list[float], list[int]]:
        rewards = [0.0] * self.count
        ends = [RUNNING] * self.count
        for column in columns:
            environment = self._environments[column]
            rewards[column], ends[column] = environment.step(actions[column], self._rows[column])
        return rewards, ends

    def observe(self, out: Mapping[str, np.ndarray]) -> None:
        for name, array in self._newest.items():
            out[name][...] = array

    def episode_info(self, column: int) -> dict[str, float]:
        return self._environments[column].episode_info()

    def close(self) -> None:
        for environment in self._environments:
            environment.close()
