"""The layers of a language model's networks, and the stacks that run them one after the other or in
one loop.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from motif_jax.core.training import block_stack
from motif_jax.lm.attention import relative_buckets, rotation, window_bias
from motif_jax.lm.block_loop import BlockLoop, Remat
from motif_jax.lm.config import ModelConfig
from motif_jax.lm.layers import (
    Attention,
    Context,
    FeedForward,
    KeyValues,
    LayerKeys,
    LayerNorm,
    Reach,
    RMSNorm,
)


class States(NamedTuple):
    """Hidden states [..., D] before and after the last norm; equal where a stack has no last
    norm.
    """

    before: jax.Array
    after: jax.Array


def _norm(config: ModelConfig, name: str) -> nn.Module:
    if config.architecture in ("gpt2", "roberta"):
        return LayerNorm(config.norm_epsilon, name=name)
    return RMSNorm(config.norm_epsilon, config.norm_offset, name=name)


class Block(nn.Module):
    """One layer: attention, attention to an encoder where there is one, feed-forward; each with its
    norms and its sum.
    """

    config: ModelConfig
    both_ways: bool
    cross: bool
    dtype: Any
    deterministic: bool = True

    def setup(self) -> None:
        config = self.config
        absolute = config.architecture in ("gpt2", "roberta")
        bias = absolute or config.attention_bias
        # T5's scale is part of the queries' initialisation.
        scale = (
            1.0
            if config.architecture == "t5"
            else (config.query_scalar or config.head_width) ** -0.5
        )

        def attention() -> Attention:
            return Attention(
                config=config,
                bias=bias,
                output_bias=absolute or config.output_bias,
                scale=scale,
                dtype=self.dtype,
                both_ways=self.both_ways,
                deterministic=self.deterministic,
            )

        self.attention = attention()
        self.attention_norm = _norm(config, "attention_norm")
        if self.cross:
            self.cross_attention = attention()
            self.cross_norm = _norm(config, "cross_norm")
        self.feed_forward = FeedForward(
            config=config,
            bias=absolute or config.feed_forward_bias,
            dtype=self.dtype,
            deterministic=self.deterministic,
        )
        self.drop = nn.Dropout(config.dropout.outputs, deterministic=self.deterministic)
        self.feed_forward_norm = _norm(config, "feed_forward_norm")
        if config.output_norms:
            self.attention_output_norm = _norm(config, "attention_output_norm")
            self.feed_forward_output_norm = _norm(config, "feed_forward_output_norm")

    def __call__(
        self,
        x: jax.Array,
        context: Context,
        prefix: KeyValues | None = None,
        own_keys: KeyValues | None = None,
        encoded: KeyValues | None = None,
    ) -> tuple[jax.Array, KeyValues]:
        """Returns the states [B, N, S, D], and keys and values as `Attention` does."""
        if self.config.architecture == "roberta":  # each norm after its sum
            attended, keys = self.attention(x, context, prefix, own_keys)
            x = self.attention_norm(x + self.drop(attended))
            return self.feed_forward_norm(x + self.drop(self.feed_forward(x))), keys
        # The others have the norm before the layer (pre-norm). Gemma 3 has one more, before the
        # sum.
        attended, keys = self.attention(self.attention_norm(x), context, prefix, own_keys)
        if self.config.output_norms:
            attended = self.attention_output_norm(attended)
        x += self.drop(attended)
        # Only a T5's decoder; its cross-attention reads the keys that `encoded_keys` made once.
        if encoded is not None:
            assert context.cross_bias is not None
            attended = self.cross_attention.attend_to_encoder(
                self.cross_norm(x), encoded, context.cross_bias
            )
            x += self.drop(attended)
        computed = self.feed_forward(self.feed_forward_norm(x))
        if self.config.output_norms:
            computed = self.feed_forward_output_norm(computed)
        return x + self.drop(computed), keys

    def encoded_keys(self, states: jax.Array) -> KeyValues:
        """Keys and values of an encoder's states [B, P, D]."""
        return self.cross_attention.keys_of(states)


