"""The NetHack tasks as environments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from motif_jax.envs.nethack import buffers as b
from motif_jax.envs.nethack.extended import ExtendedGame
from motif_jax.envs.nethack.game import Game
from motif_jax.envs.nethack.observation import MAX_EPISODE_STEPS, make_spec, switches
from motif_jax.envs.nethack.tasks import TASKS
from motif_jax.envs.nethack.window import ScreenWindows
from motif_jax.envs.spec import Row


def new_game(task: str, engine: b.Engine, max_steps: int, compat: Mapping[str, bool]) -> Game:
    """A game of `task` on `engine`, with the task's actions."""
    kind = ExtendedGame if TASKS[task].extended else Game
    return kind(task, engine, max_steps, compat)


def new_engine(task: str, buffers: b.Buffers) -> b.Engine:
    """nle's engine, writing into `buffers`; it is the same for every task."""
    del task
    # Imported here so that a spec does not load the engine.
    from motif_jax.envs.nethack.engine import NetHackEngine

    return NetHackEngine(buffers)


class NetHackEnvironment:
    """One of `tasks.TASKS`.

    Observation: `window_chars` and `window_colors` uint8 [12, 12] around the hero (0 outside the screen; colours from 16 on
    are reverse video of the colour less 16), `blstats` int32 [27], `message` uint8 [256], `message_count` int32: how often
    exactly these 256 bytes were seen in this episode, this step included.

    After a death the engine's numbers, and so the last observation's, are zero. The last observation of a truncated or
    solved episode shows the game before it is quit.

    `episode_info` adds dlvl, gold, xlvl, scout (glyphs seen, over the levels visited) before the newest step, as published;
    score and turns after it; success (0, 1); end (-1 step limit, 0 running, 1 the game ended, 2 success); hallucination,
    the share of steps with hallucination; kills, the messages that the hero killed something.

    Args:
        fields: additional observation fields of glyphs, tty_chars, tty_colors.
        max_episode_steps: truncates episodes at this step.
        compat: published quirks, by switch; those not in `spec.quirks` are ignored. `message_count_off` fixes the count at
            1, as published when no intrinsic reward is trained on.
        engine: the game; a new one by default.
    """

    make_spec = staticmethod(make_spec)
    new_game = staticmethod(new_game)
    new_engine = staticmethod(new_engine)

    def __init__(
        self,
        name: str,
        *,
        fields: Iterable[str] = (),
        max_episode_steps: int = MAX_EPISODE_STEPS,
        compat: Mapping[str, bool] | None = None,
        engine: b.Engine | None = None,
    ) -> None:
        fields = tuple(fields)
        self.spec = self.make_spec(name, fields=fields, max_episode_steps=max_episode_steps, compat=compat)
        quirks = switches(compat)
        engine = engine if engine is not None else self.new_engine(name, b.Buffers())
        self._game = self.new_game(name, engine, max_episode_steps, quirks)
        buffers = self._game.buffers
        self._windows = ScreenWindows(buffers, quirks.get("crop_row_offset", False))
        self._window_cache = self._windows.cache
        self._blstats = buffers.low_words
        self._message = buffers.message_memory
        self._counting = not quirks.get("message_count_off", False)
        self._extra = tuple((field, getattr(buffers, field)) for field in fields)

    def reset(self, seed: int, out: Mapping[str, np.ndarray]) -> None:
        self._game.start(seed)
        self._write(out)

    def step(self, action: int, out: Mapping[str, np.ndarray]) -> tuple[float, int]:
        result = self._game.advance(action)
        self._write(out)
        if result[1]:
            self._game.quit_ended()
        return result

    def _write(self, out: Mapping[str, np.ndarray]) -> None:
        game = self._game
        handles = out.handles if type(out) is Row else None
        chars, colors, blstats, message, count = handles or self._handles(out)
        x, y, *_ = game.status
        _, seen_chars, seen_colors, outside = self._window_cache[y * 80 + x] or self._windows.make(x, y)
        chars[...] = seen_chars
        colors[...] = seen_colors
        if outside is not None:
            chars[:, outside] = 0
            colors[:, outside] = 0
        blstats[:] = self._blstats
        message[:] = self._message
        count[0] = game.record[0] if self._counting else 1
        for field, array in self._extra:
            out[field][...] = array

    def _handles(self, out: Mapping[str, np.ndarray]) -> tuple:
        """A row's arrays as plain memory where possible, which is faster than numpy."""
        handles = (
            out["window_chars"],
            out["window_colors"],
            out["blstats"].data,
            out["message"].data,
            out["message_count"].reshape(1).data,
        )
        if type(out) is Row:
            out.handles = handles
        return handles

    def episode_info(self) -> dict[str, float]:
        return self._game.info()

    def close(self) -> None:
        self._game.close()
