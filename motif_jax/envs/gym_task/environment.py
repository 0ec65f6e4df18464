"""Wraps a gymnasium environment as the environment `gym:ID`; see docs/environments.md.

--config.environment.name=gym:MiniGrid-DoorKey-8x8-v0 --config.environment.text=my_captions:tell
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping
from typing import Any

import gymnasium
import gymnasium.wrappers
import numpy as np

from motif_jax.core import config as checks
from motif_jax.core.errors import UserError
from motif_jax.core.metric_files import FALLEN_SUCCESS, SUCCESS, without_success
from motif_jax.core.text_bytes import cut, padded
from motif_jax.envs import episode, spec
from motif_jax.envs.checked import CheckedEnvironment, unplayable
from motif_jax.envs.config import REWARD_TEXT_BYTES
from motif_jax.envs.gym_task import captions, making
from motif_jax.envs.gym_task.actions import (
    ActionMask,
    action_names,
    make_actions,
)
from motif_jax.envs.gym_task.spaces import MisfitError, leaves
from motif_jax.envs.spec import (
    REST,
    ROW_NAMES,
    RUNNING,
    TERMINATED,
    TRUNCATED,
    ArraySpec,
    EngineError,
    EnvironmentSpec,
)

# Fields of the observation.
TEXT = "caption"
COUNT = "caption_count"
FRAME = "frame"
ACTION_MASK = "action_mask"
# The number of captions of an episode that were too long.
CUT = "captions_cut"
# Numbers of an episode's row that are not from `info`; a number in `info` with such a name gets the
# prefix 'info_'.
_RESERVED = ROW_NAMES | {"return", "length", CUT, FALLEN_SUCCESS}
_LEARNING_WRAPPERS = (gymnasium.wrappers.NormalizeObservation, gymnasium.wrappers.NormalizeReward)
_KEY = "environment.name"
_NUMBERS = (bool, int, float, np.bool_, np.integer, np.floating)
_MAX_NUMBERS = 32  # from `info` in an episode's row
# Environments are reset with seeds below this: numpy's old generators take 32 bits, and those of C
# 31.
SEEDS = 1 << 31
_PROBED_STEPS = 200  # within which a text has to appear


def make_spec(
    name: str,
    *,
    text: str = "",
    text_bytes: int = REWARD_TEXT_BYTES,
    modules: str = "",
    kwargs: Mapping[str, Any] | None = None,
    wrappers: str = "",
    action_mask: str = "",
    max_episode_steps: int | None = None,
    fields: Iterable[str] = (),
) -> EnvironmentSpec:
    """The spec of `GymTask`, from an environment that is made once for it. Raises UserError: it is
    not supported.

    Args:
        name: 'gym:ID'.
        text, text_bytes: see `captions.make`, and the size of its field.
        modules, kwargs, wrappers: see `making.GymMaker`; `kwargs` are what JSON can hold.
        action_mask: see `ActionMask`; '' for none.
        max_episode_steps: truncates episodes before the environment's own limit.
        fields: `FRAME` adds the rendered picture.
    """
    maker = making.maker(name, modules, kwargs, wrappers)
    return _spec_of(maker, _Reading(text, text_bytes, action_mask, tuple(fields)))


class GymTask:
    """A gymnasium environment, whose actions are numbered or real numbers from -1 to 1; `options`
    as of `make_spec`.
    """

    make_spec = staticmethod(make_spec)

    def __init__(self, name: str, **options: Any) -> None:
        self.spec = make_spec(name, **options)
        self._frames = FRAME in self.spec.observation
        maker = making.maker(
            name, options.get("modules", ""), options.get("kwargs"), options.get("wrappers", "")
        )
        self._env = maker.make(self._frames)
        text = options.get("text")
        limit = options.get("max_episode_steps")
        self._caption = captions.make(text) if text else None
        self._text_bytes = options.get("text_bytes", REWARD_TEXT_BYTES)
        all_leaves = list(leaves(self._env.observation_space, self._text_bytes))
        # Fields that serve as the text or as the mask are not observed a second time.
        used = {_field_of(text or ""), _field_of(options.get("action_mask") or "")}
        self._name = name
        used |= {name + REST for name in used}
        self._leaves = [leaf for leaf in all_leaves if leaf.name not in used]
        space = self._env.observation_space
        # A Tuple of too many parts fits leaf by leaf, so that their number is compared, too.
        self._parts = len(space.spaces) if isinstance(space, gymnasium.spaces.Tuple) else None
        self.spoke = False  # whether any step had a text, even an empty one
        self._limit = math.inf if limit is None else limit
        self._actions = make_actions(self._env.action_space)
        mask = options.get("action_mask")
        self._mask = ActionMask(mask, self._actions.count) if mask else None
        self._forget()

    def _forget(self) -> None:
        self._steps = 0
        self._return = 0.0
        self._cut = 0
        self._caption_counts = collections.Counter[bytes]()
        self._numbers: dict[str, float] = {}
        self._success_fell = False

    @property
    def learns(self) -> bool:
        """Whether one of gymnasium's wrappers learns statistics while it plays."""
        wrapper: Any = self._env
        while isinstance(wrapper, gymnasium.Wrapper):
            # Both kinds have this switch; those that stand still are functions.
            if isinstance(wrapper, _LEARNING_WRAPPERS) and wrapper.update_running_mean:
                return True
            wrapper = wrapper.env
        return False

    def reset(self, seed: int, out: Mapping[str, np.ndarray]) -> None:
        self._forget()
        seed %= SEEDS
        try:
            observation, info = self._env.reset(seed=seed)
        except Exception as error:
            raise EngineError(f"{self._env} fails at its reset with seed {seed}") from error
        self._write(captions.CaptionedStep(observation, info, self._env), out)

    def step(self, action: Any, out: Mapping[str, np.ndarray]) -> tuple[float, int]:
        self.spec.check_action(action)
        env_action = self._actions.value(action)
        try:
            observation, reward, terminated, truncated, info = self._env.step(env_action)
        except Exception as error:
            raise EngineError(
                f"{self._env} fails at step {self._steps + 1} with action {env_action}"
            ) from error
        self._steps += 1
        self._return += float(reward)
        # Before the caption is made, which may tell of the end.
        truncated = bool(truncated) or self._steps >= self._limit
        # All that a caption may ask for, also what an agent does not observe.
        step = captions.CaptionedStep(
            observation, info, self._env, env_action, float(reward), bool(terminated), truncated
        )
        self._write(step, out)
        if terminated:
            return float(reward), TERMINATED
        return float(reward), TRUNCATED if truncated else RUNNING

    def episode_info(self) -> dict[str, float]:
        cut = {} if self._caption is None else {CUT: float(self._cut)}
        numbers: Mapping[str, float] = self._numbers
        if self._success_fell:
            numbers = without_success(numbers)
        return {"return": self._return, "length": float(self._steps), **cut, **numbers}

    def close(self) -> None:
        self._env.close()

    def _write(self, step: captions.CaptionedStep, out: Mapping[str, np.ndarray]) -> None:
        self._write_observation(step.observation, out)
        self._keep_numbers(step.info)
        if self._frames:
            self._write_picture(out[FRAME])
        if self._mask is not None:
            out[ACTION_MASK][...] = self._mask.read(step)
        if self._caption is None:
            return
        text = self._caption(step)
        self.spoke |= text is not None
        data = captions.text_bytes_of(text)
        caption = cut(data, self._text_bytes)
        if len(caption) < len(data):
            self._cut += 1
        self._caption_counts[caption] += 1
        out[TEXT][...] = padded(caption, self._text_bytes)
        out[COUNT][...] = self._caption_counts[caption]

    def _write_observation(self, observation: Any, out: Mapping[str, np.ndarray]) -> None:
        """Raises UserError where the observation is not of its space: numpy would repeat, round or
        cut it without a word.
        """
        try:
            for leaf in self._leaves:
                leaf.write(observation, out[leaf.name])
        except MisfitError as error:
            raise self._misfit(str(error)) from None
        if self._parts is not None and len(observation) != self._parts:
            raise self._misfit(f"observation has {len(observation)} parts, its space {self._parts}")

    def _write_picture(self, out: np.ndarray) -> None:
        picture = np.asarray(self._env.render())
        if picture.dtype != out.dtype or picture.shape != out.shape:
            raise self._misfit(
                f"picture is {_described_array(picture)}, its first {_described_array(out)}"
            )
        out[...] = picture

    def _misfit(self, fault: str) -> UserError:
        return UserError(
            f"config.{_KEY}={self._name}: its {fault}, at step {self._steps} of an episode: mend the one or the other"
        )

    def _keep_numbers(self, info: Mapping[str, Any]) -> None:
        """Keeps the newest value of the first numbers of an episode's `info`, for its row."""
        # Environments that reset themselves keep an episode's last numbers in `final_info`, which
        # may be anything else in one that does not.
        final = info.get("final_info")
        last_numbers = final if isinstance(final, Mapping) else {}
        success_before = self._numbers.get(SUCCESS, -math.inf)
        for name, value in {**info, **last_numbers}.items():
            if not isinstance(value, _NUMBERS) or not math.isfinite(value):
                continue
            measure = _measure(str(name))
            # Numbers that came first stay: a row must not grow with every name that `info` may
            # have.
            if measure in self._numbers or len(self._numbers) < _MAX_NUMBERS:
                self._numbers[measure] = float(value)
        # A success stays or ends the episode: this one tells of the last action, perhaps.
        if self._numbers.get(SUCCESS, -math.inf) < success_before:
            self._success_fell = True


