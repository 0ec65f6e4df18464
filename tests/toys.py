"""Parts from outside the package: an environment of token rows with a mask and a picture, and
policies.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from motif_jax.envs.nethack.actions import TASK_KEYS
from motif_jax.envs.spec import RUNNING, TERMINATED, TRUNCATED, ArraySpec, EnvironmentSpec, Frame

LENGTH = 6
ACTIONS = 5


class Corridor:
    """A corridor of cells, the goal at one end. A state has the actions 'left', 'right' where there
    is a cell, and 'wait'; 'jump' and 'fly' it never has, and takes them for an error.
    """

    def __init__(self, name: str, max_episode_steps: int = 30) -> None:
        self.spec = self.make_spec(name, max_episode_steps)
        self._limit = max_episode_steps
        self._at = self._steps = 0

    @staticmethod
    def make_spec(name: str, max_episode_steps: int = 30) -> EnvironmentSpec:
        return EnvironmentSpec(
            observation={
                "tokens": ArraySpec((LENGTH,), "int32"),
                "possible": ArraySpec((ACTIONS,), "uint8"),
            },
            num_actions=ACTIONS,
            mask_field="possible",
            episode_fields=("success",),
            family="corridor",
            action_names=("left", "right", "wait", "jump", "fly"),
            renderer="tests.toys:CorridorRenderer",
        )

    def reset(self, seed: int, out: Mapping[str, np.ndarray]) -> None:
        self._at = seed % (LENGTH - 1)
        self._steps = 0
        self._write(out)

    def step(self, action: int, out: Mapping[str, np.ndarray]) -> tuple[float, int]:
        if not self._possible()[action]:
            raise ValueError(f"{self.spec.action_names[action]} is not possible in cell {self._at}")
        self._at += {0: -1, 1: 1}.get(action, 0)
        self._steps += 1
        self._write(out)
        if self._at == LENGTH - 1:
            return 1.0, TERMINATED
        return 0.0, TRUNCATED if self._steps >= self._limit else RUNNING

    def episode_info(self) -> dict[str, float]:
        success = float(self._at == LENGTH - 1)
        return {"return": success, "length": float(self._steps), "success": success}

    def close(self) -> None:
        pass

    def _possible(self) -> list[bool]:
        return [self._at > 0, self._at < LENGTH - 1, True, False, False]

    def _write(self, out: Mapping[str, np.ndarray]) -> None:
        out["tokens"][...] = 100
        out["tokens"][self._at] = 101
        out["possible"][...] = self._possible()


class CorridorRenderer:
    """Draws the corridor as one line."""

    fields = ("tokens",)

    def __init__(self, spec: EnvironmentSpec) -> None:
        assert spec.family == "corridor"

    def frame(self, observation: Mapping[str, np.ndarray]) -> Frame:
        at = int(observation["tokens"].argmax())
        line = np.full(LENGTH, ord("."), np.uint8)
        line[at] = ord("@")
        line[-1] = ord("$")
        return Frame(line[None], np.full((1, LENGTH), 7, np.uint8), (0, at), {"cell": at})


class HorizonCorridor(Corridor):
    """Shows one cell more for every step that there is at most."""

    @staticmethod
    def make_spec(name: str, max_episode_steps: int = 30) -> EnvironmentSpec:
        spec = Corridor.make_spec(name)
        return dataclasses.replace(
            spec, observation={"tokens": ArraySpec((max_episode_steps,), "int32")}, mask_field=None
        )


class OtherHorizonCorridor(HorizonCorridor):
    """Of the same kind."""


class Talker:
    """Shows what a pairs dataset holds, has as many actions as the random players, and takes the
    step limit alone.
    """

    def __init__(self, name: str, max_episode_steps: int = 30) -> None:
        self.spec = self.make_spec(name)
        self._limit = max_episode_steps
        self._state = self._steps = 0

    @staticmethod
    def make_spec(name: str, max_episode_steps: int = 30) -> EnvironmentSpec:
        shown = {"message": ArraySpec((256,), "uint8"), "blstats": ArraySpec((27,), "int32")}
        return EnvironmentSpec(shown, len(TASK_KEYS), text_field="message")

    def reset(self, seed: int, out: Mapping[str, np.ndarray]) -> None:
        self._state = seed % 97
        self._steps = 0
        self._write(out)

    def step(self, action: int, out: Mapping[str, np.ndarray]) -> tuple[float, int]:
        self._state = (self._state + action) % 97
        self._steps = self._steps + 1
        self._write(out)
        return 0.0, TRUNCATED if self._steps >= self._limit else RUNNING

    def episode_info(self) -> dict[str, float]:
        return {"return": 0.0, "length": float(self._steps)}

    def close(self) -> None:
        pass

    def _write(self, out: Mapping[str, np.ndarray]) -> None:
        text = f"number {self._state}".encode().ljust(256, b"\0")
        out["message"][...] = list(text)
        out["blstats"][...] = self._state


class Brief(Talker):
    """Ends after two steps, but for every fifth seed."""

    def reset(self, seed: int, out: Mapping[str, np.ndarray]) -> None:
        super().reset(seed, out)
        self._end = self._limit if seed % 5 == 0 else 2

    def step(self, action: int, out: Mapping[str, np.ndarray]) -> tuple[float, int]:
        reward, end = super().step(action, out)
        return reward, TERMINATED if self._steps >= self._end else end


class Silent(Talker):
    """Says nothing."""

    def _write(self, out: Mapping[str, np.ndarray]) -> None:
        for array in out.values():
            array[...] = 0


class NoPolicy:
    """No policy."""

    def __init__(self, spec: EnvironmentSpec) -> None:
        pass


class Stubborn(NoPolicy):
    """A bot: takes the second action, whatever it sees."""

    in_workers = True

    def player(self, seed: int, spec: EnvironmentSpec):
        return lambda observation: 1

    def probabilities(self, observation, spec) -> None:
        return None


class Flyer:
    """A policy on the device that would fly, had it wings: what there is not is left out by whoever
    draws.
    """

    in_workers = False

    def __init__(self, spec: EnvironmentSpec) -> None:
        self._logits = np.array([0.0, 2.0, 0.0, 9.0, 99.0], np.float32)

    def initial_state(self, batch_size: int) -> None:
        return None

    def act(self, observation, first, state):
        return np.tile(self._logits, (len(first), 1)), None, state
