"""The game engine: takes keys and writes memory; each object plays one game at a time."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from nle import nethack
from nle.nethack.nethack import DLPATH, OBSERVATION_DESC

from motif_jax.core.tempdirs import own_folders
from motif_jax.envs.nethack.actions import ESCAPE, SPACE
from motif_jax.envs.nethack.buffers import Buffers
from motif_jax.envs.nethack.library import KeptLibrary, reload_reason, set_long
from motif_jax.envs.spec import EngineError

MAX_OPENING_PROMPTS = 1000
# Files in an engine's folder that grow with each game; a death shows the best of `record`.
_SCORE_FILES = ("record", "logfile", "xlogfile")
_BIRTHDAY = "ubirthday"


class NetHackEngine:
    """NetHack through nle's compiled module, with reseeding off and the moon fixed.

    The same seeds and keys give the same bytes, whatever was played before. A game dropped without
    quitting leaks 6 kB.

    Args:
        shared_code: share the library's code among games and load its variables once, where
            possible (see `library`).
        more_fields: nle's observations for `more`, name -> array, besides those of `buffers`.
        game: options of nle's game, such as `playername` and `options`.
    """

    def __init__(
        self,
        buffers: Buffers | None = None,
        shared_code: bool = True,
        more_fields: Iterable[str] = (),
        **game: Any,
    ) -> None:
        self.buffers = buffers if buffers is not None else Buffers()
        self.more = {name: np.zeros(**OBSERVATION_DESC[name]) for name in more_fields}
        with own_folders():
            self._game = nethack.Nethack(
                observation_keys=(), ttyrec=None, fix_moon_phase=True, **game
            )
        self.folder = Path(self._game._vardir)
        self._score_files = [self.folder / name for name in _SCORE_FILES]
        self.library: KeptLibrary | None = None
        if shared_code and reload_reason() is None:
            self.library = KeptLibrary(DLPATH)
            Path(self._game.dlpath).write_bytes(self.library.stand_in())
            self._birthday = self.library.long(_BIRTHDAY)
        # Runs even without `close`: the game must be freed before its library.
        self.close = weakref.finalize(self, _close, self._game, self.library)
        self.close.atexit = False
        engine = self._game._pynethack  # its public step builds unused tuples
        engine.set_buffers(**self.buffers.engine_arrays(), **self.more)
        self._end = engine.close
        self._reset = engine.reset
        self.step = engine.step
        self.done = engine.done
        self.in_normal_game = engine.in_normal_game

    def start(self, core: int, disp: int) -> None:
        """See `buffers.Engine.start`; the seeds decide the game (`core`) and what the hero
        hallucinates (`disp`).
        """
        self.buffers.clear()
        for array in self.more.values():
            array.fill(0)
        for file in self._score_files:
            if os.stat(file).st_size:
                os.truncate(file, 0)
        self._game.set_initial_seeds(core, disp, False)
        # The game's start time, which sets the price of worthless glass in shops.
        birthday = 1 + core % (1 << 30)
        # The engine sets the start time by the clock as it starts, so it is replaced after that.
        if self.library is None:
            self._reset()
            set_long(self._game.dlpath, _BIRTHDAY, birthday)
        else:
            # The old game ends while its variables are its own; the new one finds them as after
            # loading.
            self._end()
            self.library.restore()
            self._reset()
            self._birthday.value = birthday

        in_moveloop = self.buffers.program_state[3:4]
        for _ in range(MAX_OPENING_PROMPTS):
            if in_moveloop[0]:
                return
            # Escapes a request for text: if a scroll turns to dust, the game asks for its name, and
            # spaces would become the name.
            self.step(ESCAPE if self.buffers.misc[1] else SPACE)
            if self.done():
                break
        raise EngineError(f"the game of seeds {core}, {disp} did not get past its opening screens")


def _close(game: nethack.Nethack, library: KeptLibrary | None) -> None:
    game.close()
    if library is not None:
        library.close()