def _measure(name: str) -> str:
    """The name in an episode's row of a number of `info`."""
    if name == "is_success":  # its name in robotics environments
        return SUCCESS
    return f"info_{name}" if name in _RESERVED else name


@dataclasses.dataclass(frozen=True)
class _Reading:
    """What is read of an environment's steps; the options of `make_spec`."""

    text: str
    text_bytes: int
    action_mask: str
    fields: tuple[str, ...]


# Kept, since every look at a spec would make an environment.
@functools.lru_cache(maxsize=64)
def _spec_of(maker: making.GymMaker, reading: _Reading) -> EnvironmentSpec:
    size = reading.text_bytes
    checks.require(
        0 < size <= REWARD_TEXT_BYTES,
        "environment.text_bytes",
        size,
        f"from 1 to {REWARD_TEXT_BYTES}",
    )
    if unknown := [field for field in reading.fields if field != FRAME]:
        raise UserError(f"config.{_KEY}={maker.name}: it cannot show {', '.join(unknown)}")
    # A spec needs a real environment, whose spaces are known only when it is made.
    env = maker.make(FRAME in reading.fields)
    try:
        return _described(env, maker, reading)
    finally:
        env.close()


def _described(env: gymnasium.Env, maker: making.GymMaker, reading: _Reading) -> EnvironmentSpec:
    name = maker.name
    text = reading.text
    frames = FRAME in reading.fields
    actions = make_actions(env.action_space)
    space_leaves = list(leaves(env.observation_space, reading.text_bytes))
    observation = {leaf.name: leaf.field for leaf in space_leaves}
    if len(observation) < len(space_leaves):
        listed = ", ".join(sorted(leaf.name for leaf in space_leaves))
        raise UserError(
            f"config.{_KEY}={name}: two fields of its observation have one name, of {listed}"
        )
    # Fields that serve as the text or as the mask are not shown twice.
    text_is_observed = _take(text, observation)
    _take(reading.action_mask, observation)
    if clash := {TEXT, COUNT, FRAME, ACTION_MASK} & set(observation):
        raise UserError(
            f"config.{_KEY}={name}: a field of its observation must not be called {min(clash)}"
        )
    if text:
        # Refuses a source of another form, or a function that is not there.
        captions.make(text)
        observation |= {
            TEXT: ArraySpec((reading.text_bytes,), "uint8"),
            COUNT: ArraySpec((), "int32"),
        }
    if reading.action_mask:
        ActionMask(reading.action_mask, actions.count)
        observation[ACTION_MASK] = ArraySpec((actions.count,), "uint8")

    draws = "rgb_array" in (env.metadata.get("render_modes") or ())
    pictures = {}
    if draws:
        # The shape is known only once a picture was drawn, and only needed if one is observed.
        pictures[FRAME] = ArraySpec(_frame_shape(env) if frames else (), "uint8")
    return EnvironmentSpec(
        observation=observation | (pictures if frames else {}),
        num_actions=actions.count,
        action_size=actions.size,
        text_field=TEXT if text else None,
        count_field=COUNT if text else None,
        observed_text=text_is_observed,
        mask_field=ACTION_MASK if reading.action_mask else None,
        image_fields=tuple(
            leaf.name for leaf in space_leaves if leaf.image and leaf.name in observation
        ),
        episode_fields=(CUT,) if text else (),
        family="gymnasium",
        action_names=action_names(env, actions),
        optional_fields=pictures,
        renderer="motif_jax.envs.gym_task.renderer:GymRenderer" if draws else None,
    )


