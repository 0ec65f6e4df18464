"""Environments at the start of an episode."""

from __future__ import annotations

from motif_jax.envs import registry
from motif_jax.envs.spec import empty_observation


def started(name, seed=0, **options):
    """The environment in the episode of `seed`, and the arrays that hold what it shows."""
    env = registry.make(name, **options)
    out = empty_observation(env.spec)
    env.reset(seed, out)
    return env, out
