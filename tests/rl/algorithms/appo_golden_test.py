"""The whole update against the golden numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from motif_jax.core.compat import Compat
from motif_jax.core.training import schedules
from motif_jax.nets import distributions, layout
from motif_jax.nets.image import TABLE_ROWS
from motif_jax.rl.algorithms import appo, total_reward
from motif_jax.rl.algorithms.trajectory import TrajectoryBatch
from tests.agents import (
    FLAT_SPEC,
    appo_config,
    nethack_network,
    observation_of,
    time_major,
    train_state,
)
from tests.golden_numbers import GRADIENT, UPDATE, VTRACE_FILES, assert_golden, recipe_params

CLOSE = {"rtol": 1e-5, "atol": 1e-5}


class TableNetwork:
    """A "network" whose parameters are the logits and values themselves."""

    spec = FLAT_SPEC

    def apply(self, params: Any, observation: Any, state: Any, first: Any) -> tuple[Any, Any, Any]:
        rows = [jnp.concatenate([params[k], params[k][-1:]]) for k in ("logits", "values")]
        return rows[0], rows[1], state


# Where the golden files have the numbers of a config.
NUMBERS = {
    "algorithm.gamma": "gamma", "algorithm.clip_ratio": "ppo_clip_ratio", "algorithm.clip_value": "ppo_clip_value",
    "algorithm.rho_clip": "vtrace_rho", "algorithm.c_clip": "vtrace_c",
    "algorithm.exploration_coefficient": "exploration_loss_coeff", "algorithm.value_coefficient": "value_loss_coeff",
    "optimizer.max_gradient_norm": "max_grad_norm", "optimizer.eps": "adam_eps",
    "optimizer.learning_rate": "lr learning_rate", "optimizer.b1": "adam_beta1 adam_b1",
    "optimizer.b2": "adam_beta2 adam_b2", "reward.extrinsic_coefficient": "extrinsic_coef",
    "reward.intrinsic_coefficient": "intrinsic_coef", "reward.count_exponent": "count_exponent",
}  # fmt: skip


def golden_config(n: Any) -> Any:
    config = appo_config()
    for key, names in NUMBERS.items():
        section, name = key.split(".")
        for golden_name in names.split():
            if golden_name in n:
                changed = replace(getattr(config, section), **{name: float(n[golden_name])})
                config = replace(config, **{section: changed})
    return replace(config, compat=Compat(vtrace_bootstrap=True))


def golden_batch(
    observation: Any, dones: Any, action: Any, log_prob: Any, value: Any, **fields: Any
) -> TrajectoryBatch:
    """Golden rollouts with one more row, whose value the published bootstrap does not read."""
    dones = dones.T > 0
    padded = np.concatenate([dones, dones[-1:]])
    zero = np.zeros(dones.shape, np.float32)
    batch = TrajectoryBatch(
        observation=observation,
        first=np.concatenate([np.zeros_like(padded[:1]), dones]),
        last=np.zeros_like(padded),
        action=action.T.astype(np.int32),
        behaviour_log_prob=log_prob.T,
        behaviour_value=value.T,
        parameter_version=np.zeros(dones.shape, np.int32),
        reward=zero,
        intrinsic_reward=zero,
        terminated=dones,
        truncated=np.zeros_like(dones),
        initial_state=np.zeros((dones.shape[1], 1), np.float32),
    )
    return batch._replace(**fields)


@pytest.mark.slow
@pytest.mark.parametrize("name", VTRACE_FILES)
def test_the_loss_of_golden_logits_and_values_is_golden(golden: Any, name: str) -> None:
    n = golden(name)
    config = golden_config(n)
    shape = np.add(n["in_dones"].T.shape, (1, 0))
    unread = {"signal": np.zeros((*shape, 5), np.float32), "clock": np.zeros(shape, np.int32)}
    # Rows that the published learner masks are too old here.
    version = np.where(n["in_valid"].T, 20_000, 0).astype(np.int32)
    inputs = [n[name] for name in ("in_dones", "in_actions", "in_log_prob_old", "in_values_old")]
    batch = golden_batch(unread, *inputs, parameter_version=version)
    optimizer = schedules.make_optimizer(config.optimizer)
    params = {
        "logits": jnp.array(time_major(n["in_logits_new"])),
        "values": jnp.array(n["in_values_new"].T),
    }
    state = train_state(params, optimizer, 20_000)
    reward = jnp.array(n["out_rewards_used"].T)
    algorithm = appo.AppoAlgorithm(config, TableNetwork(), optimizer)

    @jax.jit
    def program(state: Any, batch: Any, reward: Any) -> Any:
        gradients, metrics, output = algorithm.gradient(state, batch, reward)
        log_prob = distributions.categorical_log_prob(output.policy_outputs, batch.action)
        entropy = distributions.categorical_entropy(output.policy_outputs)
        updates, _ = optimizer.update(gradients, state.opt_state, share=0.0)
        return (
            gradients,
            metrics,
            output,
            log_prob,
            entropy,
            optax.apply_updates(state.params, updates),
        )

    gradients, metrics, output, log_prob, entropy, after = program(state, batch, reward)
    computed = {
        "out_log_prob_new": log_prob.T, "out_entropy": entropy.T, "out_rho": np.minimum(output.ratio, config.algorithm.rho_clip).T,
        "out_c": np.minimum(output.ratio, config.algorithm.c_clip).T, "out_adv_norm": normalised_advantage(metrics, output),
        "out_ratio_clamped": output.ratio.T, "out_vs": output.targets.value.T, "out_adv_raw": output.targets.advantage.T,
        "out_adv_mean": metrics["advantage/mean"], "out_adv_std": metrics["advantage/std"], "out_policy_loss": metrics["loss/policy"],
        "out_value_loss": metrics["loss/value"], "out_entropy_loss": metrics["loss/exploration"], "out_total_loss": metrics["loss/total"],
    }  # fmt: skip
    for key, value in computed.items():
        np.testing.assert_allclose(value, n[key], **CLOSE, err_msg=key)
    np.testing.assert_allclose(metrics["batch/valid_share"], n["in_valid"].mean(), **CLOSE)
    expected = {"logits": time_major(n["out_grad_logits"]), "values": n["out_grad_values"].T}
    for key, value in expected.items():
        # Measured: 3.4e-7 of the largest.
        np.testing.assert_allclose(
            gradients[key], value, rtol=1e-5, atol=1e-6 * np.abs(value).max()
        )
    expected = {
        "logits": time_major(n["out_logits_after_adam"]),
        "values": n["out_values_after_adam"].T,
    }
    for key, value in expected.items():
        # Entries are as large as 6 and steps 1e-4, of which the last bit of an entry is half a per
        # cent.
        np.testing.assert_allclose(after[key], value, rtol=0, atol=1e-6)
        change = np.linalg.norm(after[key] - params[key])
        golden_change = np.linalg.norm(value - params[key])
        np.testing.assert_allclose(change, golden_change, rtol=5e-5)


def normalised_advantage(metrics: Any, output: Any) -> np.ndarray:
    """[N, T], by the mean and the deviation that the update reports."""
    std = max(float(metrics["advantage/std"]), appo.ADVANTAGE_STD_FLOOR)
    return np.asarray((output.targets.advantage.T - metrics["advantage/mean"]) / std)


def with_padding(batch: TrajectoryBatch, rollouts: int) -> TrajectoryBatch:
    """As many rollouts: those of `batch`, and copies of them with the rows turned round that hold
    no weight.
    """
    count = batch.action.shape[1]

    def widen(x: np.ndarray, axis: int) -> np.ndarray:
        more = np.flip(np.asarray(x), 0).take(np.arange(rollouts - count) % count, axis)
        return np.concatenate([x, more], axis)

    axes = jax.tree.broadcast(appo.trajectory.BATCH_AXES, batch)
    wide = jax.tree.map(widen, batch, axes)
    wide.parameter_version[:, count:] = -1
    return wide


@pytest.mark.slow
def test_one_learner_update_is_the_golden_one(golden: Any) -> None:
    n = golden("learner_step.npz")
    fields = observation_of(n["image"], n["blstats_features"], n["message"], n["message_count"])
    observation = {
        name: np.concatenate([time_major(x), time_major(x)[-1:]]) for name, x in fields.items()
    }
    inputs = [n[name] for name in ("dones", "actions", "behaviour_log_prob", "behaviour_value")]
    rewards = {"reward": n["env_reward"].T, "intrinsic_reward": n["intrinsic_reward"].T}
    batch = golden_batch(observation, *inputs, **rewards, initial_state=n["state_in"])
    # So many rows that tiles are looked up, as in training.
    batch = with_padding(batch, -(-TABLE_ROWS // len(batch.first)))
    config = golden_config(n)
    network = nethack_network(first_convolution="table")
    optimizer = schedules.make_optimizer(config.optimizer)
    params = recipe_params(network, golden("weight_shapes.json")["actor_critic"])
    state = train_state(params, optimizer)
    reward = total_reward.compute_rewards(config.reward, batch, "message_count").total
    real = slice(len(n["dones"]))
    np.testing.assert_allclose(reward.T[real], n["total_reward"], **CLOSE)
    algorithm = appo.AppoAlgorithm(config, network, optimizer)

    @jax.jit
    def program(s: Any, b: Any, reward: Any) -> Any:
        rows = (b.observation, b.initial_state, b.first)
        features = network.module.apply(
            {"params": s.params}, *rows, method=lambda m, *rows: m.actor(*rows)[0]
        )
        return features, algorithm.gradient(s, b, reward), algorithm.update(s, b)

    traced = program.trace(state, batch, reward)
    # No picture is drawn.
    assert "72,72,3]" not in str(traced.jaxpr)
    features, (gradients, metrics, output), (after, described) = traced.lower().compile()(
        state, batch, reward
    )
    by_environment = {
        "core_output": time_major(features[:-1]), "logits": time_major(output.policy_outputs), "value": output.value.T,
        "ratio": output.ratio.T, "vs": output.targets.value.T, "advantage": output.targets.advantage.T,
        "advantage_normalized": normalised_advantage(metrics, output),
    }  # fmt: skip
    computed = {key: rows[real] for key, rows in by_environment.items()}
    computed |= {
        "policy_loss": metrics["loss/policy"],
        "value_loss": metrics["loss/value"],
        "total_loss": metrics["loss/total"],
        "entropy_loss": metrics["loss/exploration"],
    }
    for key, value in computed.items():
        np.testing.assert_allclose(value, n[key], **CLOSE, err_msg=key)
    assert_golden(layout.to_torch(gradients), n, "gradient", GRADIENT)
    np.testing.assert_allclose(
        described["optimizer/gradient_norm"], n["grad_norm_before_clip"], rtol=2e-5
    )
    changes = jax.tree.map(lambda new, old: np.asarray(new) - np.asarray(old), after.params, params)
    assert_golden(layout.to_torch(changes), n, "update", UPDATE)
