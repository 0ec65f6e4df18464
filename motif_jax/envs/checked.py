"""Refuses numbers that no agent can learn from, and names that are taken, where an environment from
outside the package gives them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.envs.spec import ROW_NAMES, Environment


class CheckedEnvironment:
    """An environment that raises UserError for a reward or an observation that is not a number, and
    for a number of an episode that has the name of another column of its row.

    One NaN would make every parameter of the agent NaN, and the learning rate would be blamed for
    it. Infinite rewards may be clipped, so they pass; observations must be finite. The error names
    field, step and seed. Attributes that are not of this class are those of `environment`.

    Real numbers of an action are rounded to float32, as they are kept: an episode that is played
    again gets the same.
    """

    def __init__(self, name: str, environment: Environment) -> None:
        self._name = name
        self._environment = environment
        self.spec = environment.spec
        # Only these can hold NaN or infinity. The list is made once, as every step is checked.
        self._float_fields = [
            field
            for field, array in self.spec.observation.items()
            if np.dtype(array.dtype).kind == "f"
        ]
        self._seed = 0
        self._steps = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)

    def reset(self, seed: int, out: Mapping[str, np.ndarray]) -> None:
        self._seed = seed
        self._steps = 0
        self._environment.reset(seed, out)
        self._check_observation(out)

    def step(self, action: Any, out: Mapping[str, np.ndarray]) -> tuple[float, int]:
        if self.spec.action_size:
            action = np.asarray(action, np.float32).tolist()
        reward, end = self._environment.step(action, out)
        self._steps += 1
        if math.isnan(reward):
            self._refuse("reward", reward)
        self._check_observation(out)
        return reward, end

    def episode_info(self) -> dict[str, float]:
        info = self._environment.episode_info()
        for name in info:
            if name in ROW_NAMES:
                raise UserError(
                    f"config.environment.name={self._name}: its episode_info() has {name!r}, which an episode's row has "
                    f"from its player: the environment must give it another name"
                )
        return info

    def close(self) -> None:
        self._environment.close()

    def _check_observation(self, out: Mapping[str, np.ndarray]) -> None:
        for field in self._float_fields:
            finite = np.isfinite(out[field])
            if not finite.all():
                self._refuse(field, out[field][~finite].reshape(-1)[0])

    def _refuse(self, field: str, value: float) -> None:
        raise UserError(
            f"config.environment.name={self._name}: its {field!r} is {float(value)} at step {self._steps} of the episode with "
            f"seed {self._seed}: the environment must give finite numbers (or clip them)"
        )


def unplayable(name: str, error: Exception, beside: str = "") -> UserError:
    """The error of the environment `name`, which failed where it was tried out; `beside`: the
    further keys that it was made with.
    """
    cause = error.__cause__ or error
    return UserError(
        f"config.environment.name={name}{beside} cannot be played: {type(cause).__name__}: {cause}"
    )
