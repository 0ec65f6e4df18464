"""A game of given frames, for tests of the rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from motif_jax.envs.nethack.buffers import Buffers
from motif_jax.envs.nethack.environment import NetHackEnvironment
from motif_jax.envs.nethack.observation import EXTENDED_SWITCHES
from motif_jax.envs.spec import RUNNING, empty_observation

BLANK = 2359
_STATUS = {
    "x": 0, "y": 1, "score": 9, "depth": 12, "gold": 13, "xlvl": 18, "points": 19, "time": 20, "dnum": 23, "dlevel": 24, "cond": 25
}  # fmt: skip
FRAME: dict[str, Any] = {
    "msg": "", "x": 10, "y": 10, "score": 0, "depth": 1, "gold": 0, "xlvl": 1, "points": 0, "time": 1, "dlevel": 1, "cond": 0,
    "dnum": 0, "more": 0, "yn": 0, "getlin": 0, "over": 0, "done": 0, "glyphs": [], "ingame": 1,
}  # fmt: skip


class FakeEngine:
    """Shows `first`, then one frame of `frames` for each key; stays at the last one."""

    def __init__(self, first: Mapping[str, Any], frames: Sequence[Mapping[str, Any]] = ()) -> None:
        self.buffers = Buffers()
        self.keys = list[int]()
        self.first = first
        self.frames = list(frames)
        self._show(first)

    def _show(self, frame: Mapping[str, Any]) -> None:
        frame = FRAME | dict(frame)
        self._frame = frame
        buffers = self.buffers
        for name, index in _STATUS.items():
            buffers.blstats[index] = frame[name]
        buffers.misc[0] = frame["yn"]
        buffers.misc[1] = frame["getlin"]
        buffers.misc[2] = frame["more"]
        buffers.message[:] = list(frame["msg"].encode("latin-1").ljust(256, b"\0"))
        buffers.glyphs[:] = BLANK
        for row, column, glyph in frame["glyphs"]:
            buffers.glyphs[row, column] = glyph

    def start(self, core: int, disp: int) -> None:
        self._show(self.first)

    def step(self, key: int) -> None:
        self.keys.append(key)
        if self.frames:
            self._show(self.frames.pop(0))

    def done(self) -> bool:
        return bool(self._frame["done"])

    def in_normal_game(self) -> bool:
        return bool(self._frame["ingame"])

    def close(self) -> None:
        pass


def started_on(engine, name="NetHackScore-v1", **options):
    """An environment at the start of an episode, and what it shows."""
    env = NetHackEnvironment(name, engine=engine, **options)
    out = empty_observation(env.spec)
    env.reset(0, out)
    return env, out


def play(env_name, prev, steps, *, start_steps=0, compat=None, max_steps=5000, after=None):
    """Plays (action, frames) on a fake engine; a list of (reward, end, keys, message, info), one a
    step.
    """
    engine = FakeEngine(prev)
    env, out = started_on(
        engine, env_name, max_episode_steps=max_steps - start_steps, compat=compat
    )
    results = []
    for action, frames in steps:
        engine.frames = list(frames)
        engine.keys.clear()
        reward, end = env.step(action, out)
        message = out["message"].tobytes().rstrip(b"\0").decode("latin-1")
        results.append((reward, end, list(engine.keys), message, env.episode_info()))
        if after:
            after(env.game)
        env.game.final = None  # one published case continues after an end
    return results


def check_published(case, fields=("dlvl", "gold", "xlvl", "scout")):
    """Plays a golden case with all switches on; `fields` of the episode are compared besides."""
    steps = [(step["action_index"], step["frames"]) for step in case["steps"]]
    compat = dict.fromkeys(EXTENDED_SWITCHES, True)
    results = play(case["env"], case["prev"], steps, start_steps=case["start_steps"], compat=compat)
    for (reward, end, keys, message, info), expected in zip(results, case["result"], strict=True):
        assert reward == pytest.approx(expected["reward"], abs=1e-12)
        assert (end != RUNNING) == expected["done"]
        assert info["end"] == expected["end_status"]
        assert keys == expected["keys_sent"]
        assert message == expected["message"]
        assert {name: info[name] for name in fields} == {name: expected[name] for name in fields}
