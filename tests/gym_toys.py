"""Environments of gymnasium's kind that a user might have, registered by importing this module, and
what they say.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import gymnasium.wrappers
import numpy as np
from gymnasium import spaces


class Vault(gymnasium.Env):
    """A row of cells with a key on the left and a door on the right; nested spaces, and info that
    says what happened.

    Actions 1 left, 2 right, 3 stay. The door opens with the key, which ends the episode and pays 1.
    """

    metadata = {"render_modes": ["rgb_array"]}
    CELLS = 5

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.action_space = spaces.Discrete(3, start=1)
        me = spaces.Dict(
            cell=spaces.Discrete(self.CELLS), speed=spaces.Box(-1.0, 1.0, (2,), np.float64)
        )
        self.observation_space = spaces.Dict(
            clock=spaces.MultiDiscrete([2, 3]),
            me=me,
            sound=spaces.Text(20),
            switches=spaces.MultiBinary(2),
        )

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._cell = int(self.np_random.integers(1, self.CELLS - 1))
        self._key = False
        self._steps = 0
        return self._observation(), {"said": ""}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert action in (1, 2, 3)
        before = self._cell
        self._cell = int(np.clip(before + {1: -1, 2: 1, 3: 0}[int(action)], 0, self.CELLS - 1))
        self._steps += 1
        text = "You stand still." if self._cell == before else ""
        if self._cell == 0 and not self._key:
            self._key = True
            text = "You find a key."
        opened = self._cell == self.CELLS - 1 and self._key
        info = {
            "said": text,
            "is_success": opened,
            "length": 99,
            "steps_with_key": np.int64(self._key),
        }
        return self._observation(), float(opened), opened, False, info

    def render(self) -> np.ndarray:
        picture = np.zeros((20, 20 * self.CELLS, 3), np.uint8)
        picture[:, 20 * self._cell : 20 * (self._cell + 1)] = (
            (255, 200, 0) if self._key else (200, 200, 200)
        )
        return picture

    def _observation(self) -> dict[str, Any]:
        return {
            "me": {"cell": self._cell, "speed": np.array([0.5, -0.5])},
            "switches": np.array([self._key, 0], np.int8),
            "clock": np.array([self._steps % 2, self._steps % 3]),
            "sound": "clink" if self._key else "",
        }


class Chatter(gymnasium.Env):
    """An observation without a field for the text, and a text that is longer than there is room
    for.
    """

    observation_space = spaces.Discrete(2)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return 0, {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return 1, 0.0, False, False, {}


class Mortal(Chatter):
    """Fails at the tenth step of an episode."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self._steps = 0
        return super().reset(seed=seed)

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        if self._steps == 10:
            raise OSError("the engine is gone")
        return super().step(action)


class Gates(gymnasium.Env):
    """A ring of three rooms, in each of which one of three gates is open; a closed one raises."""

    observation_space = spaces.Dict(place=spaces.Discrete(3), gates=spaces.MultiBinary(3))
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self._place = 0
        return self._shown()

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if action != self._place:
            raise ValueError(f"gate {action} is closed in room {self._place}")
        self._place = (self._place + 1) % 3
        observation, info = self._shown()
        return observation, 1.0, False, False, info

    def _shown(self) -> tuple[Any, dict[str, Any]]:
        gates = np.arange(3) == self._place
        return {"place": self._place, "gates": gates.astype(np.int8)}, {"allowed": gates}


class Ice(Chatter):
    """The spaces of FrozenLake, whose arguments it does not take."""

    observation_space = spaces.Discrete(16)
    action_space = spaces.Discrete(4)


class Masked(Chatter):
    """An observation whose field is called as that of a mask."""

    observation_space = spaces.Dict(action_mask=spaces.MultiBinary(2))


