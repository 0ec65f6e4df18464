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
from motif_jax.envs.tasks import FROZEN_PENALTY, TASKS
from motif_jax.envs.window import GroupWindows

_LEVEL = slice(b.DUNGEON, b.DUNGEON_LEVEL + 1)


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
        self._scores = TASKS[name].goal == "score"
        self._counting = not quirks.get("message_count_off", False)
        self._status, self._status_before = memory.status(), memory.status(before=True)
        self._flags = memory.flags()
        self._counts = [1] * count
        self._windows = GroupWindows(memory, quirks.get("crop_row_offset", False))
        self._extra = tuple((field, getattr(memory, field)()) for field in fields)

    def start(self, column: int, seed: int) -> None:
        """Starts the episode of `seed` in `column`."""
        game = self._games[column]
        game.start(seed)
        self._counts[column] = game.record[0]

    def step(self, actions: Sequence[int], columns: Sequence[int]) -> tuple[list[float], list[int]]:
        """Plays `actions[column]` in each of `columns`; returns rewards and ends of all columns, 0 for the others."""
        games, memory = self._games, self._memory
        memory.before_array[:] = memory.view_array
        for column in columns:
            game = games[column]
            if game.record[1] is None:
                game.press(TASK_KEYS[actions[column]])
            else:
                game.press(game.key(actions[column]))
        over, abnormal = self._dismiss(columns)
        changed = (self._status[:, _LEVEL] != self._status_before[:, _LEVEL]).any(axis=1)
        for column in np.flatnonzero(changed).tolist():
            games[column].leave_level()
        return self._judge(columns, over, abnormal)

    def _dismiss(self, columns: Sequence[int]) -> tuple[set[int], set[int]]:
        """Dismisses prompts where there are any; returns the columns whose game is over, or not in normal play."""
        # The game's end zeroes the clock, so the engine need not be asked on every step whether it is over.
        waiting = self._flags.any(axis=1) | (self._status[:, b.TIME] == 0)
        over, abnormal = set(), set()
        for column in np.flatnonzero(waiting).tolist():
            if column in columns:
                ended, normal = self._games[column].dismiss()
                if ended:
                    over.add(column)
                if not normal:
                    abnormal.add(column)
        return over, abnormal

    def _judge(
        self, columns: Sequence[int], over: set[int], abnormal: set[int]
    ) -> tuple[list[float], list[int]]:
        """Reads the messages; rewards and ends."""
        games, counts, scores = self._games, self._counts, self._scores
        rewards = self._score_rewards(abnormal) if scores else [0.0] * self.count
        ends = [RUNNING] * self.count
        messages = self._memory.messages.tobytes()
        for column in columns:
            game = games[column]
            record = game.read(messages[column * b.MESSAGE_LENGTH : (column + 1) * b.MESSAGE_LENGTH])
            counts[column] = record[0]
            game.length = length = game.length + 1
            dead, limit, success = column in over, length >= game.max_steps, False
            if not scores and (record[2] or not game.rule.idle):
                now, before = game.statuses()
                normal = column not in abnormal
                rewards[column], success = game.rule(now, before, record[2], limit, dead, normal)
            game.total += rewards[column]
            if success or limit or dead:
                ends[column] = game.finish(success, limit, dead)
        if len(columns) < self.count:
            playing = set(columns)
            rewards = [reward if column in playing else 0.0 for column, reward in enumerate(rewards)]
        return rewards, ends

    def _score_rewards(self, abnormal: set[int]) -> list[float]:
        """What `ScoreRule` gives, for all columns."""
        now, before = self._status, self._status_before
        gained = now[:, b.SCORE] - before[:, b.SCORE]
        if abnormal:
            gained[list(abnormal)] = 0
        return (gained + FROZEN_PENALTY * (now[:, b.TIME] == before[:, b.TIME])).tolist()

    def observe(self, out: Mapping[str, np.ndarray]) -> None:
        """Writes the newest observations of all columns, [count, ...] each."""
        memory, status = self._memory, self._status
        self._windows.write(status, out["window_chars"], out["window_colors"])
        out["blstats"][...] = status
        out["message"][...] = memory.messages
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
