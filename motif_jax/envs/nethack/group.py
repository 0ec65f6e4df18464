"""Several games of one task played in step, their observations copied out all at once.

What numpy does for a game costs most when it is cold: after twenty other games' engines nothing of it is left in the
processor's caches. Here one numpy call serves the whole group. The observations are those of as many single
environments, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from motif_jax.envs.nethack import buffers as b
from motif_jax.envs.nethack.environment import new_engine, new_game
from motif_jax.envs.nethack.observation import MAX_EPISODE_STEPS, make_spec, switches
from motif_jax.envs.nethack.window import GroupWindows
from motif_jax.envs.spec import RUNNING


class NetHackGroup:
    """`count` games of the task `name`. See `motif_jax.envs.spec.EnvironmentGroup` for the calls.

    Options as for `NetHackEnvironment`; `make_engine` makes an engine that writes into given buffers, nle's by default.
    """

    def __init__(
        self,
        name: str,
        count: int,
        *,
        fields: Iterable[str] = (),
        max_episode_steps: int = MAX_EPISODE_STEPS,
        compat: Mapping[str, bool] | None = None,
        make_engine: Callable[[b.Buffers], b.Engine] | None = None,
    ) -> None:
        fields = tuple(fields)
        self.spec = make_spec(name, fields=fields, max_episode_steps=max_episode_steps)
        self.count = count
        quirks = switches(compat)
        self._memory = memory = b.Memory(count)
        engines = [(make_engine or new_engine)(b.Buffers(memory, index)) for index in range(count)]
        self._games = [new_game(name, engine, max_episode_steps, quirks) for engine in engines]
        self._counting = not quirks.get("message_count_off", False)
        self._blstats = memory.blstats()
        self._windows = GroupWindows(memory, quirks.get("crop_row_offset", False))
        self._extra = tuple((field, getattr(memory, field)()) for field in fields)

    def start(self, column: int, seed: int) -> None:
        """Starts the episode of `seed` in `column`."""
        self._games[column].start(seed)

    def step(self, actions: Sequence[int], columns: Sequence[int]) -> tuple[list[float], list[int]]:
        """Plays `actions[column]` in each of `columns`; returns rewards and ends of all columns, 0 for the others."""
        rewards, ends = [0.0] * self.count, [RUNNING] * self.count
        games = self._games
        for column in columns:
            rewards[column], ends[column] = games[column].advance(actions[column])
        return rewards, ends

    def observe(self, out: Mapping[str, np.ndarray]) -> None:
        """Writes the newest observations of all columns, [count, ...] each."""
        games = self._games
        self._windows.write([game.status for game in games], out["window_chars"], out["window_colors"])
        out["blstats"][...] = self._blstats
        out["message"][...] = self._memory.messages
        out["message_count"][...] = [game.record[0] for game in games] if self._counting else 1
        for field, array in self._extra:
            out[field][...] = array

    def episode_info(self, column: int) -> dict[str, float]:
        """The numbers of the episode in `column` that runs or has just ended."""
        return self._games[column].info()

    def close(self) -> None:
        """Frees the games. Closing twice is allowed."""
        for game in self._games:
            game.close()
