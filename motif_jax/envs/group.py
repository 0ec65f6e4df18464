"""Several games of one task played in step, with nearly everything but the engines done for all of them at once.

What Python and numpy do for a game costs most when it is cold: after twenty other games' engines nothing of it is left
in the processor's caches. Here a numpy call serves the whole group, and the loops over the games touch little more than
the engines themselves. The observations are those of as many single environments, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from motif_jax.envs import buffers as b
from motif_jax.envs.actions import TASK_KEYS
from motif_jax.envs.game import Game
from motif_jax.envs.nethack import MAX_EPISODE_STEPS, NetHackEnvironment, new_engine, switches
from motif_jax.envs.spec import RUNNING
from motif_jax.envs.window import GroupWindows

# Of a step without prompts: the game is not over, and in normal play.
_USUAL = (False, True)


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
        self.spec = NetHackEnvironment.make_spec(name, fields=fields, max_episode_steps=max_episode_steps)
        self.count = count
        quirks = switches(compat)
        self._memory = memory = b.Memory(count)
        engines = [(make_engine or new_engine)(b.Buffers(memory, index)) for index in range(count)]
        self._games = [Game(name, engine, max_episode_steps, quirks) for engine in engines]
        self._counting = not quirks.get("message_count_off", False)
        self._status: list[tuple[int, ...]] = [(0,) * 9] * count
        self._blstats = memory.blstats()
        self._counts = [1] * count
        self._windows = GroupWindows(memory, quirks.get("crop_row_offset", False))
        self._extra = tuple((field, getattr(memory, field)()) for field in fields)

    def start(self, column: int, seed: int) -> None:
        """Starts the episode of `seed` in `column`."""
        game = self._games[column]
        game.start(seed)
        self._counts[column] = game.record[0]
        self._status[column] = game.status

    def step(self, actions: Sequence[int], columns: Sequence[int]) -> tuple[list[float], list[int]]:
        """Plays `actions[column]` in each of `columns`; returns rewards and ends of all columns, 0 for the others."""
        games, memory = self._games, self._memory
        memory.before_array[:] = memory.view_array
        for column in columns:
            game = games[column]
            action = actions[column]
            game.press(TASK_KEYS[action] if game.record[1] is None else game.key(action))
        status = list(b.read_statuses(memory.views))
        unusual = self._dismiss(columns, status)
        messages = memory.messages.tobytes()
        rewards, ends, counts = [0.0] * self.count, [RUNNING] * self.count, self._counts
        for column in columns:
            game = games[column]
            message = messages[column * b.MESSAGE_LENGTH : (column + 1) * b.MESSAGE_LENGTH]
            over, normal = unusual.get(column, _USUAL)
            rewards[column], ends[column] = game.judge(status[column], message, over, normal)
            counts[column] = game.record[0]
        self._status = status
        return rewards, ends

    def _dismiss(self, columns: Sequence[int], status: list[tuple[int, ...]]) -> dict[int, tuple[bool, bool]]:
        """Dismisses prompts, renewing `status` there; for those columns: game over, in normal play."""
        found = {}
        for column in columns:
            now = status[column]
            # The game's end zeroes the clock, so the engine need not be asked on every step whether it is over.
            if now[7] or now[8] or not now[3]:
                game = self._games[column]
                found[column] = game.dismiss()
                status[column] = b.read_status(game.buffers.now.memory)
        return found

    def observe(self, out: Mapping[str, np.ndarray]) -> None:
        """Writes the newest observations of all columns, [count, ...] each."""
        self._windows.write(self._status, out["window_chars"], out["window_colors"])
        out["blstats"][...] = self._blstats
        out["message"][...] = self._memory.messages
        out["message_count"][...] = self._counts if self._counting else 1
        for field, array in self._extra:
            out[field][...] = array

    def episode_info(self, column: int) -> dict[str, float]:
        """The numbers of the episode in `column` that runs or has just ended."""
        return self._games[column].info()

    def close(self) -> None:
        """Frees the games. Closing twice is allowed."""
        for game in self._games:
            game.close()
