"""One game of a task: keys, prompts, messages, rewards and the episode's numbers."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from motif_jax.core.seeds import derive
from motif_jax.envs.nethack import actions
from motif_jax.envs.nethack import buffers as b
from motif_jax.envs.nethack import status as status_line
from motif_jax.envs.nethack.tasks import HALLUCINATION, TASKS, TaskRule, make_rule
from motif_jax.envs.spec import RUNNING, TERMINATED, TRUNCATED, EngineError

EPISODE_FIELDS = (
    "score", "dlvl", "gold", "xlvl", "scout", "turns", "success", "end", "hallucination", "kills",
)  # fmt: skip
# Values of the episode field `end`.
END_LIMIT = -1
END_RUNNING = 0
END_DEATH = 1
END_SUCCESS = 2

YES_ACTION = actions.TASK_KEYS.index(actions.YES)
_MAX_PROMPTS = 10_000
# Index in a message's record.
KILL = 3


def game_seeds(seed: int) -> tuple[int, int]:
    """The two seeds of the engine (play, display) for an episode's seed."""
    return derive(seed, "core"), derive(seed, "disp")


def _unseeded() -> tuple[int, int]:
    """Random seeds of the engine, as published without seeds."""
    return secrets.randbits(63), secrets.randbits(63)


def events(message: bytes) -> tuple[bool, bool]:
    """Whether the hero went down stairs, and whether he killed something, by `message` (256
    bytes).
    """
    return actions.STAIRS_SENTENCE in message, actions.KILL_PHRASE in message.lower()


