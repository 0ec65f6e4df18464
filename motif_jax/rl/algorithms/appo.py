"""The agent's algorithm: asynchronous PPO with V-trace (Petrenko et al. 2020; Espeholt et al.
2018).

From a batch to its gradient: `AppoAlgorithm.update`, `step`, `gradient`, `loss`, which runs the
network (`run_network`) and adds up the terms (`compute_loss`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from motif_jax.core.config import require
from motif_jax.core.training import reductions
from motif_jax.nets import distributions
from motif_jax.nets.agent import rescale_value_head
from motif_jax.nets.policy import PolicyNetwork
from motif_jax.rl.algorithms import losses, trajectory
from motif_jax.rl.algorithms.algorithm import Algorithm, joined
from motif_jax.rl.algorithms.config import Appo
from motif_jax.rl.algorithms.returns import Targets, gae, published_bootstrap, vtrace
from motif_jax.rl.algorithms.trajectory import TrajectoryBatch
from motif_jax.rl.config import AgentConfig

Array = jax.Array
Metrics = dict[str, Array]
BATCH = "batch"
# Advantages of a batch without rewards are all but equal: dividing by their own deviation would
# blow up noise.
ADVANTAGE_STD_FLOOR = 1e-3
# Share of a mean below which a deviation is the rounding of float32.
_ROUNDING = 6e-8
# The least scale, where all targets are 0.
_TINY = 1e-30


class ValueStatistics(NamedTuple):
    """Decayed statistics of the value targets of all updates; float32 scalars."""

    mean: Array
    variance: Array
    weight: Array  # 0 before the first targets, then towards 1


class AppoTrainState(NamedTuple):
    """The fields of `Algorithm.first_fields`, and the running scale of the value targets."""

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


class AppoAlgorithm(Algorithm):
    """APPO of a training, see `Algorithm`."""

    @classmethod
    def check(cls, config: AgentConfig, network: PolicyNetwork) -> None:
        settings: Appo = config.algorithm
        has_scale = settings.advantage_scale == BATCH or settings.value_normalisation != "none"
        allowed = "'batch' where config.algorithm.value_normalisation='none', which keeps no scale of returns"
        require(has_scale, "algorithm.advantage_scale", settings.advantage_scale, allowed)
        is_uniform_known = network.spec.action_size == 0 or settings.exploration != "symmetric_kl"
        allowed = "'entropy' or 'none', for the actions are real numbers"
        require(is_uniform_known, "algorithm.exploration", settings.exploration, allowed)

    def init(self, key: Array) -> AppoTrainState:
        return AppoTrainState(**self.first_fields(key), value_statistics=first_statistics())

    def published(self, state: AppoTrainState) -> Any:
        if self.config.algorithm.value_normalisation == "popart":
            return state.params, state.value_statistics
        return state.params

    def acting(self, published: Any) -> Any:
        if self.config.algorithm.value_normalisation == "popart":
            # Later updates compare the values of a rollout with their own, after the scale of
            # values has moved.
            published = in_units_of_reward(*published)
        return self.network.prepare(published)

    def update(
        self, state: AppoTrainState, batch: TrajectoryBatch, *, axis_name: str | None = None
    ) -> tuple[AppoTrainState, Metrics]:
        settings: Appo = self.config.algorithm
        rewards = self.rewards(state, batch)
        share = self.share_done(state)
        if settings.epochs * settings.minibatches == 1:
            # As published; no draw, so that the state's key stays.
            learned, metrics = self.step(state, batch, rewards.total, share, axis_name)
        else:
            key, order_key = jax.random.split(state.key)
            order = trajectory.minibatch_order(
                order_key,
                settings.epochs,
                settings.minibatches,
                batch.action.shape[1],
                axis_name,
            )
            learned, metrics = jax.lax.scan(
                lambda current, chosen: self.step(
                    current,
                    *trajectory.take_rollouts(batch, rewards.total, chosen),
                    share,
                    axis_name,
                ),
                state._replace(key=key),
                order,
            )
            metrics = joined(metrics)
        return self.counted(state, learned, batch, rewards, metrics, axis_name)

    def step(
        self,
        state: AppoTrainState,
        batch: TrajectoryBatch,
        reward: Array,
        share: Array,
        axis_name: str | None,
    ) -> tuple[AppoTrainState, Metrics]:
        """One step of the optimiser on a batch or minibatch with `reward` float32 [T, B]; `share`
        is of the run.
        """
        gradients, metrics, output = self.gradient(state, batch, reward, axis_name)
        state, norms = self.apply(state, gradients, share)
        # After the step, whose loss was computed with the old scale.
        if self.config.algorithm.value_normalisation != "none":
            targets = output.targets.value
            state = _move_statistics(
                self.config.algorithm, state, targets, batch, reward, axis_name
            )
        return state, {**metrics, **norms}

    def gradient(
        self,
        state: AppoTrainState,
        batch: TrajectoryBatch,
        reward: Array,
        axis_name: str | None = None,
    ) -> tuple[Any, Metrics, Output]:
        """Returns the gradient of the global loss before clipping, equal on all devices of
        `axis_name`; metrics; `run_network`'s output.
        """
        gradients, (terms, output) = jax.grad(self.loss, has_aux=True)(
            state.params, state, batch, reward, axis_name
        )
        if axis_name is not None:
            # The mean, since the loss is global on each device (see `reductions`).
            gradients = jax.lax.pmean(gradients, axis_name)
        described = describe(self.config.algorithm, state, batch, output, axis_name)
        return gradients, {**terms, **described}, output

    def loss(
        self,
        params: Any,
        state: AppoTrainState,
        batch: TrajectoryBatch,
        reward: Array,
        axis_name: str | None,
    ) -> tuple[Array, tuple[Metrics, Output]]:
        """The global loss of `params`, float32 scalar; its terms and the network's output."""
        current = state._replace(params=params)
        output = run_network(self.network, self.config, current, batch, reward)
        total, terms = compute_loss(self.config.algorithm, current, batch, output, axis_name)
        return total, (terms, output)


