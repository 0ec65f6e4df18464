"""Playing whole episodes with a function that chooses actions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from motif_jax.envs.spec import RUNNING, Environment, empty_observation

Observation = Mapping[str, np.ndarray]
# Gives the action on an observation; StopIteration ends the episode early.
Choose = Callable[[Observation], int]


class Transition(NamedTuple):
    """One observation of an episode and how it came about.

    Attributes:
        observation: the fields; the same arrays are written again at the next moment, so copy what is kept.
        action: the action that led here, -1 for the first observation.
        reward: the task reward of that action.
        end: `RUNNING`, `TERMINATED` or `TRUNCATED`.
    """

    observation: Observation
    action: int
    reward: float
    end: int


def random_actions(num_actions: int, generator: np.random.Generator, block: int = 4096) -> Choose:
    """A policy that presses keys uniformly at random; drawn in blocks, which costs a tenth of single draws."""

    def draw() -> Iterator[int]:
        while True:
            yield from generator.integers(0, num_actions, block).tolist()

    drawn = draw()
    return lambda _: next(drawn)


def given_actions(actions: np.ndarray) -> Choose:
    """A policy that presses `actions` (integers [n]) one after the other; StopIteration ends the episode early."""
    rest = iter(actions.tolist())
    return lambda _: next(rest)


def play(
    environment: Environment, seed: int, choose: Choose, rows: Callable[[int], Observation] | None = None
) -> Iterator[Transition]:
    """Plays one episode: its first observation, then one moment a step until it ends or `choose` runs out.

    Args:
        environment: where.
        seed: of the episode.
        choose: the policy; it is asked when the caller wants the next moment.
        rows: step -> where the observation after so many actions is written; by default all into the same arrays.
    """
    if rows is None:
        only = empty_observation(environment.spec)
        rows = lambda _: only  # noqa: E731 - the shortest way to say it
    out = rows(0)
    environment.reset(seed, out)
    yield Transition(out, -1, 0.0, RUNNING)
    end, step = RUNNING, 0
    while end == RUNNING:
        try:
            action = choose(out)
        except StopIteration:
            return
        step += 1
        out = rows(step)
        reward, end = environment.step(action, out)
        yield Transition(out, action, reward, end)
