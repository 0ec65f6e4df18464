"""PPO (Schulman et al. 2017), as GLAM trains a language model's policy and value: several epochs
over a batch of rollouts, in minibatches of steps or of sequences.

Unlike `appo` it computes its targets once, from the values that the rollouts were played with. It
shuffles single steps, or sequences of `algorithm.recurrence` steps, through which gradients run
back to the state that the sequence was played from. Losses are computed row by row, so that a
minibatch may run in parts whose sums add up.

From a batch to its gradient: `PpoAlgorithm.update`, `step`, `gradient`, `loss`. The functions after
the class come in the order in which the update calls them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import chex
import jax
import jax.numpy as jnp

from motif_jax.core import config as checks
from motif_jax.core.training import block_stack, finite, reductions
from motif_jax.nets import distributions
from motif_jax.nets.policy import PolicyNetwork
from motif_jax.rl.algorithms import losses, trajectory
from motif_jax.rl.algorithms.algorithm import EXTREMES, Algorithm, joined
from motif_jax.rl.algorithms.config import Ppo
from motif_jax.rl.algorithms.returns import Targets, gae
from motif_jax.rl.algorithms.trajectory import TrajectoryBatch
from motif_jax.rl.config import AgentConfig

Array = jax.Array
Metrics = dict[str, Array]
State = TypeVar("State", bound=Any)
# Relative errors of the divergence are clipped to this before they change the coefficient (Ziegler
# et al. 2019, section 2.2).
MAX_RELATIVE_ERROR = 0.2
# Metric of updates with a limit: the share of the minibatches whose step was taken.
_TAKEN = "policy/minibatches_taken"


class PpoTrainState(NamedTuple):
    """The fields of `Algorithm.first_fields`, and those of frozen networks and of the penalty on
    the divergence from a reference.
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


class Samples(NamedTuple):
    """N played steps with their targets, as the loss compares them with the network's present
    output.
    """

    action: Array  # int32 [N], index into the step's actions; or n real numbers, float32 [N, n]
    behaviour_log_prob: Array  # float32 [N], of `action` under the policy that played it, in nats
    behaviour_value: Array  # float32 [N], V of that policy's network; or [N, S], see `value_losses`
    advantage: Array  # float32 [N]
    target: Array  # float32, value target, of the shape of `behaviour_value`
    valid: Array  # bool [N], the rows that count


class Sequences(NamedTuple):
    """S sequences of R steps; R is 1 for single steps."""

    observation: Mapping[str, Array]  # fields [S, R, ...]
    first: Array  # bool [S, R], the step begins an episode
    states: Any  # tree of [S, ...], the network's states before each sequence
    # [S, R]; [S, R, peers] where each value is compared with those of other rows, too
    samples: Samples


class StepLosses(NamedTuple):
    """The terms of the loss of N steps, float32 [N] each."""

    policy: Array  # minus the clipped surrogate
    value: Array  # the clipped square of the value's error
    entropy: Array  # of the current policy, in nats
    ratio: Array  # current over behaviour probability of the action


