"""A linear agent, batches for it and its updates, small enough to be recomputed by hand."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.core.compat import Compat
from motif_jax.core.sections import Optimizer
from motif_jax.core.training import schedules
from motif_jax.envs.spec import MASKED, ArraySpec, EnvironmentSpec
from motif_jax.glam.config import QLearning
from motif_jax.rl.algorithms.trajectory import TrajectoryBatch
from motif_jax.rl.config import AgentConfig, AgentReward
from motif_jax.rl.settings import algorithm_class
from tests.agents import random_batch

STEPS = 6
ROLLOUTS = 4
ACTIONS = 4
WORDS = 130
SPEC = EnvironmentSpec(
    {
        "signal": ArraySpec((3,), "float32"),
        "count": ArraySpec((), "int32"),
        "legal": ArraySpec((ACTIONS,), "uint8"),
        "words": ArraySpec((WORDS,), "int32"),
    },
    ACTIONS,
    count_field="count",
    mask_field="legal",
)


class Linear:
    """Logits and values are linear in the signal and in a fading sum of it; Q is linear in the
    words.
    """

    spec = SPEC

    def __init__(self, *fields: str) -> None:
        self.fields = fields

    def initial_state(self, rows: int) -> jax.Array:
        return jnp.zeros((rows, 2))

    def init(self, key: jax.Array) -> Any:
        policy_key, value_key, words_key = jax.random.split(key, 3)
        value_head = {"kernel": jax.random.normal(value_key, (5, 1)) / 2, "bias": jnp.full(1, 0.3)}
        return {
            "policy": jax.random.normal(policy_key, (5, ACTIONS)) / 2,
            "value_head": value_head,
            "words": jax.random.normal(words_key, (WORDS, ACTIONS)) / 120,
        }

    def apply(self, params: Any, rows: Any, state: Any, first: jax.Array) -> tuple[Any, Any, Any]:
        def step(state: Any, row: Any) -> tuple[Any, Any]:
            signal, begins = row
            state = jnp.where(begins[:, None], 0.0, 0.5 * state) + signal[:, :2]
            return state, jnp.concatenate([signal, state], axis=-1)

        state, features = jax.lax.scan(step, state, (rows["signal"], first))
        logits = jnp.where(rows["legal"] != 0, features @ params["policy"], MASKED)
        head = params["value_head"]
        return logits, (features @ head["kernel"] + head["bias"])[..., 0], state

    def stored(self, fields: Any) -> jax.Array:
        return (fields["words"] + 1).astype(jnp.uint8)

    def shown(self, stored: jax.Array) -> jax.Array:
        return stored.astype(jnp.int32) - 1

    def values(self, params: Any, tokens: jax.Array) -> jax.Array:
        weights = params["words"][: tokens.shape[1]]
        return jnp.maximum(tokens, 0) @ weights + params["value_head"]["bias"]


REWARD = AgentReward(
    extrinsic_coefficient=0.7,
    intrinsic_coefficient=0.4,
    extrinsic_scale=1.5,
    extrinsic_clip=1.2,
    count_exponent=0.5,
)


def config(algorithm: Any, compat: Compat | None = None, **changes: Any) -> AgentConfig:
    values = {
        "batch_size": STEPS * ROLLOUTS,
        "rollout": STEPS,
        "train_for_env_steps": 10_000,
        "reward": REWARD,
        "optimizer": Optimizer(learning_rate=0.01),
        "compat": compat or Compat(),
    }
    return dataclasses.replace(AgentConfig(algorithm=algorithm, **{**values, **changes}))


def batch(seed: int = 0, padding: float = 0.2) -> TrajectoryBatch:
    """A batch with episodes that end, illegal actions, rows of different age, and a share of
    padding.
    """
    drawn = random_batch(SPEC, 2, STEPS, ROLLOUTS, seed, padding=padding)
    rng = np.random.default_rng(seed)
    legal = rng.random((STEPS + 1, ROLLOUTS, ACTIONS)) < 0.7
    np.put_along_axis(legal[:-1], drawn.action[..., None], True, axis=-1)
    words = drawn.observation["words"] * (np.arange(WORDS) % 3 + 1) % 9
    inside = np.arange(WORDS) < rng.integers(5, 60, (STEPS + 1, ROLLOUTS, 1))
    observation = drawn.observation | {
        "legal": legal.astype(np.uint8),
        "words": np.where(inside, words, -1),
    }
    version = np.where(drawn.parameter_version < 0, -1, rng.integers(4, 9, drawn.action.shape))
    return drawn._replace(
        observation=observation,
        parameter_version=version.astype(np.int32),
        behaviour_log_prob=drawn.behaviour_log_prob / 2,
    )


@functools.cache
def start(
    settings: AgentConfig, reward_fn: Any = None, pays_last_text: bool = True
) -> tuple[Any, Any]:
    """The first state of an update, after ten updates, and the update; compiled once."""
    is_q_learning = isinstance(settings.algorithm, QLearning)
    network: Any = Linear("words") if is_q_learning else Linear("signal", "legal")
    network.spec = dataclasses.replace(SPEC, last_text=pays_last_text)
    optimizer = schedules.make_optimizer(settings.optimizer)
    algorithm = algorithm_class(settings)(settings, network, optimizer, reward_fn)
    state = algorithm.init(jax.random.key(3))._replace(step=jnp.int32(10))
    return state, jax.jit(algorithm.update, static_argnames="axis_name")


def change(before: Any, after: Any) -> np.ndarray:
    """How far each parameter has moved, in one row."""
    moved = jax.tree.map(lambda new, old: np.ravel(new - old), after.params, before.params)
    return np.concatenate(jax.tree.leaves(moved))
