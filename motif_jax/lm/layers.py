"""Layers that the architectures share: norms, projections, feed-forward, and attention with a
cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from motif_jax.lm.attention import Keys, Rotation, attend, causal, mask_bias, rotate
from motif_jax.lm.config import ModelConfig
from motif_jax.nets import products
from motif_jax.nets.layers import add_bias

ACTIVATIONS = {
    "relu": jax.nn.relu,
    # By the error function, as PyTorch's GELU; "gelu_new" is GPT-2's approximation by tanh.
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "gelu_new": lambda x: jax.nn.gelu(x, approximate=True),
    "silu": jax.nn.silu,
}


class KeyValues(NamedTuple):
    """Keys and values of one layer, [..., G, K, D] each; of all layers [L, ..., G, K, D], where
    these run in a loop.
    """

    keys: jax.Array
    values: jax.Array


# Keys and values of all layers: of each by itself, or of all in one where they run in a loop
# (`network.BlockLoop`).
LayerKeys = tuple[KeyValues, ...] | KeyValues


def over_layers(function: Callable[..., jax.Array], *keys: LayerKeys) -> LayerKeys:
    """Applies a function of the arrays of one layer to all layers."""
    in_loop = isinstance(keys[0], KeyValues)
    return jax.tree.map(jax.vmap(function) if in_loop else function, *keys)


class Reach(NamedTuple):
    """What tokens see, and how they are turned, in layers of one kind.

    Attributes:
      bias: float32 [B, N, H, S, K], from the call's tokens to the continuations' own keys.
      prefix_bias: float32 [B, 1, 1, 1, P], or [B, N, 1, S, P] with a window, of the shared prefix;
          None without one.
      rotation: of the call's tokens; None without rotary positions.
    """

    bias: jax.Array
    prefix_bias: jax.Array | None = None
    rotation: Rotation | None = None


class Context(NamedTuple):
    """Shared inputs of all layers of one call.

    Attributes:
      positions: int32 [B, N, S].
      bias, prefix_bias: see `Reach`.
      slot: int32 [], the cache slot of the call's first token; None without a cache.
      cross_bias: float32 [B, 1, 1, 1, P], of the encoder's states; None without an encoder.
      key_positions: int32 [B, N, K], of the continuations' own keys.
      prefix_positions: int32 [B, P], of the shared prefix; None without one.
      rotation: see `Reach`; the stack adds it.
      local: of layers with a window; None where a model has none. The stack adds it.
    """

    positions: jax.Array
    bias: jax.Array
    prefix_bias: jax.Array | None = None
    slot: jax.Array | None = None
    cross_bias: jax.Array | None = None
    key_positions: jax.Array | None = None
    prefix_positions: jax.Array | None = None
    rotation: Rotation | None = None
    local: Reach | None = None

    def of_layer(self, is_local: bool | jax.Array) -> Context:
        """The context of a layer with a window or without one; `is_local` may be traced, as in a
        loop over layers.
        """
        if self.local is None:
            return self
        reach = Reach(self.bias, self.prefix_bias, self.rotation)
        if isinstance(is_local, bool):
            # Blocks one by one: the choice is made while the program is traced.
            reach = self.local if is_local else reach
        else:
            reach = jax.tree.map(
                lambda local, other: jnp.where(is_local, local, other), self.local, reach
            )
        return self._replace(local=None, **reach._asdict())


class RMSNorm(nn.Module):
    """x / sqrt(mean x^2 + epsilon) times a weight, in float32; `offset` is added to the weight
    (Gemma: 1).
    """

    epsilon: float
    offset: float = 0.0

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        # A fresh norm multiplies by 1, offset included.
        weight = self.param("scale", nn.initializers.constant(1.0 - self.offset), (x.shape[-1],))
        # Squares are summed over the width, which bfloat16 would round at each step.
        wide = x.astype(jnp.float32)
        normed = wide * jax.lax.rsqrt(jnp.square(wide).mean(-1, keepdims=True) + self.epsilon)
        return (normed * (weight.astype(jnp.float32) + self.offset)).astype(x.dtype)


class LayerNorm(nn.Module):
    """Layer norm with weight and bias, in float32."""

    epsilon: float

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        # The variance by squared deviations: as E[x^2] - E[x]^2 it loses digits where the mean is
        # large.
        norm = nn.LayerNorm(
            epsilon=self.epsilon, use_fast_variance=False, dtype=jnp.float32, name="norm"
        )
        return norm(x).astype(x.dtype)


class Linear(nn.Dense):
    """A linear layer that adds its bias in float32, so that the bias's gradient, a sum over all
    tokens, is summed in float32.

    Attributes:
      float32_result: the result keeps the float32 sums of its products, whatever the dtype.
    """

    float32_result: bool = False

    # A method of its own, since replacements multiply by other kernels with it (`lora`).
    def product(self, x: jax.Array, kernel: jax.Array) -> jax.Array:
        """`x` [..., in] @ `kernel` [in, out], multiplied in the layer's dtype."""
        x = x.astype(self.dtype)
        kernel = kernel.astype(self.dtype)
        if self.float32_result:
            return products.einsum_float32("...i,io->...o", x, kernel)
        return products.linear(x, kernel)

    def by_output(self, rows: jax.Array) -> jax.Array:
        """The products float32 [out, R] of rows [R, in], with a row for each output; without the
        bias.
        """
        kernel: jax.Array = self.get_variable("params", "kernel")
        # As "io,ri->or" XLA's CPU compiler would convert the kernel to float32 first.
        return products.einsum_float32(
            "oi,ri->or", kernel.T.astype(self.dtype), rows.astype(self.dtype)
        )

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        kernel = self.param(
            "kernel", self.kernel_init, (inputs.shape[-1], self.features), self.param_dtype
        )
        y = self.product(inputs, kernel)
        if not self.use_bias:
            return y
        return add_bias(y, self.param("bias", self.bias_init, (self.features,), self.param_dtype))