class PpoAlgorithm(Algorithm):
    """PPO of a training, see `Algorithm`."""

    @classmethod
    def check(cls, config: AgentConfig, network: PolicyNetwork) -> None:
        settings: Ppo = config.algorithm
        kl = settings.kl
        allowed = f"above 0 with config.algorithm.kl.target={kl.target}"
        has_penalty = kl.target is None or kl.coefficient > 0
        checks.require(has_penalty, "algorithm.kl.coefficient", kl.coefficient, allowed)
        states = jax.eval_shape(lambda: network.initial_state(1))
        has_memory = any(leaf.size for leaf in jax.tree.leaves(states))
        # Rollouts hold no recurrent states of the reference.
        allowed = "0 with a network that has a memory (config.network.core)"
        has_states = not (kl.coefficient and has_memory)
        checks.require(has_states, "algorithm.kl.coefficient", kl.coefficient, allowed)

        batch = config.batch_size
        minibatch = settings.minibatch_size
        micro = settings.microbatch_size
        length = settings.recurrence
        allowed = f"a divisor of config.batch_size={batch}"
        checks.require(batch % minibatch == 0, "algorithm.minibatch_size", minibatch, allowed)
        allowed = f"a divisor of config.algorithm.minibatch_size={minibatch}"
        checks.require(minibatch % micro == 0, "algorithm.microbatch_size", micro, allowed)
        allowed = f"a divisor of config.rollout={config.rollout} and of config.algorithm.microbatch_size={micro}"
        divides = config.rollout % length == 0 and micro % length == 0
        checks.require(divides, "algorithm.recurrence", length, allowed)

    @classmethod
    def check_devices(cls, config: AgentConfig, devices: int) -> None:
        """Raises UserError unless all devices get equal parts of a minibatch of steps, and run them
        in equal parts.
        """
        settings: Ppo = config.algorithm
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
        fits = not config.compat.glam_value_broadcast or part % min(peers, part) == 0
        checks.require(fits, "algorithm.broadcast_rows", peers, divisor_or_more)

    @classmethod
    def minibatches(cls, config: AgentConfig) -> int:
        """1: minibatches are of steps or of sequences, not of rollouts."""
        return 1

    @classmethod
    def optimizer_steps(cls, config: AgentConfig) -> int:
        return config.algorithm.epochs * (config.batch_size // config.algorithm.minibatch_size)

    def init(self, key: Array) -> PpoTrainState:
        state = PpoTrainState(**self.first_fields(key))
        kl = self.config.algorithm.kl
        if not kl.coefficient:
            return state
        reference = jax.tree.map(jnp.copy, state.params)
        return state._replace(reference=reference, kl_coefficient=jnp.float32(kl.coefficient))

    def update(
        self, state: PpoTrainState, batch: TrajectoryBatch, *, axis_name: str | None = None
    ) -> tuple[PpoTrainState, Metrics]:
        before = state
        settings: Ppo = self.config.algorithm
        length = settings.recurrence
        rewards = self.rewards(state, batch, positive=settings.positive_reward)
        share = self.share_done(state)
        frozen = block_stack.stacked_for_loop(state.frozen)

        # TARGETS, once for all epochs.
        params = with_frozen(frozen, state.params)
        bootstrap, states = replay(self.network, params, batch, length)
        # The rewards have the coefficient of before; the adapted one is for the next update.
        penalty, coefficient, penalty_metrics = self._penalty(state, batch, axis_name)
        samples, advantage_metrics = samples_of(
            settings, batch, bootstrap, rewards.total + penalty, axis_name
        )
        sequences = sequences_of(self.network, batch, samples, states, length)

        # MINIBATCHES. Blocks are stacked outside of the loop over them, whose compilation would
        # take long with each block's arrays as its carry. A reference and frozen parameters, which
        # no step changes, stay as they are.
        key, order = _minibatch_order(settings, state.key, len(samples.action), axis_name)
        stacked_params, opt_state = block_stack.stacked_for_loop((state.params, state.opt_state))
        state = state._replace(
            params=stacked_params, opt_state=opt_state, key=key, kl_coefficient=coefficient
        )
        step = functools.partial(self.step, frozen, sequences, share, axis_name)
        if settings.kl_limit is None:
            state, metrics = jax.lax.scan(step, state, order)
            metrics = joined(metrics)
        else:
            state, metrics = run_until_skipped(step, state, order)
        unstacked_params, opt_state = block_stack.unstacked((state.params, state.opt_state))
        state = state._replace(params=unstacked_params, opt_state=opt_state)

        value_mean = reductions.mean(samples.behaviour_value, samples.valid, axis_name)
        metrics = {
            **metrics,
            **penalty_metrics,
            **advantage_metrics,
            "value/mean": value_mean,
        }
        return self.counted(before, state, batch, rewards, metrics, axis_name)

    def step(
        self,
        frozen: Any,
        sequences: Sequences,
        share: Array,
        axis_name: str | None,
        state: PpoTrainState,
        chosen: Array,
    ) -> tuple[PpoTrainState, Metrics]:
        """One step of the optimiser on the sequences with numbers `chosen`; with a limit only near
        the policy that played.
        """
        settings: Ppo = self.config.algorithm
        minibatch = jax.tree.map(lambda x: jnp.take(x, chosen, axis=0), sequences)
        if self.config.compat.glam_value_broadcast:
            minibatch = with_peers(minibatch, settings.broadcast_rows)
        gradients, metrics = self.gradient(state.params, frozen, minibatch, axis_name)
        new, norms = self.apply(state, gradients, share)
        metrics |= norms
        if settings.kl_limit is None:
            return new, metrics
        return keep_if_near(settings.kl_limit, state, new, metrics)

    def gradient(
        self, params: Any, frozen: Any, minibatch: Sequences, axis_name: str | None
    ) -> tuple[Any, Metrics]:
        """Gradient of a minibatch's mean loss, summed over micro-batches, and metrics."""
        settings: Ppo = self.config.algorithm
        valid = minibatch.samples.valid
        # The rows of the whole minibatch on all devices: parts divided by it add up to its mean.
        count = jnp.maximum(reductions.total(valid.astype(jnp.float32), axis_name), 1.0)
        length = valid.shape[1]
        micro = min(settings.microbatch_size // length, len(valid))
        parts = jax.tree.map(
            lambda x: x.reshape(len(valid) // micro, micro, *x.shape[1:]), minibatch
        )

        def add(total: Any, part: Sequences) -> tuple[Any, StepLosses]:
            gradients, terms = jax.grad(self.loss, has_aux=True)(params, frozen, part, count)
            return jax.tree.map(jnp.add, total, gradients), terms

        # One micro-batch after the other, so that the memory holds the activations of one.
        gradients, terms = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, params), parts)
        # A sum: each device's loss is its rows' share of the minibatch's mean.
        gradients = jax.tree.map(lambda x: reductions.psum(x, axis_name), gradients)
        terms = jax.tree.map(lambda x: x.reshape(-1), terms)
        return gradients, describe(terms, valid.reshape(-1), settings.clip_ratio, axis_name)

    def loss(
        self, params: Any, frozen: Any, part: Sequences, count: Array
    ) -> tuple[Array, StepLosses]:
        """A micro-batch's part of the minibatch's mean loss, over `count` valid rows; the terms of
        its rows.
        """
        settings: Ppo = self.config.algorithm
        spec = self.network.spec
        # The network takes time first.
        observation = {name: jnp.swapaxes(x, 0, 1) for name, x in part.observation.items()}
        first = jnp.swapaxes(part.first, 0, 1)
        outputs, value, _ = self.network.apply(
            with_frozen(frozen, params), observation, part.states, first
        )
        outputs = flat(outputs)
        samples = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), part.samples)
        terms = step_losses(
            distributions.log_prob(spec, outputs, samples.action),
            distributions.entropy(spec, outputs),
            flat(value),
            samples,
            settings.clip_ratio,
            settings.clip_value,
        )
        loss_of_row = combine(terms, settings.value_coefficient, settings.entropy_coefficient)
        return jnp.sum(jnp.where(samples.valid, loss_of_row, 0.0)) / count, terms

    def _penalty(
        self, state: PpoTrainState, batch: TrajectoryBatch, axis_name: str | None
    ) -> tuple[Array, Any, Metrics]:
        """The penalty float32 [T, B] that is added to the rewards, the next coefficient, and
        metrics.
        """
        if not jax.tree.leaves(state.reference):
            # A scalar, which adds nothing to rewards [T, B].
            return jnp.zeros(()), state.kl_coefficient, {}

        # The reference's outputs, in parts of a micro-batch: all rows at once would not fit in
        # memory. A policy with a reference has no recurrent state, so each row is a rollout of its
        # own.
        network = self.network
        settings: Ppo = self.config.algorithm
        params = with_frozen(state.frozen, jax.lax.stop_gradient(state.reference))
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
        penalty = kl_penalty(batch.behaviour_log_prob, reference_log_prob, state.kl_coefficient)
        actions = reductions.total(recorded.astype(jnp.float32), axis_name)
        coefficient = state.kl_coefficient
        if settings.kl.target is not None:
            coefficient = adapted_coefficient(
                coefficient, kl, actions, settings.kl.target, settings.kl.horizon
            )
        metrics = {"reference/kl": kl, "reference/coefficient": state.kl_coefficient}
        return jnp.where(recorded, penalty, 0.0), coefficient, metrics


