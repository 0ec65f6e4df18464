"""Several games of one task, stepped together.

All engines step, then all rules judge, then all observations are copied, which keeps each part's
code in the processor's caches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from motif_jax.envs.nethack import buffers as b
from motif_jax.envs.nethack.extended import ExtendedGame
from motif_jax.envs.nethack.game import Game
from motif_jax.envs.nethack.observation import MAX_EPISODE_STEPS, make_spec, switches
from motif_jax.envs.nethack.tasks import TASKS
from motif_jax.envs.nethack.window import WINDOW, ScreenWindows
from motif_jax.envs.spec import RUNNING, Row


class NetHackGroup:
    """`count` games of the task `name`, on `engines` that write into the same memory; new ones by
    default.

    `compat` has published quirks by switch; those not in `spec.quirks` are ignored.
    `message_count_off` fixes the count at 1, as published when no intrinsic reward is trained on.
    """

    make_spec = staticmethod(make_spec)

    def __init__(
        self,
        name: str,
        count: int,
        *,
        fields: Iterable[str] = (),
        max_episode_steps: int = MAX_EPISODE_STEPS,
        compat: Mapping[str, bool] | None = None,
        engines: Sequence[b.Engine] | None = None,
    ) -> None:
        fields = tuple(fields)
        self.spec = self.make_spec(name, fields=fields, max_episode_steps=max_episode_steps)
        self.count = count
        quirks = switches(compat)
        if engines is None:
            memory = b.GameMemory(count)
            engines = [self.new_engine(name, b.Buffers(memory, index)) for index in range(count)]
        memory = engines[0].buffers.memory
        self.games = [self.new_game(name, engine, max_episode_steps, quirks) for engine in engines]
        self._counting = not quirks.get("message_count_off", False)
        # Flat views of whole arrays, which are cheaper to copy than numpy's rows.
        self._now = memoryview(memory.views)
        self._before = memoryview(memory.before)
        self._messages = memory.messages.reshape(-1).data
        offset = quirks.get("crop_row_offset", False)
        # Windows of all games (characters, colours), copied to a row at once.
        gathered = np.zeros((2, count, WINDOW, WINDOW), np.uint8)
        self._chars, self._colors = (plane.reshape(-1).data for plane in gathered)
        windows = [ScreenWindows(game.buffers, offset) for game in self.games]
        self._columns = [
            (game, window, window.cache, gathered[:, column])
            for column, (game, window) in enumerate(zip(self.games, windows, strict=True))
        ]
        self._status = memory.status
        self._extra = tuple((field, getattr(memory, field)) for field in fields)

    @staticmethod
    def new_game(task: str, engine: b.Engine, max_steps: int, compat: Mapping[str, bool]) -> Game:
        """A game of `task` on `engine`, with the task's actions."""
        kind = ExtendedGame if TASKS[task].extended else Game
        return kind(task, engine, max_steps, compat)

    @staticmethod
    def new_engine(task: str, buffers: b.Buffers) -> b.Engine:
        """nle's engine, writing into `buffers`; it is the same for every task."""
        # Imported here so that a spec does not load the engine.
        from motif_jax.envs.nethack.engine import NetHackEngine

        return NetHackEngine(buffers)

    def start(self, column: int, seed: int) -> None:
        self.games[column].start(seed)

    def step(self, actions: Sequence[int], columns: Sequence[int]) -> tuple[list[float], list[int]]:
        rewards = [0.0] * self.count
        ends = [RUNNING] * self.count
        games = self.games
        # All games' views before the step, in one copy.
        self._before[:] = self._now
        for column in columns:
            games[column].act(actions[column])
        # All engines have stepped: the rules read each game's memory with their code in the caches.
        for column in columns:
            rewards[column], ends[column] = games[column].judge()
        return rewards, ends

    def observe(self, out: Mapping[str, np.ndarray]) -> None:
        handles = out.handles if type(out) is Row else None
        chars, colors, messages, counts, blstats = handles or self._handles(out)
        for column, (game, windows, cache, gathered) in enumerate(self._columns):
            status = game.status
            x = status[0]
            y = status[1]
            cells, outside = cache[y * 80 + x] or windows.make(x, y)
            gathered[...] = cells
            # In memory the cells beside a row's end are those of the next row.
            if outside is not None:
                gathered[:, :, outside] = 0
            counts[column] = game.record[0] if self._counting else 1
        blstats[...] = self._status
        chars[:] = self._chars
        colors[:] = self._colors
        messages[:] = self._messages
        for field, array in self._extra:
            out[field][...] = array

    def _handles(self, out: Mapping[str, np.ndarray]) -> tuple:
        """Flat views of the arrays of `out`, which are cheaper to write; a `Row` keeps them."""
        names = ("window_chars", "window_colors", "message", "message_count")
        handles = (*(_flat(out[name]) for name in names), out["blstats"])
        if type(out) is Row:
            out.handles = handles
        return handles

    def episode_info(self, column: int) -> dict[str, float]:
        return self.games[column].info()

    def close(self) -> None:
        for game in self.games:
            game.close()


def _flat(array: np.ndarray) -> memoryview:
    flat = array.reshape(-1)
    if not np.may_share_memory(flat, array):
        raise ValueError("the arrays of a row must be in one piece")
    return flat.data