def projection(
    config: ModelConfig,
    features: int,
    bias: bool,
    name: str,
    dtype: Any,
    float32_result: bool = False,
) -> Linear:
    """A linear layer with the config's initialisation.

    T5's weights start with a standard deviation of 1 / sqrt(inputs). Those of queries are smaller
    by sqrt(head_width), since T5's attention has no scale (Raffel et al. 2020).
    """
    init = nn.initializers.normal(config.initializer)
    if config.architecture == "t5":
        # The factor of a variance; `initializer` is that of a standard deviation.
        scale = config.initializer**2 / (config.head_width if name == "query" else 1)
        init = nn.initializers.variance_scaling(scale, "fan_in", "normal")
    return Linear(
        features,
        use_bias=bias,
        kernel_init=init,
        dtype=dtype,
        name=name,
        float32_result=float32_result,
    )


def in_float32(activation: Callable[[jax.Array], jax.Array]) -> Callable[[jax.Array], jax.Array]:
    """The activation computed in float32, in the dtype of its input.

    A CPU rounds every step of a bfloat16 activation, which takes three times as long. The backward
    pass computes it again from its input, since the float32 steps would take as much memory as the
    block's other activations.
    """
    return jax.checkpoint(lambda x: activation(x.astype(jnp.float32)).astype(x.dtype))


class FeedForward(nn.Module):
    """Two projections around an activation, or three where it is gated."""

    config: ModelConfig
    bias: bool
    dtype: Any
    deterministic: bool = True

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        config = self.config
        activation: Callable[[jax.Array], jax.Array] = ACTIVATIONS[config.activation]
        if jnp.dtype(self.dtype) != jnp.float32:
            activation = in_float32(activation)
        hidden = activation(
            projection(config, config.feed_forward, self.bias, "activated", self.dtype)(x)
        )
        if config.gated:
            # A gated linear unit (Shazeer 2020): the product of two projections, the first one
            # activated.
            hidden *= projection(config, config.feed_forward, self.bias, "factor", self.dtype)(x)
        hidden = nn.Dropout(config.dropout.inner, deterministic=self.deterministic)(hidden)
        return projection(config, config.width, self.bias, "down", self.dtype)(hidden)


