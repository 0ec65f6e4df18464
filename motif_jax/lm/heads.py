"""Small networks on the states of a language model, by name: values, actions, Q of every token.

GLAM (Carta et al. 2023): `HeadConfig(1, (1024, 1024), "sigmoid")` is the value; the action head has an output for each action.
ILQL (Snell et al. 2022): `HeadConfig(1, (2 * width,))` is V, `HeadConfig(vocab_size, (2 * width,))` is Q of every token.
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
from safetensors import SafetensorError
from safetensors.numpy import load_file

from motif_jax.core import tensor_files
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_json, read_json
from motif_jax.lm.network import States

FILE, WEIGHTS = "heads.json", "heads.safetensors"
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
      activation: one of `ACTIVATIONS`, or one for each hidden layer (RoBERTa's pooler with a head: "tanh" and "relu").
      kind: 'mlp': linear layers alone; 'residual': norm(x + linear(activation(linear(norm(x))))) with one hidden layer, then a
        linear output (ILQL's `advanced_mlp`).
      state: it reads the states 'after' or 'before' the last norm.
      dropout: rate in the residual branch, where `apply` receives a key.
      constant: the output layer starts with weights 0 and this bias; None: it starts as the other layers do.
    """

    outputs: int
    widths: tuple[int, ...] = ()
    activation: str | tuple[str, ...] = "relu"
    kind: str = "mlp"
    state: str = "after"
    dropout: float = 0.0
    constant: float | None = None

    def __post_init__(self) -> None:
        choices = [("kind", self.kind, ["mlp", "residual"]), ("state", self.state, ["after", "before"])]
        choices += [("activation", each, list(ACTIVATIONS)) for each in self.activations]
        for name, value, allowed in choices:
            if value not in allowed:
                raise UserError(f"head: {name}={value!r} is not one of {', '.join(allowed)}")
        if len(self.activations) != len(self.widths) or (self.kind == "residual" and len(self.widths) != 1):
            raise UserError(
                f"head: widths={self.widths}: needs an activation for each ({self.activation}), and one width if residual"
            )
        if min(self.outputs, *self.widths, 1) < 1:
            raise UserError(f"head: outputs={self.outputs}, widths={self.widths}: all must be at least 1")

    @property
    def activations(self) -> tuple[str, ...]:
        return (self.activation,) * len(self.widths) if isinstance(self.activation, str) else self.activation


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
        """Fresh parameters: weights and biases uniform in +-1 / sqrt(inputs), as in PyTorch's linear layers."""
        keys = jax.random.split(key, len(self.configs))
        return {name: self._init(self.configs[name], k) for name, k in zip(self.configs, keys, strict=True)}

    def _init(self, config: HeadConfig, key: jax.Array) -> dict[str, Any]:
        layers, inputs = {}, self.width
        sizes = [*config.widths, *([self.width] if config.kind == "residual" else [])]
        for place, outputs in enumerate([*sizes, config.outputs]):
            name = f"hidden_{place}" if place < len(sizes) else "output"
            weights, bias = jax.random.split(jax.random.fold_in(key, place))
            limit = 1 / math.sqrt(inputs)
            layers[name] = {
                "kernel": jax.random.uniform(weights, (inputs, outputs), minval=-limit, maxval=limit),
                "bias": jax.random.uniform(bias, (outputs,), minval=-limit, maxval=limit),
            }
            inputs = outputs
        if config.constant is not None:
            layers["output"] = {
                "kernel": jnp.zeros_like(layers["output"]["kernel"]),
                "bias": jnp.full((config.outputs,), config.constant),
            }
        if config.kind == "residual":
            norm = {"scale": jnp.ones(self.width), "bias": jnp.zeros(self.width)}
            layers |= {"first_norm": norm, "second_norm": norm}
        return layers

    def apply(
        self, params: Any, name: str, states: States | jax.Array, dropout: jax.Array | None = None
    ) -> jax.Array:
        """A head's outputs float32 [..., outputs], or [...] of one output, at states [..., D], or `States`, of which it reads one.

        `params` are those of all heads; `dropout` is a key, None: no dropout.
        """
        hidden = self._hidden(params, name, states, dropout)
        layer, config = params[name]["output"], self.configs[name]
        out = _product("...d,dv->...v", hidden, layer["kernel"], self.dtype) + layer["bias"]
        return out[..., 0] if config.outputs == 1 else out

    def chosen(
        self,
        params: Any,
        name: str,
        states: States | jax.Array,
        index: jax.Array,
        dropout: jax.Array | None = None,
    ) -> jax.Array:
        """A head's outputs float32 [...] at `index` int32 [...] alone, see `apply`; the other columns are not computed."""
        hidden = self._hidden(params, name, states, dropout)
        chex.assert_shape(index, hidden.shape[:-1])
        layer = params[name]["output"]
        columns = jnp.take(layer["kernel"], index, axis=1)
        out = _product("...d,d...->...", hidden, columns, self.dtype)
        return out + jnp.take(layer["bias"], index)

    def _hidden(
        self, params: Any, name: str, states: States | jax.Array, dropout: jax.Array | None
    ) -> jax.Array:
        config, layers = self.configs[name], params[name]
        x = getattr(states, config.state) if isinstance(states, States) else states
        chex.assert_axis_dimension(x, -1, self.width)
        x = x.astype(jnp.float32)
        if config.kind == "mlp":
            for place, activation in enumerate(config.activations):
                x = ACTIVATIONS[activation](self._linear(layers[f"hidden_{place}"], x))
            return x
        inner = self._linear(layers["hidden_0"], norm(layers["first_norm"], x))
        inner = ACTIVATIONS[config.activations[0]](inner)
        added = self._linear(layers["hidden_1"], inner)
        if dropout is not None and config.dropout:
            kept = jax.random.bernoulli(dropout, 1 - config.dropout, added.shape)
            added = jnp.where(kept, added / (1 - config.dropout), 0.0)
        return norm(layers["second_norm"], x + added)

    def _linear(self, layer: Any, x: jax.Array) -> jax.Array:
        return _product("...d,df->...f", x, layer["kernel"], self.dtype) + layer["bias"]


