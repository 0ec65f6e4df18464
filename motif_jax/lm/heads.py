"""Small networks on the states of a language model, by name: values, actions, Q of every token.

GLAM (Carta et al. 2023): `HeadConfig(1, (1024, 1024), "sigmoid")` is the value; the action head has
an output for each action. ILQL (Snell et al. 2022): `HeadConfig(1, (2 * width,))` is V,
`HeadConfig(vocab_size, (2 * width,))` is Q of every token. With a `rank` that Q costs what low-rank
additions to a trunk cost.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from safetensors.numpy import load_file

from motif_jax.core import tensor_files
from motif_jax.core.files import atomic_write_json, read_json
from motif_jax.lm.network import States
from motif_jax.lm.weights import require_equal
from motif_jax.nets import products

FILE = "heads.json"
WEIGHTS = "heads.safetensors"
ACTIVATIONS = {
    "relu": jax.nn.relu,
    "sigmoid": jax.nn.sigmoid,
    "tanh": jnp.tanh,
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
}


@dataclasses.dataclass(frozen=True)
class HeadConfig:
    """One head.

    Attributes:
      widths: of the hidden layers, each followed by the activation.
      activation: one of `ACTIVATIONS`, or one for each hidden layer (RoBERTa's pooler with a head:
          "tanh" and "relu").
      kind: 'mlp': linear layers alone; 'residual': norm(x + linear(activation(linear(norm(x)))))
          with one hidden layer, then a linear output (ILQL's `advanced_mlp`).
      state: it reads the states 'after' or 'before' the last norm.
      dropout: rate in the residual branch, where `apply` receives a key.
      rank: the outputs are v(x) + x A B: one number of the state, which all of them share, and a
          product through `rank` columns; None: one linear layer. B starts at zero, so that outputs
          which were never trained stay at v(x), about the mean of those that were.
    """

    outputs: int
    widths: tuple[int, ...] = ()
    activation: str | tuple[str, ...] = "relu"
    kind: str = "mlp"
    state: str = "after"
    dropout: float = 0.0
    rank: int | None = None

    @property
    def activations(self) -> tuple[str, ...]:
        """The activation of each hidden layer."""
        if isinstance(self.activation, str):
            return (self.activation,) * len(self.widths)
        return self.activation


@dataclasses.dataclass(frozen=True)
class Heads:
    """The heads of a model.

    Parameters are a tree {name of the head: {layer: {kernel, bias}}}, float32.

    Attributes:
      width: of the states, D.
      configs: by the head's name.
      dtype: of the hidden layers' products; outputs are float32.
    """

    width: int
    configs: Mapping[str, HeadConfig]
    dtype: Any = jnp.float32

    def init(self, key: jax.Array) -> Any:
        """Fresh parameters: weights and biases uniform in +-1 / sqrt(inputs), as in PyTorch's
        linear layers.
        """
        keys = jax.random.split(key, len(self.configs))
        params = {}
        for (name, config), head_key in zip(self.configs.items(), keys, strict=True):
            params[name] = self._init_head(config, head_key)
        return params

    def _init_head(self, config: HeadConfig, key: jax.Array) -> dict[str, Any]:
        hidden_sizes = list(config.widths)
        if config.kind == "residual":
            # The branch goes back to the states' width, where it is added to them.
            hidden_sizes.append(self.width)
        names = [f"hidden_{number}" for number in range(len(hidden_sizes))]
        # Of a head with a rank, the number that its outputs share.
        names.append("output" if config.rank is None else "shared")
        last = config.outputs if config.rank is None else 1

        layers = {}
        inputs = self.width
        for number, (name, outputs) in enumerate(zip(names, [*hidden_sizes, last], strict=True)):
            kernel_key, bias_key = jax.random.split(jax.random.fold_in(key, number))
            limit = 1 / math.sqrt(inputs)
            layers[name] = {
                "kernel": jax.random.uniform(
                    kernel_key, (inputs, outputs), minval=-limit, maxval=limit
                ),
                "bias": jax.random.uniform(bias_key, (outputs,), minval=-limit, maxval=limit),
            }
            inputs = outputs

        if config.rank is not None:
            shape = (layers["shared"]["kernel"].shape[0], config.rank)
            limit = 1 / math.sqrt(shape[0])
            a_key = jax.random.fold_in(key, len(names))
            layers["output"] = {
                "a": jax.random.uniform(a_key, shape, minval=-limit, maxval=limit),
                "b": jnp.zeros((config.rank, config.outputs)),
            }
        if config.kind == "residual":
            # Of layer norms, at the identity; both keys hold the same arrays, which no step changes
            # in place.
            norm = {"scale": jnp.ones(self.width), "bias": jnp.zeros(self.width)}
            layers |= {"first_norm": norm, "second_norm": norm}
        return layers

    def apply(
        self, params: Any, name: str, states: States | jax.Array, dropout: jax.Array | None = None
    ) -> jax.Array:
        """A head's outputs float32 [..., outputs], or [...] of one output, at states [..., D], or
        `States`, of which it reads one.

        `params` are those of all heads; `dropout` is a key, None: no dropout.
        """
        hidden = self._hidden(params, name, states, dropout)
        layers = params[name]
        if self.configs[name].rank is None:
            outputs = self._linear(layers["output"], hidden)
        else:
            low_rank = self._low_rank(layers, hidden)
            own = _product("...d,df->...f", low_rank, layers["output"]["b"], self.dtype)
            outputs = self._linear(layers["shared"], hidden) + own
        # A value has no axis of outputs.
        return outputs[..., 0] if self.configs[name].outputs == 1 else outputs

    def chosen(
        self,
        params: Any,
        name: str,
        states: States | jax.Array,
        index: jax.Array,
        dropout: jax.Array | None = None,
    ) -> jax.Array:
        """A head's outputs float32 [...] at `index` int32 [...] alone, see `apply`; the other
        columns are not computed.
        """
        hidden = self._hidden(params, name, states, dropout)
        chex.assert_shape(index, hidden.shape[:-1])
        layers = params[name]
        if self.configs[name].rank is not None:
            columns = jnp.take(layers["output"]["b"], index, axis=1)
            low_rank = self._low_rank(layers, hidden)
            own = _product("...d,d...->...", low_rank, columns, self.dtype)
            return self._linear(layers["shared"], hidden)[..., 0] + own
        layer = layers["output"]
        # [D, outputs] at [...] becomes [D, ...]: one column for each state, not outputs for all
        # tokens.
        columns = jnp.take(layer["kernel"], index, axis=1)
        chosen = _product("...d,d...->...", hidden, columns, self.dtype)
        return chosen + jnp.take(layer["bias"], index)

    def _hidden(
        self, params: Any, name: str, states: States | jax.Array, dropout: jax.Array | None
    ) -> jax.Array:
        """The input of the output layer, float32 [..., D or the last hidden width]."""
        config = self.configs[name]
        layers = params[name]
        # ILQL's residual heads read the states before the last norm, since they have norms of their
        # own.
        x = getattr(states, config.state) if isinstance(states, States) else states
        chex.assert_axis_dimension(x, -1, self.width)
        # Norms and sums in float32; `_product` alone rounds to the heads' dtype.
        x = x.astype(jnp.float32)
        if config.kind == "mlp":
            for number, activation in enumerate(config.activations):
                x = ACTIVATIONS[activation](self._linear(layers[f"hidden_{number}"], x))
            return x

        branch = self._linear(layers["hidden_0"], norm(layers["first_norm"], x))
        branch = ACTIVATIONS[config.activations[0]](branch)
        branch = self._linear(layers["hidden_1"], branch)
        if dropout is not None and config.dropout:
            passes = jax.random.bernoulli(dropout, 1 - config.dropout, branch.shape)
            # Inverted dropout: what passes is scaled, so that nothing changes where there is none.
            branch = jnp.where(passes, branch / (1 - config.dropout), 0.0)
        return norm(layers["second_norm"], x + branch)

    def _low_rank(self, layers: Any, hidden: jax.Array) -> jax.Array:
        """The inputs x A float32 [..., rank] of B in a head with a rank."""
        return _product("...d,dr->...r", hidden, layers["output"]["a"], self.dtype)

    def _linear(self, layer: Any, x: jax.Array) -> jax.Array:
        """A layer's outputs float32 [..., out] of inputs [..., in]."""
        return _product("...d,df->...f", x, layer["kernel"], self.dtype) + layer["bias"]


def _product(letters: str, x: jax.Array, kernel: jax.Array, dtype: Any) -> jax.Array:
    return products.einsum_float32(letters, x.astype(dtype), kernel.astype(dtype))


def norm(layer: Any, x: jax.Array, epsilon: float = 1e-5) -> jax.Array:
    """Layer norm of float32 [..., D]; `layer` has its scale and bias."""
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = jnp.square(centred).mean(axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + epsilon) * layer["scale"] + layer["bias"]


def save(folder: str | Path, heads: Heads, params: Any) -> None:
    """Writes heads and their parameters beside the weights of their model."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        name: np.ascontiguousarray(value) for name, value in flatten_dict(params, sep=".").items()
    }
    tensor_files.save(tensors, folder / WEIGHTS)
    configs = {name: dataclasses.asdict(config) for name, config in heads.configs.items()}
    # After the weights: `load` takes a folder without this file for one without heads.
    atomic_write_json(folder / FILE, {"width": heads.width, "heads": configs})


def _with_tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no tuples, and a `HeadConfig` is hashed."""
    return {
        key: tuple(value) if isinstance(value, list) else value for key, value in values.items()
    }


def load(folder: str | Path, width: int) -> tuple[Heads, Any]:
    """Reads the heads of a model's folder and their parameters; empty where the folder has none.

    Raises:
      UserError: the parameters are not those of heads on states of `width`, or not finite.
    """
    folder = Path(folder)
    if not (folder / FILE).exists():
        return Heads(width, {}), {}
    values = read_json(folder / FILE, "save the heads again", keys=("heads",))
    heads = Heads(
        width,
        {name: HeadConfig(**_with_tuples(config)) for name, config in values["heads"].items()},
    )
    tensors = load_file(folder / WEIGHTS)
    # What the configs ask for, to compare the file with; nothing is drawn.
    shapes = flatten_dict(jax.eval_shape(heads.init, jax.random.key(0)), sep=".")
    saved = {
        name: str(tensor.shape) if np.isfinite(tensor).all() else "NaN or infinite numbers"
        for name, tensor in tensors.items()
    }
    wanted = {name: str(expected.shape) for name, expected in shapes.items()}
    require_equal(folder / WEIGHTS, saved, wanted)
    return heads, unflatten_dict(tensors, sep=".")
