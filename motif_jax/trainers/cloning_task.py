"""Behaviour cloning of a language model that acts, as a task of the offline trainer."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict

from motif_jax.algorithms import schedules
from motif_jax.algorithms.candidate_scores import LOG_PROBABILITY
from motif_jax.devices.parallel import AXIS, DataParallel
from motif_jax.language.agent import LanguageAgent
from motif_jax.language.tokens import padded
from motif_jax.support import seeds
from motif_jax.support.run_folder import as_plain
from motif_jax.trainers.cloning_data import CloningData
from motif_jax.trainers.language_task import perplexity
from motif_jax.trainers.task import Evaluation, Task, TrainingPosition, diverged, epoch_order

Array = jax.Array
TOKENS, CANDIDATES = "tokens", "candidates"


class CloningState(NamedTuple):
    """What is learned, the optimiser's state, and steps taken (int32 scalar)."""

    params: Any
    opt_state: Any
    step: Any


class CloningBatch(NamedTuple):
    """Steps of somebody's episodes: prompts int32 [..., L], -1 behind each; actions int32 [...]; valid bool [...]."""

    prompts: Any
    actions: Any
    valid: Any


class CloningSums(NamedTuple):
    """Of a batch: the losses added up, what they are divided by, and how often the expert's action is the likeliest."""

    loss: Array
    weight: Array
    right: Array
    rows: Array


def targets(
    network: LanguageAgent, end: int, pad: int, length: int | None
) -> tuple[LanguageAgent, np.ndarray]:
    """The network whose scores are of what cloning predicts, token by token, and how many tokens each action has.

    Args:
      network: the agent.
      end: the token behind an action, which is predicted too.
      pad: stands behind it up to `length` tokens, which count (`compat.bc_pad_in_loss`).
      length: None for no pads.
    """
    assert network.candidates is not None
    words, there = (np.asarray(part) for part in network.candidates)
    rows = [[*row[valid].tolist(), end] for row, valid in zip(words, there, strict=True)]
    if length is not None:
        rows = [row + [pad] * (length - len(row)) for row in rows]
    # Whatever the scores are that it acts by: what is predicted token by token has log-probabilities.
    spoken = dataclasses.replace(
        network, candidates=padded(rows), form=LOG_PROBABILITY, by_length=False, pad_plus_one=False
    )
    return spoken, np.array([len(row) for row in rows])


def sums(network: LanguageAgent, counts: Array | None, params: Any, batch: CloningBatch) -> CloningSums:
    """The losses of the rows of `batch` [N].

    Args:
      network: its logits are the candidates' log-probabilities.
      counts: tokens of each action: the loss is that of a token. None: it is the cross-entropy of the expert's action among
        the candidates.
      params: of the network, what is frozen among them.
      batch: rows that are not valid count nothing.
    """
    logits, _ = network.rows(params, batch.prompts)
    likely = logits if counts is not None else jax.nn.log_softmax(logits)
    chosen = jnp.take_along_axis(likely, batch.actions[:, None], axis=1)[:, 0]
    weight = jnp.ones_like(chosen) if counts is None else counts[batch.actions].astype(jnp.float32)
    valid = batch.valid.astype(jnp.float32)
    right = (jnp.argmax(logits, axis=1) == batch.actions).astype(jnp.float32)
    return CloningSums(
        jnp.sum(jnp.where(batch.valid, -chosen, 0.0)),
        jnp.sum(weight * valid),
        jnp.sum(right * valid),
        jnp.sum(valid),
    )


