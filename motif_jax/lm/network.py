"""The networks: T5, GPT-2, Llama, Qwen2, Qwen3, Gemma 3 and RoBERTa out of one stack of blocks.

T5: Raffel et al. 2020, and Shazeer 2020 for gated layers; GPT-2: Radford et al. 2019; Llama:
Touvron et al. 2023; Qwen2: Yang et al. 2024; Qwen3: Yang et al. 2025; Gemma 3: Kamath et al. 2025;
RoBERTa: Liu et al. 2019. Dropout is off unless a network is made with `deterministic=False`; then
it needs a key "dropout".

`LanguageNetwork` has a `Stack` or two, a `Stack` its `Block`s. These run one after the other, or in
one `BlockLoop` over their stacked parameters, so that a program holds one block however many there
are. The loop's carry is the hidden states and the cache of all layers, in which each block writes
at its place. Low-rank additions, quantised kernels and dropout keys are those that the blocks have
one by one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.core.scope import LazyRng

from motif_jax.core.training import block_stack
from motif_jax.lm import dropout, linear
from motif_jax.lm.attention import mask_bias, relative_buckets, rotation, window_bias
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
    own_bias,
    projection,
)
from motif_jax.nets import products

# False, True, or a policy of `jax.checkpoint_policies`.
Remat = bool | Callable[..., Any]


class States(NamedTuple):
    """Hidden states [..., D] before and after the last norm; equal where a stack has no last
    norm.
    """

    before: jax.Array
    after: jax.Array


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
        """The rows [..., D] of the embedding's table, which `lora.rows_added` adds to."""
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
        `lora.rows_added` adds to.
        """
        if not self.config.tied:
            return self.head(states)
        table = self.embedding.astype(self.dtype)
        return products.einsum_float32("...d,vd->...v", states, table)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Touches all parameters: logits of tokens int32 [B, T] (an encoder's states where there is
        no decoder).
        """
        # Flax makes the parameters of what this calls; `LanguageModel.init` runs it once.
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


class BlockSegment(NamedTuple):
    """Successive blocks of one structure: from block `first` up to the one before `last`; leaves
    are [last - first, ...].

    Attributes:
      params: of the blocks.
      values: of each active replacement of linear layers, by the layer's path in its block.
    """

    first: int
    last: int
    params: Any
    values: tuple[Mapping[str, Any], ...]

    @property
    def layers(self) -> tuple[jax.Array, Any, tuple[Mapping[str, Any], ...]]:
        """What the loop runs over: the blocks' numbers in the segment, their parameters and
        values.
        """
        return jnp.arange(self.last - self.first), self.params, self.values


