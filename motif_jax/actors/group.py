"""A group of environments that is stepped together and writes its rows straight into trajectory slots."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from motif_jax.actors.slots import Slots
from motif_jax.envs import spec
from motif_jax.envs.spec import TERMINATED, TRUNCATED, EnvironmentGroup
from motif_jax.support import seeds

# Given for every finished episode: its numbers, and which env, episode and seed it was.
EpisodeSink = Callable[[dict[str, float]], None]


def episode_seed(seed: int, env: int, episode: int) -> int:
    """The seed of the `episode`-th game of environment `env` in a run with `seed`."""
    return seeds.derive(seed, "episode", env, episode)


class _Views(NamedTuple):
    """What a step writes: the row of the observation, and the row before it of the action's consequences."""

    observation: spec.Row
    first: np.ndarray
    last: np.ndarray
    episode: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    action: np.ndarray


class SlotGroup:
    """Plays a group of environments with the actions of a row and writes the next row.

    An episode's final observation gets a row of its own, marked `last`; the action there is ignored and the row
    after it is the `first` of the next episode (next-step autoreset). With `same_step_autoreset` there are no such
    rows: the row after the end is the next episode's first, and a truncation counts as a termination.

    Args:
      environments: the group.
      slots: where rows are written; `slots.next_episode[group]` says which episodes come first.
      group: number of this group among those of the slots.
      first_env: number of the first column's environment in the whole run.
      seed: seed of the run.
      on_episode: called with the numbers of every episode that ends.
      same_step_autoreset: see above.
    """

    def __init__(
        self,
        environments: EnvironmentGroup,
        slots: Slots,
        group: int,
        first_env: int,
        seed: int,
        on_episode: EpisodeSink,
        same_step_autoreset: bool = False,
    ) -> None:
        self._environments = environments
        self._slots = slots
        self._columns = range(environments.count)
        self._envs = range(first_env, first_env + environments.count)
        self._next_episode = slots.next_episode[group]
        self._episode = np.full(environments.count, -1, np.int32)
        self._seed = seed
        self._on_episode = on_episode
        self._same_step = same_step_autoreset
        self._ended: list[int] = []
        self._partial = [False] * environments.count
        self._views: dict[tuple[int, int], _Views] = {}

    def _at(self, slot: int, row: int) -> _Views:
        # Making the views costs as much as a few steps of a game; a group comes back to the same rows.
        views = self._views.get((slot, row))
        if views is None:
            slots, before = self._slots, max(row - 1, 0)
            views = self._views[slot, row] = _Views(
                spec.row(slots.observation, slot, row),
                first=slots.first[slot, row],
                last=slots.last[slot, row],
                episode=slots.episode[slot, row],
                reward=slots.reward[slot, before],
                terminated=slots.terminated[slot, before],
                truncated=slots.truncated[slot, before],
                action=slots.action[slot, before],
            )
        return views

    def reset(self, slot: int, warmup_steps: int = 0) -> None:
        """Starts an episode everywhere and writes row 0 of `slot`.

        Args:
          slot: the slot.
          warmup_steps: when positive, every environment first plays a random number of random actions up to
            this one, so that the episodes of the group do not run in step. An episode that began there is not
            reported.
        """
        for column in self._columns:
            self._begin(column)
        if warmup_steps > 0:
            self._warm_up(warmup_steps)
        views = self._at(slot, 0)
        self._environments.observe(views.observation)
        views.first.fill(1)
        views.last.fill(0)
        views.episode[:] = self._episode
        self._ended = []

    def step(self, slot: int, row: int) -> None:
        """Plays the actions at `row` and writes row `row` + 1."""
        views = self._at(slot, row + 1)
        actions = views.action.tolist()
        views.first.fill(0)
        views.last.fill(0)
        views.terminated.fill(0)
        views.truncated.fill(0)
        columns: Any = self._columns
        if self._ended:
            started, self._ended = self._ended, []
            for column in started:
                self._begin(column)
            views.first[started] = 1
            columns = [column for column in columns if column not in started]
        rewards, ends = self._environments.step(actions, columns)
        views.reward[:] = rewards
        if any(ends):
            self._end(views, ends)
        self._environments.observe(views.observation)
        views.episode[:] = self._episode

    def close(self) -> None:
        """Closes the environments."""
        self._environments.close()

    def _end(self, views: _Views, ends: list[int]) -> None:
        for column, end in enumerate(ends):
            if not end:
                continue
            self._report(column, end)
            if self._same_step:
                views.terminated[column] = 1
                views.first[column] = 1
                self._begin(column)
            else:
                views.terminated[column] = end == TERMINATED
                views.truncated[column] = end == TRUNCATED
                views.last[column] = 1
                self._ended.append(column)

    def _begin(self, column: int) -> None:
        episode = int(self._next_episode[column])
        self._episode[column] = episode
        self._next_episode[column] = episode + 1
        self._partial[column] = False
        self._environments.start(column, episode_seed(self._seed, self._envs[column], episode))

    def _warm_up(self, limit: int) -> None:
        actions = self._environments.spec.num_actions
        plans = []
        for env in self._envs:
            rng = seeds.rng(self._seed, "warmup", env)
            plans.append(rng.integers(0, actions, int(rng.integers(0, limit + 1))).tolist())
        for step in range(max(map(len, plans))):
            columns = [column for column in self._columns if step < len(plans[column])]
            chosen = self._allowed([plan[step] if step < len(plan) else 0 for plan in plans])
            _, ends = self._environments.step(chosen, columns)
            for column in columns:
                self._partial[column] = True
                if ends[column]:
                    self._begin(column)

    def _allowed(self, drawn: list[int]) -> list[int]:
        """The drawn actions [envs], or others in the place of those that the states do not have."""
        environment = self._environments.spec
        if environment.mask_field is None:
            return drawn
        observation = spec.empty_observation(environment, (len(drawn),))
        self._environments.observe(observation)
        there = [np.flatnonzero(mask) for mask in observation[environment.mask_field]]
        return [
            int(mine[action % len(mine)]) if len(mine) else action
            for action, mine in zip(drawn, there, strict=True)
        ]

    def _report(self, column: int, end: int) -> None:
        if self._partial[column]:
            return
        env, episode = self._envs[column], int(self._episode[column])
        record: dict[str, Any] = {
            "env": env,
            "episode": episode,
            "seed": episode_seed(self._seed, env, episode),
        }
        info = self._environments.episode_info(column)
        record |= {name: float(value) for name, value in info.items()}
        record["truncated"] = float(end == TRUNCATED)
        self._on_episode(record)


def start_delay(seed: int, worker: int, seconds: float) -> None:
    """Sleeps a time drawn for `worker` from [0, `seconds`), so that workers do not run in step."""
    if seconds > 0:
        time.sleep(float(seeds.rng(seed, "delay", worker).uniform(0.0, seconds)))
