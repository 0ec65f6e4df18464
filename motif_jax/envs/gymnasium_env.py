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


class RegisteredEnv(gymnasium.Env):
    """`registry.make(name, **options)` for gymnasium; `info` holds the numbers of `episode_info`.

    `reset(seed=s)` plays the episode of seed s; later resets without a seed draw episode seeds from
    `np_random`. `shown` is the spec of its observations.
    """

    metadata = {"render_modes": ["ansi"]}

    def __init__(self, name: str, render_mode: str | None = None, **options: Any) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(
                f"render_mode {render_mode!r} is not one of {self.metadata['render_modes']}"
            )
        self.render_mode = render_mode
        self.shown = shown = registry.spec(name, **options)
        self._fields = tuple(shown.observation)
        self._renderer = None if render_mode is None else registry.renderer(shown)
        if self._renderer is not None:
            # Observed by the environment below, but not part of `observation_space`.
            drawn = [field for field in self._renderer.fields if field not in shown.observation]
            options["fields"] = (*options.get("fields", ()), *drawn)
        self._name = name
        self._options = options
        self._environment = registry.make(name, **options)
        self._arrays = empty_observation(self._environment.spec)
        self.observation_space = gymnasium.spaces.Dict(
            {
                field: _space(array.shape, np.dtype(array.dtype))
                for field, array in shown.observation.items()
            }
        )
        self.action_space = _action_space(shown)

    def limit(self, max_episode_steps: int) -> None:
        """Makes the environment again with this step limit."""
        self._environment.close()
        self._options["max_episode_steps"] = max_episode_steps
        self._environment = registry.make(self._name, **self._options)

    def _observation(self) -> dict[str, np.ndarray]:
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
        played = np.asarray(action).tolist() if self.shown.action_size else int(action)
        reward, end = self._environment.step(played, self._arrays)
        info = self._environment.episode_info()
        return self._observation(), reward, end == TERMINATED, end == TRUNCATED, info

    def render(self) -> Any:
        """The screen as text, one line per row; None without a render mode or a renderer."""
        if self._renderer is None:
            return None
        lines = self._renderer.frame(self._arrays).chars
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