class Game:
    """The state of successive episodes on one engine, with the 23 actions.

    `record` lists facts about the newest message: its count in this episode, the key for "yes" to
    its question what to eat (else None), whether the hero went down stairs, whether he killed
    something. `status` is of `buffers.read_status`.
    """

    __slots__ = (
        "_always_judge",
        "_ask",
        "_before_memory",
        "_engine",
        "_explored",
        "_hallucinated",
        "_judge",
        "_keys",
        "_kills",
        "_limit_end",
        "_max_steps",
        "_message",
        "_message_bytes",
        "_misc",
        "_now_memory",
        "_quit_at_end",
        "_records",
        "_rule",
        "_seeded",
        "_send",
        "_solved",
        "buffers",
        "final",
        "length",
        "press",
        "record",
        "status",
        "total",
    )  # fmt: skip

    action_keys: tuple[int, ...] = actions.TASK_KEYS
    open_questions: tuple[bytes, ...] = actions.OPEN_QUESTIONS

    def __init__(
        self, task: str, engine: b.Engine, max_steps: int, compat: Mapping[str, bool]
    ) -> None:
        # What a step calls and reads is looked up once, here: after an engine's step this code is
        # cold in the caches, and each look-up costs.
        self._engine = engine
        self._ask = engine.done
        self.press = self._send = engine.step
        # A dict, since a negative number would index a tuple from its end.
        self._keys = dict(enumerate(self.action_keys))
        self.buffers = engine.buffers
        self._misc = engine.buffers.misc
        self._message_bytes = engine.buffers.message_memory.tobytes
        self._now_memory = engine.buffers.now.memory
        self._before_memory = engine.buffers.before.memory
        self._rule = self._make_rule(task, compat)
        self._judge = self._rule.judge
        self._always_judge = not self._rule.needs_stairs
        self._max_steps = max_steps
        self._seeded = not compat.get("seed_noop", False)
        self._limit_end = TERMINATED if compat.get("timeout_as_terminal", False) else TRUNCATED
        self._quit_at_end = False
        self.status: tuple[int, ...] = (0,) * 9
        self._clear()

    def _make_rule(self, task: str, compat: Mapping[str, bool]) -> TaskRule:
        return make_rule(TASKS[task], self.buffers, compat)

    def _clear(self) -> None:
        self._records: dict[bytes, list] = {}
        # (dungeon, its level) -> glyphs that the hero had seen there when he left it.
        self._explored: dict[tuple[int, int], int] = {}
        self.final: dict[str, float] | None = None  # the numbers of the game that has ended
        self._solved = False
        self._hallucinated = 0
        self._kills = 0
        self.length = 0
        self.total = 0.0
        self.record: list = [0, None, False, False]
        self._message = b""

    def start(self, seed: int) -> None:
        """Starts the episode of `seed` (unseeded under `seed_noop`) and reads its first message."""
        self.quit_ended()
        core_seed, display_seed = game_seeds(seed) if self._seeded else _unseeded()
        self._engine.start(core_seed, display_seed)
        self._clear()
        self._rule.reset()
        # No step was played yet, so the view before it is the present one.
        self._before_memory[:] = self._now_memory
        self.status = b.read_status(self._now_memory)
        self._look_up(self._message_bytes())[0] = 1

    def dismiss(self, leave_questions: bool = True) -> tuple[bool, bool]:
        """Dismisses prompts until the hero can act; returns (game over, in normal play).

        With `leave_questions`, single-key questions for the agent stay open. The message that the
        hero went down stairs is kept over the prompts that follow it.
        """
        misc = self._misc
        press = self._send
        message = self.buffers.message_memory
        for _ in range(_MAX_PROMPTS):
            if self._ask():
                break
            self._look()
            shown = message.tobytes()
            if misc[2]:  # waits for a space
                press(actions.SPACE)
                if actions.STAIRS_SENTENCE + b"." in shown:
                    message[:] = shown
            elif misc[1]:  # waits for a line
                press(actions.ESCAPE)
            else:
                # It may wait for a single key.
                if misc[0] and not (
                    leave_questions and any(word in shown for word in self.open_questions)
                ):
                    press(actions.ESCAPE)
                break
        else:
            raise EngineError(f"{_MAX_PROMPTS} prompts in a row")
        return self._ask(), bool(self._engine.in_normal_game())

    def _settle(self) -> tuple[bool, bool]:
        return self.dismiss()

    def _look(self) -> None:
        """Called on each screen while prompts are dismissed."""

    def _leave_level(self) -> None:
        before = self.buffers.before
        self._explored[
            before.status[status_line.DUNGEON], before.status[status_line.DUNGEON_LEVEL]
        ] = before.explored()

    def advance(self, action: int) -> tuple[float, int]:
        """Plays one step; returns (reward, end). The next `start` quits a game that is still alive.
        Raises ValueError.
        """
        self._before_memory[:] = self._now_memory
        self.act(action)
        return self.judge()

    def act(self, action: int) -> None:
        """The first half of `advance`: presses the key. The caller keeps the earlier view. Raises
        ValueError as `advance`.
        """
        try:
            key = self._keys[action]
        except KeyError:
            raise ValueError(f"action {action} is not one of 0 .. {len(self._keys) - 1}") from None
        # The newest message asks what to eat: "yes" takes the first thing offered, any other action
        # cancels the question.
        if (answer := self.record[1]) is not None:
            key = answer if action == YES_ACTION else actions.SPACE
        self.press(key)

    def judge(self) -> tuple[float, int]:
        """The second half of `advance`: dismisses prompts and judges the step."""
        # One function: the engine's step evicts this code from the caches, so each call would cost
        # more.
        memory = self._now_memory
        record = self.record
        now = b.read_status(memory)
        is_over = False
        in_play = True
        # The game's end zeroes the clock, so no call to the engine is needed on every step.
        if now[7] or now[8] or not now[3]:
            is_over, in_play = self._settle()
            now = b.read_status(memory)
        before = self.status
        self.status = now
        if now[6] & HALLUCINATION:
            self._hallucinated += 1
        # Another level: the view before the step has what was seen of the one that the hero left.
        if now[5] != before[5] or now[4] != before[4]:
            self._leave_level()

        message = self._message_bytes()
        if message != self._message:
            record = self._look_up(message)
            if record[KILL]:
                self._tells_of_kill()
        elif (
            record[KILL]
            and self.buffers.now.status[status_line.POINTS]
            > self.buffers.before.status[status_line.POINTS]
        ):
            # An equal message is a new one if the hero gained experience from a kill.
            self._tells_of_kill()
        record[0] += 1

        self.length = length = self.length + 1
        is_last_step = length >= self._max_steps
        # Nearly all steps of a staircase task end here without a call of its rule.
        if record[2] or self._always_judge:
            reward, success = self._judge(now, before, record[2], is_last_step, is_over, in_play)
            self.total += reward
        else:
            reward = 0.0
            success = False
        if success or is_last_step or is_over:
            return reward, self._finish(success, is_last_step, is_over)
        return reward, RUNNING

    def _look_up(self, message: bytes) -> list:
        """Makes `message` (256 bytes) the newest; returns its `record`."""
        # What a message says is read once in an episode; each further sight only counts.
        record = self._records.get(message)
        if record is None:
            record = self._describe(message)
            self._records[message] = record
        self._message = message
        self.record = record
        return record

    def _describe(self, message: bytes) -> list:
        """A new `record` of `message` (256 bytes)."""
        return [0, actions.offered_letter(message), *events(message)]

    def _tells_of_kill(self) -> None:
        """Counts a kill, by a new message."""
        self._kills += 1

    def _finish(self, success: bool, limit: bool, over: bool) -> int:
        self._solved = self._solved or success
        # A game that has ended is not truncated, also on the last step allowed.
        if over:
            end = TERMINATED
            reason = END_DEATH
        elif limit:
            end = self._limit_end
            reason = END_LIMIT
        elif success and self._rule.ends:
            end = TERMINATED
            reason = END_SUCCESS
        else:
            return RUNNING
        # A death zeroes the engine's numbers, so the last ones are those before the step.
        self.final = self._numbers(reason, self.buffers.before if over else self.buffers.now)
        self._quit_at_end = not over
        return end

    def quit_ended(self) -> None:
        """Quits a game that still runs after its episode; dropping it would leak memory."""
        if not self._quit_at_end:
            return
        self._quit_at_end = False
        self.dismiss(leave_questions=False)
        for key in actions.QUIT:
            if self._ask():
                return
            self._send(key)
        self.dismiss(leave_questions=False)

    def _numbers(self, end: int, newest: b.View) -> dict[str, float]:
        # As published: depth, gold, level and explored cells are those before the newest step.
        before = self.buffers.before
        status = before.status
        current = (status[status_line.DUNGEON], status[status_line.DUNGEON_LEVEL])
        elsewhere = sum(count for level, count in self._explored.items() if level != current)
        return {
            "return": self.total,
            "length": float(self.length),
            "score": float(newest.status[status_line.SCORE]),
            "dlvl": float(status[status_line.DEPTH]),
            "gold": float(status[status_line.GOLD]),
            "xlvl": float(status[status_line.LEVEL]),
            "scout": float(elsewhere + before.explored()),
            "turns": float(newest.status[status_line.TIME]),
            "success": float(self._solved),
            "end": float(end),
            "hallucination": self._hallucinated / max(self.length, 1),
            "kills": float(self._kills),
        }

    def info(self) -> dict[str, float]:
        return dict(self.final or self._numbers(END_RUNNING, self.buffers.now))

    def close(self) -> None:
        self.press = self._send = _closed
        self._quit_at_end = False
        self._engine.close()


def _closed(key: int) -> None:
    raise RuntimeError("the environment is closed")