class Attention(nn.Module):
    """Attention of a call's tokens to a shared prefix, to their own cache or each other, or to an
    encoder's states.

    Attributes:
      both_ways: tokens see later tokens too (encoders).
    """

    config: ModelConfig
    bias: bool
    output_bias: bool
    scale: float
    dtype: Any
    both_ways: bool = False
    deterministic: bool = True

    def setup(self) -> None:
        config = self.config
        self.drop = None
        if config.dropout.attention and not self.deterministic:
            self.drop = nn.Dropout(config.dropout.attention, deterministic=False)
        width = config.head_width
        self.query = projection(config, config.heads * width, self.bias, "query", self.dtype)
        self.key = projection(config, config.key_value_heads * width, self.bias, "key", self.dtype)
        self.value = projection(
            config, config.key_value_heads * width, self.bias, "value", self.dtype
        )
        self.output = projection(config, config.width, self.output_bias, "output", self.dtype)
        if config.query_key_norm:
            self.query_norm = RMSNorm(config.norm_epsilon, config.norm_offset)
            self.key_norm = RMSNorm(config.norm_epsilon, config.norm_offset)

    def keys_of(self, x: jax.Array) -> KeyValues:
        """Keys and values [..., G, K, D] of states [..., K, D], without positions."""
        shape = (*x.shape[:-1], self.config.key_value_heads, self.config.head_width)
        keys = self.key(x).reshape(shape)
        values = self.value(x).reshape(shape)
        if self.config.query_key_norm:
            # Before the rotation, as in Qwen3 and Gemma 3: the weights are of each dimension, which
            # a rotation mixes.
            keys = self.key_norm(keys)
        # [..., K, G, D] becomes [..., G, K, D], see `attention.Keys`.
        return KeyValues(keys.swapaxes(-2, -3), values.swapaxes(-2, -3))

    def attend_to_encoder(self, x: jax.Array, encoded: KeyValues, bias: jax.Array) -> jax.Array:
        """Attends to the keys and values of an encoder's states, [B, G, K, D]; returns
        [B, N, S, D].
        """
        # Neither rotated nor with T5's relative bias: cross-attention has no positions.
        return self._attend(self._query(x), [Keys(*encoded, bias)])

    def __call__(
        self, x: jax.Array, context: Context, prefix: KeyValues | None, own_keys: KeyValues | None
    ) -> tuple[jax.Array, KeyValues]:
        """Attention [B, N, S, D] of the call's tokens, and their keys and values, or `own_keys`
        with them written at `context.slot`.

        Args:
          x: [B, N, S, D].
          prefix: [B, G, P, D], shared by all continuations; None without one.
          own_keys: [B, N, G, K, D], the continuations' own cache; None: the tokens attend to each
              other only.
        """
        chex.assert_rank(x, 4)
        query = self._query(x)
        fresh = self.keys_of(x)
        if context.rotation is not None:
            # Keys are cached rotated, so that a cache needs no positions for them. `rotate` takes
            # heads after tokens, hence the two swaps.
            query = rotate(query, context.rotation)
            keys = rotate(fresh.keys.swapaxes(2, 3), context.rotation)
            fresh = fresh._replace(keys=keys.swapaxes(2, 3))
        if own_keys is not None:
            assert context.slot is not None
            # The call's keys join the cache before the queries look at it: a token sees itself.
            start = (0, 0, 0, context.slot, 0)
            put = jax.lax.dynamic_update_slice
            fresh = jax.tree.map(
                lambda old, new: put(old, new.astype(old.dtype), start), own_keys, fresh
            )
        # In a cache free slots follow the call's keys, so that blocks of queries cannot leave them
        # out.
        causal = own_keys is None and not self.both_ways
        segments = [Keys(*fresh, context.bias, causal)]
        if prefix is not None:
            assert context.prefix_bias is not None
            # In front: `Keys.causal` is of the last segment, the call's own.
            segments.insert(0, Keys(*prefix, context.prefix_bias))
        return self._attend(query, segments), fresh

    def _query(self, x: jax.Array) -> jax.Array:
        query = self.query(x).reshape(*x.shape[:-1], self.config.heads, self.config.head_width)
        return self.query_norm(query) if self.config.query_key_norm else query

    def _attend(self, query: jax.Array, segments: Sequence[Keys]) -> jax.Array:
        heads = attend(query, segments, self.scale, self.drop)
        return self.output(heads.reshape(*heads.shape[:-2], heads.shape[-2] * heads.shape[-1]))


def own_bias(
    valid: jax.Array, slot: jax.Array | None, length: int, both_ways: bool = False
) -> jax.Array:
    """The mask bias float32 [B, N, 1, S, K] of a call's S = `length` tokens over the continuations'
    own slots.

    Args:
      valid: bool [B, N, K], which slots hold a token (not padding), the call's own included.
      slot: int32 [], the slot of the call's first token; None: no cache, K = S.
      both_ways: tokens see later tokens too (encoders).
    """
    chex.assert_rank(valid, 3)
    # [B, N, K] with axes for heads and queries: [B, N, 1, 1, K].
    is_token = valid[:, :, None, None, :]
    if both_ways:
        return mask_bias(jnp.broadcast_to(is_token, (*valid.shape[:2], 1, length, valid.shape[2])))
    if slot is None:
        return mask_bias(is_token & causal(length))
    # All of the call's tokens are valid by now: of these each sees those up to itself.
    queries = slot + jnp.arange(length)
    is_earlier = jnp.arange(valid.shape[2])[None, :] <= queries[:, None]
    return mask_bias(is_token & is_earlier[None, None, None])
