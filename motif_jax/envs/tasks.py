"""When a task is solved and what a step earns: pure rules over what the engine has written.

A rule is called once a step, after the prompts are dismissed, with what the environment knows of the step, and gives
(reward, success). Ends by death or by the step limit are the environment's; `ends` says whether success is one too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Protocol

from motif_jax.envs.buffers import (
    CONDITION,
    DUNGEON_LEVEL,
    GLYPHS_AT,
    MAP_SHAPE,
    SCORE,
    TIME,
    Buffers,
    View,
    X,
    Y,
)

SUCCESS_REWARD = 50.0
FROZEN_PENALTY = -0.01
ORACLE_GLYPH = 270
HALLUCINATION = 0x200
_ORACLE_BYTES = ORACLE_GLYPH.to_bytes(2, "little")


@dataclasses.dataclass(frozen=True)
class Task:
    """One published task: its goal ('score', 'staircase' or 'oracle') and the goal's details."""

    goal: str
    level: int = 0
    continual: bool = False
    sober: bool = False


TASKS: dict[str, Task] = {
    "NetHackScore-v1": Task("score"),
    "NetHackStaircase-v1": Task("staircase", level=2),
    "NetHackStaircaseLvl3-v1": Task("staircase", level=3),
    "NetHackStaircaseLvl4-v1": Task("staircase", level=4),
    "NetHackStaircaseContinual-v1": Task("staircase", level=2, continual=True),
    "NetHackStaircaseLvl3Continual-v1": Task("staircase", level=3, continual=True),
    "NetHackStaircaseLvl4Continual-v1": Task("staircase", level=4, continual=True),
    "NetHackOracle-v1": Task("oracle"),
    "NetHackOracleSober-v1": Task("oracle", sober=True),
}


class Rule(Protocol):
    """A task's rule. `ends`: success ends the episode."""

    ends: bool

    def reset(self) -> None:
        """Forgets the last episode."""

    def __call__(self, descended: bool, limit: bool, over: bool, normal: bool) -> tuple[float, bool]:
        """Judges one step.

        Args:
            descended: the message says that the hero went down stairs.
            limit: this step is the last one allowed; nothing succeeds on it.
            over: the game has ended.
            normal: the engine is in normal play, its score is to be believed.

        Returns:
            The reward and whether the task was solved on this step.
        """


class ScoreRule:
    """The change of the game's score, less a little when no game time passed."""

    ends = False

    def __init__(self, now: View, before: View) -> None:
        self._now = now.status
        self._before = before.status

    def reset(self) -> None:
        """Nothing to forget."""

    def __call__(self, descended: bool, limit: bool, over: bool, normal: bool) -> tuple[float, bool]:
        """See `Rule`."""
        now, before = self._now, self._before
        reward = float(now[SCORE] - before[SCORE]) if normal else 0.0
        if now[TIME] == before[TIME]:
            reward += FROZEN_PENALTY
        return reward, False


class StaircaseRule:
    """Going down stairs to the level. Continual: pays the first time only, also on a deadly step, and play goes on."""

    def __init__(self, now: View, level: int, continual: bool) -> None:
        self._status = now.status
        self._level = level
        self._continual = continual
        self._paid = False
        self.ends = not continual

    def reset(self) -> None:
        """Makes the reward available again."""
        self._paid = False

    def __call__(self, descended: bool, limit: bool, over: bool, normal: bool) -> tuple[float, bool]:
        """See `Rule`."""
        if not descended or limit or self._status[DUNGEON_LEVEL] != self._level:
            return 0.0, False
        if self._continual:
            success = not self._paid
            self._paid = True
        else:
            success = not over
        return (SUCCESS_REWARD if success else 0.0), success


class OracleRule:
    """The Oracle in one of the nine cells round the hero; sober: seen with a clear mind.

    `edge_quirk`: as published, nothing is found while the hero stands in the first row or column.
    `mask_quirk`: as published, hallucination does not count as such when another condition comes with it.
    """

    ends = True

    def __init__(self, buffers: Buffers, sober: bool, edge_quirk: bool, mask_quirk: bool) -> None:
        self._block = buffers.block
        self._status = buffers.view.status
        self._glyphs = buffers.glyphs
        self._sober = sober
        self._edge_quirk = edge_quirk
        self._mask_quirk = mask_quirk

    def reset(self) -> None:
        """Nothing to forget."""

    def __call__(self, descended: bool, limit: bool, over: bool, normal: bool) -> tuple[float, bool]:
        """See `Rule`."""
        status = self._status
        x, y = status[X], status[Y]
        columns = MAP_SHAPE[1]
        # The bytes between the patch's corners hold its three rows and what lies between: nearly always there is
        # no Oracle there at all, and that is known in a fraction of a microsecond.
        start = max(GLYPHS_AT, GLYPHS_AT + 2 * ((y - 1) * columns + x - 1))
        stop = GLYPHS_AT + 2 * min((y + 1) * columns + x + 2, MAP_SHAPE[0] * columns)
        if limit or over or self._block.find(_ORACLE_BYTES, start, stop) < 0:
            return 0.0, False
        if not self._oracle_near(x, y) or (self._sober and self._hallucinates(status[CONDITION])):
            return 0.0, False
        return SUCCESS_REWARD, True

    def _oracle_near(self, x: int, y: int) -> bool:
        if self._edge_quirk and (x == 0 or y == 0):
            return False
        patch = self._glyphs[max(y - 1, 0) : y + 2, max(x - 1, 0) : x + 2]
        return bool((patch == ORACLE_GLYPH).any())

    def _hallucinates(self, condition: int) -> bool:
        return condition == HALLUCINATION if self._mask_quirk else bool(condition & HALLUCINATION)


def make_rule(task: Task, buffers: Buffers, before: View, compat: Mapping[str, bool]) -> Rule:
    """The rule of `task` over what the engine writes (`buffers`) and the view before the step (`before`)."""
    if task.goal == "score":
        return ScoreRule(buffers.view, before)
    if task.goal == "staircase":
        return StaircaseRule(buffers.view, task.level, task.continual)
    return OracleRule(
        buffers,
        task.sober,
        edge_quirk=compat.get("oracle_patch_edge", False),
        mask_quirk=compat.get("sober_mask", False),
    )