class CloningTask(Task):
    """One cloning.

    Args:
      config: of the run.
      network: the agent, whose parameters at the start are those of its folder.
      data: what is learned from.
      parallel: the devices.
      special: the end token and the pad of the model's tokenizer.
      digests: of everything read.
    """

    title, unit, criterion = "clone", "steps of the expert", "validation/loss"

    def __init__(
        self,
        config: ConfigDict,
        network: LanguageAgent,
        data: CloningData,
        parallel: DataParallel,
        special: tuple[int, int],
        digests: Mapping[str, str],
    ) -> None:
        self.config, self.parallel, self.digests = config, parallel, digests
        self.source = config.trajectories or config.published.dir
        self._data, self._agent = data, network
        self._per_pass = -(-len(data.train) // config.batch_size)
        self.steps = self._per_pass * config.epochs
        self.steps_per_epoch, self.chunk_steps = config.evaluate_every, config.chunk_steps
        self.remedy = f"a smaller --config.optimizer.learning_rate (it is {config.optimizer.learning_rate:g})"
        self._network, counts = network, None
        if config.loss == TOKENS:
            length = config.target_tokens if config.compat.bc_pad_in_loss else None
            self._network, counts = targets(network, *special, length)
        self._counts = counts
        optimizer = optimizer_of(config, self.steps)
        self.optimizer = schedules.make_optimizer(optimizer, self.steps)
        self._schedule = schedules.make_schedule(optimizer, self.steps)
        self._measure = parallel.wrap(self._measure_core)
        self._frozen = network.frozen()
        self._orders: dict[int, np.ndarray] = {}

    def _sums(self, params: Any, frozen: Any, batch: CloningBatch) -> CloningSums:
        counts = None if self._counts is None else jnp.asarray(self._counts)
        return sums(self._network, counts, {**(frozen or {}), **params}, batch)

    def _measure_core(self, state: tuple[Any, Any], batch: CloningBatch) -> CloningSums:
        return jax.lax.psum(self._sums(*state, batch), AXIS)

    def init_state(self) -> CloningState:
        params = jax.device_get(
            self._agent.init(jax.random.key(seeds.derive(self.config.seed, "parameters") % 2**32))
        )
        return CloningState(params, jax.device_get(jax.jit(self.optimizer.init)(params)), np.int32(0))

    def shared(self) -> Any:
        return self._frozen or None

    def step(
        self, state: CloningState, shared: Any, batch: CloningBatch
    ) -> tuple[CloningState, dict[str, Array]]:

        def loss(params: Any, part: CloningBatch) -> tuple[Array, CloningSums]:
            found = self._sums(params, shared, part)
            return found.loss, found

        def add(total: Any, part: CloningBatch) -> tuple[Any, CloningSums]:
            gradients, found = jax.grad(loss, has_aux=True)(state.params, part)
            return jax.tree.map(jnp.add, total, gradients), found

        zero = jax.tree.map(jnp.zeros_like, state.params)
        gradients, parts = jax.lax.scan(add, zero, batch)
        total = jax.lax.psum(jax.tree.map(jnp.sum, parts), AXIS)
        gradients = jax.tree.map(lambda x: x / jnp.maximum(total.weight, 1.0), jax.lax.psum(gradients, AXIS))
        updates, opt_state = self.optimizer.update(gradients, state.opt_state, state.params)
        metrics = {
            "loss": total.loss / jnp.maximum(total.weight, 1.0),
            "accuracy": total.right / jnp.maximum(total.rows, 1.0),
            "gradient_norm": optax.tree.norm(gradients),
        }
        return CloningState(optax.apply_updates(state.params, updates), opt_state, state.step + 1), metrics

    def _order(self, number: int) -> np.ndarray:
        """The rows of a pass over the data: int64 [steps, batch], -1 behind the last."""
        if number not in self._orders:
            rows, size = self._data.train, self.config.batch_size
            order = epoch_order(self.config.seed, number, rows, size)
            if self.config.compat.bc_unshuffled:
                order = np.full_like(order, -1)
                order.reshape(-1)[: len(rows)] = rows
            self._orders = {number: order}
        return self._orders[number]

    def batches(self, first: int, count: int) -> CloningBatch:
        places = [divmod(step, self._per_pass) for step in range(first, first + count)]
        rows = np.stack([self._order(number)[step] for number, step in places])
        return self._batch(rows.reshape(count, self.config.accumulate, -1))

    def _batch(self, rows: np.ndarray) -> CloningBatch:
        actions = np.where(rows >= 0, self._data.actions[rows], 0).astype(np.int32)
        return CloningBatch(self._data.prompts(rows, self.config.network.prompt_tokens), actions, rows >= 0)

    def batch_axes(self, batches: CloningBatch) -> int:
        return 2

    def units(self, step: int) -> int:
        return step * self.config.batch_size

    def evaluate(self, state: CloningState, shared: Any, position: TrainingPosition) -> Evaluation:
        config, size = self.config, self.config.batch_size // self.config.accumulate
        rows = self._data.held_out[: config.evaluation_batches * config.batch_size]
        rows = np.pad(rows, (0, -len(rows) % size), constant_values=-1).reshape(-1, size)
        total = np.zeros(len(CloningSums._fields))
        for part in rows:
            placed = self.parallel.put_batch(self._batch(part), 0)
            found = self._measure((state.params, shared), placed)
            total += np.asarray(jax.device_get(found), np.float64)
        loss, agreement = total[0] / total[1], total[2] / total[3]
        if not math.isfinite(loss):
            raise diverged(f"the loss of held-out steps after step {position.step:,} not finite", self.remedy)
        row = {
            "validation/loss": loss,
            "validation/perplexity": perplexity(loss),
            "validation/agreement": agreement,
            "train/loss": position.mean("loss"),
            "train/agreement": position.mean("accuracy"),
            "train/gradient_norm": position.mean("gradient_norm"),
            "train/passes": position.step / self._per_pass,
            "optimizer/learning_rate": position.learning_rate(self._schedule),
        }
        text = f"step {position.step:,}: {100 * agreement:.1f} % of {round(total[3]):,} held-out actions are the likeliest"
        return Evaluation(row, {"config": as_plain(config)}, text)


def optimizer_of(config: ConfigDict, steps: int) -> ConfigDict:
    """`config.optimizer` with its warm-up in steps: a share of the run's where that is None."""
    optimizer = config.optimizer.copy_and_resolve_references()
    if optimizer.warmup_steps is None:
        with optimizer.unlocked():
            optimizer.warmup_steps = math.ceil(steps * config.warmup_share)
    return optimizer