@dataclasses.dataclass(frozen=True)
class BlockLoop:
    """The loop of one stack.

    Attributes:
      block: computes any of the blocks.
      path: of the stack in the network: 'decoder' or 'encoder'.
      params: the stack's parameters, with stacks of blocks (`block_stack.stacked`).
      key: of the stack's dropout; None: no dropout.
      remat: see `LanguageNetwork`.
      local_layers: for each layer whether it has a window (`Context.of_layer`); () without windows.
    """

    block: nn.Module
    path: str
    params: Mapping[str, Any]
    key: LazyRng | None = None
    remat: Remat = False
    local_layers: tuple[bool, ...] = ()

    def run(
        self,
        x: jax.Array,
        context: Context,
        relative: jax.Array | None,
        prefix: LayerKeys | None,
        own_keys: LayerKeys | None,
        encoded: LayerKeys | None,
    ) -> tuple[jax.Array, LayerKeys]:
        """Runs all blocks.

        Args:
          x: states [B, N, S, D].
          relative: float32 [1, 1, H, S, K], added to `context.bias` in every block; None: nothing
              is added.
          prefix, own_keys, encoded: see `Attention`, with a leading axis of layers.

        Returns:
          The states, and the keys and values of all layers: `own_keys` with those of the call
              written into it, or those of the call.
        """
        keys = []
        for segment in self._segments():
            body = self._body(segment, context, relative)
            # Keys that no block changes are sliced by the loop. The cache is its carry: as an input
            # and an output of each turn it would be copied whole.
            fixed = jax.tree.map(
                lambda leaf, at=segment: leaf[at.first : at.last], (prefix, encoded)
            )
            (x, own_keys), fresh = jax.lax.scan(body, (x, own_keys), (segment.layers, fixed))
            keys.append(fresh)
        # Without a cache each turn puts out its own keys, which the loop stacks by layer.
        return x, _joined(keys) if own_keys is None else own_keys

    def encoded_keys(self, states: jax.Array) -> KeyValues:
        """Keys and values [L, B, G, P, D] of an encoder's states [B, P, D] for every layer."""

        def of_segment(segment: BlockSegment) -> KeyValues:
            def of_block(layer: Any) -> KeyValues:
                return self._apply(segment, layer, states, method="encoded_keys")

            return jax.lax.map(of_block, segment.layers)

        return _joined([of_segment(segment) for segment in self._segments()])

    def _body(
        self, segment: BlockSegment, context: Context, relative: jax.Array | None
    ) -> Callable[..., Any]:
        """One turn of a segment's loop."""

        def block(x: jax.Array, layer: Any, *keys: Any) -> tuple[jax.Array, KeyValues]:
            of_layer = (
                context if relative is None else context._replace(bias=context.bias + relative)
            )
            if self.local_layers:
                # One body serves layers with a window and without, which are chosen by the layer's
                # number.
                is_local = jnp.asarray(self.local_layers)[segment.first + layer[0]]
                of_layer = of_layer.of_layer(is_local)
            return self._apply(segment, layer, x, of_layer, *keys)

        computed: Callable[..., tuple[jax.Array, KeyValues]] = block
        if self.remat:
            policy = None if self.remat is True else self.remat
            # The turns of a loop are apart: the compiler cannot compute once what is to be computed
            # again.
            computed = jax.checkpoint(block, policy=policy, prevent_cse=False)

        def body(carry: tuple[jax.Array, Any], part: Any) -> tuple[tuple[jax.Array, Any], Any]:
            x, cache = carry
            layer, (prefix, encoded) = part
            # No cache: a prompt, or continuations that no later call goes on with.
            if cache is None:
                x, fresh = computed(x, layer, prefix, None, encoded)
                return (x, None), fresh
            # The layer's keys [B, N, G, K, D] out of the cache of all; `_written` puts back only
            # the new slots.
            index = segment.first + layer[0]
            layer_keys = jax.tree.map(
                lambda leaf: jax.lax.dynamic_index_in_dim(leaf, index, keepdims=False), cache
            )
            length = x.shape[2]
            x, layer_keys = computed(x, layer, prefix, layer_keys, encoded)
            return (x, _written(cache, layer_keys, index, context.slot, length)), None

        return body

    def _apply(
        self, segment: BlockSegment, layer: Any, *arguments: Any, method: str = "__call__"
    ) -> Any:
        """Calls the block as that of a layer, a slice of `Segment.layers`."""
        index, params, values = layer
        with contextlib.ExitStack() as entered:
            # In the block, which is applied by itself, paths begin at its layers: the replacements
            # around the loop, by whole paths, match none of them.
            for replacement, layer_values in zip(linear.active(), values, strict=True):
                entered.enter_context(linear.computed_by(replacement.layer, layer_values))
            if self.key is not None:
                entered.enter_context(
                    dropout.of_block(self.key, segment.first, segment.last, index)
                )
            return self.block.apply({"params": params}, *arguments, method=method)

    def _segments(self) -> list[BlockSegment]:
        """The blocks in segments; where all are equal, there is one."""
        params = block_stack.runs(self.params)
        # Additions may cover some of the blocks ('decoder/block_0/*'). A segment ends where any
        # stack ends, so that all blocks of a segment have the same leaves.
        values = [self._values(replacement.values) for replacement in linear.active()]
        ends = {end for bounds in params for end in bounds}
        ends |= {
            end
            for layers in values
            for stacks in layers.values()
            for bounds in stacks
            for end in bounds
        }
        borders = sorted(ends)
        return [
            BlockSegment(
                first,
                last,
                _slice(params, first, last),
                tuple(_slices(layers, first, last) for layers in values),
            )
            for first, last in itertools.pairwise(borders)
        ]

    def _values(self, values: Mapping[str, Any]) -> dict[str, dict[tuple[int, int], Any]]:
        """The stack's own values of a replacement: stacks by their bounds, by the layer's path in
        its block.
        """
        stacks: dict[str, dict[tuple[int, int], Any]] = {}
        for path, value in block_stack.stacked(values).items():
            # 'decoder/blocks_0_2/attention/query': the stack, the run of blocks, and the layer in
            # its block.
            stack, _, inside = path.partition("/")
            name, _, rest = inside.partition("/")
            if stack == self.path:
                stacks.setdefault(rest, {}).update(block_stack.runs({name: value}))
        return stacks


def _slice(stacks: Mapping[tuple[int, int], Any], first: int, last: int) -> Any:
    """The part of the stack that holds the blocks from `first` to `last`; None where none does."""
    for (start, stop), part in stacks.items():
        if (start, stop) == (first, last):
            return part
        if start <= first and last <= stop:
            return jax.tree.map(lambda leaf, start=start: leaf[first - start : last - start], part)
    return None


def _slices(
    values: Mapping[str, Mapping[tuple[int, int], Any]], first: int, last: int
) -> dict[str, Any]:
    parts = {path: _slice(stacks, first, last) for path, stacks in values.items()}
    return {path: part for path, part in parts.items() if part is not None}


def _written(
    cache: KeyValues, layer_keys: KeyValues, index: jax.Array, slot: Any, length: int
) -> KeyValues:
    """The cache [L, B, N, G, K, D] with the `length` tokens at `slot` of one layer's cache: no
    other slots are copied.
    """

    def put(all_layers: jax.Array, one: jax.Array) -> jax.Array:
        # Slots are the last axis but one, of a layer's cache [B, N, G, K, D] and of all layers'.
        fresh = jax.lax.dynamic_slice_in_dim(one, slot, length, axis=-2)
        return jax.lax.dynamic_update_slice(all_layers, fresh[None], (index, 0, 0, 0, slot, 0))

    return jax.tree.map(put, cache, layer_keys)


def _joined(segments: list[KeyValues]) -> KeyValues:
    if len(segments) == 1:
        return segments[0]
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), *segments)