def _take(source: str, observation: dict[str, ArraySpec]) -> bool:
    """Takes the field that 'obs:FIELD' names out of `observation`; False: `source` names none."""
    name = _field_of(source)
    if name:
        del observation[name]
        observation.pop(name + REST, None)
    return bool(name)


def _field_of(source: str) -> str:
    """The field that 'obs:FIELD' names; '' for any other source of a text or a mask."""
    return (
        source.removeprefix(captions.OBSERVATION) if source.startswith(captions.OBSERVATION) else ""
    )


def _frame_shape(env: gymnasium.Env) -> tuple[int, ...]:
    env.reset(seed=0)
    return np.asarray(env.render()).shape


def _described_array(array: np.ndarray) -> str:
    """Dtype and shape: 'uint8 [4, 4, 3]'; that of None is 'object []'."""
    return f"{array.dtype} {list(array.shape)}"


def check(name: str, options: Mapping[str, Any]) -> None:
    """Plays a few steps before a training starts. Raises UserError: it cannot be made or played, or
    no text appears.
    """
    task = GymTask(name, **options)
    text = options.get("text", "")
    environment = CheckedEnvironment(name, task)
    out = spec.empty_observation(task.spec)
    choose = episode.random_actions(task.spec, seed=0)
    try:
        # The largest seed that is ever given: a generator that takes fewer bits fails here, not in
        # a run.
        environment.reset(SEEDS - 1, out)
        for _ in range(_PROBED_STEPS):
            _, end = environment.step(choose(out), out)
            if end != RUNNING:
                environment.reset(1, out)
            if task.spoke or not text.startswith((captions.INFO, captions.OBSERVATION)):
                return
    except UserError:
        raise
    except Exception as error:
        raise unplayable(
            name, error, f" with config.{captions.KEY}={text}" if text else ""
        ) from error
    finally:
        task.close()
    source = "a key of info" if text.startswith(captions.INFO) else "a part of the observation"
    raise UserError(
        f"config.{captions.KEY}={text}: must be {source}; none of {_PROBED_STEPS} random steps had it"
    )
