"""The networks: T5, GPT-2, Llama, Qwen2, Qwen3, Gemma 3 and RoBERTa out of one stack of blocks.

T5: Raffel et al. 2020, and Shazeer 2020 for gated layers; GPT-2: Radford et al. 2019; Llama:
Touvron et al. 2023; Qwen2: Yang et al. 2024; Qwen3: Yang et al. 2025; Gemma 3: Kamath et al. 2025;
RoBERTa: Liu et al. 2019. Dropout is off unless a network is made with `deterministic=False`; then
it needs a key "dropout".
"""

from __future__ import annotations

from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from motif_jax.lm.attention import mask_bias
from motif_jax.lm.block_loop import Remat
from motif_jax.lm.blocks import Stack, States
from motif_jax.lm.config import ModelConfig
from motif_jax.lm.layers import (
    Context,
    LayerKeys,
    LayerNorm,
    own_bias,
    projection,
)
from motif_jax.nets import products


class LanguageNetwork(nn.Module):
    """Embeddings, an encoder, a decoder or both, and the head that predicts tokens.

    Attributes:
      dtype: of the computation; parameters keep theirs, norms and softmaxes are float32.
      remat: True: each layer keeps its input alone and computes the rest again in the backward
        pass; a policy of `jax.checkpoint_policies` keeps more (`dots_saveable`: the products);
        False: everything is kept.
      deterministic: without dropout.
    """

    config: ModelConfig
    dtype: Any = jnp.float32
    remat: Remat = False
    deterministic: bool = True

    def setup(self) -> None:
        config = self.config
        # T5's table starts with a standard deviation of 1: `scaled_head` divides the states before
        # a tied head.
        table = nn.initializers.normal(1.0 if config.architecture == "t5" else config.initializer)
        self.embedding = self.param("embedding", table, (config.vocab_size, config.width))
        if config.architecture in ("gpt2", "roberta"):
            # RoBERTa's first token has row pad_id + 1 of the table; no token uses the rows before
            # it.
            rows = (config.max_length or 0) + self._position_offset
            self.position_embedding = self.param("position_embedding", table, (rows, config.width))
        if config.architecture == "roberta":
            # Of BERT's kinds of segments RoBERTa has one, whose row is added to every token.
            self.type_embedding = self.param("type_embedding", table, (1, config.width))
            self.embedding_norm = LayerNorm(config.norm_epsilon)
            self.encoder = self._stack(config.layers, both_ways=True, cross=False)
            return
        if config.encoder_layers:
            self.encoder = self._stack(config.encoder_layers, both_ways=True, cross=False)
        self.decoder = self._stack(
            config.layers, both_ways=False, cross=bool(config.encoder_layers)
        )
        if not config.tied:
            # Between 16 and 32 the numbers of bfloat16 are .125 apart.
            self.head = projection(
                config, config.vocab_size, False, "head", self.dtype, float32_result=True
            )

    def _stack(self, layers: int, both_ways: bool, cross: bool) -> Stack:
        return Stack(
            config=self.config,
            layers=layers,
            both_ways=both_ways,
            cross=cross,
            dtype=self.dtype,
            remat=self.remat,
            deterministic=self.deterministic,
        )

    @property
    def _position_offset(self) -> int:
        return self.config.pad_id + 1 if self.config.architecture == "roberta" else 0

    def table_rows(self, tokens: jax.Array) -> jax.Array:
        """The rows [..., D] of the embedding's table, which `new_tokens` adds to."""
        return jnp.take(self.embedding, tokens, axis=0).astype(self.dtype)

    def embed(self, tokens: jax.Array) -> jax.Array:
        """Embeddings [..., D] of tokens int32 [...], without positions."""
        embeddings = self.table_rows(tokens)
        if self.config.scaled_embedding:
            # The factor is rounded to the dtype, too, as it was while the model was trained.
            embeddings *= jnp.asarray(self.config.width**0.5, self.dtype)
        return embeddings

    def _place(self, embeddings: jax.Array, positions: jax.Array) -> jax.Array:
        x = embeddings.astype(self.dtype)
        if self.config.architecture in ("gpt2", "roberta"):
            table = jnp.take(self.position_embedding, positions + self._position_offset, axis=0)
            x = x + table.astype(self.dtype)
        if self.config.architecture == "roberta":
            x = self.embedding_norm(x + self.type_embedding[0].astype(self.dtype))
        return x

    def encode(self, embeddings: jax.Array, valid: jax.Array, positions: jax.Array) -> States:
        """States [B, T, D] of an encoder, with padding on either side where `valid` is False."""
        chex.assert_equal_shape_prefix([embeddings, valid, positions], 2)
        bias = own_bias(valid[:, None], None, valid.shape[1], both_ways=True)
        # Stacks take [B, N, T, D]: each row of an encoder is one continuation, of nothing.
        x = self._place(embeddings, positions)[:, None]
        # No later call reads the keys of an encoder's own layers. Its decoder has those of
        # `encoded_keys`.
        states, _ = self.encoder(x, Context(positions[:, None], bias))
        return States(states.before[:, 0], states.after[:, 0])

    def encoded_keys(self, states: jax.Array) -> LayerKeys:
        return self.decoder.encoded_keys(states)

    def decode(
        self,
        embeddings: jax.Array,
        context: Context,
        prefix: LayerKeys | None = None,
        own_keys: LayerKeys | None = None,
        encoded: LayerKeys | None = None,
    ) -> tuple[States, LayerKeys]:
        """States [B, N, S, D] of a decoder's tokens, and their keys and values; see `Attention`."""
        chex.assert_rank(embeddings, 4)
        return self.decoder(
            self._place(embeddings, context.positions), context, prefix, own_keys, encoded
        )

    def logits(self, states: jax.Array) -> jax.Array:
        return self.token_products(self._scaled(states))

    def logits_by_token(self, states: jax.Array) -> jax.Array:
        """Logits float32 [V, R] of states [R, D] after the last norm."""
        states = self._scaled(states)
        if not self.config.tied:
            return self.head.by_output(states)
        table = self.embedding.astype(self.dtype)
        return products.einsum_float32("vd,rd->vr", table, states)

    def _scaled(self, states: jax.Array) -> jax.Array:
        return states * self.config.width**-0.5 if self.config.scaled_head else states

    def token_products(self, states: jax.Array) -> jax.Array:
        """The products float32 [..., V] of scaled states with every token's output row, which
        `new_tokens` adds to.
        """
        if not self.config.tied:
            return self.head(states)
        table = self.embedding.astype(self.dtype)
        return products.einsum_float32("...d,vd->...v", states, table)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Touches all parameters: logits of tokens int32 [B, T] (an encoder's states where there is
        no decoder).
        """
        # Flax makes the parameters of what this calls: `fresh_params` runs it once, on two tokens.
        embeddings = self.embed(tokens)
        valid = jnp.ones(tokens.shape, bool)
        encoded = None
        positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
        if self.config.encoder_layers or not self.config.has_decoder:
            states = self.encode(embeddings, valid, positions)
            if not self.config.has_decoder:
                return states.after
            encoded = self.encoded_keys(states.after)
        bias = own_bias(valid[:, None], None, tokens.shape[1])
        cross_bias = mask_bias(valid)[:, None, None, None]
        context = Context(
            positions[:, None], bias, cross_bias=cross_bias, key_positions=positions[:, None]
        )
        states, _ = self.decode(embeddings[:, None], context, encoded=encoded)
        return self.logits(states.after[:, 0])
