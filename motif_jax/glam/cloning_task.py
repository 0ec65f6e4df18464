"""Behaviour cloning of a language agent, as a task of the offline trainer."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.core.devices.parallel import DataParallel
from motif_jax.core.training.gradient_sums import Sums, TrainState
from motif_jax.core.training.task import Evaluation, TrainingPosition, epoch_order, key_of
from motif_jax.glam.agent import LanguageAgent
from motif_jax.glam.cloning_data import CloningData, JointActions
from motif_jax.glam.config import CloningConfig
from motif_jax.lm.pretrain_language_model import perplexity
from motif_jax.lm.scoring import LOG_PROBABILITY
from motif_jax.lm.sums_task import SumsTask, TrainingData
from motif_jax.lm.tokens import padded

# Values of `config.loss`: the tokens of the expert's action, or the choice among the actions.
TOKENS = "tokens"
CANDIDATES = "candidates"
# The length that the published code pads a target to, with compat.bc_pad_in_loss.
PUBLISHED_TARGET_TOKENS = 3
# Of the optimiser's steps, where config.optimizer.warmup_steps is None: Adam's second moment needs
# some steps, however few the data has.
WARMUP_SHARE = 0.01


class CloningBatch(NamedTuple):
    """Steps of the expert's episodes."""

    prompts: Any  # int32 [..., L], padded with -1
    actions: Any  # int32 [...]
    valid: Any  # bool [...]
    # int32 [..., A, S] and [..., A], see `JointActions`; None: the network has the actions of all
    # prompts.
    candidates: Any = None
    starts: Any = None


def scoring_targets(
    network: LanguageAgent, end: int, pad: int, length: int | None
) -> LanguageAgent:
    """The network with the targets of cloning as its candidates, scored by their log-probabilities,
    whatever scores it acts by.

    A target is an action's tokens, `end`, and `pad` up to `length` (`compat.bc_pad_in_loss`; None:
    no padding). Where prompts have their own actions, `with_targets` makes them.
    """
    candidates = network.candidates
    if candidates is not None:
        # The padding is taken off first, since the end token stands right after the action's own.
        tokens, is_token = (np.asarray(part) for part in candidates)
        rows = [row[mask].tolist() for row, mask in zip(tokens, is_token, strict=True)]
        candidates = padded([_target(row, 0, end, pad, length) for row in rows])
    return dataclasses.replace(
        network, candidates=candidates, form=LOG_PROBABILITY, by_length=False, pad_plus_one=False
    )


def with_targets(joint: JointActions, end: int, pad: int, length: int | None) -> JointActions:
    """The targets, as in `scoring_targets`, of actions that are tokenised together with their
    prompts.
    """
    lists, actions, longest = joint.candidates.shape
    flat = zip(
        joint.candidates.reshape(-1, longest), joint.starts.reshape(-1).tolist(), strict=True
    )
    rows = [_target(row[row >= 0].tolist(), start, end, pad, length) for row, start in flat]
    # -1 is no token there, whereas `pad` up to `length` is one that is learned.
    return joint._replace(candidates=padded(rows, pad=-1).tokens.reshape(lists, actions, -1))


def _target(tokens: list[int], start: int, end: int, pad: int, length: int | None) -> list[int]:
    """An action's row with its end token; the action's own tokens begin at `start`."""
    row = [*tokens, end]
    # A negative number adds no padding.
    missing = 0 if length is None else length - (len(row) - start)
    return row + [pad] * missing


def sums(
    network: LanguageAgent,
    by_tokens: bool,
    learned: Any,
    frozen: Any,
    batch: CloningBatch,
    key: Any = None,
) -> Sums:
    """Sums of the losses of `batch` [N], and how often the expert's action is the most likely; a
    `gradient_sums.SumsOf`.

    By tokens the most likely is that of the greatest log-probability with the end token
    (`scoring_targets`), which need not be the likeliest by the scores that the clone acts by.

    Args:
      network: its logits are the candidates' log-probabilities.
      by_tokens: the mean loss is a token's; False: it is the cross-entropy of the expert's action
          among the candidates.
    """
    params = {**(frozen or {}), **learned}
    # Head and scores alike; the value has no loss in cloning.
    logits, _ = network.logits_and_values(params, batch.prompts, batch.candidates, batch.starts)
    # Of tokens the logits are log-probabilities already.
    log_probs = logits if by_tokens else jax.nn.log_softmax(logits)
    chosen = jnp.take_along_axis(log_probs, batch.actions[:, None], axis=1)[:, 0]
    # 1 where the loss is the mean of a step, the number of tokens where it is that of a token.
    weight = jnp.ones_like(chosen)
    if by_tokens:
        counts = _token_counts(network, batch)
        weight = jnp.take_along_axis(counts, batch.actions[:, None], axis=1)[:, 0].astype(
            jnp.float32
        )
    valid = batch.valid.astype(jnp.float32)
    is_right = (jnp.argmax(logits, axis=1) == batch.actions).astype(jnp.float32)
    loss = jnp.sum(jnp.where(batch.valid, -chosen, 0.0))
    # Accuracy is a share of steps in both cases, and has a count of its own.
    return Sums(loss, jnp.sum(weight * valid), jnp.sum(is_right * valid), jnp.sum(valid))


