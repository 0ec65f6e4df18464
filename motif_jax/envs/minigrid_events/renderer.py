"""A grid world of minigrid as text, with the caption of the last step beside it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from motif_jax.envs.babyai_text.environment import decoded
from motif_jax.envs.babyai_text.renderer import GridRenderer


class EventsRenderer(GridRenderer):
    """See `motif_jax.envs.spec.Renderer`."""

    fields = ("grid", "lit", "pose", "text")

    def notes(self, observation: Mapping[str, np.ndarray]) -> dict[str, str]:
        """The caption."""
        return {"caption": decoded(observation["text"])}
