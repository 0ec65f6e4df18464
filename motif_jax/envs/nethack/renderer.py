"""The game's screen, and the main numbers of its status line."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from motif_jax.envs.nethack.status import STATUS_FIELD, VITALS, X, Y
from motif_jax.envs.spec import Frame, Renderer

# The message, which is shown elsewhere, and the map's first row, which no level uses.
_SPARE_ROWS = (0, 1)


class NetHackRenderer(Renderer):
    """Shows the game's screen."""

    fields = ("tty_chars", "tty_colors", STATUS_FIELD)

    def frame(self, observation: Mapping[str, np.ndarray]) -> Frame:
        status = observation[STATUS_FIELD].tolist()
        numbers = {name: status[index] for name, index in VITALS.items()}
        # Screen row 0 is the message, so map row y is screen row y + 1.
        hero = (status[Y] + 1, status[X])
        return Frame(
            observation["tty_chars"], observation["tty_colors"], hero, numbers, _SPARE_ROWS
        )
