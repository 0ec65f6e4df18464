"""A group of environments that is stepped together and writes its rows straight into trajectory slots."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from motif_jax.actors.slots import Slots
from motif_jax.envs.spec import TERMINATED, TRUNCATED, Environment
from motif_jax.support import seeds

# Given for every finished episode: its numbers, and which env, episode and seed it was.
EpisodeSink = Callable[[dict[str, float]], None]


def episode_seed(seed: int, env: int, episode: int) -> int:
    """The seed of the `episode`-th game of environment `env` in a run with `seed`."""
    return seeds.derive(seed, "episode", env, episode)


class EnvGroup:
    """Steps environments with the actions of a row and writes the next row.

    An episode's final observation gets a row of its own, marked `last`; the action there is ignored and the row
    after it is the `first` of the next episode (next-step autoreset). With `same_step_autoreset` there are no such
    rows: the row after the end is the next episode's first, and a truncation counts as a termination.

    Args:
      environments: one per column.
      slots: where rows are written; `slots.next_episode[group]` says which episodes come first.
      group: number of this group among those of the slots.
      first_env: number of the first column's environment in the whole run.
      seed: seed of the run.
      on_episode: called with the numbers of every episode that ends.
      same_step_autoreset: see above.
    """

    def __init__(
        self,
        environments: Sequence[Environment],
        slots: Slots,
        group: int,
        first_env: int,
        seed: int,
        on_episode: EpisodeSink,
        same_step_autoreset: bool = False,
    ) -> None:
        self._environments = list(environments)
        self._slots = slots
        self._envs = range(first_env, first_env + len(self._environments))
        self._next_episode = slots.next_episode[group]
        self._episode = [-1] * len(self._environments)
        self._seed = seed
        self._on_episode = on_episode
        self._same_step = same_step_autoreset
        self._ended = [False] * len(self._environments)
        self._partial = [False] * len(self._environments)
        self._views: dict[tuple[int, int], list[dict[str, np.ndarray]]] = {}

    def _out(self, slot: int, row: int) -> list[dict[str, np.ndarray]]:
        # Making the views costs as much as a few steps of a game; a group comes back to the same rows.
        views = self._views.get((slot, row))
        if views is None:
            views = self._views[slot, row] = self._slots.row_views(slot, row)
        return views

    def reset(self, slot: int, warmup_steps: int = 0) -> None:
        """Starts an episode everywhere and writes row 0 of `slot`.

        Args:
          slot: the slot.
          warmup_steps: when positive, every environment first plays a random number of random actions up to
            this one, so that the episodes of the group do not run in step. An episode that began there is not
            reported.
        """
        out = self._out(slot, 0)
        for column in range(len(self._environments)):
            self._begin(column, out[column])
            if warmup_steps > 0:
                self._warm_up(column, warmup_steps, out[column])
        self._slots.first[slot, 0] = 1
        self._slots.last[slot, 0] = 0
        self._slots.episode[slot, 0] = self._episode

    def step(self, slot: int, row: int) -> None:
        """Plays the actions at `row` and writes row `row` + 1."""
        slots = self._slots
        actions = slots.action[slot, row].tolist()
        out = self._out(slot, row + 1)
        count = len(actions)
        rewards, first, last = [0.0] * count, [0] * count, [0] * count
        terminated, truncated = [0] * count, [0] * count
        for column, environment in enumerate(self._environments):
            if self._ended[column]:
                self._begin(column, out[column])
                first[column] = 1
                continue
            rewards[column], end = environment.step(actions[column], out[column])
            if end:
                self._report(column, environment.episode_info(), end)
                if self._same_step:
                    terminated[column] = 1
                    self._begin(column, out[column])
                    first[column] = 1
                else:
                    terminated[column], truncated[column] = int(end == TERMINATED), int(end == TRUNCATED)
                    last[column] = 1
                    self._ended[column] = True
        slots.reward[slot, row] = rewards
        slots.terminated[slot, row] = terminated
        slots.truncated[slot, row] = truncated
        slots.first[slot, row + 1] = first
        slots.last[slot, row + 1] = last
        slots.episode[slot, row + 1] = self._episode

    def close(self) -> None:
        """Closes the environments."""
        for environment in self._environments:
            environment.close()

    def _begin(self, column: int, out: Mapping[str, np.ndarray]) -> None:
        episode = int(self._next_episode[column])
        self._episode[column] = episode
        self._next_episode[column] = episode + 1
        self._ended[column] = False
        self._partial[column] = False
        seed = episode_seed(self._seed, self._envs[column], episode)
        self._environments[column].reset(seed, out)

    def _warm_up(self, column: int, limit: int, out: Mapping[str, np.ndarray]) -> None:
        environment = self._environments[column]
        rng = seeds.rng(self._seed, "warmup", self._envs[column])
        for _ in range(int(rng.integers(0, limit + 1))):
            _, end = environment.step(int(rng.integers(environment.spec.num_actions)), out)
            self._partial[column] = True
            if end:
                self._begin(column, out)

    def _report(self, column: int, info: Mapping[str, float], end: int) -> None:
        if self._partial[column]:
            return
        env, episode = self._envs[column], self._episode[column]
        record: dict[str, Any] = {
            "env": env,
            "episode": episode,
            "seed": episode_seed(self._seed, env, episode),
        }
        record |= {name: float(value) for name, value in info.items()}
        record.setdefault("truncated", float(end == TRUNCATED))
        self._on_episode(record)


def start_delay(seed: int, worker: int, seconds: float) -> None:
    """Sleeps a time drawn for `worker` from [0, `seconds`), so that workers do not run in step."""
    if seconds > 0:
        time.sleep(float(seeds.rng(seed, "delay", worker).uniform(0.0, seconds)))
