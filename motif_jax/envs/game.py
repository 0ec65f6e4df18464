"""One game of a task: keys, prompts, messages, and what an episode amounts to. Observations are copied elsewhere."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from motif_jax.envs import buffers as b
from motif_jax.envs.actions import (
    ESCAPE,
    OPEN_QUESTIONS,
    QUIT,
    SPACE,
    STAIRS_SENTENCE,
    TASK_KEYS,
    YES,
    eat_answer,
)
from motif_jax.envs.spec import RUNNING, TERMINATED, TRUNCATED, EngineError
from motif_jax.envs.tasks import TASKS, make_rule
from motif_jax.support.seeds import derive

EPISODE_FIELDS = ("score", "dlvl", "gold", "xlvl", "scout", "turns", "success", "end")
# Values of the episode field `end`.
END_LIMIT, END_RUNNING, END_DEATH, END_SUCCESS = -1, 0, 1, 2

YES_ACTION = TASK_KEYS.index(YES)
_MAX_PROMPTS = 10_000


def game_seeds(seed: int) -> tuple[int, int]:
    """The two seeds of the engine (play, display) for an episode's seed."""
    return derive(seed, "core"), derive(seed, "disp")


class Game:
    """The state of one episode after another on one engine.

    Attributes:
        record: what is known of the newest message, as a list: how often it was seen in this episode, the key
            that answers "yes" to its question what to eat (None if it asks no such thing), whether it says that
            the hero went down stairs.
        status: the newest status, as `buffers.read_status` gives it.
        length, total: steps and sum of rewards of the episode.
    """

    __slots__ = (
        "_ask",
        "_engine",
        "_explored",
        "_final",
        "_limit_end",
        "_misc",
        "_quit_at_end",
        "_seeded",
        "_seen",
        "_solved",
        "buffers",
        "length",
        "max_steps",
        "message_memory",
        "press",
        "record",
        "rule",
        "status",
        "total",
    )

    def __init__(self, task: str, engine: b.Engine, max_steps: int, compat: Mapping[str, bool]) -> None:
        self._engine = engine
        self._ask = engine.done
        self.press = engine.step
        self.buffers = engine.buffers
        self._misc = engine.buffers.misc
        self.message_memory = engine.buffers.message_memory
        self.rule = make_rule(TASKS[task], engine.buffers, compat)
        self.max_steps = max_steps
        self._seeded = not compat.get("seed_noop", False)
        self._limit_end = TERMINATED if compat.get("timeout_as_terminal", False) else TRUNCATED
        self._quit_at_end = False
        self._clear()

    def _clear(self) -> None:
        self._seen: dict[bytes, list] = {}
        self._explored: dict[tuple[int, int], int] = {}
        self._final: dict[str, float] | None = None
        self._solved = False
        self.length = 0
        self.total = 0.0
        self.record: list = [0, None, False]

    def start(self, seed: int) -> None:
        """Starts the episode of `seed` (of no seed under `seed_noop`) and reads its first message."""
        self.quit_ended()
        core, disp = game_seeds(seed) if self._seeded else (secrets.randbits(63), secrets.randbits(63))
        self._engine.start(core, disp)
        self._clear()
        self.rule.reset()
        buffers = self.buffers
        buffers.before.memory[:] = buffers.now.memory
        self.status = b.read_status(buffers.now.memory)
        self.read(self.message_memory.tobytes())

    def key(self, action: int) -> int:
        """The key for `action`: its own, unless the game asks what to eat."""
        answer = self.record[1]
        if answer is None:
            return TASK_KEYS[action]
        return answer if action == YES_ACTION else SPACE

    def read(self, message: bytes) -> list:
        """Counts a message (256 bytes) and returns its `record`."""
        record = self._seen.get(message)
        if record is None:
            record = self._seen[message] = [0, eat_answer(message), STAIRS_SENTENCE in message]
        record[0] += 1
        self.record = record
        return record

    def dismiss(self, leave_questions: bool = True) -> tuple[bool, bool]:
        """Gets rid of prompts until the hero can act; returns (game over, in normal play).

        With `leave_questions`, a single-key question that the agent is to answer stays. A message that says that
        the hero went down stairs is kept over the prompts that follow it.
        """
        misc, press, message = self._misc, self.press, self.message_memory
        for _ in range(_MAX_PROMPTS):
            if self._ask():
                break
            if misc[2]:  # waits for a space
                shown = message.tobytes()
                press(SPACE)
                if STAIRS_SENTENCE in shown:
                    message[:] = shown
                continue
            if misc[1]:  # waits for a line
                press(ESCAPE)
                continue
            if misc[0]:  # waits for a single key
                shown = message.tobytes()
                if not (leave_questions and any(word in shown for word in OPEN_QUESTIONS)):
                    press(ESCAPE)
            break
        else:
            raise EngineError(f"{_MAX_PROMPTS} prompts in a row")
        return self._ask(), bool(self._engine.in_normal_game())

    def leave_level(self) -> None:
        """Notes what was seen of the level that the hero was on before this step."""
        before = self.buffers.before
        self._explored[before.status[b.DUNGEON], before.status[b.DUNGEON_LEVEL]] = before.explored()

    def advance(self, action: int) -> tuple[float, int]:
        """Plays one step; returns (reward, end). A game that ended alive is quit by the next `start`."""
        buffers = self.buffers
        memory = buffers.now.memory
        buffers.before.memory[:] = memory
        self.press(TASK_KEYS[action] if self.record[1] is None else self.key(action))
        now = b.read_status(memory)
        over, normal = False, True
        # The game's end zeroes the clock, so the engine need not be asked on every step whether it is over.
        if now[7] or now[8] or not now[3]:
            over, normal = self.dismiss()
            now = b.read_status(memory)
        return self.judge(now, self.message_memory.tobytes(), over, normal)

    def judge(self, now: tuple[int, ...], message: bytes, over: bool, normal: bool) -> tuple[float, int]:
        """What a step came to: (reward, end).

        Args:
            now: status after the step, as `buffers.read_status` gives it; the view before the step is in memory.
            message: the 256 bytes of the message.
            over: the game has ended.
            normal: the engine is in normal play.
        """
        before = self.status
        self.status = now
        if now[5] != before[5] or now[4] != before[4]:
            self.leave_level()
        record = self.read(message)
        self.length = length = self.length + 1
        limit = length >= self.max_steps
        reward, success = self.rule(now, before, record[2], limit, over, normal)
        self.total += reward
        if success or limit or over:
            return reward, self.finish(success, limit, over)
        return reward, RUNNING

    def finish(self, success: bool, limit: bool, over: bool) -> int:
        """How the step ends the episode, if it does; freezes the episode's numbers if so."""
        self._solved = self._solved or success
        if over:
            end, why = TERMINATED, END_DEATH
        elif limit:
            end, why = self._limit_end, END_LIMIT
        elif success and self.rule.ends:
            end, why = TERMINATED, END_SUCCESS
        else:
            return RUNNING
        self._final = self._numbers(why, self.buffers.before if over else self.buffers.now)
        self._quit_at_end = not over
        return end

    def quit_ended(self) -> None:
        """Leaves a game that goes on after its episode by its own door: one that is merely dropped leaks memory."""
        if not self._quit_at_end:
            return
        self._quit_at_end = False
        over, _ = self.dismiss(leave_questions=False)
        for key in QUIT:
            if over:
                return
            self.press(key)
            over = self._ask()
        self.dismiss(leave_questions=False)

    def _numbers(self, end: int, newest: b.View) -> dict[str, float]:
        before = self.buffers.before
        status = before.status
        here = (status[b.DUNGEON], status[b.DUNGEON_LEVEL])
        elsewhere = sum(count for level, count in self._explored.items() if level != here)
        return {
            "return": self.total,
            "length": float(self.length),
            "score": float(newest.status[b.SCORE]),
            "dlvl": float(status[b.DEPTH]),
            "gold": float(status[b.GOLD]),
            "xlvl": float(status[b.LEVEL]),
            "scout": float(elsewhere + before.explored()),
            "turns": float(newest.status[b.TIME]),
            "success": float(self._solved),
            "end": float(end),
        }

    def info(self) -> dict[str, float]:
        """Return, length and `EPISODE_FIELDS` of the episode that runs or has just ended."""
        if self._final is not None:
            return dict(self._final)
        return self._numbers(END_RUNNING, self.buffers.now)

    def close(self) -> None:
        """Frees the engine; it cannot be stepped any more."""
        self.press = _closed
        self._quit_at_end = False
        self._engine.close()


def _closed(key: int) -> None:
    raise RuntimeError("the environment is closed")
