"""Whole updates of a linear network: metrics, parameters and all else of the state after two batches."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.core.sections import Compat, Kl, Optimizer
from motif_jax.core.training import schedules
from motif_jax.envs.spec import MASKED, ArraySpec, EnvironmentSpec
from motif_jax.glam import drrn_update
from motif_jax.rl.algorithms import ppo_update
from motif_jax.rl.algorithms.registry import algorithm_of
from motif_jax.rl.config import AgentConfig, AgentReward
from motif_jax.rl.policy_config import Appo, Ppo, QLearning
from tests.agents import random_batch
from tests.recorded_outputs import assert_matches_packed_recording, shown_array

pytestmark = pytest.mark.usefixtures("compiled_quickly")
STEPS, ROLLOUTS, LONGEST = 6, 4, 130
SPEC = EnvironmentSpec(
    {
        "signal": ArraySpec((3,), "float32"),
        "count": ArraySpec((), "int32"),
        "legal": ArraySpec((4,), "uint8"),
        "words": ArraySpec((LONGEST,), "int32"),
    },
    4,
    count_field="count",
    mask_field="legal",
)


class Linear:
    """Logits and values are linear in the signal and in a fading sum of it; Q in the words."""

    spec = SPEC

    def __init__(self, *fields: str) -> None:
        self.fields = fields

    def initial_state(self, rows: int) -> Any:
        return jnp.zeros((rows, 2))

    def init(self, key: jax.Array) -> Any:
        keys, shapes = jax.random.split(key, 3), [(5, 4), (5, 1), (LONGEST, 4)]
        policy, value, words = (jax.random.normal(*each) / 2 for each in zip(keys, shapes, strict=True))
        head = {"kernel": value, "bias": jnp.full(1, 0.3)}
        return {"policy": policy, "value_head": head, "words": words / 60}

    def apply(self, params: Any, rows: Any, state: Any, first: jax.Array) -> tuple[Any, Any, Any]:
        def step(state: Any, row: Any) -> tuple[Any, Any]:
            signal, first = row
            state = jnp.where(first[:, None], 0.0, 0.5 * state) + signal[:, :2]
            return state, jnp.concatenate([signal, state], axis=-1)

        state, seen = jax.lax.scan(step, state, (rows["signal"], first))
        logits = jnp.where(rows["legal"] != 0, seen @ params["policy"], MASKED)
        head = params["value_head"]
        return logits, (seen @ head["kernel"] + head["bias"])[..., 0], state

    def stored(self, fields: Any) -> jax.Array:
        return (fields["words"] + 1).astype(jnp.uint8)

    def shown(self, stored: jax.Array) -> jax.Array:
        return stored.astype(jnp.int32) - 1

    def values(self, params: Any, tokens: jax.Array) -> jax.Array:
        return jnp.maximum(tokens, 0) @ params["words"][: tokens.shape[1]] + params["value_head"]["bias"]


REWARD = AgentReward(
    extrinsic_coefficient=0.7,
    intrinsic_coefficient=0.4,
    extrinsic_scale=1.5,
    extrinsic_clip=1.2,
    count_exponent=0.5,
)
RATE = Optimizer(
    learning_rate=0.02, schedule="linear", final_fraction=0.1, warmup_steps=3, eps=1e-3, max_gradient_norm=0.5
)
ALL = AgentConfig(
    batch_size=STEPS * ROLLOUTS, rollout=STEPS, train_for_env_steps=90, reward=REWARD, optimizer=RATE
)
NUMBERS = {"gamma": 0.9, "clip_value": 0.5, "value_coefficient": 0.6}
APPO = {
    **NUMBERS,
    "rho_clip": 1.5,
    "c_clip": 1.2,
    "clip_ratio": 0.3,
    "ratio_min": 0.2,
    "ratio_max": 3.0,
    "max_policy_lag": 6,
    "exploration_coefficient": 0.1,
}
PPO = {
    **NUMBERS,
    "gae_lambda": 0.8,
    "clip_ratio": 0.25,
    "entropy_coefficient": 0.05,
    "epochs": 2,
    "minibatch_size": 12,
    "microbatch_size": 6,
}
CASES: dict[str, tuple[Any, Compat]] = {
    "entropy": (Appo(**APPO, value_normalisation="none"), Compat()),
    "popart": (
        Appo(
            **APPO,
            value_normalisation="popart",
            exploration="symmetric_kl",
            epochs=2,
            minibatches=2,
            value_statistics_rate=0.3,
        ),
        Compat(),
    ),
    "running": (
        Appo(
            **APPO,
            value_normalisation="running",
            advantage="gae",
            gae_lambda=0.8,
            advantage_scale="returns",
            exploration="none",
            value_statistics_rate=0.2,
        ),
        Compat(vtrace_bootstrap=True),
    ),
    "ppo": (Ppo(**PPO, recurrence=3, kl=Kl(coefficient=0.3, target=0.5, horizon=50)), Compat()),
    "limit": (
        Ppo(**PPO, kl_limit=0.35, broadcast_rows=3, normalise_advantage=False, positive_reward=False),
        Compat(glam_value_broadcast=True),
    ),
    "drrn": (QLearning(gamma=0.8, epochs=2, replay_steps=30, replay_draw=7), Compat()),
}


def batch(seed: int) -> Any:
    """Some of its rows are too old, some are padding; prompts end, the longest at the middle."""
    made = random_batch(SPEC, 2, STEPS, ROLLOUTS, seed, padding=0.2)
    rng = np.random.default_rng(seed)
    legal = rng.random((STEPS + 1, ROLLOUTS, 4)) < 0.7
    np.put_along_axis(legal[:-1], made.action[..., None], True, axis=-1)
    words = made.observation["words"] * (np.arange(LONGEST) % 3 + 1) % 9
    seen = np.arange(LONGEST) < rng.integers(5, 60, (STEPS + 1, ROLLOUTS, 1))
    fields = made.observation | {"legal": legal.astype(np.uint8), "words": np.where(seen, words, -1)}
    version = np.where(made.parameter_version < 0, -1, rng.integers(4, 9, made.action.shape))
    half = made.behaviour_log_prob / 2
    return made._replace(
        observation=fields, parameter_version=version.astype(np.int32), behaviour_log_prob=half
    )


def start(name: str) -> tuple[Any, Any]:
    config = dataclasses.replace(ALL, algorithm=CASES[name][0], compat=CASES[name][1])
    algorithm = algorithm_of(config)
    network: Any = Linear(*(["words"] if name == "drrn" else ["signal", "legal"]))
    optimizer = schedules.make_optimizer(config.optimizer)
    state = algorithm.make_state(network, optimizer, jax.random.key(3))._replace(step=jnp.int32(10))
    if name == "drrn":
        state = drrn_update.with_memory(state, network, config)
    if name in ("ppo", "limit"):
        state = ppo_update.with_reference(state, config)
    if name == "ppo":
        state = state._replace(params=jax.tree.map(lambda x: 1.3 * x, state.params))
    if name != "running":
        return state, algorithm.make_update(network, optimizer, config)

    def reward(scale: Any, rows: Any) -> jax.Array:
        return scale * rows["signal"][..., 0]

    state = state._replace(reward_params=jnp.float32(2))
    return state, algorithm.make_update(network, optimizer, config, reward_fn=reward)


SLOW = {"entropy", "running", "ppo", "popart", "limit"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in CASES]
)
def test_an_update_is_what_it_was(name: str, record: bool) -> None:
    state, update = start(name)
    update, parts = jax.jit(update), {}
    for number in range(2):
        state, metrics = update(state, batch(number))
        kept = jax.tree_util.tree_leaves_with_path(state._replace(key=jax.random.key_data(state.key)))
        shown = [f"{jax.tree_util.keystr(path)} {shown_array(leaf)}" for path, leaf in kept]
        shown += [f"{name} {float(value):.6f}" for name, value in sorted(metrics.items())]
        parts[f"{number}"] = "\n".join(shown)
    assert_matches_packed_recording(f"update_{name}", parts, record)
