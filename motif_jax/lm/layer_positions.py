"""Rotary positions and sliding windows, read from the entries of a config.json."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from motif_jax.core.errors import UserError

# Parameters of the scalings of rotary positions, in the order of `Rotary`.
SCALINGS: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}
# transformers' names of layers that see all earlier tokens, and of those that see the last ones.
GLOBAL, LOCAL = "full_attention", "sliding_attention"
# Of Gemma 3: every sixth layer sees all tokens.
_GEMMA_PATTERN = 6
_GEMMA_WINDOW = 4096
_GEMMA_GLOBAL_THETA, _GEMMA_LOCAL_THETA = 1000000.0, 10000.0
# Of Qwen: the first layers see all tokens.
_QWEN_GLOBAL_LAYERS = 28
_QWEN_WINDOW = 4096


@dataclasses.dataclass(frozen=True)
class Rotary:
    """Rotary positions (Su et al. 2021): `theta` is the base of the wavelengths, the other fields
    are parameters of the scaling `kind`.
    """

    theta: float = 10000.0
    kind: str = "default"  # or 'linear', or 'llama3' (Llama 3.1)
    factor: float = 1.0
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0
    original_length: int = 8192


def read_rotary(values: Mapping[str, Any], source: str) -> Rotary:
    """The rotary positions of all layers, from `rope_parameters` or `rope_scaling`.

    Raises:
      UserError: the scaling is unknown, or turns a part of a head.
      KeyError: it lacks a parameter.
    """
    scaling = values.get("rope_parameters") or values.get("rope_scaling", {})
    share = values.get("partial_rotary_factor", 1.0)
    return _rotary(scaling, values.get("rope_theta", 10000.0), share, source)


def read_gemma_rotary(values: Mapping[str, Any], source: str) -> tuple[Rotary, Rotary]:
    """Gemma 3's rotary positions: of the layers that see all tokens, and of those with a window.

    transformers has had them in `rope_parameters` since version 5; before in `rope_theta`,
    `rope_scaling` and `rope_local_base_freq`.

    Raises:
      UserError: as of `read_rotary`.
    """
    by_layer = values.get("rope_parameters", {})
    of_global = by_layer.get(GLOBAL) or values.get("rope_scaling", {})
    of_local = by_layer.get(LOCAL) or {}
    theta = values.get("rope_theta", _GEMMA_GLOBAL_THETA)
    local_theta = values.get("rope_local_base_freq", _GEMMA_LOCAL_THETA)
    return (
        _rotary(of_global, theta, 1.0, source),
        _rotary(of_local, local_theta, 1.0, source),
    )


def _rotary(scaling: Mapping[str, Any], theta: float, share: float, source: str) -> Rotary:
    # Since version 5 transformers writes it inside; an entry there counts before the outer one.
    theta = scaling.get("rope_theta", theta)
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind not in SCALINGS:
        raise UserError(
            f"{source}: rotary positions of type {kind!r} are not supported, which are {', '.join(SCALINGS)}"
        )
    share = scaling.get("partial_rotary_factor", share)
    if share != 1.0:
        raise UserError(
            f"{source}: partial_rotary_factor is {share}: rotary positions of a part of a head are not supported"
        )
    return Rotary(theta, kind, *(scaling[name] for name in SCALINGS[kind]))


def read_windows(values: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The fields `window` and `local_layers` of a `ModelConfig`; {} where every layer sees all
    tokens, as in every Llama.

    Raises:
      UserError: `layer_types` does not name each layer, names an unknown type, or layers with a
        window whose length is null.
    """
    gemma = values["model_type"] == "gemma3_text"
    qwen = values["model_type"] in ("qwen2", "qwen3")
    if not gemma and not (qwen and values.get("use_sliding_window")):
        return {}
    num_layers = values["num_hidden_layers"]
    window = values.get("sliding_window", _GEMMA_WINDOW if gemma else _QWEN_WINDOW)
    if values.get("layer_types"):
        local = tuple(name == LOCAL for name in _layer_types(values, source))
    elif gemma:
        pattern = values.get("sliding_window_pattern", _GEMMA_PATTERN)
        # The last of every `pattern` layers sees all tokens.
        local = tuple((layer + 1) % pattern != 0 for layer in range(num_layers))
    else:
        first_local = values.get("max_window_layers", _QWEN_GLOBAL_LAYERS)
        # As in transformers: with null no layer of a Qwen has a window.
        has_window = window is not None
        local = tuple(has_window and layer >= first_local for layer in range(num_layers))
    if not any(local):
        return {}
    if window is None:
        raise UserError(f"{source}: sliding_window is null, and some layers have a window")
    return {"window": window, "local_layers": local}


def _layer_types(values: Mapping[str, Any], source: str) -> list[str]:
    names = values["layer_types"]
    num_layers = values["num_hidden_layers"]
    if len(names) != num_layers:
        raise UserError(f"{source}: layer_types has {len(names)} entries for {num_layers} layers")
    unknown = [name for name in names if name not in (GLOBAL, LOCAL)]
    if unknown:
        raise UserError(f"{source}: layer_types has {unknown[0]!r}, must be {GLOBAL} or {LOCAL}")
    return list(names)
