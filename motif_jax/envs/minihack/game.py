"""One game of a MiniHack task: success, rewards, and the step that unlocks a door."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from motif_jax.envs.minihack import levels
from motif_jax.envs.nethack import buffers as b
from motif_jax.envs.nethack.buffers import NOW_TIME
from motif_jax.envs.nethack.game import Game, events
from motif_jax.envs.nethack.level_engine import LevelEngine
from motif_jax.envs.nethack.tasks import FROZEN_PENALTY, Status, StepResult, TaskRule

SUCCESS_REWARD = 1.0
# nle's observations that the rules read: the engine's internal numbers, and the inventory.
INTERNAL = "internal"
LETTERS = "inv_letters"
NAMES = "inv_strs"
_ON_STAIRS_DOWN = 4  # index in the engine's internal numbers
# key -> (column, row) offset of its direction, in row order.
_OFFSETS = {
    ord("y"): (-1, -1),
    ord("k"): (0, -1),
    ord("u"): (1, -1),
    ord("h"): (-1, 0),
    ord("l"): (1, 0),
    ord("b"): (-1, 1),
    ord("j"): (0, 1),
    ord("n"): (1, 1),
}
# Attempts to open an unlocked door.
_MAX_PULLS = 1000


class LevelRule(TaskRule):
    """MiniHack's rule; `key` is that of the step's action.

    The stairs down always end an episode as a success, but are rewarded only in tasks without an
    event. An event is rewarded even on a deadly step, which is not a success. A step without game
    time costs 0.01. Nothing succeeds on the last.
    """

    def __init__(
        self, event: levels.SolvingEvent | None, buffers: b.Buffers, internal: np.ndarray
    ) -> None:
        self.key = 0
        self._event = event
        self._glyphs = buffers.glyphs
        self._message = buffers.message
        self._internal = internal.data
        self._is_asked = False

    def reset(self) -> None:
        self._is_asked = False

    def judge(
        self,
        now: Status,
        before: Status,
        went_down: bool,
        is_last_step: bool,
        is_over: bool,
        in_play: bool,
    ) -> StepResult:
        reward = FROZEN_PENALTY if now[NOW_TIME] == before[NOW_TIME] else 0.0
        if is_last_step:
            return reward, False
        happened = self._event is not None and self._happened(self._event)
        success = not is_over and bool(happened or self._internal[_ON_STAIRS_DOWN])
        is_paid = success if self._event is None else happened
        if is_paid:
            reward += SUCCESS_REWARD
        return reward, success

    def _happened(self, event: levels.SolvingEvent) -> bool:
        """Whether this step is the event, or the yes to its question, which the step before
        asked.
        """
        if event.messages:
            message = self._message.tobytes()
            return any(text in message for text in event.messages)
        was_asked = self._is_asked
        # The hero stands on the site, which hides its glyph.
        self._is_asked = self.key == event.key and event.site not in self._glyphs
        return was_asked and not self._is_asked and self.key == levels.NORTH_WEST


class MiniHackGame(Game):
    """A game of one of `levels.LEVELS` on an engine that takes levels."""

    __slots__ = ("_goal", "_level", "_level_engine", "open_questions")

    def __init__(
        self, task: str, engine: LevelEngine, max_steps: int, compat: Mapping[str, bool]
    ) -> None:
        level = levels.LEVELS[task]
        self._level = level
        self._level_engine = engine
        self._goal = LevelRule(level.event, engine.buffers, engine.more[INTERNAL])
        super().__init__(task, engine, min(max_steps, level.max_steps), compat)
        self._keys = dict(enumerate(level.keys))
        # The empty text is part of every message: all questions stay open.
        self.open_questions = (b"",) if level.asks else Game.open_questions
        self.press = self._play

    def _make_rule(self, task: str, compat: Mapping[str, bool]) -> TaskRule:
        return self._goal

    def start(self, seed: int) -> None:
        # Before the game: it reads the level as it starts. An equal description is compiled once.
        self._level_engine.load(self._level.describe(seed))
        super().start(seed)

    def _describe(self, message: bytes) -> list:
        """The agent answers all questions itself."""
        return [0, None, *events(message)]

    def _play(self, key: int) -> None:
        self._goal.key = key
        if key == levels.APPLY and self._level.unlocks:
            self._unlock()
            # The game may have ended meanwhile.
            if self._ask():
                return
        self._send(key)

    def _unlock(self) -> None:
        """Unlocks and opens a door beside the hero if he has a key; then the action's key is
        pressed, as published.
        """
        letter = self._letter_of_key()
        direction = self._direction_of_door()
        if letter is None or direction is None:
            return
        # The last key is the "y" that answers whether to unlock the door.
        for key in (levels.APPLY, letter, direction, levels.NORTH_WEST):
            self._send(key)
        self.dismiss()
        for _ in range(_MAX_PULLS):
            if self._ask():
                break
            self._send(direction)
            self.dismiss()
            if self._direction_of_door() is None:
                break
        # The step is judged from here on, so what the unlocking took does not count for it.
        self.status = b.read_status(self._now_memory)

    def _letter_of_key(self) -> int | None:
        """The inventory's letter of a key that the hero carries."""
        more = self._level_engine.more
        carried = zip(more[LETTERS], more[NAMES], strict=True)
        return next((int(letter) for letter, name in carried if b"key" in name.tobytes()), None)

    def _direction_of_door(self) -> int | None:
        """The key of the direction in which a closed door is next to the hero."""
        x, y, *_ = b.read_status(self._now_memory)
        glyphs = self.buffers.glyphs
        for key, (across, down) in _OFFSETS.items():
            column = x + across
            row = y + down
            is_inside = 0 <= row < b.MAP_SHAPE[0] and 0 <= column < b.MAP_SHAPE[1]
            if is_inside and glyphs[row, column] in levels.CLOSED_DOORS:
                return key
        return None