def run_network(
    network: PolicyNetwork,
    config: AgentConfig,
    state: AppoTrainState,
    batch: TrajectoryBatch,
    reward: Array,
) -> Output:
    """Runs the network over a batch with `reward` float32 [T, B], and computes value targets and
    advantages.

    Targets are computed with the current parameters, so again in every epoch and minibatch.
    """
    settings: Appo = config.algorithm
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
        scale = scale_of_values(state.value_statistics)
        all_values = all_values * scale + state.value_statistics.mean
    value = all_values[:-1]
    bootstrap = all_values[-1]
    if config.compat.vtrace_bootstrap:
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
    scale = scale_of_values(statistics)
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
    target_mean, target_std = moments(state.value_statistics)

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


# The running scale of the value targets (van Hasselt et al. 2016, "PopArt").
#
# The network's value head predicts (V - mean) / std. With 'popart' the head is rescaled whenever
# the statistics move, so that V itself does not; with 'running' the head has to learn it. V is
# clipped around V as it was played, by standard deviations of the targets: with 'popart' those of
# the update, with 'running' those of the time when it was played.


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
    old = moments(state.value_statistics)
    recorded = trajectory.recorded(batch)
    # Without a reward nothing says how large values are.
    paid_steps = reductions.total((recorded & (reward != 0)).astype(jnp.float32), axis_name)
    is_moved = (paid_steps > 0) | (state.value_statistics.weight > 0)
    statistics = moved(
        state.value_statistics,
        target,
        recorded & is_moved,
        settings.value_statistics_rate,
        axis_name,
    )
    params = state.params
    if settings.value_normalisation == "popart":
        new = moments(statistics)
        # Values were 0 before the first targets: there is nothing to keep of what the head said.
        is_first = state.value_statistics.weight == 0
        old = jax.tree.map(lambda before, after: jnp.where(is_first, after, before), old, new)
        params = rescale_value_head(params, old, new)
    return state._replace(params=params, value_statistics=statistics)


def first_statistics() -> ValueStatistics:
    """Statistics of no targets: mean 0 and standard deviation 1."""
    return ValueStatistics(*(jnp.zeros((), jnp.float32) for _ in range(3)))


def moved(
    statistics: ValueStatistics,
    target: Array,
    valid: Array,
    rate: float,
    axis_name: str | None = None,
) -> ValueStatistics:
    """Moves the statistics by `rate` in (0, 1] towards those of `target` [...] where `valid`; not
    at all where nothing is valid.
    """
    chex.assert_equal_shape([target, valid])
    count = reductions.total(valid.astype(jnp.float32), axis_name)
    share = jnp.where(count > 0, rate, 0.0)
    # From a rough mean first: of large targets the plain mean of float32 has lost the digits in
    # which they differ.
    rough_mean = reductions.mean(target, valid, axis_name)
    deviation = target - rough_mean
    offset = reductions.mean(deviation, valid, axis_name)
    batch_mean = rough_mean + offset
    batch_variance = reductions.mean(jnp.square(deviation - offset), valid, axis_name)

    weight = (1 - share) * statistics.weight + share
    # Of everything seen so far, by weight; divided by it, statistics need no start at 0.
    part = share / jnp.maximum(weight, _TINY)
    difference = batch_mean - statistics.mean
    mean = statistics.mean + part * difference
    within = (1 - part) * statistics.variance + part * batch_variance
    between = part * (1 - part) * jnp.square(difference)
    return ValueStatistics(mean, within + between, weight)


def moments(statistics: ValueStatistics) -> tuple[Array, Array]:
    """Mean and standard deviation of the targets, before the first of them 0 and 1; float32
    scalars.

    The deviation is at least the rounding of the mean: a scale of equal targets would be noise.
    """
    rounding = _ROUNDING * jnp.abs(statistics.mean)
    std = jnp.maximum(jnp.sqrt(statistics.variance), jnp.maximum(rounding, _TINY))
    return statistics.mean, jnp.where(statistics.weight == 0, 1.0, std)


def scale_of_values(statistics: ValueStatistics) -> Array:
    """What the value head's output is multiplied by: the targets' deviation, and 0 before the first
    of them.

    An untrained head says nothing, and its values would be the first targets: where rewards are a
    millionth, the scale would be the head's for as long as the training goes on.
    """
    return jnp.where(statistics.weight == 0, 0.0, moments(statistics)[1])