def with_frozen(frozen: Any, params: Any) -> Any:
    """All parameters that the network reads: the trained ones, and the frozen ones if there are
    any.
    """
    return {**params, **frozen} if frozen else params


def replay(
    network: PolicyNetwork, params: Any, batch: TrajectoryBatch, length: int
) -> tuple[Array, Any]:
    """Values [B] of the row after the rollouts, and the states [B T / length, ...] before sequences
    of `length` rows.
    """
    rows = {name: batch.observation[name] for name in network.fields}
    final_row = {name: x[-1:] for name, x in rows.items()}
    state = batch.initial_state
    steps, rollouts = batch.behaviour_value.shape
    # Without a memory no states are replayed.
    if not any(leaf.size for leaf in jax.tree.leaves(state)):
        _, bootstrap, _ = network.apply(params, final_row, state, batch.first[-1:])
        return bootstrap[0], network.initial_state(steps * rollouts // length)
    # [T / length, length, B, ...]: parts in the order of time.
    parts = jax.tree.map(
        lambda x: x[:-1].reshape(steps // length, length, *x.shape[1:]), (rows, batch.first)
    )

    def play(state: Any, part: tuple[Mapping[str, Array], Array]) -> tuple[Any, Any]:
        _, _, next_state = network.apply(params, part[0], state, part[1])
        # The state before the part: gradients of its sequences end there.
        return next_state, state

    state, states = jax.lax.scan(play, state, parts)
    _, bootstrap, _ = network.apply(params, final_row, state, batch.first[-1:])
    return bootstrap[0], jax.tree.map(flat, states)


def kl_penalty(log_prob: Array, reference: Array, coefficient: Array) -> Array:
    """The term -beta (log pi - log pi_ref) that is added to rewards, without gradient; float32
    [...].

    With it the reward of action a in state s is r - beta (log pi(a|s) - log pi_ref(a|s)), whose
    expectation under pi is r - beta KL(pi || pi_ref) (Ziegler et al. 2019, section 2.1; as in TRL
    and OpenRLHF).

    Args:
      log_prob, reference: float32 [...], log-probabilities in nats under the policy and under the
          reference.
      coefficient: beta, float32 scalar.
    """
    chex.assert_equal_shape([log_prob, reference])
    return jax.lax.stop_gradient(-coefficient * (log_prob - reference))


def adapted_coefficient(
    coefficient: Array, kl: Array, actions: Array, target: float, horizon: float
) -> Array:
    """beta for the next update:
    beta (1 + clip(kl / target - 1, -0.2, 0.2) min(actions / horizon, 1)).

    Source: Ziegler et al. 2019, section 2.2. Their constant K_beta is actions / horizon in their
    code; here it is 1 at most.

    Args:
      coefficient: beta of this update, float32 scalar.
      kl: divergence from the reference, mean of the update's actions on all devices, float32
        scalar, nats an action.
      actions: their number, float32 scalar.
      target: nats an action.
      horizon: in actions.

    Returns:
      float32 scalar.
    """
    chex.assert_rank([coefficient, kl, actions], 0)
    error = jnp.clip(kl / target - 1.0, -MAX_RELATIVE_ERROR, MAX_RELATIVE_ERROR)
    return coefficient * (1.0 + error * jnp.minimum(actions / horizon, 1.0))


def targets(
    value: Array,
    bootstrap_value: Array,
    reward: Array,
    discount: Array,
    last: Array,
    gae_lambda: float,
) -> Targets:
    """Advantages A (Schulman et al. 2016, equation 16), and value targets A + V, over a rollout.

    Args:
      value: float32 [T, B], V of the policy that played, in units of the reward.
      bootstrap_value: float32 [B], V of the state after the last row.
      reward: float32 [T, B].
      discount: float32 [T, B], 0 where the episode ends with this row. With
        `compat.timeout_as_terminal` it is 0 at a timeout too, and there are no `last` rows.
      last: bool [T, B], rows that only carry the value of an episode's final observation; see
        `returns.gae`.
      gae_lambda: lambda in [0, 1].

    Returns:
      Targets float32 [T, B]; in a `last` row the advantage is 0 and the target V.
    """
    # The target of `gae` itself is the discounted return, as APPO's.
    advantage = gae(value, bootstrap_value, reward, discount, last, gae_lambda).advantage
    return Targets(advantage + value, advantage)


def samples_of(
    settings: Ppo,
    batch: TrajectoryBatch,
    bootstrap: Array,
    reward: Array,
    axis_name: str | None,
) -> tuple[Samples, dict[str, Array]]:
    """The batch's steps with their targets, [B T] each, and metrics of the advantages; `bootstrap`
    [B], `reward` [T, B].
    """
    discount = settings.gamma * (1.0 - trajectory.done(batch))
    value = batch.behaviour_value
    of_rollout = targets(value, bootstrap, reward, discount, batch.last[:-1], settings.gae_lambda)
    valid = trajectory.recorded(batch)
    advantage = of_rollout.advantage
    # Metrics, of advantages before they are normalised.
    mean, std = reductions.mean_and_std(advantage, valid, axis_name)
    if settings.normalise_advantage:
        advantage = normalised(advantage, valid, axis_name)
    samples = Samples(
        action=flat(batch.action),
        behaviour_log_prob=flat(batch.behaviour_log_prob),
        behaviour_value=flat(value),
        advantage=flat(advantage),
        target=flat(of_rollout.value),
        valid=flat(valid),
    )
    return samples, {"advantage/mean": mean, "advantage/std": std}


def normalised(
    advantage: Array, valid: Array, axis_name: str | None = None, floor: float = 1e-8
) -> Array:
    """(A - mean) / standard deviation of advantages, both over the valid rows; float32 [N]."""
    mean, std = reductions.mean_and_std(advantage, valid, axis_name)
    return (advantage - mean) / jnp.maximum(std, floor)


def sequences_of(
    network: PolicyNetwork, batch: TrajectoryBatch, samples: Samples, states: Any, length: int
) -> Sequences:
    """Cuts the batch's steps into sequences of `length`; `states` [B T / length, ...] are those
    before them.
    """
    observation = {name: flat(batch.observation[name][:-1]) for name in network.fields}
    rows = Sequences(observation, flat(batch.first[:-1]), (), samples)
    # `flat` puts a rollout's steps behind each other: each `length` of them are a sequence.
    return jax.tree.map(lambda x: x.reshape(-1, length, *x.shape[1:]), rows)._replace(states=states)


def flat(x: Array) -> Array:
    """[T, B, ...] to [B T, ...], rollout by rollout."""
    return jnp.swapaxes(x, 0, 1).reshape(-1, *x.shape[2:])


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
    return key, minibatches(order_key, sequences, size, settings.epochs).reshape(-1, size)


def minibatches(key: Array, samples: int, size: int, epochs: int) -> Array:
    """Numbers of the samples in each minibatch, int32 [epochs, samples / size, size]; each epoch
    has every sample once.
    """
    keys = jax.random.split(key, epochs)
    return jax.vmap(lambda k: jax.random.permutation(k, samples))(keys).reshape(epochs, -1, size)


def with_peers(minibatch: Sequences, broadcast_rows: int) -> Sequences:
    """The minibatch with the values and targets of `broadcast_rows` samples, or all, at each step,
    for `compat.glam_value_broadcast`.
    """
    size = min(broadcast_rows, minibatch.samples.valid.size)

    def peers(x: Array) -> Array:
        return with_rows_of_block(x.reshape(-1), size).reshape(*x.shape, size)

    samples = minibatch.samples._replace(
        behaviour_value=peers(minibatch.samples.behaviour_value),
        target=peers(minibatch.samples.target),
    )
    return minibatch._replace(samples=samples)


def with_rows_of_block(x: Array, size: int) -> Array:
    """Gives each row all rows of its block of `size`, [N] to [N, size], for
    `compat.glam_value_broadcast` in `value_losses`.
    """
    chex.assert_rank(x, 1)
    return jnp.repeat(x.reshape(-1, size), size, axis=0)


def step_losses(
    log_prob: Array,
    entropy: Array,
    value: Array,
    samples: Samples,
    clip_ratio: float,
    clip_value: float,
) -> StepLosses:
    """The terms of the loss of N steps.

    Args:
      log_prob: float32 [N], of the actions under the current policy, in nats, with gradient.
      entropy: float32 [N], of the current policy, in nats, with gradient.
      value: float32 [N], with gradient.
      clip_ratio: c, so that 0.2 clips to [0.8, 1.2].
      clip_value: greatest change of the value, in its units.
    """
    chex.assert_equal_shape(
        [log_prob, entropy, value, samples.behaviour_log_prob, samples.advantage]
    )
    ratio = jnp.exp(log_prob - samples.behaviour_log_prob)
    # Another range than APPO's, which is [1 / (1 + c), 1 + c].
    clipped = losses.clamp(ratio, 1 - clip_ratio, 1 + clip_ratio)
    return StepLosses(
        policy=-jnp.minimum(ratio * samples.advantage, clipped * samples.advantage),
        value=value_losses(value, samples.behaviour_value, samples.target, clip_value),
        entropy=entropy,
        ratio=ratio,
    )


def value_losses(value: Array, behaviour_value: Array, target: Array, clip_value: float) -> Array:
    """`losses.value_errors` of each row; float32 [N].

    Args:
      value: float32 [N], with gradient.
      behaviour_value, target: float32 [N]. With `compat.glam_value_broadcast` float32 [N, S], those
        of the S rows that one process of the published system learns from together: the row's term
        is the mean over all of them.
    """
    chex.assert_rank(value, 1)
    chex.assert_equal_shape([behaviour_value, target])
    chex.assert_equal_shape_prefix([value, target], 1)
    if target.ndim == 2:
        # [N, 1] beside targets [N, S]: each value is compared with all S.
        value = value[:, None]
    errors = losses.value_errors(value, behaviour_value, target, clip_value)
    return errors if target.ndim == 1 else jnp.mean(errors, axis=1)


def combine(terms: StepLosses, value_coefficient: float, entropy_coefficient: float) -> Array:
    """The loss of each row, the weighted sum of its terms; float32 [N]."""
    return terms.policy + value_coefficient * terms.value - entropy_coefficient * terms.entropy


def describe(
    terms: StepLosses, valid: Array, clip_ratio: float, axis_name: str | None = None
) -> dict[str, Array]:
    """Means of the terms over the valid rows, of all devices; float32 scalars."""
    is_clipped = jnp.abs(terms.ratio - 1.0) > clip_ratio
    return {
        "loss/policy": reductions.mean(terms.policy, valid, axis_name),
        "loss/value": reductions.mean(terms.value, valid, axis_name),
        **losses.policy_metrics(terms.ratio, terms.entropy, is_clipped, valid, axis_name),
    }


def keep_if_near(limit: float, old: State, new: State, metrics: Metrics) -> tuple[State, Metrics]:
    """`old` with the parameters of `new` where the policy is within the limit, else `old`; and the
    metrics, with whether they were taken.

    Args:
      limit: greatest `policy/kl` of `metrics`, in nats.
      old, new: training states with `params` and `opt_state`, before and after a minibatch's step.
    """
    is_near = metrics["policy/kl"] <= limit
    # `policy/kl` is of the parameters before the step, which came from earlier minibatches.
    params = finite.keep_if(is_near, new.params, old.params)
    opt_state = finite.keep_if(is_near, new.opt_state, old.opt_state)
    return old._replace(params=params, opt_state=opt_state), {**metrics, _TAKEN: is_near * 1.0}


class _Progress(NamedTuple):
    """The carry of `run_until_skipped`."""

    state: Any
    metrics: Metrics  # sums over the minibatches so far, and extremes
    minibatches: Array  # int32 scalar, how many were learned from or skipped
    was_taken: Array  # bool scalar, the last minibatch was not skipped


def run_until_skipped(
    step: Callable[[State, Array], tuple[State, Metrics]], state: State, order: Array
) -> tuple[State, Metrics]:
    """Runs `step`, which ends with `keep_if_near`, over minibatches until it skips one.

    Args:
      order: [minibatches, ...], the second argument of each step.

    Returns:
      The last state, and metrics of the minibatches that `step` was called with.
    """
    neutral: dict[Any, float] = {jnp.min: jnp.inf, jnp.max: -jnp.inf}
    pairwise: dict[Any, Callable[..., Array]] = {jnp.min: jnp.minimum, jnp.max: jnp.maximum}
    # The loop's carry needs all metrics before the first minibatch.
    names = jax.eval_shape(step, state, order[0])[1]
    start = {name: jnp.full((), neutral.get(EXTREMES.get(name), 0.0)) for name in names}

    def is_unfinished(progress: _Progress) -> Array:
        return (progress.minibatches < len(order)) & progress.was_taken

    def run_one(progress: _Progress) -> _Progress:
        new, metrics = step(progress.state, order[progress.minibatches])
        joined = {}
        for name, value in metrics.items():
            join = pairwise.get(EXTREMES.get(name), jnp.add)
            joined[name] = join(progress.metrics[name], value)
        return _Progress(new, joined, progress.minibatches + 1, metrics[_TAKEN] > 0)

    first = _Progress(state, start, jnp.zeros((), jnp.int32), jnp.array(True))
    # Not a scan, which would run the rest of the minibatches for nothing.
    end = jax.lax.while_loop(is_unfinished, run_one, first)

    metrics = {}
    for name, value in end.metrics.items():
        metrics[name] = value if name in EXTREMES else value / end.minibatches
    # Of all minibatches, also of those that came after the skipped one.
    metrics[_TAKEN] = end.metrics[_TAKEN] / len(order)
    return end.state, metrics
