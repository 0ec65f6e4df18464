"""The tasks as gymnasium environments, in a namespace of their own.

    import gymnasium
    env = gymnasium.make("motif_jax.envs.gymnasium_env:motif_jax/NetHackScore-v1")

The names without a namespace belong to nle: its own NetHackScore-v0 is another environment, and a NetHackScore-v1 beside
it would make gymnasium call that one out of date. After `register()` (or an import of this module) plain
`gymnasium.make("motif_jax/NetHackScore-v1")` works too.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from motif_jax.envs import registry
from motif_jax.envs.nethack.tasks import TASKS
from motif_jax.envs.spec import TERMINATED, TRUNCATED, empty_observation

NAMESPACE = "motif_jax"


class NetHackEnv(gymnasium.Env):
    """A gymnasium environment round `registry.make(task, **options)`; options as there.

    `reset(seed=s)` plays the episode of seed s; later resets without a seed draw episode seeds from `np_random`, so that
    one seed determines all episodes that follow. `info` has the numbers of `episode_info`. Rendering "ansi" gives the
    screen as text.
    """

    metadata = {"render_modes": ["ansi"]}

    def __init__(self, task: str, render_mode: str | None = None, **options: Any) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"render_mode {render_mode!r} is not one of {self.metadata['render_modes']}")
        self.render_mode = render_mode
        fields = tuple(options.pop("fields", ()))
        drawn = fields if render_mode is None or "tty_chars" in fields else (*fields, "tty_chars")
        self._environment = registry.make(task, fields=drawn, **options)
        self._arrays = empty_observation(self._environment.spec)
        shown = registry.spec(task, fields=fields, **options).observation
        self._shown = tuple(shown)
        self.observation_space = gymnasium.spaces.Dict(
            {name: _space(field.shape, np.dtype(field.dtype)) for name, field in shown.items()}
        )
        self.action_space = gymnasium.spaces.Discrete(self._environment.spec.num_actions)

    def _observation(self) -> dict[str, np.ndarray]:
        return {name: self._arrays[name].copy() for name in self._shown}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        """Starts an episode; returns (observation, info)."""
        super().reset(seed=seed, options=options)
        episode_seed = seed if seed is not None else int(self.np_random.integers(2**62))
        self._environment.reset(episode_seed, self._arrays)
        return self._observation(), self._environment.episode_info()

    def step(self, action: Any) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, float]]:
        """Plays one action; returns (observation, reward, terminated, truncated, info)."""
        reward, end = self._environment.step(int(action), self._arrays)
        info = self._environment.episode_info()
        return self._observation(), reward, end == TERMINATED, end == TRUNCATED, info

    def render(self) -> Any:
        """The screen as 24 lines of text in mode "ansi"."""
        if self.render_mode is None:
            return None
        lines = self._arrays["tty_chars"]
        return "\n".join(bytes(line).replace(b"\0", b" ").decode("latin-1") for line in lines)

    def close(self) -> None:
        """Frees the engine."""
        self._environment.close()


def _space(shape: tuple[int, ...], dtype: np.dtype) -> gymnasium.spaces.Box:
    bounds = np.iinfo(dtype)
    return gymnasium.spaces.Box(bounds.min, bounds.max, shape, dtype.type)


def register() -> None:
    """Makes the nine tasks known to gymnasium; calling it again changes nothing."""
    for task in TASKS:
        name = f"{NAMESPACE}/{task}"
        if name not in gymnasium.registry:
            entry_point = f"{__name__}:{NetHackEnv.__name__}"
            gymnasium.register(name, entry_point=entry_point, kwargs={"task": task}, order_enforce=False)


register()
