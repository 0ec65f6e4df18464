"""The update of `algorithm.name=ppo`: several epochs of PPO over a batch of rollouts, in
minibatches of steps or of sequences.

Unlike `appo` it computes its targets once, from the values that the rollouts were played with. It
shuffles single steps, or sequences of `algorithm.recurrence` steps, through which gradients run
back to the state that the sequence was played from.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from motif_jax.core import config as checks
from motif_jax.core.training import block_stack, reductions
from motif_jax.nets.policy import PolicyNetwork
from motif_jax.rl.algorithms import (
    distributions,
    kl_limit,
    kl_penalty,
    ppo,
    ppo_sequences,
    trajectory,
    update,
)
from motif_jax.rl.algorithms.algorithm import Algorithm, Update, UpdatePlan
from motif_jax.rl.algorithms.config import Ppo
from motif_jax.rl.algorithms.ppo_sequences import Sequences, flat
from motif_jax.rl.algorithms.trajectory import TrajectoryBatch
from motif_jax.rl.algorithms.update import Apply

Array = jax.Array
Metrics = dict[str, Array]


class PpoTrainState(NamedTuple):
    """The fields of `update.initial`, and those of frozen networks and of the penalty on the
    divergence from a reference.
    """

    params: Any
    opt_state: Any
    step: Array
    env_steps: Array
    key: Array
    reward_params: Any = ()
    frozen: Any = ()  # constant parameters, () for none; in no checkpoint
    # The parameters at the start, or only the low-rank additions where these are learned; in no
    # checkpoint.
    reference: Any = ()
    # beta of the penalty on the divergence from `reference`, float32 scalar
    kl_coefficient: Any = ()


def check(plan: UpdatePlan) -> None:
    """Raises UserError for values of `config.algorithm` that do not fit together."""
    settings: Ppo = plan.algorithm
    kl_penalty.check(settings.kl, "algorithm.kl")
    batch = plan.batch_size
    minibatch = settings.minibatch_size
    micro = settings.microbatch_size
    length = settings.recurrence

    allowed = f"a divisor of config.batch_size={batch}"
    checks.require(batch % minibatch == 0, "algorithm.minibatch_size", minibatch, allowed)
    allowed = f"a divisor of config.algorithm.minibatch_size={minibatch}"
    checks.require(minibatch % micro == 0, "algorithm.microbatch_size", micro, allowed)
    allowed = f"a divisor of config.rollout={plan.rollout} and of config.algorithm.microbatch_size={micro}"
    divides = plan.rollout % length == 0 and micro % length == 0
    checks.require(divides, "algorithm.recurrence", length, allowed)


def make_state(
    network: PolicyNetwork, optimizer: optax.GradientTransformation, key: Array
) -> PpoTrainState:
    """A new training state; the same key gives the same state."""
    return PpoTrainState(**update.initial(network, optimizer, key))


def check_reference(network: PolicyNetwork, plan: UpdatePlan) -> None:
    """Raises UserError for `config.algorithm.kl` with a recurrent network: rollouts hold no states
    of the reference.
    """
    coefficient = plan.algorithm.kl.coefficient
    states = jax.eval_shape(lambda: network.initial_state(1))
    has_memory = any(leaf.size for leaf in jax.tree.leaves(states))
    checks.require(
        not (coefficient and has_memory),
        "algorithm.kl.coefficient",
        coefficient,
        "0 with a network that has a memory (config.network.core)",
    )


def with_reference(state: PpoTrainState, plan: UpdatePlan) -> PpoTrainState:
    """A new state with what `config.algorithm.kl` needs: a copy of its parameters as the
    reference.
    """
    kl = plan.algorithm.kl
    if not kl.coefficient:
        return state
    reference = jax.tree.map(jnp.copy, state.params)
    return state._replace(reference=reference, kl_coefficient=jnp.float32(kl.coefficient))


def make_update(
    network: PolicyNetwork,
    optimizer: optax.GradientTransformationExtraArgs,
    plan: UpdatePlan,
    *,
    reward_fn: update.RewardFunction | None = None,
) -> Callable[..., tuple[PpoTrainState, Metrics]]:
    """Builds update(state, batch, *, axis_name=None) -> (state, metrics of float32 scalars)."""
    settings: Ppo = plan.algorithm
    limit = settings.kl_limit
    length = settings.recurrence

    def learn(
        state: PpoTrainState,
        batch: TrajectoryBatch,
        reward: Array,
        apply: Apply,
        axis_name: str | None,
    ) -> tuple[PpoTrainState, Metrics]:
        with_frozen = functools.partial(_with_frozen, block_stack.stacked_for_loop(state.frozen))

        # Targets, once for all epochs.
        bootstrap, states = ppo_sequences.replay(network, with_frozen(state.params), batch, length)
        # The rewards have the coefficient of before; the adapted one is for the next update.
        penalty, coefficient, penalty_metrics = _penalty(network, settings, state, batch, axis_name)
        samples, advantage_metrics = ppo_sequences.samples(
            settings, batch, bootstrap, reward + penalty, axis_name
        )
        sequences = ppo_sequences.sequences(network, batch, samples, states, length)

        key, order = _minibatch_order(settings, state.key, len(samples.action), axis_name)

        def step(current: PpoTrainState, chosen: Array) -> tuple[PpoTrainState, Metrics]:
            minibatch = jax.tree.map(lambda x: jnp.take(x, chosen, axis=0), sequences)
            if plan.compat.glam_value_broadcast:
                minibatch = ppo_sequences.with_peers(minibatch, settings.broadcast_rows)
            gradients, metrics = _gradient(
                network, settings, with_frozen, current.params, minibatch, axis_name
            )
            new, norms = apply(current, gradients)
            metrics |= norms
            if limit is None:
                return new, metrics
            return kl_limit.keep_if_near(limit, current, new, metrics)

        # Outside the loop over minibatches, whose compilation would take long with each block's
        # arrays as its carry. A reference and frozen parameters, which no step changes, stay as
        # they are.
        params, opt_state = block_stack.stacked_for_loop((state.params, state.opt_state))
        state = state._replace(
            params=params, opt_state=opt_state, key=key, kl_coefficient=coefficient
        )
        if limit is None:
            state, metrics = jax.lax.scan(step, state, order)
            metrics = update.joined(metrics)
        else:
            state, metrics = kl_limit.run_until_skipped(step, state, order)
        params, opt_state = block_stack.unstacked((state.params, state.opt_state))
        state = state._replace(params=params, opt_state=opt_state)

        value_mean = reductions.mean(samples.behaviour_value, samples.valid, axis_name)
        return state, {**metrics, **penalty_metrics, **advantage_metrics, "value/mean": value_mean}

    return update.make(
        network, optimizer, plan, learn, reward_fn, positive_reward=settings.positive_reward
    )


def _minibatch_order(
    settings: Ppo, key: Array, steps: int, axis_name: str | None
) -> tuple[Array, Array]:
    """The next state's key, and the order of this device's sequences in all epochs, int32
    [minibatches, sequences of a minibatch].

    Args:
      steps: this device's steps of the batch.
    """
    devices = 1 if axis_name is None else jax.lax.axis_size(axis_name)
    sequences = steps // settings.recurrence
    size = settings.minibatch_size // devices // settings.recurrence
    key, order_key = jax.random.split(key)
    if axis_name is not None:
        # Each device deals its own sequences: a minibatch has equally many of each.
        order_key = jax.random.fold_in(order_key, jax.lax.axis_index(axis_name))
    return key, ppo.minibatches(order_key, sequences, size, settings.epochs).reshape(-1, size)


def _with_frozen(frozen: Any, params: Any) -> Any:
    """All parameters that the network reads: the trained ones, and the frozen ones if there are
    any.
    """
    return {**params, **frozen} if frozen else params


def _penalty(
    network: PolicyNetwork,
    settings: Ppo,
    state: PpoTrainState,
    batch: TrajectoryBatch,
    axis_name: str | None,
) -> tuple[Array, Any, Metrics]:
    """The penalty float32 [T, B] that is added to the rewards, the next coefficient, and
    metrics.
    """
    if not jax.tree.leaves(state.reference):
        # A scalar, which adds nothing to rewards [T, B].
        return jnp.zeros(()), state.kl_coefficient, {}

    # The reference's outputs, in parts of a micro-batch: all rows at once would not fit in memory.
    # A policy with a reference has no recurrent state, so each row is a rollout of its own.
    params = _with_frozen(state.frozen, jax.lax.stop_gradient(state.reference))
    devices = 1 if axis_name is None else jax.lax.axis_size(axis_name)
    micro = min(settings.microbatch_size, settings.minibatch_size // devices)
    rows = {name: batch.observation[name][:-1] for name in network.fields}
    parts = jax.tree.map(
        lambda x: flat(x).reshape(-1, 1, micro, *x.shape[2:]), (rows, batch.first[:-1])
    )
    initial_state = network.initial_state(micro)
    outputs = jax.lax.map(
        lambda part: network.apply(params, part[0], initial_state, part[1])[0], parts
    )
    recorded = trajectory.recorded(batch)
    steps, rollouts = recorded.shape
    # From rollout by rollout back to time first: [T, B, A].
    outputs = jnp.swapaxes(outputs.reshape(rollouts, steps, -1), 0, 1)

    reference_log_prob = distributions.log_prob(network.spec, outputs, batch.action)
    # An estimate by the actions that were played, which are drawn from the policy.
    kl = reductions.mean(batch.behaviour_log_prob - reference_log_prob, recorded, axis_name)
    penalty = kl_penalty.penalty(batch.behaviour_log_prob, reference_log_prob, state.kl_coefficient)
    controller = kl_penalty.Controller(settings.kl.target, settings.kl.horizon)
    actions = reductions.total(recorded.astype(jnp.float32), axis_name)
    coefficient = controller.adapted(state.kl_coefficient, kl, actions)
    metrics = {"reference/kl": kl, "reference/coefficient": state.kl_coefficient}
    return jnp.where(recorded, penalty, 0.0), coefficient, metrics


def _gradient(
    network: PolicyNetwork,
    settings: Ppo,
    with_frozen: Callable[[Any], Any],
    params: Any,
    minibatch: Sequences,
    axis_name: str | None,
) -> tuple[Any, Metrics]:
    """Gradient of a minibatch's mean loss, summed over micro-batches, and metrics."""
    valid = minibatch.samples.valid
    # The rows of the whole minibatch on all devices: parts divided by it add up to its mean.
    count = jnp.maximum(reductions.total(valid.astype(jnp.float32), axis_name), 1.0)
    length = valid.shape[1]
    micro = min(settings.microbatch_size // length, len(valid))
    parts = jax.tree.map(lambda x: x.reshape(len(valid) // micro, micro, *x.shape[1:]), minibatch)

    def loss(params: Any, part: Sequences) -> tuple[Array, ppo.StepLosses]:
        # The network takes time first.
        observation = {name: jnp.swapaxes(x, 0, 1) for name, x in part.observation.items()}
        first = jnp.swapaxes(part.first, 0, 1)
        outputs, value, _ = network.apply(with_frozen(params), observation, part.states, first)
        samples = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), part.samples)
        limits = (settings.clip_ratio, settings.clip_value)
        terms = ppo.policy_step_losses(network.spec, flat(outputs), flat(value), samples, *limits)
        loss_of_row = ppo.combine(terms, settings.value_coefficient, settings.entropy_coefficient)
        return jnp.sum(jnp.where(samples.valid, loss_of_row, 0.0)) / count, terms

    def add(total: Any, part: Sequences) -> tuple[Any, ppo.StepLosses]:
        gradients, terms = jax.grad(loss, has_aux=True)(params, part)
        return jax.tree.map(jnp.add, total, gradients), terms

    # One micro-batch after the other, so that the memory holds the activations of one.
    gradients, terms = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, params), parts)
    # A sum: each device's loss is its rows' share of the minibatch's mean.
    gradients = jax.tree.map(lambda x: reductions.psum(x, axis_name), gradients)
    terms = jax.tree.map(lambda x: x.reshape(-1), terms)
    return gradients, ppo.describe(terms, valid.reshape(-1), settings.clip_ratio, axis_name)


