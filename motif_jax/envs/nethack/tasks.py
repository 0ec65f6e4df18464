"""Success and reward of the tasks: rules on the status before and after a step, and on the map.

A rule judges each step after prompts are dismissed and gives (reward, success). The environment
handles death and the step limit; `ends` says whether success ends the episode too.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from motif_jax.envs.nethack import buffers as b

SUCCESS_REWARD = 50.0
FROZEN_PENALTY = -0.01
ORACLE_GLYPH = 270
HALLUCINATION = 0x200  # bit of the condition mask (BL_MASK_HALLU)
_ORACLE_BYTES = ORACLE_GLYPH.to_bytes(2, "little")


@dataclasses.dataclass(frozen=True)
class NetHackTask:
    """One published task: its goal ('score', 'staircase' or 'oracle') and details; `extended`: it
    has 28 actions.
    """

    goal: str
    level: int = 0
    continual: bool = False
    sober: bool = False
    extended: bool = False


PLAIN_TASKS: dict[str, NetHackTask] = {
    "NetHackScore-v1": NetHackTask("score"),
    "NetHackStaircase-v1": NetHackTask("staircase", level=2),
    "NetHackStaircaseLvl3-v1": NetHackTask("staircase", level=3),
    "NetHackStaircaseLvl4-v1": NetHackTask("staircase", level=4),
    "NetHackStaircaseContinual-v1": NetHackTask("staircase", level=2, continual=True),
    "NetHackStaircaseLvl3Continual-v1": NetHackTask("staircase", level=3, continual=True),
    "NetHackStaircaseLvl4Continual-v1": NetHackTask("staircase", level=4, continual=True),
    "NetHackOracle-v1": NetHackTask("oracle"),
    "NetHackOracleSober-v1": NetHackTask("oracle", sober=True),
}
EXTENDED_TASKS: dict[str, NetHackTask] = {
    name.replace("-v1", "ExtendedActions-v1"): dataclasses.replace(task, extended=True)
    for name, task in PLAIN_TASKS.items()
    if not task.continual
}
TASKS: dict[str, NetHackTask] = PLAIN_TASKS | EXTENDED_TASKS


# The numbers of `buffers.read_status`.
Status = Sequence[int]
# A step's reward, and whether it solved the task.
StepResult = tuple[float, bool]


class TaskRule(ABC):
    """A task's rule.

    Attributes:
      ends: whether success ends the episode.
      needs_stairs: whether a step without `went_down` earns nothing, so that `judge` need not be
          called for it.
    """

    ends = True
    needs_stairs = False

    def reset(self) -> None:  # noqa: B027 (optional override)
        """Forgets the last episode."""

    @abstractmethod
    def judge(
        self,
        now: Status,
        before: Status,
        went_down: bool,
        is_last_step: bool,
        is_over: bool,
        in_play: bool,
    ) -> StepResult:
        """Judges one step by the status after and before it.

        Args:
            went_down: whether the hero went down stairs, by the message.
            is_last_step: whether this is the last step allowed; nothing succeeds on it.
            is_over: whether the game has ended.
            in_play: whether the engine is in normal play, so that its score is valid.
        """


class ScoreRule(TaskRule):
    """The change of the game's score, with a small penalty if no game time passed."""

    ends = False

    def judge(
        self,
        now: Status,
        before: Status,
        went_down: bool,
        is_last_step: bool,
        is_over: bool,
        in_play: bool,
    ) -> StepResult:
        # As published: a step outside normal play, as into a death, changes no score.
        reward = float(now[b.NOW_SCORE] - before[b.NOW_SCORE]) if in_play else 0.0
        if now[b.NOW_TIME] == before[b.NOW_TIME]:
            reward += FROZEN_PENALTY
        return reward, False


class StaircaseRule(TaskRule):
    """Going down stairs to the level. Continual: rewarded the first time only, even on a deadly
    step; play continues.
    """

    needs_stairs = True

    def __init__(self, level: int, continual: bool) -> None:
        self._level = level
        self._continual = continual
        self._paid = False
        self.ends = not continual

    def reset(self) -> None:
        self._paid = False

    def judge(
        self,
        now: Status,
        before: Status,
        went_down: bool,
        is_last_step: bool,
        is_over: bool,
        in_play: bool,
    ) -> StepResult:
        if not went_down or is_last_step or now[b.NOW_LEVEL] != self._level:
            return 0.0, False
        success = not is_over
        if self._continual:
            # As published: a continual task pays the first time, even on a deadly step.
            success = not self._paid
        self._paid = True
        return (SUCCESS_REWARD if success else 0.0), success


class OracleRule(TaskRule):
    """The Oracle in one of the nine cells around the hero; sober: without hallucination.

    As published, with `edge_quirk` nothing is found from the first row or column, and with
    `mask_quirk` hallucination does not count when another condition comes with it.
    """

    def __init__(self, buffers: b.Buffers, sober: bool, edge_quirk: bool, mask_quirk: bool) -> None:
        self._bytes = buffers.memory.views
        self._map_at = buffers.index * b.VIEW_BYTES + b.GLYPHS_AT
        self._glyphs = buffers.glyphs
        self._sober = sober
        self._edge_quirk = edge_quirk
        self._mask_quirk = mask_quirk

    def judge(
        self,
        now: Status,
        before: Status,
        went_down: bool,
        is_last_step: bool,
        is_over: bool,
        in_play: bool,
    ) -> StepResult:
        x = now[b.NOW_X]
        y = now[b.NOW_Y]
        rows, columns = b.MAP_SHAPE
        # Fast check: the bytes between the patch's corners contain its three rows, and nearly
        # always have no Oracle.
        start = self._map_at + 2 * max((y - 1) * columns + x - 1, 0)
        stop = self._map_at + 2 * min((y + 1) * columns + x + 2, rows * columns)
        if is_last_step or is_over or self._bytes.find(_ORACLE_BYTES, start, stop) < 0:
            return 0.0, False

        patch = self._glyphs[max(y - 1, 0) : y + 2, max(x - 1, 0) : x + 2]
        condition = now[b.NOW_CONDITION]
        hallucinates = condition == HALLUCINATION if self._mask_quirk else condition & HALLUCINATION
        missed = self._edge_quirk and (x == 0 or y == 0)
        if missed or not (patch == ORACLE_GLYPH).any() or (self._sober and hallucinates):
            return 0.0, False
        return SUCCESS_REWARD, True


def make_rule(task: NetHackTask, buffers: b.Buffers, compat: Mapping[str, bool]) -> TaskRule:
    """The rule of `task` for the game in `buffers`; `compat` has the published quirks by switch."""
    if task.goal == "score":
        return ScoreRule()
    if task.goal == "staircase":
        return StaircaseRule(task.level, task.continual)
    return OracleRule(
        buffers,
        task.sober,
        edge_quirk=compat.get("oracle_patch_edge", False),
        mask_quirk=compat.get("sober_mask", False),
    )