def _token_counts(network: LanguageAgent, batch: CloningBatch) -> jax.Array:
    """The number of tokens of each action, int32 [N, A]."""
    if batch.candidates is not None:
        return jnp.sum(batch.candidates >= 0, axis=-1) - batch.starts
    assert network.candidates is not None
    counts = jnp.sum(jnp.asarray(network.candidates.valid), axis=-1)
    return jnp.broadcast_to(counts, (len(batch.actions), len(counts)))


class CloningBatches:
    """Passes over the training rows of `data`, shuffled unless `compat.bc_unshuffled`, and over the
    held-out rows.
    """

    def __init__(self, config: CloningConfig, data: CloningData) -> None:
        self._config = config
        self._data = data
        self.steps_per_pass = math.ceil(len(data.train) / config.batch_size)
        # Two passes: a chunk of steps may reach into the next.
        self._order = functools.lru_cache(maxsize=2)(self._drawn)

    def _drawn(self, number: int) -> np.ndarray:
        """Rows of the training pass `number`: int64 [steps, batch], -1 where the last batch has
        none.
        """
        config = self._config
        rows = self._data.train
        if config.compat.bc_unshuffled:
            return _filled(rows, config.batch_size)
        return epoch_order(config.seed, number, rows, config.batch_size)

    def _batch(self, rows: np.ndarray) -> CloningBatch:
        # Row -1 is an empty row of a batch; its action is any, as it does not count.
        actions = np.where(rows >= 0, self._data.actions[rows], 0).astype(np.int32)
        prompts = self._data.prompts(rows, self._config.network.prompt_tokens)
        joint = self._data.joint
        if joint is None:
            return CloningBatch(prompts, actions, rows >= 0)
        lists = joint.list_of_prompt[rows]
        return CloningBatch(
            prompts, actions, rows >= 0, joint.candidates[lists], joint.starts[lists]
        )

    def batches(self, first: int, count: int) -> CloningBatch:
        """The batches of `count` training steps from step `first` on, stacked."""
        rows = []
        for step in range(first, first + count):
            number, step_in_pass = divmod(step, self.steps_per_pass)
            rows.append(self._order(number)[step_in_pass])
        return self._batch(np.stack(rows))

    def all_batches(self, max_batches: int) -> list[CloningBatch]:
        """At most `max_batches` batches of held-out rows."""
        size = self._config.batch_size
        return [
            self._batch(rows) for rows in _filled(self._data.held_out[: max_batches * size], size)
        ]


def _filled(rows: np.ndarray, size: int) -> np.ndarray:
    """Rows [N] as batches [ceil(N / size), size], padded with -1."""
    return np.pad(rows, (0, -len(rows) % size), constant_values=-1).reshape(-1, size)


class CloningTask(SumsTask):
    """A training by behaviour cloning, from the parameters of the network's folder.

    `special` are the token that ends an action, and the padding.
    """

    title = "clone"
    unit = "steps of the expert"

    def __init__(
        self,
        config: CloningConfig,
        network: LanguageAgent,
        data: CloningData,
        parallel: DataParallel,
        special: tuple[int, int],
        digests: Mapping[str, str],
    ) -> None:
        # On the host, like all parameters before a training; they come from the network's folder.
        trained = jax.device_get(network.init(key_of(config.seed, "parameters")))
        parameters = (trained, network.frozen())
        by_tokens = config.loss == TOKENS
        if by_tokens:
            length = PUBLISHED_TARGET_TOKENS if config.compat.bc_pad_in_loss else None
            network = scoring_targets(network, *special, length)
            if data.joint is not None:
                data = data._replace(joint=with_targets(data.joint, *special, length))
        # After the targets: the batches hold the actions with their end tokens.
        batches = CloningBatches(config, data)
        self._steps_per_pass = batches.steps_per_pass
        steps = batches.steps_per_pass * config.epochs
        loss = functools.partial(sums, network, by_tokens)
        if config.optimizer.warmup_steps is None:
            # The number of steps follows from the data, so that the warm-up is a share of it.
            warmup = math.ceil(steps * WARMUP_SHARE)
            optimizer = dataclasses.replace(config.optimizer, warmup_steps=warmup)
            config = dataclasses.replace(config, optimizer=optimizer)
        training_data = TrainingData(batches, batches, digests, config.source)
        super().__init__(config, loss, parameters, training_data, parallel, steps)

    def evaluate(self, state: TrainState, shared: Any, position: TrainingPosition) -> Evaluation:
        held_out = self.held_out(state, shared, position)
        row = {
            "validation/loss": held_out.loss,
            "validation/perplexity": perplexity(held_out.loss),
            "validation/agreement": held_out.accuracy,
            "train/loss": position.mean("loss"),
            "train/agreement": position.mean("accuracy"),
            "train/passes": position.step / self._steps_per_pass,
        }
        count = round(held_out.counted)
        text = f"{100 * held_out.accuracy:.1f} % of {count:,} held-out actions are the likeliest"
        return self.evaluation(row, text, position)
