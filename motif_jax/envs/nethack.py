"""The nine NetHack tasks as environments: rules, prompts and observations round the bare engine.

A step copies out only what the policy and the reward read. Everything that costs more than a table look-up is put
off until it is asked for, or done once for each distinct message of an episode.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping

import numpy as np

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
from motif_jax.envs.registry import NETHACK_TASKS
from motif_jax.envs.spec import RUNNING, TERMINATED, TRUNCATED, ArraySpec, EngineError, EnvironmentSpec
from motif_jax.envs.tasks import TASKS, make_rule
from motif_jax.envs.window import WINDOW, Windows
from motif_jax.support.errors import UserError
from motif_jax.support.seeds import derive

MAX_EPISODE_STEPS = 5000
EPISODE_FIELDS = ("score", "dlvl", "gold", "xlvl", "scout", "turns", "success", "end")
# Values of the episode field `end`.
END_LIMIT, END_RUNNING, END_DEATH, END_SUCCESS = -1, 0, 1, 2

SWITCHES = frozenset(
    {
        "sober_mask",
        "oracle_patch_edge",
        "crop_row_offset",
        "seed_noop",
        "message_count_off",
        "timeout_as_terminal",
    }
)

_OBSERVATION = {
    "window_chars": ArraySpec((WINDOW, WINDOW), "uint8"),
    "window_colors": ArraySpec((WINDOW, WINDOW), "uint8"),
    "blstats": ArraySpec((b.NUM_STATUS,), "int32"),
    "message": ArraySpec((b.MESSAGE_LENGTH,), "uint8"),
    "message_count": ArraySpec((), "int32"),
}
_OPTIONAL = {
    "glyphs": ArraySpec(b.MAP_SHAPE, "int16"),
    "tty_chars": ArraySpec(b.SCREEN_SHAPE, "uint8"),
    "tty_colors": ArraySpec(b.SCREEN_SHAPE, "int8"),
}
_YES_ACTION = TASK_KEYS.index(YES)
_MAX_PROMPTS = 10_000


def game_seeds(seed: int) -> tuple[int, int]:
    """The two seeds of the engine (play, display) for an episode's seed."""
    return derive(seed, "core"), derive(seed, "disp")


