"""The NetHack tasks as environments: groups of one game."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from motif_jax.envs.nethack import buffers as b
from motif_jax.envs.nethack.group import NetHackGroup
from motif_jax.envs.nethack.observation import make_spec
from motif_jax.envs.spec import Row


class NetHackEnvironment:
    """One of `tasks.TASKS`; `options` are fields, max_episode_steps and compat, see `NetHackGroup`.

    Observation: `window_chars` and `window_colors` uint8 [12, 12] around the hero (0 outside the
    screen; colours from 16 on are reverse video of the colour minus 16), `blstats` int32 [27],
    `message` uint8 [256], `message_count` int32: how often exactly these 256 bytes were seen in
    this episode, this step included.

    After a death the engine's numbers, and so the last observation's, are zero. The last
    observation of a truncated or solved episode shows the game before it is quit.

    `episode_info` adds dlvl, gold, xlvl, scout (glyphs seen, over the levels visited) before the
    newest step, as published; score and turns after it; success (0, 1); end (-1 step limit, 0
    running, 1 the game ended, 2 success); hallucination, the share of steps with hallucination;
    kills, the messages that the hero killed something.
    """

    make_spec = staticmethod(make_spec)
    group: ClassVar[type[NetHackGroup]] = NetHackGroup

    def __init__(self, name: str, *, engine: b.Engine | None = None, **options: Any) -> None:
        self._group = self.group(name, 1, engines=None if engine is None else (engine,), **options)
        self.spec = self._group.spec
        self.game = self._group.games[0]

    def reset(self, seed: int, out: Mapping[str, np.ndarray]) -> None:
        self.game.start(seed)
        self._group.observe(_group_of_one(out))

    def step(self, action: int, out: Mapping[str, np.ndarray]) -> tuple[float, int]:
        result = self.game.advance(action)
        self._group.observe(_group_of_one(out))
        # After the observation, which still shows the game that is quit here.
        if result[1]:
            self.game.quit_ended()
        return result

    def episode_info(self) -> dict[str, float]:
        return self.game.info()

    def close(self) -> None:
        self.game.close()


def _group_of_one(out: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    """The arrays of `out`, each [1, ...]; a row keeps them."""
    if type(out) is not Row:
        return {name: array[None] for name, array in out.items()}
    if out.handles is None:
        out.handles = Row({name: array[None] for name, array in out.items()})
    return out.handles
