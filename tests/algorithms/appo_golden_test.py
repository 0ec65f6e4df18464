"""The whole update against the golden numbers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from motif_jax.algorithms import appo, schedules, total_reward, value_normalisation
from motif_jax.algorithms.trajectory import TrajectoryBatch
from motif_jax.envs.spec import EnvironmentSpec
from motif_jax.networks import layout
from motif_jax.networks.image import TABLE_ROWS
from tests.agents import (
    FLAT_SPEC,
    agent_config,
    nethack_network,
    observation_of,
    time_major,
)
from tests.golden_numbers import GRADIENT, UPDATE, VTRACE_FILES, assert_golden, recipe_params

pytestmark = pytest.mark.usefixtures("compiled_quickly")


class TableNetwork:
    """A "network" whose parameters are the logits and values themselves."""

    spec = EnvironmentSpec(FLAT_SPEC.observation, FLAT_SPEC.num_actions)

    def apply(self, params: Any, observation: Any, state: Any, first: Any) -> tuple[Any, Any, Any]:
        rows = [jnp.concatenate([params[k], params[k][-1:]]) for k in ("logits", "values")]
        return rows[0], rows[1], state


def published_config(n: Any) -> Any:
    config = agent_config()
    config.compat.vtrace_bootstrap = True
    settings = config.algorithm
    settings.gamma = float(n["gamma"])
    settings.clip_ratio, settings.clip_value = float(n["ppo_clip_ratio"]), float(n["ppo_clip_value"])
    settings.rho_clip, settings.c_clip = float(n["vtrace_rho"]), float(n["vtrace_c"])
    settings.exploration_coefficient = float(n["exploration_loss_coeff"])
    settings.value_coefficient = float(n["value_loss_coeff"])
    config.optimizer.learning_rate = float(n["lr"])
    config.optimizer.max_gradient_norm = float(n["max_grad_norm"])
    optimizer = config.optimizer
    optimizer.b1, optimizer.b2, optimizer.eps = (
        float(n[k]) for k in ("adam_beta1", "adam_beta2", "adam_eps")
    )
    return config


def table_batch(n: Any) -> TrajectoryBatch:
    """The golden inputs as a batch; rows that the published learner masks are too old here."""
    shape = n["in_dones"].T.shape
    zero = np.zeros(shape, np.float32)
    rows = np.zeros((shape[0] + 1, shape[1]), bool)
    return TrajectoryBatch(
        observation={"signal": np.zeros((*rows.shape, 5), np.float32), "clock": rows.astype(np.int32)},
        first=rows,
        last=rows,
        action=n["in_actions"].T.astype(np.int32),
        behaviour_log_prob=n["in_log_prob_old"].T,
        behaviour_value=n["in_values_old"].T,
        parameter_version=np.where(n["in_valid"].T, 20_000, 0).astype(np.int32),
        reward=zero,
        intrinsic_reward=zero,
        terminated=n["in_dones"].T > 0,
        truncated=np.zeros(shape, bool),
        initial_state=np.zeros((shape[1], 1), np.float32),
    )


def table_state(n: Any, optimizer: optax.GradientTransformation) -> appo.AppoTrainState:
    """The golden logits and values as parameters."""
    params = {"logits": jnp.array(time_major(n["in_logits_new"])), "values": jnp.array(n["in_values_new"].T)}
    return appo.AppoTrainState(
        params,
        optimizer.init(params),
        jnp.int32(20_000),
        schedules.no_steps(),
        jax.random.key(0),
        value_normalisation.initial(),
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", VTRACE_FILES)
def test_given_logits_and_values(golden: Any, name: str) -> None:
    n = golden(name)
    config, batch = published_config(n), table_batch(n)
    optimizer = schedules.make_optimizer(config.optimizer)
    state = table_state(n, optimizer)
    params = state.params
    reward = jnp.array(n["out_rewards_used"].T)

    @jax.jit
    def program(state: Any, batch: Any, reward: Any) -> Any:
        found = appo.gradient(TableNetwork(), config, state, batch, reward)
        logits = found[2].logits
        said = appo.losses.log_probability(logits, batch.action), appo.losses.entropy(logits)
        updates, _ = optimizer.update(found[0], state.opt_state, share=0.0)
        return found, said, optax.apply_updates(state.params, updates)

    (gradients, metrics, output), (log_prob, entropy), after = program(state, batch, reward)
    close = {"rtol": 1e-5, "atol": 1e-5}
    np.testing.assert_allclose(log_prob.T, n["out_log_prob_new"], **close)
    np.testing.assert_allclose(entropy.T, n["out_entropy"], **close)
    for limit, key in ((config.algorithm.rho_clip, "out_rho"), (config.algorithm.c_clip, "out_c")):
        np.testing.assert_allclose(np.minimum(output.ratio, limit).T, n[key], **close)
    np.testing.assert_allclose(normalised_advantage(metrics, output), n["out_adv_norm"], **close)
    np.testing.assert_allclose(output.ratio.T, n["out_ratio_clamped"], **close)
    np.testing.assert_allclose(output.targets.value.T, n["out_vs"], **close)
    np.testing.assert_allclose(output.targets.advantage.T, n["out_adv_raw"], **close)
    np.testing.assert_allclose(metrics["advantage/mean"], n["out_adv_mean"], **close)
    np.testing.assert_allclose(metrics["advantage/std"], n["out_adv_std"], **close)
    np.testing.assert_allclose(metrics["loss/policy"], n["out_policy_loss"], **close)
    np.testing.assert_allclose(metrics["loss/value"], n["out_value_loss"], **close)
    np.testing.assert_allclose(metrics["loss/exploration"], n["out_entropy_loss"], **close)
    np.testing.assert_allclose(metrics["loss/total"], n["out_total_loss"], **close)
    np.testing.assert_allclose(metrics["batch/valid_share"], n["in_valid"].mean(), **close)
    expected = {"logits": time_major(n["out_grad_logits"]), "values": n["out_grad_values"].T}
    for key, value in expected.items():
        # Measured: 3.4e-7 of the largest.
        np.testing.assert_allclose(gradients[key], value, rtol=1e-5, atol=1e-6 * np.abs(value).max())
    expected = {"logits": time_major(n["out_logits_after_adam"]), "values": n["out_values_after_adam"].T}
    for key, value in expected.items():
        # Entries are as large as 6 and steps 1e-4, of which the last bit of an entry is half a per cent.
        np.testing.assert_allclose(after[key], value, rtol=0, atol=1e-6)
        moved, wanted = after[key] - params[key], value - params[key]
        np.testing.assert_allclose(np.linalg.norm(moved), np.linalg.norm(wanted), rtol=5e-5)


def normalised_advantage(metrics: Any, output: Any) -> np.ndarray:
    """[N, T], by the mean and the deviation that the update reports."""
    spread = max(float(metrics["advantage/std"]), appo.ADVANTAGE_STD_FLOOR)
    return np.asarray((output.targets.advantage.T - metrics["advantage/mean"]) / spread)


def learner_batch(n: Any) -> TrajectoryBatch:
    """The golden rollouts with one more row, whose value the published bootstrap does not read."""
    fields = observation_of(n["image"], n["blstats_features"], n["message"], n["message_count"])
    dones = n["dones"].T > 0
    padded = np.concatenate([dones, dones[-1:]])
    return TrajectoryBatch(
        observation={name: np.concatenate([time_major(x), time_major(x)[-1:]]) for name, x in fields.items()},
        first=np.concatenate([np.zeros_like(padded[:1]), dones]),
        last=np.zeros_like(padded),
        action=n["actions"].T.astype(np.int32),
        behaviour_log_prob=n["behaviour_log_prob"].T,
        behaviour_value=n["behaviour_value"].T,
        parameter_version=np.zeros(dones.shape, np.int32),
        reward=n["env_reward"].T,
        intrinsic_reward=n["intrinsic_reward"].T,
        terminated=dones,
        truncated=np.zeros_like(dones),
        initial_state=n["state_in"],
    )


def learner_config(n: Any) -> Any:
    config = agent_config()
    config.compat.vtrace_bootstrap = True
    config.algorithm.gamma = float(n["gamma"])
    config.reward.extrinsic_coefficient = float(n["extrinsic_coef"])
    config.reward.intrinsic_coefficient = float(n["intrinsic_coef"])
    config.reward.count_exponent = float(n["count_exponent"])
    optimizer = config.optimizer
    optimizer.learning_rate, optimizer.max_gradient_norm = (
        float(n["learning_rate"]),
        float(n["max_grad_norm"]),
    )
    optimizer.b1, optimizer.b2, optimizer.eps = (float(n[k]) for k in ("adam_b1", "adam_b2", "adam_eps"))
    return config


def with_padding(batch: TrajectoryBatch, rollouts: int) -> TrajectoryBatch:
    """As many rollouts: those of `batch`, and copies of them with the rows turned round that hold no weight."""
    count = batch.action.shape[1]

    def widen(x: np.ndarray, axis: int) -> np.ndarray:
        more = np.flip(np.asarray(x), 0).take(np.arange(rollouts - count) % count, axis)
        return np.concatenate([x, more], axis)

    axes = jax.tree.broadcast(appo.trajectory.BATCH_AXES, batch)
    wide = jax.tree.map(widen, batch, axes)
    wide.parameter_version[:, count:] = -1
    return wide


# Looked up as in training, which pays with so many rows only, and drawn as on a GPU.
@pytest.mark.slow
@pytest.mark.parametrize("first_convolution", ["table", "picture"])
def test_one_learner_update_is_the_golden_one(golden: Any, first_convolution: str) -> None:
    n = golden("learner_step.npz")
    config, batch = learner_config(n), learner_batch(n)
    network = nethack_network(first_convolution=first_convolution)
    if first_convolution == "table":
        batch = with_padding(batch, -(-TABLE_ROWS // len(batch.first)))
    optimizer = schedules.make_optimizer(config.optimizer)
    params = recipe_params(network, golden("weight_shapes.json")["actor_critic"])
    statistics = value_normalisation.initial()
    state = appo.AppoTrainState(
        params, optimizer.init(params), jnp.int32(0), schedules.no_steps(), jax.random.key(0), statistics
    )
    rewards = total_reward.compute_rewards(config.reward, batch, "message_count")
    close = {"rtol": 1e-5, "atol": 1e-5}
    real = slice(len(n["dones"]))
    np.testing.assert_allclose(rewards.total.T[real], n["total_reward"], **close)
    update = appo.make_update(network, optimizer, config)

    def core(module: Any, *rows: Any) -> Any:
        return module.actor(*rows)[0]

    def program(s: Any, b: Any, reward: Any) -> Any:
        rows = (b.observation, b.initial_state, b.first)
        features = network.module.apply({"params": s.params}, *rows, method=core)
        return features, appo.gradient(network, config, s, b, reward), update(s, b)

    traced = jax.jit(program).trace(state, batch, rewards.total)
    assert ("72,72,3]" in str(traced.jaxpr)) == (first_convolution == "picture")
    features, (gradients, metrics, output), (after, described) = traced.lower().compile()(
        state, batch, rewards.total
    )
    np.testing.assert_allclose(time_major(features[:-1])[real], n["core_output"], **close)
    np.testing.assert_allclose(time_major(output.logits)[real], n["logits"], **close)
    np.testing.assert_allclose(output.value.T[real], n["value"], **close)
    np.testing.assert_allclose(output.ratio.T[real], n["ratio"], **close)
    np.testing.assert_allclose(output.targets.value.T[real], n["vs"], **close)
    np.testing.assert_allclose(output.targets.advantage.T[real], n["advantage"], **close)
    normalised = normalised_advantage(metrics, output)[real]
    np.testing.assert_allclose(normalised, n["advantage_normalized"], **close)
    names = {
        "policy": "policy_loss", "value": "value_loss", "exploration": "entropy_loss", "total": "total_loss"
    }  # fmt: skip
    for key, name in names.items():
        np.testing.assert_allclose(metrics[f"loss/{key}"], n[name], **close)
    assert_golden(layout.to_torch(gradients), n, "gradient", GRADIENT)
    np.testing.assert_allclose(described["optimizer/gradient_norm"], n["grad_norm_before_clip"], rtol=2e-5)
    changes = jax.tree.map(lambda new, old: np.asarray(new) - np.asarray(old), after.params, params)
    assert_golden(layout.to_torch(changes), n, "update", UPDATE)