class NetHackEnvironment:
    """One of the nine tasks. See `motif_jax.envs.spec.Environment` for the calls.

    Observation: `window_chars` and `window_colors` uint8 [12, 12] round the hero (0 outside the screen; a colour of
    16 and more is that colour less 16 in reverse video), `blstats` int32 [27], `message` uint8 [256], `message_count`
    int32: how often exactly these 256 bytes were seen in this episode, this step included.

    After a death the engine's numbers are zero, and so are those of the last observation. The observation of a
    truncated or solved episode is that of the game as it stood, before it is quit.

    `episode_info` has, besides return and length: dlvl, gold, xlvl, scout (glyphs seen, over the levels visited) as
    they were before the newest step, as published; score and turns after it; success (0, 1); end (-1 step limit,
    0 running, 1 the game ended, 2 success).

    Args:
        name: one of `TASKS`.
        fields: additional observation fields of glyphs, tty_chars, tty_colors.
        max_episode_steps: the step on which an episode is cut off.
        compat: published quirks, by switch; those in `SWITCHES` have a meaning here, others are left alone.
            `message_count_off` fixes the count at 1, as published when no intrinsic reward is trained on.
        engine: the game; a new one by default.
    """

    def __init__(
        self,
        name: str,
        *,
        fields: Iterable[str] = (),
        max_episode_steps: int = MAX_EPISODE_STEPS,
        compat: Mapping[str, bool] | None = None,
        engine: b.Engine | None = None,
    ) -> None:
        self.spec = self.make_spec(name, fields=fields, max_episode_steps=max_episode_steps, compat=compat)
        switches = {key: bool(value) for key, value in dict(compat or {}).items() if key in SWITCHES}
        self._seeded = not switches.get("seed_noop", False)
        self._counting = not switches.get("message_count_off", False)
        self._limit_end = TERMINATED if switches.get("timeout_as_terminal", False) else TRUNCATED
        self._max_steps = max_episode_steps
        self._attach(engine if engine is not None else _new_engine())
        self._windows = Windows(self._buffers, switches.get("crop_row_offset", False))
        self._window_cache = self._windows.cache
        self._rule = make_rule(TASKS[name], self._buffers, self._before, switches)
        self._extra = [(field, getattr(self._buffers, field)) for field in fields]
        self._clear_episode()

    @staticmethod
    def make_spec(
        name: str,
        *,
        fields: Iterable[str] = (),
        max_episode_steps: int = MAX_EPISODE_STEPS,
        compat: Mapping[str, bool] | None = None,
    ) -> EnvironmentSpec:
        """The spec for these options, without an engine. Raises UserError for options that are not possible."""
        fields = tuple(fields)
        unknown = set(fields) - set(_OPTIONAL)
        if name not in NETHACK_TASKS:
            raise UserError(f"there is no NetHack task {name!r}; choose one of {', '.join(NETHACK_TASKS)}")
        if unknown:
            raise UserError(f"observation fields {sorted(unknown)} are not among {sorted(_OPTIONAL)}")
        if max_episode_steps < 1:
            raise UserError(f"max_episode_steps={max_episode_steps} must be at least 1")
        return EnvironmentSpec(
            observation=_OBSERVATION | {field: _OPTIONAL[field] for field in fields},
            num_actions=len(TASK_KEYS),
            text_field="message",
            count_field="message_count",
            episode_fields=EPISODE_FIELDS,
        )

    def _attach(self, engine: b.Engine) -> None:
        """Keeps what a step reads as attributes of its own: each look-up saved is 20 to 40 ns a step."""
        self._engine = engine
        self._buffers = engine.buffers
        self._press = engine.step
        self._status = self._buffers.view.status
        self._flags = self._buffers.flags
        self._message = self._buffers.message_memory
        self._now_memory = self._buffers.view.memory
        self._before = b.View.empty()
        self._before_memory = self._before.memory

    def _clear_episode(self) -> None:
        self._seen: dict[bytes, list] = {}
        self._record: list = [0, None, False]
        self._explored: dict[tuple[int, int], int] = {}
        self._length = 0
        self._return = 0.0
        self._solved = False
        self._final: dict[str, float] | None = None

    def reset(self, seed: int, out: Mapping[str, np.ndarray]) -> None:
        """Starts the game of `seed` and writes its first observation into `out`."""
        core, disp = game_seeds(seed) if self._seeded else (secrets.randbits(63), secrets.randbits(63))
        self._engine.start(core, disp)
        self._clear_episode()
        self._rule.reset()
        self._before_memory[:] = self._now_memory
        self._observe(out)

    def step(self, action: int, out: Mapping[str, np.ndarray]) -> tuple[float, int]:
        """Presses the key of `action` and dismisses prompts; returns (task reward, end)."""
        answer = self._record[1]
        if answer is None:
            key = TASK_KEYS[action]
        elif action == _YES_ACTION:
            key = answer
        else:
            key = SPACE
        status = self._status
        flags = self._flags
        self._before_memory[:] = self._now_memory
        self._press(key)
        over, normal = False, True
        # The game's end zeroes the clock, so the engine need not be asked on every step whether it is over.
        if flags[0] or flags[1] or not status[20]:
            over, normal = self._dismiss(True)
        before = self._before.status
        if status[24] != before[24] or status[23] != before[23]:
            self._leave_level()
        record = self._observe(out)
        self._length = length = self._length + 1
        limit = length >= self._max_steps
        reward, success = self._rule(record[2], limit, over, normal)
        self._return += reward
        if success or limit or over:
            return reward, self._finish(success, limit, over)
        return reward, RUNNING

    def _observe(self, out: Mapping[str, np.ndarray]) -> list:
        """Writes the observation; returns what is known of its message: [count, answer to "eat?", descended]."""
        message = self._message.tobytes()
        record = self._seen.get(message)
        if record is None:
            record = self._seen[message] = [0, eat_answer(message), STAIRS_SENTENCE in message]
        record[0] += 1
        self._record = record
        status = self._status
        x, y = status[0], status[1]
        chars, colors, outside = self._window_cache[y * 80 + x] or self._windows.make(x, y)
        out["window_chars"][...] = chars
        out["window_colors"][...] = colors
        if outside is not None:
            out["window_chars"][:, outside] = 0
            out["window_colors"][:, outside] = 0
        out["blstats"][...] = self._buffers.blstats
        out["message"][...] = self._buffers.message
        out["message_count"][...] = record[0] if self._counting else 1
        for field, array in self._extra:
            out[field][...] = array
        return record

    def _dismiss(self, leave_questions: bool) -> tuple[bool, bool]:
        """Gets rid of prompts until the hero can act; returns (game over, in normal play).

        With `leave_questions`, a single-key question that the agent is to answer stays. A message that says that
        the hero went down stairs is kept over the prompts that follow it.
        """
        engine, message = self._engine, self._message
        waits_for_key, waits_for_line, waits_for_space = range(3)
        misc = self._buffers.misc
        for _ in range(_MAX_PROMPTS):
            if engine.done():
                break
            if misc[waits_for_space]:
                shown = message.tobytes()
                engine.step(SPACE)
                if STAIRS_SENTENCE in shown:
                    message[:] = shown
                continue
            if misc[waits_for_line]:
                engine.step(ESCAPE)
                continue
            if misc[waits_for_key]:
                shown = message.tobytes()
                if not (leave_questions and any(word in shown for word in OPEN_QUESTIONS)):
                    engine.step(ESCAPE)
            break
        else:
            raise EngineError(f"{_MAX_PROMPTS} prompts in a row")
        return engine.done(), engine.in_normal_game()

    def _finish(self, success: bool, limit: bool, over: bool) -> int:
        """Ends the episode if it has ended: freezes its numbers and quits a game that is still alive."""
        self._solved = self._solved or success
        if over:
            end, why = TERMINATED, END_DEATH
        elif limit:
            end, why = self._limit_end, END_LIMIT
        elif success and self._rule.ends:
            end, why = TERMINATED, END_SUCCESS
        else:
            return RUNNING
        self._final = self._info(why, self._before if over else self._buffers.view)
        if not over:
            self._quit()
        return end

    def _quit(self) -> None:
        """Leaves the game by its own door: a game that is merely dropped leaks memory."""
        over, _ = self._dismiss(False)
        for key in QUIT:
            if over:
                return
            self._press(key)
            over = self._engine.done()
        self._dismiss(False)

    def _leave_level(self) -> None:
        status = self._before.status
        self._explored[status[b.DUNGEON], status[b.DUNGEON_LEVEL]] = _explored(self._before)

    def _info(self, end: int, newest: b.View) -> dict[str, float]:
        before = self._before.status
        here = (before[b.DUNGEON], before[b.DUNGEON_LEVEL])
        scout = sum(count for level, count in self._explored.items() if level != here) + _explored(
            self._before
        )
        return {
            "return": self._return,
            "length": float(self._length),
            "score": float(newest.status[b.SCORE]),
            "dlvl": float(before[b.DEPTH]),
            "gold": float(before[b.GOLD]),
            "xlvl": float(before[b.LEVEL]),
            "scout": float(scout),
            "turns": float(newest.status[b.TIME]),
            "success": float(self._solved),
            "end": float(end),
        }

    def episode_info(self) -> dict[str, float]:
        """Return, length and `EPISODE_FIELDS` of the episode that runs or has just ended."""
        if self._final is not None:
            return dict(self._final)
        return self._info(END_RUNNING, self._buffers.view)

    def close(self) -> None:
        """Frees the game. Closing twice is allowed."""
        self._press = _closed
        self._engine.close()


def _explored(view: b.View) -> int:
    return int(np.count_nonzero(view.glyphs != b.BLANK_GLYPH))


def _closed(key: int) -> None:
    raise RuntimeError("the environment is closed")


def _new_engine() -> b.Engine:
    # Imported here so that a spec can be had without loading the engine.
    from motif_jax.envs.engine import NetHackEngine

    return NetHackEngine()
