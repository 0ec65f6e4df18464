"""Wraps a gymnasium environment as the environment `gym:ID`; see docs/environments.md.

--config.environment.name=gym:MiniGrid-DoorKey-8x8-v0 --config.environment.text=my_captions:tell
"""

from __future__ import annotations

import collections
import functools
import math
from collections.abc import Iterable, Mapping
from typing import Any

import gymnasium
import numpy as np

from motif_jax.core import config as checks
from motif_jax.core import entry_points
from motif_jax.core.errors import UserError
from motif_jax.core.text_bytes import cut
from motif_jax.envs import spec
from motif_jax.envs.checked import CheckedEnvironment
from motif_jax.envs.gym_task import captions
from motif_jax.envs.gym_task.spaces import UnsupportedSpaceError, leaves, padded
from motif_jax.envs.spec import RUNNING, TERMINATED, TRUNCATED, ArraySpec, EngineError, EnvironmentSpec

PREFIX = "gym:"
TEXT, COUNT, CUT, FRAME = "caption", "caption_count", "captions_cut", "frame"
# Numbers of an episode's row that are not from `info`; a number in `info` with such a name gets the prefix 'info_'.
_OURS = frozenset(
    "return length seed index env episode step end end_reason truncated session session_seconds actions messages "
    f"intrinsic_return intrinsic_return_uncounted player {CUT}".split()
)
_KEY = "environment.name"
_NUMBERS = (bool, int, float, np.bool_, np.integer, np.floating)
_MOST_BYTES = 256  # of a text that a reward reads
_MOST_NUMBERS = 32  # from `info` in an episode's row
# Environments are reset with seeds below this: numpy's old generators take 32 bits, and those of C 31.
SEEDS = 1 << 31
_PROBED = 200  # steps within which a key of `info` has to appear


def make_spec(
    name: str,
    *,
    text: str = "",
    text_bytes: int = _MOST_BYTES,
    modules: str = "",
    max_episode_steps: int | None = None,
    fields: Iterable[str] = (),
) -> EnvironmentSpec:
    """The spec of `GymTask`, from an environment that is made once for it. Raises UserError: it is not supported.

    Args:
        name: 'gym:ID'.
        text, text_bytes: see `captions.make`, and the size of its field.
        modules: modules that register environments, separated by commas.
        max_episode_steps: truncates episodes before the environment's own limit.
        fields: `FRAME` adds the rendered picture.
    """
    return _spec_of(name, text, text_bytes, modules, tuple(fields))


