"""Plays whole episodes with a function that chooses actions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from motif_jax.envs.spec import RUNNING, Action, Environment, EnvironmentSpec, empty_observation

Observation = Mapping[str, np.ndarray]
# Observation -> action; StopIteration ends the episode early.
Choose = Callable[[Observation], Action]


class Transition(NamedTuple):
    """An observation of an episode, whose arrays the next step overwrites, and what led to it: no
    action to the first.
    """

    observation: Observation
    action: Action | None
    reward: float
    end: int


def fixed_actions(actions: np.ndarray) -> Choose:
    """A policy that plays `actions` ([n, ...], see `EnvironmentSpec.action`) in order, then raises
    StopIteration.
    """
    # As Python's numbers: `check_action` takes no float32 of numpy.
    remaining = iter(actions.tolist())
    return lambda _: next(remaining)


def random_actions(spec: EnvironmentSpec, seed: int) -> Choose:
    """A policy that plays each action that the environment allows with the same probability."""
    rng = np.random.default_rng(seed)

    def choose(observation: Observation) -> Action:
        if spec.action_size:
            return rng.uniform(-1, 1, spec.action_size).tolist()
        if spec.mask_field is None:
            return int(rng.integers(spec.num_actions))
        return int(rng.choice(np.flatnonzero(observation[spec.mask_field])))

    return choose


def play(
    environment: Environment,
    seed: int,
    choose: Choose,
    rows: Callable[[int], Observation] | None = None,
) -> Iterator[Transition]:
    """Yields the transitions of one episode until it ends or `choose` raises StopIteration.

    `rows` maps a step to the arrays for its observation; by default all steps share the same
    arrays.
    """
    shared = empty_observation(environment.spec) if rows is None else {}
    out = rows(0) if rows else shared
    environment.reset(seed, out)
    yield Transition(out, None, 0.0, RUNNING)

    end = RUNNING
    step = 0
    while end == RUNNING:
        try:
            action = choose(out)
        except StopIteration:
            return
        step += 1
        out = rows(step) if rows else shared
        reward, end = environment.step(action, out)
        yield Transition(out, action, reward, end)
