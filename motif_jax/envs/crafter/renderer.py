"""Shows Crafter's picture, with the last step's caption."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from motif_jax.core import text_bytes
from motif_jax.envs.spec import Frame, Renderer

_NO_SCREEN = np.zeros((0, 0), np.uint8)


class CrafterRenderer(Renderer):
    """The package's own picture, in which inventory and needs stand below the map."""

    fields = ("frame", "text")

    def frame(self, observation: Mapping[str, np.ndarray]) -> Frame:
        text = text_bytes.decode(observation["text"].tobytes().rstrip(b"\0"))
        return Frame(_NO_SCREEN, _NO_SCREEN, notes={"caption": text}, picture=observation["frame"])