class GymTask:
    """A gymnasium environment with discrete actions; `options` as of `make_spec`."""

    make_spec = staticmethod(make_spec)

    def __init__(self, name: str, **options: Any) -> None:
        self.spec = make_spec(name, **options)
        self._frames = FRAME in self.spec.observation
        self._env = _make(name, options.get("modules", ""), self._frames)
        text, limit = options.get("text"), options.get("max_episode_steps")
        self._caption = captions.make(text) if text else None
        self._text_bytes = options.get("text_bytes", _MOST_BYTES)
        found = leaves(self._env.observation_space, self._text_bytes)
        self._leaves = [leaf for leaf in found if leaf.name in self.spec.observation]
        self.spoke = False  # whether any step had a text, even an empty one
        self._limit = math.inf if limit is None else limit
        self._first_action = int(self._env.action_space.start)  # type: ignore[attr-defined]
        self._forget()

    def _forget(self) -> None:
        self._steps, self._return, self._cut = 0, 0.0, 0
        self._seen = collections.Counter[bytes]()
        self._numbers: dict[str, float] = {}

    def reset(self, seed: int, out: Mapping[str, np.ndarray]) -> None:
        self._forget()
        seed %= SEEDS
        try:
            observation, info = self._env.reset(seed=seed)
        except Exception as error:
            raise EngineError(f"{self._env} fails at its reset with seed {seed}") from error
        self._write(captions.CaptionedStep(observation, info, self._env), out)

    def step(self, action: int, out: Mapping[str, np.ndarray]) -> tuple[float, int]:
        self.spec.check_action(action)
        taken = action + self._first_action
        try:
            observation, reward, terminated, truncated, info = self._env.step(taken)
        except Exception as error:
            raise EngineError(f"{self._env} fails at step {self._steps} with action {taken}") from error
        self._steps += 1
        self._return += float(reward)
        truncated = bool(truncated) or self._steps >= self._limit
        step = captions.CaptionedStep(
            observation, info, self._env, taken, float(reward), bool(terminated), truncated
        )
        self._write(step, out)
        if terminated:
            return float(reward), TERMINATED
        return float(reward), TRUNCATED if truncated else RUNNING

    def episode_info(self) -> dict[str, float]:
        cut = {} if self._caption is None else {CUT: float(self._cut)}
        return {"return": self._return, "length": float(self._steps), **cut, **self._numbers}

    def close(self) -> None:
        self._env.close()

    def _write(self, step: captions.CaptionedStep, out: Mapping[str, np.ndarray]) -> None:
        info = step.info
        for leaf in self._leaves:
            leaf.write(step.observation, out[leaf.name])
        for name, value in {**info, **(info.get("final_info") or {})}.items():
            if isinstance(value, _NUMBERS) and math.isfinite(value):
                known = (measure := _measure(name)) in self._numbers or len(self._numbers) < _MOST_NUMBERS
                self._numbers |= {measure: float(value)} if known else {}
        if self._frames:
            out[FRAME][...] = self._env.render()
        if self._caption is None:
            return
        text = self._caption(step)
        self.spoke |= text is not None
        whole = captions.text_bytes_of(text)
        data = cut(whole, self._text_bytes)
        self._cut += len(data) < len(whole)
        self._seen[data] += 1
        out[TEXT][...] = padded(data, self._text_bytes)
        out[COUNT][...] = self._seen[data]


def _measure(name: str) -> str:
    if name == "is_success":  # its name in robotics environments
        return "success"
    return f"info_{name}" if name in _OURS else name


def _make(name: str, modules: str, frames: bool = False) -> gymnasium.Env:
    for listed in checks.listed(modules):
        entry_points.load_module("environment.modules", listed)
    registered = name.removeprefix(PREFIX)
    module, colon, _ = registered.rpartition(":")
    if colon:  # gymnasium would import it
        entry_points.load_module(_KEY, module)
    try:
        drawing: dict[str, Any] = {"render_mode": "rgb_array"} if frames else {}
        return gymnasium.make(registered, disable_env_checker=True, **drawing)
    except Exception as error:
        said = " ".join(str(error).split()) or type(error).__name__
        unknown = isinstance(error, gymnasium.error.UnregisteredEnv) and not modules
        remedy = "; --config.environment.modules=MODULE names what registers it" if unknown else ""
        raise UserError(f"config.{_KEY}={name}: gymnasium cannot make it ({said}){remedy}") from error


@functools.lru_cache(maxsize=64)
def _spec_of(name: str, text: str, text_bytes: int, modules: str, fields: tuple[str, ...]) -> EnvironmentSpec:
    if not 0 < text_bytes <= _MOST_BYTES:
        raise UserError(f"config.environment.text_bytes={text_bytes}: must be from 1 to {_MOST_BYTES}")
    if unknown := [field for field in fields if field != FRAME]:
        raise UserError(f"config.{_KEY}={name}: it cannot show {', '.join(unknown)}")
    env = _make(name, modules, FRAME in fields)
    try:
        return _described(env, name, text, text_bytes, checks.listed(modules), FRAME in fields)
    finally:
        env.close()


