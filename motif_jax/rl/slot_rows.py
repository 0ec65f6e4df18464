"""The rows of trajectory slots, as inference reads and writes them: a row is a step of a group's
environments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from motif_jax.rl.actors.slots import Slots


class SlotRows(NamedTuple):
    """The arrays of `Slots` by row: [slots * (T + 1), envs]; observations and actions
    [slots * (T + 1), numbers].
    """

    observation: dict[str, np.ndarray]
    first: np.ndarray
    action: np.ndarray
    log_prob: np.ndarray
    value: np.ndarray
    version: np.ndarray

    @classmethod
    def of(cls, slots: Slots, fields: Sequence[str]) -> SlotRows:
        count = slots.layout.num_slots * (slots.layout.rollout + 1)
        observation = {name: slots.observation[name].reshape(count, -1) for name in fields}
        names = ("first", "action", "behaviour_log_prob", "behaviour_value", "parameter_version")
        return cls(observation, *(slots.arrays[name].reshape(count, -1) for name in names))

    def copy(
        self, rows: np.ndarray, first: np.ndarray, observation: Mapping[str, np.ndarray]
    ) -> None:
        """Copies the rows with numbers `rows` into `first` and `observation`."""
        # `take` writes straight into `out` only where it need not check the indices.
        np.take(self.first, rows, axis=0, out=first, mode="clip")
        for name, target in observation.items():
            source = self.observation[name]
            if source.dtype == target.dtype:
                np.take(source, rows, axis=0, out=target, mode="clip")
            else:  # 64 bits, which jax reads as 32
                target[...] = source[rows]

    def write(
        self,
        rows: np.ndarray,
        action: np.ndarray,
        log_prob: np.ndarray,
        value: np.ndarray,
        version: int,
    ) -> None:
        """Writes a choice, [len(rows), envs, ...] each, to the rows with numbers `rows`."""
        self.action[rows] = action.reshape(len(rows), -1)
        self.log_prob[rows] = log_prob
        self.value[rows] = value
        self.version[rows] = version