class Stack(nn.Module):
    """The blocks of a decoder or an encoder, with T5's relative positions and the last norm.

    Blocks whose parameters are stacked (`block_stack`) run in one loop.
    """

    config: ModelConfig
    layers: int
    both_ways: bool
    cross: bool
    dtype: Any
    remat: Remat = False
    deterministic: bool = True

    def setup(self) -> None:
        dropout = self.config.dropout
        self.drop_embeddings = nn.Dropout(dropout.embeddings, deterministic=self.deterministic)
        self.drop_final = nn.Dropout(dropout.final, deterministic=self.deterministic)
        block_class = Block
        if self.remat:
            policy = None if self.remat is True else self.remat
            block_class = nn.remat(Block, policy=policy)
        # Declared where a loop runs them, too: flax makes parameters by them, which are stacked
        # afterwards.
        self.blocks = [
            block_class(**self._block_fields, name=f"block_{i}") for i in range(self.layers)
        ]
        if self.config.architecture == "t5":
            start = nn.initializers.normal(self.config.width**-0.5)
            shape = (self.config.relative_buckets, self.config.heads)
            self.relative_bias = self.param("relative_bias", start, shape)
        # RoBERTa's blocks end with a norm, so that its stack has none.
        if self.config.architecture != "roberta":
            self.final_norm = _norm(self.config, "final_norm")

    @property
    def _block_fields(self) -> dict[str, Any]:
        return {
            "config": self.config,
            "both_ways": self.both_ways,
            "cross": self.cross,
            "dtype": self.dtype,
            "deterministic": self.deterministic,
        }

    def __call__(
        self,
        x: jax.Array,
        context: Context,
        prefix: LayerKeys | None = None,
        own_keys: LayerKeys | None = None,
        encoded: LayerKeys | None = None,
    ) -> tuple[States, LayerKeys]:
        """Runs all blocks; see `Attention` for the arguments, here of all layers."""
        # T5's layers share one table of biases, which transformers keeps in the first block.
        relative = self._relative(x.shape[2], context) if self.config.architecture == "t5" else None
        context = self._with_positions(context)
        x = self.drop_embeddings(x)
        loop = self._loop()
        keys: LayerKeys
        if loop is not None:
            x, keys = loop.run(x, context, relative, prefix, own_keys, encoded)
        else:
            x, keys = self._one_by_one(x, context, relative, (prefix, own_keys, encoded))
        after = x if self.config.architecture == "roberta" else self.final_norm(x)
        return States(x, self.drop_final(after)), keys

    def _one_by_one(
        self,
        x: jax.Array,
        context: Context,
        relative: jax.Array | None,
        earlier: tuple[Any, Any, Any],
    ) -> tuple[jax.Array, tuple[KeyValues, ...]]:
        """Runs the blocks; `earlier` are prefix, own and encoded keys, tuples over the layers."""
        # Added before the blocks, which share the sum; the loop adds it in its body.
        if relative is not None:
            context = context._replace(bias=context.bias + relative)
        keys = []
        for layer, block in enumerate(self.blocks):
            parts = (None if part is None else part[layer] for part in earlier)
            # A plain bool, so that each block's program has its own reach alone, and no choice
            # between two.
            is_local = bool(self.config.local_layers) and self.config.local_layers[layer]
            x, fresh = block(x, context.of_layer(is_local), *parts)
            keys.append(fresh)
        return x, tuple(keys)

    def _loop(self) -> BlockLoop | None:
        """The loop over the blocks; None where their parameters are not stacked."""
        # While parameters are made there are none here yet, and the blocks run one by one.
        params = self.variables.get("params", {})
        if not block_stack.runs(params):
            return None
        # Outside this module's tree (`parent=None`): the loop applies it to the slices of each
        # turn.
        block = Block(**self._block_fields, parent=None)
        assert self.scope is not None
        key = None if self.deterministic else self.scope.rngs["dropout"]
        return BlockLoop(
            block, "/".join(self.path), params, key, self.remat, self.config.local_layers
        )

    def _with_positions(self, context: Context) -> Context:
        """The context with rotary positions, and with what layers with a window see."""
        config = self.config
        if config.rotary is None:
            return context
        # Once for all layers: a CPU would compute the sines again in every one.
        angles = rotation(context.positions, config.rotary, config.head_width)
        context = context._replace(rotation=angles)
        if config.window is None:
            return context
        assert context.key_positions is not None
        # A sum of biases is a mask as well: what either hides has at most `MASKED`.
        bias = context.bias + window_bias(context.positions, context.key_positions, config.window)
        prefix_bias = context.prefix_bias
        if prefix_bias is not None:
            assert context.prefix_positions is not None
            prefix_keys = context.prefix_positions[:, None]
            prefix_bias = prefix_bias + window_bias(context.positions, prefix_keys, config.window)
        # Gemma 3's layers with a window turn by frequencies of their own.
        if config.local_rotary is not None:
            angles = rotation(context.positions, config.local_rotary, config.head_width)
        return context._replace(local=Reach(bias, prefix_bias, angles))

    def _relative(self, length: int, context: Context) -> jax.Array:
        """T5's bias of relative positions, float32 [1, 1, H, S, K]."""
        config = self.config
        key = jnp.arange(context.bias.shape[-1])
        # Places and not positions: padding on either side of a row shifts queries and keys alike.
        query = jnp.arange(length) + (0 if context.slot is None else context.slot)
        sizes = (config.relative_buckets, config.relative_distance, self.both_ways)
        table = self.relative_bias.astype(jnp.float32)
        # [S, K, H] of the table's rows becomes [1, 1, H, S, K].
        return jnp.moveaxis(table[relative_buckets(query, key, *sizes)], -1, 0)[None, None]

    def encoded_keys(self, states: jax.Array) -> LayerKeys:
        """Keys and values of an encoder's states [B, P, D] for every layer."""
        loop = self._loop()
        if loop is not None:
            return loop.encoded_keys(states)
        return tuple(block.cross_attention.keys_of(states) for block in self.blocks)
