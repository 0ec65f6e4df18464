"""Chooses the trained parameters (all, or low-rank additions to a frozen base of any precision),
and computes the loss of predicted tokens, as sums.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.core.sections import Lora, LoraOnBase
from motif_jax.core.training.gradient_sums import Sums
from motif_jax.lm import linear, lora, masked_head
from motif_jax.lm.generation import token_log_probs
from motif_jax.lm.model import LanguageModel
from motif_jax.lm.scoring import in_chunks
from motif_jax.lm.text_batches import TokenBatch

_BLOCKS = ("*/block_*",)


def spec_of(config: Lora) -> lora.Spec | None:
    """The low-rank additions; None: the whole model is trained."""
    patterns = [pattern.strip() for pattern in config.patterns.split(",")]
    patterns = [pattern for pattern in patterns if pattern]
    return lora.Spec(tuple(patterns), config.rank, config.alpha) if patterns else None


def check(config: LoraOnBase, shapes: Any) -> None:
    """Raises UserError where a pattern of section `lora` matches no layer of these shapes, or the
    base cannot be quantised.
    """
    spec = spec_of(config)
    if spec is not None:
        linear.matching(shapes, spec.patterns)
    if config.base == "nf4":
        # nf4 has one scale for 64 inputs; only the blocks' layers are quantised (`_BLOCKS`).
        inputs = {
            shape.shape[0] for path, shape in linear.kernels(shapes).items() if "block" in str(path)
        }
        odd_inputs = [size for size in inputs if size % lora.QUANTISED_BLOCK]
        if odd_inputs:
            raise UserError(
                f"config.lora.base='nf4': needs layers of a multiple of {lora.QUANTISED_BLOCK} inputs, this model has some of {min(odd_inputs)}"
            )


@contextlib.contextmanager
def active(parts: Mapping[str, Any], spec: lora.Spec | None) -> Iterator[None]:
    """While active, layers have the low-rank `additions` and the quantised `kernels` of `parts`;
    see `linear.computed_by`.
    """
    with contextlib.ExitStack() as stack:
        # Additions first: the first replacement entered is called first, and adds to what the next
        # one computes.
        if spec is not None:
            stack.enter_context(lora.added(parts["additions"], spec))
        if "kernels" in parts:
            stack.enter_context(lora.quantised(parts["kernels"]))
        yield


@dataclasses.dataclass(frozen=True)
class Adaptation:
    """How a model is trained.

    Trained and frozen parameters are dicts that together have `model` (without quantised kernels),
    `kernels` (the quantised ones), `additions` (low-rank) and `masked_head` (RoBERTa's).

    Attributes:
      spec: of the additions; None: everything is trained.
      base: precision of a frozen base: 'float32', 'bfloat16', or 'int8' or 'nf4' of the layers of
          its blocks.
      chunk: tokens whose logits are in memory at once; None: all.
    """

    model: LanguageModel
    spec: lora.Spec | None = None
    base: str = "float32"
    chunk: int | None = None
    dropout: bool = False

    def arrange(
        self, params: Any, head: Any, key: jax.Array
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Divides parameters into trained and frozen ones, numpy arrays; `key` draws the additions.

        `head` is RoBERTa's head for masked tokens, or None.
        """
        heads = {} if head is None else {"masked_head": head}
        if self.spec is None:
            return {"model": params, **heads}, {}
        # On the host, as all parameters before a training: devices get them with the state.
        additions = jax.device_get(lora.init(key, params, self.spec))
        learned = {"additions": additions, **heads}
        if self.base in lora.QUANTISED:
            kernels, rest = lora.split_quantised(params, self.base, _BLOCKS)
            return learned, {"model": rest, "kernels": kernels}
        base_dtype = jnp.dtype(self.base)
        return learned, {"model": jax.tree.map(lambda leaf: np.asarray(leaf, base_dtype), params)}

    def sums(self, learned: Any, frozen: Any, batch: TokenBatch, key: Any) -> Sums:
        """Implements `gradient_sums.SumsOf`."""
        parts = {**(frozen or {}), **learned}
        model = self.model
        if self.dropout and key is not None:
            model = model.with_dropout(key)
        with active(parts, self.spec):
            states = states_of(model, parts["model"], batch)

            def logits_of(states: jax.Array) -> jax.Array:
                # RoBERTa's head is apart from the network, and multiplies by its embedding.
                if "masked_head" not in parts:
                    return model.logits(parts["model"], states)
                table = parts["model"]["embedding"]
                return masked_head.logits(
                    parts["masked_head"], table, states, model.config.norm_epsilon
                )

            return token_sums(logits_of, states, batch.targets, batch.weights, self.chunk)

    def merged_params(self, learned: Any, frozen: Any) -> tuple[Any, Any]:
        """Merged parameters, float32 on the host, and the head for masked tokens or None."""
        learned, frozen = jax.device_get((learned, frozen))
        parts = {**(frozen or {}), **learned}
        params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), parts["model"])
        # Kernels are decoded before the additions are merged into them.
        if "kernels" in parts:
            params = lora.join_quantised(parts["kernels"], params)
        if self.spec is not None:
            params = lora.merged(params, parts["additions"], self.spec)
        return params, parts.get("masked_head")


def states_of(model: LanguageModel, params: Any, batch: TokenBatch) -> jax.Array:
    """The states [B, S, D] after the last norm that predict `batch.targets`."""
    chex.assert_rank([batch.tokens, batch.valid], 2)
    if not model.config.encoder_layers:
        states, _ = model.prefill(params, batch.tokens, batch.valid)
        return states.after
    # An encoder and its decoder: two runs with the same stacks.
    params = model.prepared(params)
    _, prompt = model.prefill(params, batch.prompt, batch.prompt_valid)
    states, _ = model.extend(params, prompt, batch.tokens[:, None], batch.valid[:, None])
    return states.after[:, 0]


def token_sums(
    logits_of: Callable[[jax.Array], jax.Array],
    states: jax.Array,
    targets: jax.Array,
    weights: jax.Array,
    chunk: int | None = None,
) -> Sums:
    """Cross-entropy of targets int32 [B, S] after states [B, S, D], computed in float32 with
    weights [B, S].

    `chunk` tokens' logits, by `logits_of`, are in memory at once, see `scoring.in_chunks`; None:
    all.
    """
    chex.assert_equal_shape([targets, weights])
    chex.assert_equal_shape_prefix([states, targets], 2)

    def measure(rows: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        row_states, row_targets = rows
        logits = logits_of(row_states)
        log_probs = token_log_probs(logits, row_targets)
        correct = jnp.argmax(logits, axis=-1) == row_targets
        return log_probs, correct

    flat_weights = weights.reshape(-1)
    rows = (states.reshape(flat_weights.size, states.shape[-1]), targets.reshape(-1))
    log_probs, correct = in_chunks(measure, rows, chunk)
    return Sums(
        loss=-(log_probs * flat_weights).sum(),
        weight=flat_weights.sum(),
        correct=(correct * flat_weights).sum(),
    )