class Aim(gymnasium.Env):
    """Two numbers are to be guessed from a picture of them; each step pays minus the distance. Ends
    after 10 steps.
    """

    metadata = {"render_modes": ["rgb_array"]}

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.action_space = spaces.Box(np.array([-2, 0], np.float32), np.array([2, 10], np.float32))
        self.observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: Any = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        self._draw()
        return self._mark, {"event": "A mark appears."}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        aimed = np.array([action[0] / 2, action[1] / 5 - 1])
        distance = float(np.abs(aimed - self._mark).mean())
        self._steps += 1
        self._draw()
        event = "You hit it." if distance < 0.1 else ""
        return self._mark, -distance, self._steps == 10, False, {"event": event}

    def render(self) -> np.ndarray:
        picture = np.zeros((20, 20, 3), np.uint8)
        row, column = np.round(9.5 + 9 * self._mark).astype(int)
        picture[row, column] = 255
        return picture

    def _draw(self) -> None:
        self._mark = self.np_random.uniform(-0.8, 0.8, 2).astype(np.float32)


class Lamp(gymnasium.Env):
    """Four steps, each with a lamp that is on or off; `success` is whether the last action was the
    lamp's. Nothing is ever won.
    """

    observation_space = spaces.Discrete(2)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        self._lamp = int(self.np_random.integers(2))
        return self._lamp, {"success": False}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        is_right = bool(action == self._lamp)
        self._steps += 1
        self._lamp = int(self.np_random.integers(2))
        return self._lamp, 0.0, self._steps == 4, False, {"success": is_right}


class Bell(gymnasium.Env):
    """A game of nine steps whose fifth rings, and is won at its end; with `drift` it draws what is
    observed from no seed, and is won for a moment at the third, too.
    """

    observation_space = spaces.Box(0.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(4)

    def __init__(self, drift: bool = False) -> None:
        self._drift = drift

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._observation(), {"said": ""}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        is_won = self._steps == 9
        info = {
            "said": "The bell rings." if self._steps == 5 else "",
            "is_success": is_won or (self._drift and self._steps == 3),
            "length": 7,
        }
        return self._observation(), float(is_won), is_won, False, info

    def _observation(self) -> np.ndarray:
        rng = np.random.default_rng() if self._drift else self.np_random
        return rng.random(2, np.float32)


for _kind in (Vault, Chatter, Mortal, Gates, Ice, Masked, Aim, Lamp, Bell):
    gymnasium.register(f"Toy{_kind.__name__}-v0", entry_point=_kind, max_episode_steps=30)


class Doubled(gymnasium.RewardWrapper):
    """Pays twice as much."""

    def reward(self, reward: Any) -> float:
        return 2 * float(reward)


class Lowered(gymnasium.RewardWrapper):
    """Pays 1 less."""

    def reward(self, reward: Any) -> float:
        return float(reward) - 1


class Centred(gymnasium.ObservationWrapper):
    """Subtracts the mean of all observations so far."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self._count = 0
        self._mean = 0.0

    def observation(self, observation: Any) -> Any:
        self._count += 1
        self._mean += (observation - self._mean) / self._count
        return (observation - self._mean).astype(np.float32)


def standing_still(environment: gymnasium.Env) -> gymnasium.Env:
    """Statistics of observations that no longer change."""
    wrapped = gymnasium.wrappers.NormalizeObservation(environment)
    wrapped.update_running_mean = False
    return wrapped


def two_observations(environment: gymnasium.Env) -> gymnasium.Env:
    """Shows the last observation and the one before it."""
    return gymnasium.wrappers.FrameStackObservation(environment, 2)


def praise(
    observation: Any, info: dict[str, Any], environment: gymnasium.Env, action: int | None
) -> str:
    """The text of a step: what was done, in letters that ASCII has not."""
    wrapped = environment.unwrapped is not environment
    return "" if action is None else f"action {action} " + "é" * 20 * wrapped


class Counting:
    """A text that remembers: how many steps there were."""

    def __call__(
        self, observation: Any, info: dict[str, Any], environment: Any, action: int | None
    ) -> str:
        self._steps = 0 if action is None else self._steps + 1
        return f"step {self._steps}"


def by_name(reward: float, terminated: bool, truncated: bool, action: int | None) -> str:
    """Takes what it needs by name."""
    return f"{action} {reward} {terminated} {truncated}"


def in_order(obs: Any, details: dict[str, Any], env: gymnasium.Env, act: int | None) -> str:
    """The older form, with names of its own."""
    return f"{obs} {len(details)} {type(env.unwrapped).__name__} {act}"


def of_any(**step: Any) -> str:
    """Takes all there is."""
    return " ".join(sorted(step))
