"""The game engine at its lowest level: keys in, memory out. One object is one independent game at a time."""

from __future__ import annotations

import os
from pathlib import Path

from nle import nethack
from nle.nethack.nethack import DLPATH

from motif_jax.envs.nethack.actions import ESCAPE, SPACE
from motif_jax.envs.nethack.buffers import Buffers
from motif_jax.envs.nethack.library import set_long, share_code
from motif_jax.envs.nethack.scratch import game_folders
from motif_jax.envs.spec import EngineError

_MAX_OPENING_PROMPTS = 1000
# Files of an engine's folder that games add to. A death shows the best of `record`, the other two only grow.
_SCORE_FILES = ("record", "logfile", "xlogfile")


class NetHackEngine:
    """NetHack through nle's compiled module, writing into `buffers`, with reseeding off and the moon fixed.

    `start` leaves no trace of an earlier game: the same seeds and keys give the same bytes. A game that is left without
    quitting loses about 6 kB for good, one that ended or was quit nearly nothing.

    Args:
        buffers: where the game is written; memory of its own by default.
        shared_code: use one copy of the library's code for all games (see `motif_jax.envs.nethack.library`).
    """

    def __init__(self, buffers: Buffers | None = None, shared_code: bool = True) -> None:
        self.buffers = buffers if buffers is not None else Buffers()
        self._shared_code = shared_code
        with game_folders():
            self._game = nethack.Nethack(observation_keys=(), ttyrec=None, fix_moon_phase=True)
        self._score_files = [Path(self._game._vardir, name) for name in _SCORE_FILES]
        engine = self._game._pynethack  # its public step adds tuples that nobody reads
        engine.set_buffers(**self.buffers.engine_arrays())
        self._reset = engine.reset
        self.step = engine.step
        self.done = engine.done
        self.in_normal_game = engine.in_normal_game

    def start(self, core: int, disp: int) -> None:
        """Starts the game of these two seeds (non-negative, 64 bits)."""
        self.buffers.clear()
        for file in self._score_files:
            if os.stat(file).st_size:
                os.truncate(file, 0)
        self._game.set_initial_seeds(core, disp, False)
        self._reset()
        # When the game began, by the clock of the wall: the price of worthless glass in shops depends on it.
        set_long(self._game.dlpath, "ubirthday", 1 + core % (1 << 30))
        if self._shared_code:  # every new game loads the library anew
            share_code(self._game._dl.fileno(), DLPATH)
        in_moveloop = self.buffers.program_state[3:4]
        for _ in range(_MAX_OPENING_PROMPTS):
            if in_moveloop[0]:
                return
            # A scroll that turns to dust under the hero's feet is to be named; spaces would be its name for ever.
            self.step(ESCAPE if self.buffers.misc[1] else SPACE)
            if self.done():
                break
        raise EngineError(f"the game of seeds {core}, {disp} did not get past its opening screens")

    def close(self) -> None:
        """Frees the game, its copy of the library and its folder. Closing twice is allowed."""
        self._game.close()
