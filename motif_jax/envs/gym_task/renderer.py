"""Pictures of a gymnasium environment, for people."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from motif_jax.envs.spec import EnvironmentSpec, Frame

_NO_SCREEN = np.zeros((0, 0), np.uint8)


class GymRenderer:
    """Shows the environment's own picture."""

    fields = ("frame",)

    def __init__(self, spec: EnvironmentSpec) -> None:
        del spec

    def frame(self, observation: Mapping[str, np.ndarray]) -> Frame:
        return Frame(_NO_SCREEN, _NO_SCREEN, picture=observation["frame"])
