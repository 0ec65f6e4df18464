"""Offers this package's environments to gymnasium, in the namespace `motif_jax/`.

Names without it belong to nle and minigrid: a NetHackScore-v1 there would make gymnasium warn that
nle's v0 is out of date.
"""

from __future__ import annotations

from typing import Any, cast

import gymnasium
import numpy as np

from motif_jax.envs import registry
from motif_jax.envs.spec import TERMINATED, TRUNCATED, EnvironmentSpec, empty_observation

_TEXT, _PICTURE = "ansi", "rgb_array"


class RegisteredEnv(gymnasium.Env):
    """`registry.make(name, **options)` for gymnasium; `info` holds the numbers of `episode_info`.

    `reset(seed=s)` plays the episode of seed s; later resets without a seed draw episode seeds from
    `np_random`. `environment_spec` is that of `registry`. `render_mode` is 'ansi' for games that
    are drawn as text, 'rgb_array' for those with pictures.
    """

    # gymnasium asks for frames a second where it shows pictures in a window.
    metadata = {"render_modes": [_TEXT, _PICTURE], "render_fps": 8}

    def __init__(self, name: str, render_mode: str | None = None, **options: Any) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(
                f"render_mode {render_mode!r} is not one of {self.metadata['render_modes']}"
            )
        self.render_mode = render_mode
        self.environment_spec = registry.spec(name, **options)
        shown = self.environment_spec.observation
        self._fields = tuple(shown)
        self._renderer = None if render_mode is None else registry.renderer(self.environment_spec)
        if self._renderer is not None:
            # Observed by the environment below, but not part of `observation_space`.
            drawn = [field for field in self._renderer.fields if field not in shown]
            options["fields"] = (*options.get("fields", ()), *drawn)
        self._name = name
        self._options = options
        self._environment = registry.make(name, **options)
        self._arrays = empty_observation(self._environment.spec)
        self.observation_space = gymnasium.spaces.Dict(
            {field: _space(array.shape, np.dtype(array.dtype)) for field, array in shown.items()}
        )
        self.action_space = _action_space(self.environment_spec)
        if render_mode is not None:
            self._require_drawing(render_mode)

    def _require_drawing(self, render_mode: str) -> None:
        """Raises ValueError where the first observation of an episode is not drawn like this."""
        modes = []
        if self._renderer is not None:
            # What is drawn is known only from a frame: some renderers give characters, some
            # pictures, some both.
            self._environment.reset(0, self._arrays)
            frame = self._renderer.frame(self._arrays)
            if frame.chars.size:
                modes.append(_TEXT)
            if frame.picture is not None:
                modes.append(_PICTURE)
        if render_mode not in modes:
            self.close()
            raise ValueError(
                f"render_mode {render_mode!r}: {self._name} is drawn as {' and '.join(modes) or 'nothing'}"
            )

    def limit(self, max_episode_steps: int) -> None:
        """Makes the environment again with this step limit."""
        # An environment takes its limit when it is made.
        self._environment.close()
        self._options["max_episode_steps"] = max_episode_steps
        self._environment = registry.make(self._name, **self._options)

    def _observation(self) -> dict[str, np.ndarray]:
        # Copies, since the environment writes its next observation into the same arrays.
        return {name: self._arrays[name].copy() for name in self._fields}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        super().reset(seed=seed, options=options)
        episode_seed = seed if seed is not None else int(self.np_random.integers(2**62))
        self._environment.reset(episode_seed, self._arrays)
        return self._observation(), self._environment.episode_info()

    def step(
        self, action: Any
    ) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, float]]:
        # As Python's numbers: spaces sample numpy's, and `check_action` takes no float32.
        played = np.asarray(action).tolist() if self.environment_spec.action_size else int(action)
        reward, end = self._environment.step(played, self._arrays)
        info = self._environment.episode_info()
        return self._observation(), reward, end == TERMINATED, end == TRUNCATED, info

    def render(self) -> Any:
        """The screen as text, one line per row, or the picture, uint8 [height, width, 3]; None
        without a render mode.
        """
        if self._renderer is None:
            return None
        frame = self._renderer.frame(self._arrays)
        if self.render_mode == _PICTURE:
            return np.array(frame.picture)
        lines = frame.chars
        return "\n".join(bytes(line).replace(b"\0", b" ").decode("latin-1") for line in lines)

    def close(self) -> None:
        self._environment.close()


class StepLimit(gymnasium.Wrapper, gymnasium.utils.RecordConstructorArgs):
    """Passes `max_episode_steps` of `gymnasium.make` to the environment, whose own limit and last
    step have to match it.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self)
        super().__init__(env)
        if env.spec is not None and env.spec.max_episode_steps is not None:
            cast(RegisteredEnv, self.unwrapped).limit(env.spec.max_episode_steps)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Drops the mark `truncated` that TimeLimit sets for a game that also ends on its last
        step.
        """
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, terminated, truncated and not terminated, info


def _action_space(spec: EnvironmentSpec) -> gymnasium.Space:
    if spec.action_size:
        return gymnasium.spaces.Box(-1.0, 1.0, spec.action.shape, np.float32)
    return gymnasium.spaces.Discrete(spec.num_actions)


def _space(shape: tuple[int, ...], dtype: np.dtype) -> gymnasium.spaces.Box:
    if dtype.kind == "f":
        return gymnasium.spaces.Box(-np.inf, np.inf, shape, dtype.type)
    bounds = np.iinfo(dtype)
    return gymnasium.spaces.Box(bounds.min, bounds.max, shape, dtype.type)