def _product(letters: str, x: jax.Array, kernel: jax.Array, dtype: Any) -> jax.Array:
    return jnp.einsum(letters, x.astype(dtype), kernel.astype(dtype), preferred_element_type=jnp.float32)


def norm(layer: Any, x: jax.Array, epsilon: float = 1e-5) -> jax.Array:
    """Layer norm of float32 [..., D]; `layer` has its scale and bias."""
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = jnp.square(centred).mean(axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + epsilon) * layer["scale"] + layer["bias"]


def save(folder: str | Path, heads: Heads, params: Any) -> None:
    """Writes heads and their parameters beside the weights of their model."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    flat = {name: np.ascontiguousarray(value) for name, value in flatten_dict(params, sep=".").items()}
    tensor_files.save(flat, folder / WEIGHTS)
    described = {name: dataclasses.asdict(config) for name, config in heads.configs.items()}
    atomic_write_json(folder / FILE, {"width": heads.width, "heads": described})


def _with_tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}


def load(folder: str | Path, width: int) -> tuple[Heads, Any]:
    """Reads the heads of a model's folder and their parameters; empty where the folder has none.

    Raises:
      UserError: the heads read states of another width, or a file is damaged.
    """
    folder = Path(folder)
    if not (folder / FILE).exists():
        return Heads(width, {}), {}
    values = read_json(folder / FILE, "save the heads again", keys=("width", "heads"))
    if values["width"] != width:
        raise UserError(
            f"{folder / FILE}: its heads read states of width {values['width']}, the model has width {width}"
        )
    try:
        configs = {name: HeadConfig(**_with_tuples(config)) for name, config in values["heads"].items()}
        flat = load_file(folder / WEIGHTS)
    except (TypeError, AttributeError, SafetensorError, OSError) as error:
        raise UserError(f"{folder} has heads that cannot be read: {error}") from None
    heads = Heads(width, configs)
    shapes = flatten_dict(jax.eval_shape(heads.init, jax.random.key(0)), sep=".")
    for name, wanted in shapes.items():
        found = flat.get(name)
        if found is None or found.shape != wanted.shape:
            what = "missing" if found is None else f"{list(found.shape)}, {list(wanted.shape)} expected"
            raise UserError(f"{folder / WEIGHTS}: {name} is {what}")
        if not np.isfinite(found).all():
            raise UserError(f"{folder / WEIGHTS}: {name} is damaged (NaN or infinite numbers)")
    return heads, unflatten_dict({name: flat[name] for name in shapes}, sep=".")
