"""Draws a minigrid level as text, with the last step's caption beside it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from motif_jax.envs.babyai_text.environment import decoded
from motif_jax.envs.babyai_text.renderer import GridRenderer
from motif_jax.envs.spec import Frame

_COLUMNS = 40  # least width, for captions below the grid


class EventsRenderer(GridRenderer):
    """A `GridRenderer` with captions."""

    fields = ("grid", "lit", "pose", "text")

    def frame(self, observation: Mapping[str, np.ndarray]) -> Frame:
        frame = super().frame(observation)
        right = ((0, 0), (0, max(0, _COLUMNS - frame.chars.shape[1])))
        chars = np.pad(frame.chars, right, constant_values=ord(" "))
        return frame._replace(chars=chars, colors=np.pad(frame.colors, right))

    def notes(self, observation: Mapping[str, np.ndarray]) -> dict[str, str]:
        return {"caption": decoded(observation["text"])}
