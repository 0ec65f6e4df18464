"""The update of `algorithm.name=drrn`: Q-learning from a replay memory (He et al. 2016; GLAM's
baseline).

A batch is added to the memory, then the update learns from steps drawn from it: Q(s, a) moves
towards r + gamma max_a' Q(s', a') of the same parameters, by the Huber loss. The network is
`motif_jax.glam.drrn.DrrnAgent`, or one with its methods.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import optax

from motif_jax.core import config as checks
from motif_jax.core.training import reductions
from motif_jax.glam import replay_memory
from motif_jax.glam.config import QLearning
from motif_jax.glam.replay_memory import ReplayMemory, ReplaySteps
from motif_jax.nets import distributions
from motif_jax.rl.algorithms import trajectory
from motif_jax.rl.algorithms.algorithm import Algorithm, joined
from motif_jax.rl.algorithms.trajectory import TrajectoryBatch
from motif_jax.rl.config import AgentConfig

Array = jax.Array
Metrics = dict[str, Array]
# The shortest of the few lengths to which a draw's prompts are cut; each length is half of the
# next.
_SHORTEST = 64


class DrrnTrainState(NamedTuple):
    """The fields of `Algorithm.first_fields`, and a `replay_memory.ReplayMemory`."""

    params: Any
    opt_state: Any
    step: Array
    env_steps: Array
    key: Array
    memory: Any
    reward_params: Any = ()


class DrrnAlgorithm(Algorithm):
    """DRRN's Q-learning of a training, see `Algorithm`. Its network has `stored`, `shown` and
    `values` besides what a `PolicyNetwork` has.
    """

    network: Any

    @classmethod
    def check(cls, config: AgentConfig, network: Any) -> None:
        size = config.batch_size
        settings: QLearning = config.algorithm
        allowed = f"at least config.batch_size={size}"
        is_enough = settings.replay_steps >= size
        checks.require(is_enough, "algorithm.replay_steps", settings.replay_steps, allowed)
        allowed = f"at most config.batch_size={size}, so that there are as many from the start"
        are_there = settings.replay_draw <= size
        checks.require(are_there, "algorithm.replay_draw", settings.replay_draw, allowed)

    @classmethod
    def minibatches(cls, config: AgentConfig) -> int:
        """1: an update learns from steps of the memory."""
        return 1

    def init(self, key: Array) -> DrrnTrainState:
        network = self.network
        spec = network.spec.observation
        fields = {
            name: jax.ShapeDtypeStruct(spec[name].shape, spec[name].dtype)
            for name in network.fields
        }
        row = jax.eval_shape(network.stored, fields)
        # A segment is what one environment plays in a batch; a rest of the steps is not remembered.
        rollout = self.config.rollout
        segments = self.config.algorithm.replay_steps // rollout
        memory = replay_memory.empty(segments, rollout, row)
        return DrrnTrainState(**self.first_fields(key), memory=memory)

    def update(
        self, state: DrrnTrainState, batch: TrajectoryBatch, *, axis_name: str | None = None
    ) -> tuple[DrrnTrainState, Metrics]:
        settings: QLearning = self.config.algorithm
        rewards = self.rewards(state, batch, positive=settings.positive_reward)
        share = self.share_done(state)
        # Before learning, so that from the first batch on there are as many steps as a draw takes.
        segments = _segments(self.network, batch, rewards.total, axis_name)
        memory = replay_memory.add(state.memory, segments)
        key, *draws = jax.random.split(state.key, settings.epochs + 1)
        filled = replay_memory.steps_in(memory).astype(jnp.float32)
        # The loop carries only what is learned: a carried memory would be copied.
        step = functools.partial(self.step, memory, share, axis_name)
        small, metrics = jax.lax.scan(step, state._replace(memory=()), jnp.stack(draws))
        learned = small._replace(memory=memory, key=key)
        metrics = {**joined(metrics), "replay/steps": filled}
        return self.counted(state, learned, batch, rewards, metrics, axis_name)

    def step(
        self,
        memory: ReplayMemory,
        share: Array,
        axis_name: str | None,
        state: DrrnTrainState,
        draw: Array,
    ) -> tuple[DrrnTrainState, Metrics]:
        """One step of the optimiser on steps drawn from the memory with the key `draw`."""
        settings: QLearning = self.config.algorithm
        # All devices draw the same steps from equal memories, and each takes its part.
        steps = _device_part(replay_memory.draw(draw, memory, settings.replay_draw), axis_name)
        gradients, metrics = _gradient(self.network, settings.gamma, state.params, steps, axis_name)
        state, norms = self.apply(state, gradients, share)
        return state, {**metrics, **norms}


def errors(values: Array, after: Array, steps: ReplaySteps, gamma: float) -> tuple[Array, Array]:
    """Q minus its targets, float32 [N], with gradient through `values` alone; and the targets.

    Args:
      values, after: float32 [N, A], Q before the steps and after them.
    """
    chex.assert_equal_shape([values, after])
    chex.assert_equal_shape_prefix([values, steps.action], 1)
    chosen = jnp.take_along_axis(values, steps.action[:, None], axis=1)[:, 0]
    # After an end the next observation is of another episode (`trajectory.done`).
    ahead = jnp.where(steps.done, 0.0, jnp.max(after, axis=1))
    # The same parameters and no target network, as published: the gradient treats the target as
    # data.
    target = jax.lax.stop_gradient(steps.reward + gamma * ahead)
    return chosen - target, target


def prompt_lengths(longest: int) -> list[int]:
    """The lengths to which prompts may be cut, ascending; the last one cuts none."""
    lengths = [longest]
    while lengths[0] > _SHORTEST:
        lengths.insert(0, math.ceil(lengths[0] / 2))
    return lengths


def _segments(
    network: Any, batch: TrajectoryBatch, reward: Array, axis_name: str | None
) -> ReplayMemory:
    rows = {
        "observation": network.stored({name: batch.observation[name] for name in network.fields}),
        "action": batch.action,
        "reward": reward,
        "done": trajectory.done(batch),
        "valid": trajectory.recorded(batch),
    }
    # [time, environment] -> [segment, time]; all devices keep the segments of all.
    rows = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), rows)
    if axis_name is not None:
        rows = jax.lax.all_gather(rows, axis_name, axis=0, tiled=True)
    return ReplayMemory(**rows, added=jnp.zeros((), jnp.int32))


def _device_part(steps: ReplaySteps, axis_name: str | None) -> ReplaySteps:
    """This device's part of a draw; where it does not divide evenly, each step is still taken
    once.
    """
    if axis_name is None:
        return steps
    count = len(steps.action)
    part_size = math.ceil(count / jax.lax.axis_size(axis_name))
    indices = jax.lax.axis_index(axis_name) * part_size + jnp.arange(part_size)
    part = jax.tree.map(lambda x: jnp.take(x, jnp.minimum(indices, count - 1), axis=0), steps)
    # The last devices repeat the last step to fill their parts, without counting it.
    return part._replace(valid=part.valid & (indices < count))


def _gradient(
    network: Any, gamma: float, params: Any, steps: ReplaySteps, axis_name: str | None
) -> tuple[Any, Metrics]:
    # Of all devices: the sum of their gradients is that of the mean over the draw.
    count = jnp.maximum(reductions.total(steps.valid.astype(jnp.float32), axis_name), 1.0)
    before = network.shown(steps.observation)
    after = network.shown(steps.after)

    def loss(params: Any, length: int) -> tuple[Array, tuple[Array, Array, Array]]:
        values = network.values(params, before[:, :length])
        # A second pass over the observations after the steps, for which nothing is kept for the
        # gradient.
        ahead = network.values(jax.lax.stop_gradient(params), after[:, :length])
        error, target = errors(values, ahead, steps, gamma)
        rows = jnp.where(steps.valid, optax.losses.huber_loss(error), 0.0)
        return jnp.sum(rows) / count, (rows, values, target)

    lengths = prompt_lengths(before.shape[1])
    # Of this device's part; devices may take branches of their own, since none of them exchanges
    # data.
    longest = jnp.max(jnp.sum(jnp.concatenate([before, after]) >= 0, axis=1))
    # The shortest length that cuts no prompt of this draw; one program holds the gradient for each.
    index = jnp.sum(longest > jnp.asarray(lengths[:-1], jnp.int32))
    gradient = jax.grad(loss, has_aux=True)
    branches = [functools.partial(gradient, length=length) for length in lengths]
    gradients, (rows, values, target) = jax.lax.switch(index, branches, params)
    gradients = jax.tree.map(lambda x: reductions.psum(x, axis_name), gradients)
    total = reductions.mean(rows, steps.valid, axis_name)
    return gradients, {
        "loss/total": total,
        "loss/value": total,
        "policy/entropy": reductions.mean(
            distributions.categorical_entropy(values), steps.valid, axis_name
        ),
        "value/mean": reductions.mean(jnp.max(values, axis=1), steps.valid, axis_name),
        "value/target_mean": reductions.mean(target, steps.valid, axis_name),
    }
