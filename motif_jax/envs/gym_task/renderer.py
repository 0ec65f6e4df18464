"""Pictures of a gymnasium environment, for people."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from motif_jax.envs.spec import Frame, Renderer

_NO_SCREEN = np.zeros((0, 0), np.uint8)


class GymRenderer(Renderer):
    """Shows the environment's own picture."""

    fields = ("frame",)

    def frame(self, observation: Mapping[str, np.ndarray]) -> Frame:
        return Frame(_NO_SCREEN, _NO_SCREEN, picture=observation["frame"])
