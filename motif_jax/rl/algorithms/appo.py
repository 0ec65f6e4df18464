"""The agent's update: asynchronous PPO with V-trace (Petrenko et al. 2020; Espeholt et al.
2018).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from motif_jax.core.config import require
from motif_jax.core.training import reductions
from motif_jax.envs.spec import EnvironmentSpec
from motif_jax.nets.agent import AgentNetwork, rescale_value_head
from motif_jax.rl.algorithms import (
    distributions,
    losses,
    minibatches,
    trajectory,
    update,
    value_normalisation,
)
from motif_jax.rl.algorithms.algorithm import Algorithm, Update, UpdatePlan
from motif_jax.rl.algorithms.config import Appo
from motif_jax.rl.algorithms.gae import gae
from motif_jax.rl.algorithms.trajectory import TrajectoryBatch
from motif_jax.rl.algorithms.update import Apply
from motif_jax.rl.algorithms.value_normalisation import ValueStatistics
from motif_jax.rl.algorithms.vtrace import Targets, published_bootstrap, vtrace

Array = jax.Array
Metrics = dict[str, Array]
BATCH = "batch"
# Advantages of a batch without rewards are all but equal: dividing by their own deviation would
# blow up noise.
ADVANTAGE_STD_FLOOR = 1e-3


class AppoTrainState(NamedTuple):
    """The fields of `update.initial`, and the running scale of the value targets."""

    params: Any
    opt_state: Any
    step: Array
    env_steps: Array
    key: Array
    value_statistics: ValueStatistics
    reward_params: Any = ()


class Output(NamedTuple):
    """The current network's output on a rollout, and its targets; arrays [T, B], or of the policy's
    outputs [T, B, A] or [T, B, 2 n].
    """

    policy_outputs: Array  # see `distributions`, with gradient
    entropy: Array  # the policy's in nats, with gradient
    # output of the value head, with gradient, in normalised units if values are normalised
    raw_value: Array
    value: Array  # V in units of reward, without gradient
    ratio: Array  # clamped probability ratio, with gradient
    targets: Targets  # value targets (units of reward) and advantages, without gradient
    legal: Array | None = None  # bool [T, B, A], the actions that can be taken; None where all can


def check(plan: UpdatePlan) -> None:
    """Raises UserError for values of `config.algorithm` that do not fit together."""
    settings: Appo = plan.algorithm
    has_scale = settings.advantage_scale == BATCH or settings.value_normalisation != "none"
    allowed = (
        "'batch' where config.algorithm.value_normalisation='none', which keeps no scale of returns"
    )
    require(has_scale, "algorithm.advantage_scale", settings.advantage_scale, allowed)
    has_discount = settings.gamma > 0 or not plan.compat.vtrace_bootstrap
    require(
        has_discount,
        "algorithm.gamma",
        settings.gamma,
        "above 0 with config.compat.vtrace_bootstrap",
    )


def make_state(
    network: AgentNetwork, optimizer: optax.GradientTransformation, key: Array
) -> AppoTrainState:
    """A new training state; the same key gives the same state."""
    common = update.initial(network, optimizer, key)
    return AppoTrainState(**common, value_statistics=value_normalisation.initial())


def run_network(
    network: AgentNetwork,
    plan: UpdatePlan,
    state: AppoTrainState,
    batch: TrajectoryBatch,
    reward: Array,
) -> Output:
    """Runs the network over a batch with `reward` float32 [T, B], and computes value targets and
    advantages.

    Targets are computed with the current parameters, so again in every epoch and minibatch.
    """
    settings: Appo = plan.algorithm
    policy_outputs, raw_value, _ = network.apply(
        state.params, batch.observation, batch.initial_state, batch.first
    )
    # [T + 1, B, ...] to [T, B, ...]: row T has no action.
    policy_outputs = policy_outputs[:-1]
    log_prob = distributions.log_prob(network.spec, policy_outputs, batch.action)
    entropy = distributions.entropy(network.spec, policy_outputs)
    ratio = losses.probability_ratio(
        log_prob, batch.behaviour_log_prob, settings.ratio_min, settings.ratio_max
    )

    # The head's output in units of reward; the row after the rollout only bootstraps.
    all_values = jax.lax.stop_gradient(raw_value)
    if settings.value_normalisation != "none":
        scale = value_normalisation.scale_of_values(state.value_statistics)
        all_values = all_values * scale + state.value_statistics.mean
    value = all_values[:-1]
    bootstrap = all_values[-1]
    if plan.compat.vtrace_bootstrap:
        bootstrap = published_bootstrap(value[-1], reward[-1], settings.gamma)

    # 0 where the action ended the episode: nothing of the next one enters the return.
    discount = settings.gamma * (1.0 - trajectory.done(batch))
    rollout = (value, bootstrap, reward, discount, batch.last[:-1])
    if settings.advantage == "vtrace":
        targets = vtrace(*rollout, jax.lax.stop_gradient(ratio), settings.rho_clip, settings.c_clip)
    else:
        targets = gae(*rollout, settings.gae_lambda)

    mask = network.spec.mask_field
    # The uniform distribution of `symmetric_kl` covers these actions alone.
    legal = None if mask is None else batch.observation[mask][:-1] != 0
    return Output(policy_outputs, entropy, raw_value[:-1], value, ratio, targets, legal)


def in_units_of_reward(params: Any, statistics: ValueStatistics) -> Any:
    """A copy of `params` whose value head predicts in units of reward, 0 before the first targets;
    with PopArt the actors use this copy.
    """
    scale = value_normalisation.scale_of_values(statistics)
    return rescale_value_head(params, (statistics.mean, scale), (jnp.zeros(()), jnp.ones(())))


def exploration_loss(settings: Appo, output: Output, valid: Array, axis_name: str | None) -> Array:
    """The term of the loss that keeps the policy from collapsing; float32 scalar."""
    if settings.exploration == "none":
        return jnp.zeros(())
    coefficient = settings.exploration_coefficient
    if settings.exploration == "entropy":
        return losses.entropy_loss(output.entropy, valid, coefficient, axis_name)
    return losses.symmetric_kl_loss(
        output.policy_outputs, valid, coefficient, axis_name, legal=output.legal
    )


def compute_loss(
    settings: Appo,
    state: AppoTrainState,
    batch: TrajectoryBatch,
    output: Output,
    axis_name: str | None,
) -> tuple[Array, Metrics]:
    """The global loss and its terms, float32 scalars.

    Advantages are normalised over all recorded rows, including those too old to learn from. The
    terms are means over the recorded rows that are not too old.
    """
    recorded = trajectory.recorded(batch)
    valid = _valid(settings, state, batch)
    target_mean, target_std = value_normalisation.moments(state.value_statistics)

    advantage = output.targets.advantage
    advantage_mean, advantage_std = reductions.mean_and_std(advantage, recorded, axis_name)
    if settings.advantage_scale == BATCH:
        # As published for rewards of about 1; a scale of returns moves the floor with them.
        floor = ADVANTAGE_STD_FLOOR * (
            1.0 if settings.value_normalisation == "none" else target_std
        )
        advantage = (advantage - advantage_mean) / jnp.maximum(advantage_std, floor)
    else:
        # By the scale of many batches, without subtracting the batch's mean.
        advantage = advantage / target_std

    target = output.targets.value
    behaviour_value = batch.behaviour_value
    if settings.value_normalisation != "none":
        target = (target - target_mean) / target_std
        # With PopArt the actors' values are in units of reward, else in those of the value head.
        if settings.value_normalisation == "popart":
            behaviour_value = (behaviour_value - target_mean) / target_std

    policy = losses.policy_loss(output.ratio, advantage, valid, settings.clip_ratio, axis_name)
    value = settings.value_coefficient * losses.value_loss(
        output.raw_value, behaviour_value, target, valid, settings.clip_value, axis_name
    )
    exploration = exploration_loss(settings, output, valid, axis_name)
    loss = policy + value + exploration
    return loss, {
        "loss/total": loss,
        "loss/policy": policy,
        "loss/value": value,
        "loss/exploration": exploration,
        "advantage/mean": advantage_mean,
        "advantage/std": advantage_std,
    }


def _valid(settings: Appo, state: AppoTrainState, batch: TrajectoryBatch) -> Array:
    """The rows that the losses count: recorded, and not too old; bool [T, B]."""
    lag = state.step - batch.parameter_version
    return trajectory.recorded(batch) & (lag < settings.max_policy_lag)


def describe(
    settings: Appo,
    state: AppoTrainState,
    batch: TrajectoryBatch,
    output: Output,
    axis_name: str | None,
) -> Metrics:
    """Metrics of an update besides the terms of its loss, float32 scalars."""
    recorded = trajectory.recorded(batch)
    valid = _valid(settings, state, batch)
    ratio = output.ratio
    high = 1 + settings.clip_ratio
    is_clipped = (ratio < 1 / high) | (ratio > high)
    target_mean, target_std = reductions.mean_and_std(output.targets.value, valid, axis_name)
    _, error_std = reductions.mean_and_std(output.targets.value - output.value, valid, axis_name)
    return {
        **losses.policy_metrics(ratio, output.entropy, is_clipped, valid, axis_name),
        "value/mean": reductions.mean(output.value, valid, axis_name),
        "value/target_mean": target_mean,
        "value/explained_variance": 1
        - jnp.square(error_std) / jnp.maximum(jnp.square(target_std), 1e-12),
        "batch/valid_share": reductions.mean(valid * 1.0, recorded, axis_name),
    }


def gradient(
    network: AgentNetwork,
    plan: UpdatePlan,
    state: AppoTrainState,
    batch: TrajectoryBatch,
    reward: Array,
    axis_name: str | None = None,
) -> tuple[Any, Metrics, Output]:
    """Returns the gradient of the global loss before clipping, equal on all devices of `axis_name`;
    metrics; `run_network`'s output.
    """

    def loss(params: Any) -> tuple[Array, tuple[Metrics, Output]]:
        current = state._replace(params=params)
        output = run_network(network, plan, current, batch, reward)
        total, terms = compute_loss(plan.algorithm, current, batch, output, axis_name)
        return total, (terms, output)

    gradients, (terms, output) = jax.grad(loss, has_aux=True)(state.params)
    if axis_name is not None:
        # The mean, since the loss is global on each device (see `reductions`).
        gradients = jax.lax.pmean(gradients, axis_name)
    return gradients, {**terms, **describe(plan.algorithm, state, batch, output, axis_name)}, output


def make_update(
    network: AgentNetwork,
    optimizer: optax.GradientTransformationExtraArgs,
    plan: UpdatePlan,
    *,
    reward_fn: update.RewardFunction | None = None,
) -> Callable[..., tuple[AppoTrainState, Metrics]]:
    """Builds update(state, batch, *, axis_name=None) -> (state, metrics of float32 scalars)."""
    settings: Appo = plan.algorithm

    def step(
        state: AppoTrainState,
        batch: TrajectoryBatch,
        reward: Array,
        apply: Apply,
        axis_name: str | None,
    ) -> tuple[AppoTrainState, Metrics]:
        gradients, metrics, output = gradient(network, plan, state, batch, reward, axis_name)
        state, norms = apply(state, gradients)
        # After the step, whose loss was computed with the old scale.
        if settings.value_normalisation != "none":
            targets = output.targets.value
            state = _move_statistics(settings, state, targets, batch, reward, axis_name)
        return state, {**metrics, **norms}

    def learn(
        state: AppoTrainState,
        batch: TrajectoryBatch,
        reward: Array,
        apply: Apply,
        axis_name: str | None,
    ) -> tuple[AppoTrainState, Metrics]:
        # As published; no draw, so that the state's key stays.
        if settings.epochs * settings.minibatches == 1:
            return step(state, batch, reward, apply, axis_name)
        key, order_key = jax.random.split(state.key)
        rollouts = batch.action.shape[1]
        order = minibatches.order(
            order_key, settings.epochs, settings.minibatches, rollouts, axis_name
        )

        def step_on_minibatch(
            current: AppoTrainState, chosen: Array
        ) -> tuple[AppoTrainState, Metrics]:
            return step(current, *minibatches.take(batch, reward, chosen), apply, axis_name)

        state, metrics = jax.lax.scan(step_on_minibatch, state._replace(key=key), order)
        return state, update.joined(metrics)

    return update.make(network, optimizer, plan, learn, reward_fn)


def _move_statistics(
    settings: Appo,
    state: AppoTrainState,
    target: Array,
    batch: TrajectoryBatch,
    reward: Array,
    axis_name: str | None,
) -> AppoTrainState:
    """Moves the scale of values towards that of `target` [T, B]; with PopArt also the value head,
    so that its values stay. Before the first `reward` [T, B] other than 0 nothing moves.
    """
    old = value_normalisation.moments(state.value_statistics)
    recorded = trajectory.recorded(batch)
    # Without a reward nothing says how large values are.
    paid_steps = reductions.total((recorded & (reward != 0)).astype(jnp.float32), axis_name)
    is_moved = (paid_steps > 0) | (state.value_statistics.weight > 0)
    statistics = value_normalisation.update(
        state.value_statistics,
        target,
        recorded & is_moved,
        settings.value_statistics_rate,
        axis_name,
    )
    params = state.params
    if settings.value_normalisation == "popart":
        new = value_normalisation.moments(statistics)
        # Values were 0 before the first targets: there is nothing to keep of what the head said.
        is_first = state.value_statistics.weight == 0
        old = jax.tree.map(lambda before, after: jnp.where(is_first, after, before), old, new)
        params = rescale_value_head(params, old, new)
    return state._replace(params=params, value_statistics=statistics)


class AppoAlgorithm(Algorithm):
    """APPO, as a training sees it."""

    def check(self, plan: UpdatePlan) -> None:
        check(plan)

    def check_spec(self, plan: UpdatePlan, spec: EnvironmentSpec) -> None:
        exploration = plan.algorithm.exploration
        has_uniform = spec.action_size == 0 or exploration != "symmetric_kl"
        allowed = "'entropy' or 'none', for the actions are real numbers"
        require(has_uniform, "algorithm.exploration", exploration, allowed)

    def make_state(
        self, network: AgentNetwork, optimizer: optax.GradientTransformation, key: Array
    ) -> AppoTrainState:
        return make_state(network, optimizer, key)

    def make_update(
        self,
        network: AgentNetwork,
        optimizer: optax.GradientTransformationExtraArgs,
        plan: UpdatePlan,
        *,
        reward_fn: update.RewardFunction | None = None,
    ) -> Update:
        return make_update(network, optimizer, plan, reward_fn=reward_fn)

    def acting_parts(
        self, plan: UpdatePlan, prepare: Callable[[Any], Any]
    ) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
        if plan.algorithm.value_normalisation != "popart":
            return super().acting_parts(plan, prepare)
        # Later updates compare the values of a rollout with their own, after the scale of values
        # has moved.
        published = operator.attrgetter("params", "value_statistics")
        return published, lambda parts: prepare(in_units_of_reward(*parts))