class PpoAlgorithm(Algorithm):
    """PPO, as a training sees it."""

    def check(self, plan: UpdatePlan) -> None:
        check(plan)

    def make_state(
        self, network: PolicyNetwork, optimizer: optax.GradientTransformation, key: Array
    ) -> PpoTrainState:
        return make_state(network, optimizer, key)

    def make_update(
        self,
        network: PolicyNetwork,
        optimizer: optax.GradientTransformationExtraArgs,
        plan: UpdatePlan,
        *,
        reward_fn: update.RewardFunction | None = None,
    ) -> Update:
        return make_update(network, optimizer, plan, reward_fn=reward_fn)

    def with_training_parts(
        self, state: PpoTrainState, network: PolicyNetwork, plan: UpdatePlan
    ) -> PpoTrainState:
        return with_reference(state, plan)

    def check_network(self, plan: UpdatePlan, network: PolicyNetwork) -> None:
        check_reference(network, plan)

    def check_devices(self, plan: UpdatePlan, devices: int) -> None:
        """Raises UserError unless all devices get equal parts of a minibatch of steps, and run them
        in equal parts.
        """
        settings: Ppo = plan.algorithm
        size = settings.minibatch_size
        allowed = f"a multiple of the {devices} devices that learn"
        checks.require(size % devices == 0, "algorithm.minibatch_size", size, allowed)

        part = size // devices
        divisor = f"a divisor of {part}, a device's part of config.algorithm.minibatch_size={size}"
        length = settings.recurrence
        # What does not divide the whole minibatch is refused by `check`, with a better reason.
        fits = part % length == 0 or size % length != 0
        checks.require(fits, "algorithm.recurrence", length, divisor)

        divisor_or_more = f"{divisor}, or more"
        micro = settings.microbatch_size
        checks.require(
            part % min(micro, part) == 0, "algorithm.microbatch_size", micro, divisor_or_more
        )
        peers = settings.broadcast_rows
        fits = not plan.compat.glam_value_broadcast or part % min(peers, part) == 0
        checks.require(fits, "algorithm.broadcast_rows", peers, divisor_or_more)

    def minibatches(self, plan: UpdatePlan) -> int:
        """1: minibatches are of steps or of sequences, not of rollouts."""
        return 1

    def optimizer_steps(self, plan: UpdatePlan) -> int:
        return plan.algorithm.epochs * (plan.batch_size // plan.algorithm.minibatch_size)
