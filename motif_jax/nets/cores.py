"""Recurrent cores over a rollout: GRU, LSTM or none, reset at episode starts."""

from __future__ import annotations

import math

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from motif_jax.nets import products
from motif_jax.nets.layers import KernelAndBias, add_bias

Array = jax.Array


def state_size(kind: str, hidden_size: int, layers: int) -> int:
    """Width of the recurrent state; 0 without memory."""
    return {"gru": hidden_size * layers, "lstm": 2 * hidden_size * layers, "none": 0}[kind]


class Core(nn.Module):
    """Features [T, B, F] and a state [B, S] -> outputs [T, B, H] and the state after the last row.

    The state is one array: the hidden vectors of a GRU's layers, or all hidden vectors and then all
    cells of an LSTM. The order of gates is reset, update, new (GRU) and input, forget, cell, output
    (LSTM). Each layer has two bias vectors; a GRU's reset gate multiplies the hidden part with its
    bias.

    Attributes:
      hidden_size: H; without recurrence the outputs are the features.
      dtype: of the matrix products; the state is float32.
      unroll: rows in one turn of the loop.
    """

    kind: str
    hidden_size: int
    layers: int = 1
    dtype: jnp.dtype = jnp.float32
    unroll: int = 1

    @nn.compact
    def __call__(self, x: Array, state: Array, first: Array) -> tuple[Array, Array]:
        """Runs over T rows; `first[t]` (bool [T, B]) zeroes the state before row t."""
        chex.assert_rank([x, state, first], [3, 2, 2])
        if self.kind == "none":
            return x, state
        # Hidden vectors of all layers, then (LSTM) cells of all layers: [B, H] each.
        vectors = jnp.split(state, state.shape[-1] // self.hidden_size, axis=-1)
        for layer in range(self.layers):
            # A layer's hidden vector; of an LSTM also its cell, `layers` places further on.
            x, layer_state = self._layer(x, tuple(vectors[layer :: self.layers]), first, layer)
            vectors[layer :: self.layers] = layer_state
        return x, jnp.concatenate(vectors, axis=-1)

    def _layer(
        self, x: Array, state: tuple[Array, ...], first: Array, layer: int
    ) -> tuple[Array, tuple[Array, ...]]:
        """Runs one layer; its state is arrays [B, H], the hidden vector first."""
        step = gru_step if self.kind == "gru" else lstm_step
        gates = 3 if self.kind == "gru" else 4
        prefix = self.kind if layer == 0 else f"{self.kind}{layer + 1}"
        width = gates * self.hidden_size
        dtype = self.dtype
        limit = 1 / math.sqrt(self.hidden_size)
        input_kernel, input_bias = KernelAndBias(
            (x.shape[-1], width), limit, name=f"{prefix}_input"
        )()
        kernel, bias = KernelAndBias((self.hidden_size, width), limit, name=f"{prefix}_hidden")()
        # One product for all rows, outside of the loop over them.
        inputs = add_bias(products.linear(x.astype(dtype), input_kernel.astype(dtype)), input_bias)

        def body(
            carry: tuple[Array, ...], row: tuple[Array, Array]
        ) -> tuple[tuple[Array, ...], Array]:
            x, reset = row
            carry = tuple(jnp.where(reset[:, None], 0.0, vector) for vector in carry)
            # Cast in the loop, so that gradients of kernel and bias are summed over rows in
            # float32.
            from_hidden = (
                products.linear(carry[0].astype(dtype), kernel.astype(dtype)).astype(jnp.float32)
                + bias
            )
            carry = step(carry, x, from_hidden)
            return carry, carry[0]

        state = tuple(vector.astype(jnp.float32) for vector in state)
        # Actors run one row a call, which needs no loop.
        if len(inputs) == 1:
            state, output = body(state, (inputs[0], first[0]))
            return output[None], state
        state, outputs = jax.lax.scan(body, state, (inputs, first), unroll=self.unroll)
        return outputs, state


def gru_step(state: tuple[Array, ...], from_input: Array, from_hidden: Array) -> tuple[Array, ...]:
    """One GRU step (Cho et al. 2014, with the bias inside the reset gate's product): the hidden
    vector, float32 [B, H].

    The parts of the gates from the input and from the hidden vector are [B, 3H], with their biases.
    """
    reset_x, update_x, new_x = jnp.split(from_input.astype(jnp.float32), 3, axis=-1)
    reset_h, update_h, new_h = jnp.split(from_hidden.astype(jnp.float32), 3, axis=-1)
    update = jax.nn.sigmoid(update_x + update_h)
    new = jnp.tanh(new_x + jax.nn.sigmoid(reset_x + reset_h) * new_h)
    return ((1 - update) * new + update * state[0],)


def lstm_step(state: tuple[Array, ...], from_input: Array, from_hidden: Array) -> tuple[Array, ...]:
    """One LSTM step (Hochreiter and Schmidhuber 1997, with forget gates): hidden vector and cell,
    float32 [B, H]; gates are [B, 4H].
    """
    gates = from_input.astype(jnp.float32) + from_hidden.astype(jnp.float32)
    write, forget, candidate, read = jnp.split(gates, 4, axis=-1)
    cell = jax.nn.sigmoid(forget) * state[1] + jax.nn.sigmoid(write) * jnp.tanh(candidate)
    return jax.nn.sigmoid(read) * jnp.tanh(cell), cell