def _described(
    env: gymnasium.Env, name: str, text: str, text_bytes: int, modules: Iterable[str], frames: bool
) -> EnvironmentSpec:
    actions = env.action_space
    if not isinstance(actions, gymnasium.spaces.Discrete):
        raise UserError(
            f"config.{_KEY}={name}: must be an environment with discrete actions, its action space is {actions}"
        )
    try:
        found = list(leaves(env.observation_space, text_bytes))
    except UnsupportedSpaceError as error:
        raise UserError(f"config.{_KEY}={name}: its observation cannot be read: {error}") from None
    names = [leaf.name for leaf in found]
    observation = {leaf.name: leaf.field for leaf in found}
    of_observation = text.startswith(captions.OBSERVATION)
    # The field that serves as the text is not shown twice.
    if of_observation and observation.pop(text.removeprefix(captions.OBSERVATION), None) is None:
        raise UserError(
            f"config.{captions.KEY}={text}: must be one of its fields, which are {', '.join(names)}"
        )
    if clash := {TEXT, COUNT, FRAME} & set(observation):
        raise UserError(f"config.{_KEY}={name}: a field of its observation must not be called {min(clash)}")
    if text:
        captions.make(text)
        observation |= {TEXT: ArraySpec((text_bytes,), "uint8"), COUNT: ArraySpec((), "int32")}
    drawn = "rgb_array" in (env.metadata.get("render_modes") or ())
    pictures = {FRAME: ArraySpec(_frame_shape(env, name) if frames else (), "uint8")} if drawn else {}
    by_function = text and not text.startswith((captions.INFO, captions.OBSERVATION))
    own = [text.partition(":")[0]] if by_function else []
    return EnvironmentSpec(
        observation=observation | (pictures if frames else {}),
        num_actions=int(actions.n),
        text_field=TEXT if text else None,
        count_field=COUNT if text else None,
        observed_text=of_observation,
        image_fields=tuple(leaf.name for leaf in found if leaf.image and leaf.name in observation),
        episode_fields=(CUT,) if text else (),
        family="gymnasium",
        action_names=_action_names(env, int(actions.n)),
        optional_fields=pictures,
        renderer="motif_jax.envs.gym_task.renderer:GymRenderer" if drawn else None,
        modules=("motif_jax.envs.gym_task.environment", *modules, *own),
    )


def _frame_shape(env: gymnasium.Env, name: str) -> tuple[int, ...]:
    try:
        env.reset(seed=0)
        return np.asarray(env.render()).shape
    except Exception as error:
        raise UserError(f"config.{_KEY}={name}: its pictures cannot be drawn ({error})") from error


def _action_names(env: gymnasium.Env, count: int) -> tuple[str, ...]:
    """Names of the actions in minigrid or Atari; () elsewhere."""
    meanings = getattr(env.unwrapped, "get_action_meanings", None)
    listed = getattr(env.unwrapped, "actions", ())
    named = meanings() if meanings else [each.name for each in listed if hasattr(each, "name")]
    return tuple(str(each).lower() for each in named) if len(named) == count else ()


def check(name: str, options: Mapping[str, Any]) -> None:
    """Plays a few steps before a training starts. Raises UserError: it cannot be made or played, or no text appears."""
    task, text = GymTask(name, **options), options.get("text", "")
    environment = CheckedEnvironment(name, task)
    out, draws = spec.empty_observation(task.spec), np.random.default_rng(0)
    try:
        environment.reset(SEEDS - 1, out)
        for _ in range(_PROBED):
            if environment.step(int(draws.integers(task.spec.num_actions)), out)[1]:
                environment.reset(1, out)
            if task.spoke or not text.startswith(captions.INFO):
                return
    except UserError:
        raise
    except Exception as error:
        cause = error.__cause__ or error
        named = f"config.{_KEY}={name}" + (f" with config.{captions.KEY}={text}" if text else "")
        raise UserError(f"{named} cannot be played: {type(cause).__name__}: {cause}") from error
    finally:
        task.close()
    raise UserError(
        f"config.{captions.KEY}={text}: must be a key of info; none of {_PROBED} random steps had it"
    )
