"""The update of `algorithm.name=ppo`: several epochs of PPO over a batch of rollouts, in minibatches of steps or of sequences.

Unlike `appo` it computes its targets once, from the values that the rollouts were played with. It shuffles single steps, or
sequences of `algorithm.recurrence` steps, through which gradients run back to the state that the sequence was played from.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from motif_jax.core import config as checks
from motif_jax.core.training import block_stack, finite, reductions
from motif_jax.nets.policy import PolicyNetwork
from motif_jax.rl.algorithms import kl_penalty, losses, ppo, trajectory, update
from motif_jax.rl.algorithms.algorithm import Algorithm, Update, UpdatePlan
from motif_jax.rl.algorithms.config import Ppo
from motif_jax.rl.algorithms.trajectory import TrajectoryBatch
from motif_jax.rl.algorithms.update import Apply

Array = jax.Array
Metrics = dict[str, Array]
# Metric of updates with a KL limit: the share of the minibatches whose step was taken.
_TAKEN = "policy/minibatches_taken"


class PpoTrainState(NamedTuple):
    """See `update.initial`."""

    params: Any
    opt_state: Any
    step: Array
    env_steps: Array
    key: Array
    reward_params: Any = ()
    frozen: Any = ()  # constant parameters, () for none; in no checkpoint
    # The parameters at the start (only the low-rank additions where these are learned), for the penalty on the divergence from
    # them; in no checkpoint.
    reference: Any = ()
    kl_coefficient: Any = ()  # beta of that penalty, float32 scalar


def check(plan: UpdatePlan) -> None:
    """Raises UserError for values of `config.algorithm` that do not fit together."""
    kl_penalty.check(plan.algorithm.kl, "algorithm.kl")
    size, settings = plan.batch_size, plan.algorithm
    minibatch, micro = settings.minibatch_size, settings.microbatch_size
    checks.require(
        size % minibatch == 0, "algorithm.minibatch_size", minibatch, f"a divisor of config.batch_size={size}"
    )
    allowed = f"a divisor of config.algorithm.minibatch_size={minibatch}"
    checks.require(minibatch % micro == 0, "algorithm.microbatch_size", micro, allowed)
    allowed = f"a divisor of config.rollout={plan.rollout} and of config.algorithm.microbatch_size={micro}"
    good = plan.rollout % settings.recurrence == 0 == micro % settings.recurrence
    checks.require(good, "algorithm.recurrence", settings.recurrence, allowed)


def make_state(network: PolicyNetwork, optimizer: optax.GradientTransformation, key: Array) -> PpoTrainState:
    """A new training state; the same key gives the same state."""
    return PpoTrainState(**update.initial(network, optimizer, key))


def with_reference(state: PpoTrainState, plan: UpdatePlan) -> PpoTrainState:
    """A new state with what `config.algorithm.kl` needs: a copy of its parameters as the reference."""
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
    limit, length = settings.kl_limit, settings.recurrence

    def learn(
        state: PpoTrainState, batch: TrajectoryBatch, reward: Array, apply: Apply, axis_name: str | None
    ) -> tuple[PpoTrainState, Metrics]:
        whole = functools.partial(_whole, block_stack.arranged(state.frozen))
        bootstrap, states = _play_again(network, whole(state.params), batch, length)
        penalty, coefficient, divergence = _penalty(network, settings, state, batch, axis_name)
        samples, advantages = _samples(settings, batch, bootstrap, reward + penalty, axis_name)
        sequences = _sequences(network, batch, samples, states, length)
        devices = 1 if axis_name is None else jax.lax.axis_size(axis_name)
        size = settings.minibatch_size // devices
        key, deal = jax.random.split(state.key)
        if axis_name is not None:
            deal = jax.random.fold_in(deal, jax.lax.axis_index(axis_name))
        order = ppo.minibatches(deal, len(samples.action) // length, size // length, settings.epochs)

        def step(current: PpoTrainState, chosen: Array) -> tuple[PpoTrainState, Metrics]:
            some = jax.tree.map(lambda x: jnp.take(x, chosen, axis=0), sequences)
            if plan.compat.glam_value_broadcast:
                some = _with_peers(some, min(settings.broadcast_rows, size))
            gradients, metrics = _gradient(network, settings, whole, current.params, some, axis_name)
            new, norms = apply(current, gradients)
            metrics |= norms
            if limit is None:
                return new, metrics
            near = metrics["policy/kl"] <= limit
            kept = finite.keep_if(near, (new.params, new.opt_state), (current.params, current.opt_state))
            return current._replace(params=kept[0], opt_state=kept[1]), {**metrics, _TAKEN: near * 1.0}

        order = order.reshape(-1, size // length)
        # Outside the loop over minibatches, whose compilation would take long with each block's arrays as its carry. A reference and
        # frozen parameters, which no step changes, stay as they are.
        params, opt_state = block_stack.arranged((state.params, state.opt_state))
        state = state._replace(params=params, opt_state=opt_state, key=key, kl_coefficient=coefficient)
        if limit is None:
            state, metrics = jax.lax.scan(step, state, order)
            metrics = update.joined(metrics)
        else:
            state, metrics = _until(step, state, order)
        params, opt_state = block_stack.unstacked((state.params, state.opt_state))
        state = state._replace(params=params, opt_state=opt_state)
        played = {"value/mean": reductions.mean(samples.behaviour_value, samples.valid, axis_name)}
        return state, {**metrics, **divergence, **advantages, **played}

    return update.make(network, optimizer, plan, learn, reward_fn)


def _whole(frozen: Any, params: Any) -> Any:
    return {**params, **frozen} if frozen else params


def _penalty(
    network: PolicyNetwork, settings: Ppo, state: PpoTrainState, batch: TrajectoryBatch, axis_name: str | None
) -> tuple[Array, Any, Metrics]:
    """The penalty that is added to the rewards [T, B], the next coefficient, and metrics."""
    if not jax.tree.leaves(state.reference):
        return jnp.zeros(()), state.kl_coefficient, {}
    params = _whole(state.frozen, jax.lax.stop_gradient(state.reference))
    devices = 1 if axis_name is None else jax.lax.axis_size(axis_name)
    micro = min(settings.microbatch_size, settings.minibatch_size // devices)
    rows = {name: batch.observation[name][:-1] for name in network.fields}
    parts = jax.tree.map(lambda x: _flat(x).reshape(-1, 1, micro, *x.shape[2:]), (rows, batch.first[:-1]))
    before = network.initial_state(micro)
    logits = jax.lax.map(lambda part: network.apply(params, part[0], before, part[1])[0], parts)
    steps, rollouts = batch.action.shape
    logits = jnp.swapaxes(logits.reshape(rollouts, steps, -1), 0, 1)
    reference = losses.log_probability(logits, batch.action)
    recorded = trajectory.recorded(batch)
    kl = reductions.mean(batch.behaviour_log_prob - reference, recorded, axis_name)
    added = kl_penalty.penalty(batch.behaviour_log_prob, reference, state.kl_coefficient)
    controller = kl_penalty.Controller(settings.kl.target, settings.kl.horizon)
    actions = reductions.total(recorded.astype(jnp.float32), axis_name)
    metrics = {"reference/kl": kl, "reference/coefficient": state.kl_coefficient}
    return jnp.where(recorded, added, 0.0), controller.adapted(state.kl_coefficient, kl, actions), metrics


def _until(
    step: Callable[..., tuple[PpoTrainState, Metrics]], state: PpoTrainState, order: Array
) -> tuple[PpoTrainState, Metrics]:
    """Runs `step` over minibatches until it skips one; metrics cover the minibatches that it was called with."""
    shapes = jax.eval_shape(step, state, order[0])[1]
    sums = {name: jnp.zeros(()) for name in shapes}
    bounds = {jnp.min: jnp.inf, jnp.max: -jnp.inf}
    sums |= {name: jnp.full((), bounds[of]) for name, of in update.EXTREMES.items() if name in shapes}
    pairs: dict[Any, Callable[..., Array]] = {jnp.min: jnp.minimum, jnp.max: jnp.maximum}

    def go_on(carry: tuple[PpoTrainState, Metrics, Array, Array]) -> Array:
        return (carry[2] < len(order)) & carry[3]

    def one(
        carry: tuple[PpoTrainState, Metrics, Array, Array],
    ) -> tuple[PpoTrainState, Metrics, Array, Array]:
        current, before, number, _ = carry
        new, metrics = step(current, order[number])
        joined = {
            name: pairs.get(update.EXTREMES.get(name), jnp.add)(before[name], value)
            for name, value in metrics.items()
        }
        return new, joined, number + 1, metrics[_TAKEN] > 0

    begun = (state, sums, jnp.zeros((), jnp.int32), jnp.array(True))
    state, sums, seen, _ = jax.lax.while_loop(go_on, one, begun)
    metrics = {name: value if name in update.EXTREMES else value / seen for name, value in sums.items()}
    return state, {**metrics, _TAKEN: sums[_TAKEN] / len(order)}


def _flat(x: Array) -> Array:
    """[T, B, ...] to [B T, ...], rollout by rollout."""
    return jnp.swapaxes(x, 0, 1).reshape(-1, *x.shape[2:])


class Sequences(NamedTuple):
    """S sequences of R steps; R is 1 for single steps."""

    observation: Mapping[str, Array]  # fields [S, R, ...]
    first: Array  # bool [S, R], the step begins an episode
    states: Any  # tree of [S, ...], the network's states before each sequence
    samples: ppo.Samples  # [S, R]; [S, R, peers] where each value is compared with those of other rows, too


def _play_again(
    network: PolicyNetwork, params: Any, batch: TrajectoryBatch, length: int
) -> tuple[Array, Any]:
    """Values [B] of the row after the rollouts, and the states [B T / length, ...] before sequences of `length` rows."""
    rows = {name: batch.observation[name] for name in network.fields}
    after = {name: x[-1:] for name, x in rows.items()}
    state = batch.initial_state
    steps = batch.action.shape[0]
    if not any(leaf.size for leaf in jax.tree.leaves(state)):
        _, bootstrap, _ = network.apply(params, after, state, batch.first[-1:])
        return bootstrap[0], network.initial_state(batch.action.size // length)
    parts = jax.tree.map(lambda x: x[:-1].reshape(steps // length, length, *x.shape[1:]), (rows, batch.first))

    def play(state: Any, part: tuple[Mapping[str, Array], Array]) -> tuple[Any, Any]:
        _, _, behind = network.apply(params, part[0], state, part[1])
        return behind, state

    state, states = jax.lax.scan(play, state, parts)
    _, bootstrap, _ = network.apply(params, after, state, batch.first[-1:])
    return bootstrap[0], jax.tree.map(_flat, states)


def _samples(
    settings: Ppo, batch: TrajectoryBatch, bootstrap: Array, reward: Array, axis_name: str | None
) -> tuple[ppo.Samples, Metrics]:
    discount = settings.gamma * (1.0 - trajectory.done(batch))
    value = batch.behaviour_value
    targets = ppo.targets(value, bootstrap, reward, discount, batch.last[:-1], settings.gae_lambda)
    valid = trajectory.recorded(batch)
    advantage = targets.advantage
    center, spread = reductions.mean_and_std(advantage, valid, axis_name)
    if settings.normalise_advantage:
        advantage = ppo.normalised(advantage, valid, axis_name)
    rows = (batch.action, batch.behaviour_log_prob, value, advantage, targets.value, valid)
    return ppo.Samples(*map(_flat, rows)), {"advantage/mean": center, "advantage/std": spread}


def _sequences(
    network: PolicyNetwork, batch: TrajectoryBatch, samples: ppo.Samples, states: Any, length: int
) -> Sequences:
    observation = {name: _flat(batch.observation[name][:-1]) for name in network.fields}
    rows = Sequences(observation, _flat(batch.first[:-1]), (), samples)
    return jax.tree.map(lambda x: x.reshape(-1, length, *x.shape[1:]), rows)._replace(states=states)


def _with_peers(some: Sequences, size: int) -> Sequences:
    """The sequences with values and targets of `size` samples each, for `compat.glam_value_broadcast`."""

    def peers(x: Array) -> Array:
        return ppo.together(x.reshape(-1), size).reshape(*x.shape, size)

    samples = some.samples
    return some._replace(
        samples=samples._replace(behaviour_value=peers(samples.behaviour_value), target=peers(samples.target))
    )


def _gradient(
    network: PolicyNetwork,
    settings: Ppo,
    whole: Callable[[Any], Any],
    params: Any,
    minibatch: Sequences,
    axis_name: str | None,
) -> tuple[Any, Metrics]:
    """Gradient of a minibatch's mean loss, summed over parts of it, and metrics."""
    valid = minibatch.samples.valid
    count = jnp.maximum(reductions.total(valid.astype(jnp.float32), axis_name), 1.0)
    length = valid.shape[1]
    micro = min(settings.microbatch_size // length, len(valid))
    parts = jax.tree.map(lambda x: x.reshape(len(valid) // micro, micro, *x.shape[1:]), minibatch)

    def loss(params: Any, part: Sequences) -> tuple[Array, ppo.StepLosses]:
        rows, first = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), (dict(part.observation), part.first))
        logits, value, _ = network.apply(whole(params), rows, part.states, first)
        some = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), part.samples)
        found = ppo.loss_rows(_flat(logits), _flat(value), some, settings.clip_ratio, settings.clip_value)
        each = ppo.combine(found, settings.value_coefficient, settings.entropy_coefficient)
        return jnp.sum(jnp.where(some.valid, each, 0.0)) / count, found

    def add(total: Any, part: Sequences) -> tuple[Any, ppo.StepLosses]:
        gradients, rows = jax.grad(loss, has_aux=True)(params, part)
        return jax.tree.map(jnp.add, total, gradients), rows

    gradients, rows = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, params), parts)
    gradients = jax.tree.map(lambda x: reductions.psum(x, axis_name), gradients)
    rows = jax.tree.map(lambda x: x.reshape(-1), rows)
    return gradients, ppo.describe(rows, valid.reshape(-1), settings.clip_ratio, axis_name)


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

    def completed(self, state: PpoTrainState, network: PolicyNetwork, plan: UpdatePlan) -> PpoTrainState:
        return with_reference(state, plan)

    def check_devices(self, plan: UpdatePlan, devices: int) -> None:
        """Raises UserError unless all devices get equal parts of a minibatch of steps, and run them in equal parts."""
        settings: Ppo = plan.algorithm
        size, micro = settings.minibatch_size, settings.microbatch_size
        allowed = f"a multiple of the {devices} devices that learn"
        checks.require(size % devices == 0, "algorithm.minibatch_size", size, allowed)
        part = size // devices
        divisor = f"a divisor of {part}, a device's part of config.algorithm.minibatch_size={size}"
        length = settings.recurrence
        fits = part % length == 0 or size % length  # `check` refuses what does not divide `size`
        checks.require(bool(fits), "algorithm.recurrence", length, divisor)
        allowed = f"{divisor}, or more"
        checks.require(part % min(micro, part) == 0, "algorithm.microbatch_size", micro, allowed)
        peers = settings.broadcast_rows
        fits = not plan.compat.glam_value_broadcast or part % min(peers, part) == 0
        checks.require(fits, "algorithm.broadcast_rows", peers, allowed)

    def optimizer_steps(self, plan: UpdatePlan) -> int:
        return plan.algorithm.epochs * (plan.batch_size // plan.algorithm.minibatch_size)
