"""A replay memory on the device: segments of rollouts, a ring, and draws from it."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array


class ReplayMemory(NamedTuple):
    """Up to C segments of T steps, each with the row after them."""

    observation: Array  # [C, T + 1, ...]
    action: Array  # int32 [C, T]
    reward: Array  # float32 [C, T]
    done: Array  # bool [C, T], nothing after the step counts for it
    valid: Array  # bool [C, T], the step was an agent's
    added: Array  # int32 scalar, all segments added so far, below 2^31


class ReplaySteps(NamedTuple):
    """N steps of a memory, with the observations before and after each; `valid` bool [N]."""

    observation: Array
    action: Array
    reward: Array
    done: Array
    valid: Array
    after: Array


def empty(segments: int, length: int, observation: jax.ShapeDtypeStruct) -> ReplayMemory:
    """A memory of `segments` segments of `length` steps; `observation` is the shape and dtype of
    one row.
    """
    rows = (segments, length)
    return ReplayMemory(
        observation=jnp.zeros((segments, length + 1, *observation.shape), observation.dtype),
        action=jnp.zeros(rows, jnp.int32),
        reward=jnp.zeros(rows),
        done=jnp.zeros(rows, bool),
        valid=jnp.zeros(rows, bool),
        added=jnp.zeros((), jnp.int32),
    )


def add(memory: ReplayMemory, segments: ReplayMemory) -> ReplayMemory:
    """Adds `segments` (B of them, at most C) in empty slots, then in those of the oldest
    segments.
    """
    capacity = len(memory.action)
    count = len(segments.action)
    # A ring: the count goes on past the capacity, and its rest is the oldest segment.
    slots = (memory.added + jnp.arange(count)) % capacity

    def write(stored: Array, new: Array) -> Array:
        if stored.ndim == 0:  # `added`
            return stored + count
        return stored.at[slots].set(new)

    return jax.tree.map(write, memory, segments)


def steps_in(memory: ReplayMemory) -> Array:
    """The number of steps that can be drawn, invalid ones included; int32 scalar."""
    capacity, length = memory.action.shape
    return jnp.minimum(memory.added, capacity) * length


def draw(key: Array, memory: ReplayMemory, count: int) -> ReplaySteps:
    """Draws `count` different steps, uniformly; the memory must have as many."""
    # Numbers of steps through all segments that are filled, from 0.
    numbers = distinct(key, steps_in(memory), count)
    length = memory.action.shape[1]
    segment = numbers // length
    step = numbers % length
    return ReplaySteps(
        observation=memory.observation[segment, step],
        action=memory.action[segment, step],
        reward=memory.reward[segment, step],
        done=memory.done[segment, step],
        valid=memory.valid[segment, step],
        # Segments have one observation more than steps.
        after=memory.observation[segment, step + 1],
    )


def distinct(key: Array, below: Array, count: int) -> Array:
    """`count` different numbers from 0 to `below` - 1, int32 [count]; `below` is at least `count`.

    Floyd's algorithm (Bentley and Floyd 1987): one draw a number, whatever `below` is.
    """
    keys = jax.random.split(key, count)

    def choose(index: int, numbers: Array) -> Array:
        top = below - count + index
        drawn = jax.random.randint(keys[index], (), 0, top + 1)
        # `top` was not among the choices so far, so it takes the place of a repetition.
        return numbers.at[index].set(jnp.where(jnp.any(numbers == drawn), top, drawn))

    return jax.lax.fori_loop(0, count, choose, jnp.full(count, -1, jnp.int32))
