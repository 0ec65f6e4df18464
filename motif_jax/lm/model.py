"""One interface of all language models: a prompt is run once, and continuations extend it.

Functions are pure and work under jit, grad and vmap over stacked parameters. A prompt is the input
of an encoder, or the text that a decoder's continuations have in common.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from motif_jax.core.training import block_stack
from motif_jax.lm import dropout, linear
from motif_jax.lm.attention import mask_bias
from motif_jax.lm.config import ModelConfig
from motif_jax.lm.layers import Context, KeyValues, LayerKeys, over_layers, own_bias
from motif_jax.lm.network import LanguageNetwork, Remat, States

# Methods of the network that run no blocks.
_WITHOUT_BLOCKS = ("embed", "logits", "logits_by_token")
_FIRST = "block_0"
# Of a linear layer's parameters the kernel is the first that flax makes a key for.
_KERNEL = 1


class EncodedPrompt(NamedTuple):
    """A prompt's states, keys and values for its continuations.

    Attributes:
      keys: of every layer, [B, G, T, D]; of all layers [L, B, G, T, D] where these run in a loop.
      valid: bool [B, T], False for padding.
      length: int32 [B], tokens without padding.
    """

    keys: LayerKeys
    valid: jax.Array
    length: jax.Array


class Cache(NamedTuple):
    """The continuations' own keys and values: a static number of slots, written from the front.

    Attributes:
      keys: of every layer, [B, N, G, K, D]; of all layers [L, B, N, G, K, D] where these run in a
          loop.
      valid: bool [B, N, K], which slots hold a token.
      slot: int32 [], the slot that is written next.
      written: int32 [B, N], tokens so far.
    """

    keys: LayerKeys
    valid: jax.Array
    slot: jax.Array
    written: jax.Array


@dataclasses.dataclass(frozen=True)
class LanguageModel:
    """Runs prompts and continuations through a network; dropout is on with a key, see
    `with_dropout`.

    Methods receive the network's parameters, or what `prepared` makes of them.

    Attributes:
      loop: blocks run in one loop; False: one after the other; None: as suits the platform, see
          `block_stack.looped`.
      output_major: kernels of the parameters are [out, in] and not [in, out]; see
          `products.prefers_output_major`.
    """

    config: ModelConfig
    dtype: Any = jnp.float32
    remat: Remat = False
    dropout: jax.Array | None = None
    loop: bool | None = None
    output_major: bool = False

    @property
    def looped(self) -> bool:
        """Whether blocks run in one loop."""
        return block_stack.looped(self.loop)

    @property
    def network(self) -> LanguageNetwork:
        return LanguageNetwork(self.config, self.dtype, self.remat, self.dropout is None)

    def with_dropout(self, key: jax.Array) -> LanguageModel:
        """The model with the config's dropout on, for one training step.

        Prompts, continuations and every turn of a cache have draws of their own; continuations
        share those of their prompt.
        """
        return dataclasses.replace(self, dropout=key)

    def init(self, key: jax.Array) -> Any:
        """Fresh parameters, float32, of a tree for each block; the same key gives the same numbers
        in a loop and without one.

        Call it as it is, not in jit: of a large model a program that takes stacks apart is long.
        """
        if self.looped:
            params = block_stack.unstacked(fresh_stacked_params(self.network, key))
        else:
            params = _fresh_params(self.network, key)
        return _turned(params) if self.output_major else params

    def prepared(self, params: Any) -> Any:
        """The parameters as programs read them: the blocks' are stacked where blocks run in a loop,
        with kernels in `dtype`.

        Every method does it by itself. Whoever calls several, or calls one in a loop, does it once
        before.
        """
        if not self.looped:
            linear.require_apart()
            return block_stack.unstacked(params)

        def in_dtype(path: Sequence[Any], leaf: Any) -> Any:
            # Once for all calls with these parameters: every step of a generation would cast them
            # again.
            is_kernel = path[-1].key == "kernel" and block_stack.is_stacked(path)
            return leaf.astype(self.dtype) if is_kernel else leaf

        return jax.tree.map_with_path(in_dtype, block_stack.stacked(params))

    def embed(self, params: Any, tokens: jax.Array) -> jax.Array:
        """Embeddings [..., D] of tokens int32 [...]."""
        return self._apply(params, tokens, method="embed")

    def logits(self, params: Any, states: jax.Array) -> jax.Array:
        """Logits float32 [..., V] of states [..., D] after the last norm."""
        return self._apply(params, states, method="logits")

    def logits_by_token(self, params: Any, states: jax.Array) -> jax.Array:
        """Logits float32 [V, R] of states [R, D] after the last norm, of the tables as they are.

        A CPU's softmax over the first axis is several times as fast as one over the last.

        Raises:
          ValueError: a replacement of the head or additions to the tables are active.
        """
        chex.assert_rank(states, 2)
        return self._apply(params, states, method="logits_by_token")

    def prefill(
        self,
        params: Any,
        tokens: jax.Array | None,
        valid: jax.Array,
        embeddings: jax.Array | None = None,
    ) -> tuple[States, EncodedPrompt]:
        """Runs prompts int32 [B, T], or `embeddings` [B, T, D], with padding on either side where
        `valid` is False.

        Returns states [B, T, D] (the encoder's where there is one), and the prompts.
        """
        chex.assert_rank(valid, 2)
        if embeddings is None:
            embeddings = self._embed_tokens(params, tokens, valid)
        positions = _counted(valid, axis=1)
        length = valid.sum(axis=1, dtype=jnp.int32)

        if self.config.encoder_layers or not self.config.has_decoder:
            states = self._apply(params, embeddings, valid, positions, method="encode")
            # RoBERTa has nothing that would continue its text.
            keys: LayerKeys = ()
            if self.config.has_decoder:
                keys = self._apply(params, states.after, method="encoded_keys")
            return states, EncodedPrompt(keys, valid, length)

        # A decoder alone runs the prompt as the one continuation of nothing.
        bias = own_bias(valid[:, None], None, valid.shape[1])
        context = Context(positions[:, None], bias, key_positions=positions[:, None])
        states, keys = self._apply(params, embeddings[:, None], context, method="decode")
        prompt_states = States(states.before[:, 0], states.after[:, 0])
        prompt_keys = over_layers(lambda leaf: leaf[:, 0], keys)
        return prompt_states, EncodedPrompt(prompt_keys, valid, length)

    def start(self, batch: int, branches: int, capacity: int) -> Cache:
        """An empty cache for `branches` continuations of each of `batch` prompts, `capacity` tokens
        each.
        """
        shape = (batch, branches, self.config.key_value_heads, capacity, self.config.head_width)
        layer = KeyValues(jnp.zeros(shape, self.dtype), jnp.zeros(shape, self.dtype))
        keys: LayerKeys = (layer,) * self.config.layers
        if self.looped:
            keys = jax.tree.map(
                lambda leaf: jnp.zeros((self.config.layers, *leaf.shape), leaf.dtype), layer
            )
        return Cache(
            keys,
            jnp.zeros((batch, branches, capacity), bool),
            jnp.zeros((), jnp.int32),
            jnp.zeros((batch, branches), jnp.int32),
        )

    def extend(
        self,
        params: Any,
        prompt: EncodedPrompt | None,
        tokens: jax.Array | None,
        valid: jax.Array,
        cache: Cache | None = None,
        embeddings: jax.Array | None = None,
    ) -> tuple[States, Cache | None]:
        """Runs the next tokens int32 [B, N, S] of N continuations of each of B prompts, or
        `embeddings` [B, N, S, D].

        Args:
          prompt: of the continuations; None: they have none (a decoder alone).
          valid: bool [B, N, S], False for padding.
          cache: earlier tokens of the continuations, with S free slots; None: there are none, and
              no call continues this one.

        Returns:
          States [B, N, S, D], and the cache with the new tokens (None without a cache).
        """
        chex.assert_rank(valid, 3)
        if embeddings is None:
            embeddings = self._embed_tokens(params, tokens, valid)
        length = valid.shape[2]
        if cache is None:
            slot = None
            cache_keys = None
            count = jnp.zeros(valid.shape[:2], jnp.int32)
            # Without a cache K = S: the slots are the call's own tokens.
            own_valid = valid
        else:
            slot = cache.slot
            cache_keys = cache.keys
            count = cache.written
            own_valid = jax.lax.dynamic_update_slice(cache.valid, valid, (0, 0, slot))
        # A decoder goes on counting after its prompt. Beside an encoder it counts from 0.
        if prompt is not None and not self.config.encoder_layers:
            count = count + prompt.length[:, None]
        positions = count[..., None] + _counted(valid, axis=2)

        # Tokens of a cache are counted after their prompt, whatever padding lies between.
        first_position = jnp.zeros(len(valid), jnp.int32)
        if prompt is not None and not self.config.encoder_layers:
            first_position = prompt.length
        key_positions = first_position[:, None, None] + _counted(own_valid, axis=2)
        bias = own_bias(own_valid, slot, length)
        context = Context(positions, bias, slot=slot, key_positions=key_positions)

        prefix_keys = None
        # The prompt is read by cross-attention beside an encoder, else as keys before the
        # continuations' own.
        encoded_keys = None
        if prompt is not None and self.config.encoder_layers:
            encoded_keys = prompt.keys
            context = context._replace(cross_bias=mask_bias(prompt.valid)[:, None, None, None])
        elif prompt is not None:
            prefix_keys = prompt.keys
            context = _after_prompt(context, prompt)

        call = 1 if slot is None else 1 + slot  # 0 is the prompt's
        states, keys = self._apply(
            params,
            embeddings,
            context,
            prefix_keys,
            cache_keys,
            encoded_keys,
            method="decode",
            call=call,
        )
        if cache is None:
            return states, None
        written = cache.written + valid.sum(axis=2, dtype=jnp.int32)
        return states, Cache(keys, own_valid, cache.slot + length, written)

    def extend_trees(
        self,
        params: Any,
        prompt: EncodedPrompt | None,
        tokens: jax.Array,
        depths: jax.Array,
        subtree_ends: jax.Array,
    ) -> States:
        """Runs continuations that begin alike as trees, see `next_token`: N packs of S tokens for
        each of B prompts; of a decoder alone.

        Args:
          prompt: of the continuations; None: they have none.
          tokens: int32 [B, N, S].
          depths: int32 [B, N, S], tokens between the prompt and each token.
          subtree_ends: int32 [B, N, S]; token i looks at token j where j <= i < subtree_ends[j].

        Returns:
          States [B, N, S, D].
        """
        chex.assert_rank(tokens, 3)
        chex.assert_equal_shape([tokens, depths, subtree_ends])
        assert self.config.has_decoder
        assert not self.config.encoder_layers
        positions = depths
        if prompt is not None:
            positions = positions + prompt.length[:, None, None]
        places = jnp.arange(tokens.shape[2])
        # Later places are hidden as in any decoder, so that `Keys.causal` holds; of earlier ones a
        # token sees its ancestors.
        visible = (places[:, None] >= places) & (places[:, None] < subtree_ends[..., None, :])
        context = Context(positions, mask_bias(visible)[:, :, None], key_positions=positions)
        prefix_keys = None
        if prompt is not None:
            prefix_keys = prompt.keys
            context = _after_prompt(context, prompt)
        embeddings = self.embed(params, tokens)
        states, _ = self._apply(params, embeddings, context, prefix_keys, method="decode", call=1)
        return states

    def _embed_tokens(self, params: Any, tokens: jax.Array | None, valid: jax.Array) -> jax.Array:
        assert tokens is not None
        chex.assert_equal_shape([tokens, valid])
        return self.embed(params, tokens)

    def _apply(self, params: Any, *arguments: Any, method: str, call: jax.Array | int = 0) -> Any:
        """Calls a method of the network; each number of a `call` has dropout of its own."""
        rngs = None if self.dropout is None else {"dropout": jax.random.fold_in(self.dropout, call)}
        if method not in _WITHOUT_BLOCKS:
            params = self.prepared(params)
        if self.output_major:
            # The compiler makes one product of this and the product of the layer.
            params = _turned(params)
        return self.network.apply({"params": params}, *arguments, method=method, rngs=rngs)


def _after_prompt(context: Context, prompt: EncodedPrompt) -> Context:
    """The context of tokens that look at the whole prompt, too."""
    bias = mask_bias(prompt.valid)[:, None, None, None]
    return context._replace(prefix_bias=bias, prefix_positions=_counted(prompt.valid, axis=1))


def _turned(params: Any) -> Any:
    """Parameters with kernels [in, out] as [out, in] or the other way round, also in stacks."""

    def turned(path: Sequence[Any], leaf: jax.Array) -> jax.Array:
        return leaf.swapaxes(-1, -2) if path[-1].key == "kernel" else leaf

    return jax.tree.map_with_path(turned, params)


def _counted(valid: jax.Array, axis: int) -> jax.Array:
    """The positions int32 of tokens among the valid ones along an axis, from 0; that of padding is
    its predecessor's.
    """
    # Padding in front of a row counts from -1 without the maximum.
    return jnp.maximum(jnp.cumsum(valid, axis=axis, dtype=jnp.int32) - 1, 0)


@functools.cache
def param_shapes(config: ModelConfig) -> Any:
    """Shapes of a model's parameters; cached, since tracing a large model takes seconds. Nothing is
    computed on a device.
    """
    return jax.eval_shape(lambda: LanguageModel(config).init(jax.random.key(0)))


class _Kernel(NamedTuple):
    """How the kernel of a linear layer is drawn: `draw(key, shape)`."""

    draw: Callable[..., jax.Array]
    shape: tuple[int, int]


@functools.partial(jax.jit, static_argnums=0)
def _fresh_params(network: LanguageNetwork, key: jax.Array) -> Any:
    """Fresh parameters with a tree for each block."""
    return network.init(key, jnp.zeros((1, 2), jnp.int32))["params"]


@functools.partial(jax.jit, static_argnums=0)
def fresh_stacked_params(network: LanguageNetwork, key: jax.Array) -> Any:
    """The same numbers as `_fresh_params` with stacks of blocks (`block_stack`), by a program that
    holds one block however many the model has.

    The program of a plain `init` draws the kernels of all blocks one by one: of Flan-T5-large 442
    draws, for which a GPU's compiler takes minutes before anything else begins.
    """
    config = network.config
    sides = {"encoder": config.encoder_layers, "decoder": config.layers}
    if not config.has_decoder:
        sides = {"encoder": config.layers}
    # One block is made for real: its tree, its constants, and how each kernel is drawn.
    one_block = dataclasses.replace(config, layers=1, encoder_layers=min(1, config.encoder_layers))
    kernels: dict[linear.Path, _Kernel] = {}

    def record_kernel(call: Callable[..., Any], arguments: Any, keywords: Any, context: Any) -> Any:
        module = context.module
        if isinstance(module, nn.Dense) and context.method_name == "__call__":
            kernels[module.path] = _Kernel(
                module.kernel_init, (arguments[0].shape[-1], module.features)
            )
        return call(*arguments, **keywords)

    # Its kernels are thrown away; those of all blocks are drawn below, by the keys that flax would
    # use.
    with nn.intercept_methods(record_kernel):
        params = network.clone(config=one_block).init(key, jnp.zeros((1, 2), jnp.int32))["params"]

    flat = {}
    for path, leaf in flatten_dict(params).items():
        if _FIRST not in path:
            flat[path] = leaf
            continue
        side, _, *inside = path
        layers = sides[side]
        where = (side, f"blocks_0_{layers}", *inside)
        kernel = kernels.get(path[:-1]) if path[-1] == "kernel" else None
        if kernel is None:
            # Scales and biases begin with the same constant in all blocks.
            flat[where] = jnp.broadcast_to(leaf, (layers, *leaf.shape))
        else:
            layer_paths = [(side, f"block_{block}", *inside[:-1]) for block in range(layers)]
            flat[where] = _draw_kernels(kernel, key, layer_paths)
    return unflatten_dict(flat)


def _draw_kernels(kernel: _Kernel, key: jax.Array, paths: list[linear.Path]) -> jax.Array:
    """The kernels [L, in, out] of the linear layers at L paths."""
    numbers = np.array([dropout.folded_number((*path, _KERNEL)) for path in paths], np.uint32)
    # One draw in a loop, so that the program is as long for 48 blocks as for one.
    return jax.lax.map(
        lambda number: kernel.draw(jax.random.fold_in(key, number), kernel.shape), numbers
    )
