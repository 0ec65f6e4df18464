"""Matches a file's tensors to layers by shape, order and names."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

# Layer -> words in a tensor's name that select the layer if shape and order leave a choice.
HINTS: Mapping[str, tuple[str, ...]] = {
    "reward_head": ("reward",),
    "value_head": ("critic", "value"),
    "policy_head": ("action", "policy", "distribution", "logits"),
    "message_fc": ("msg", "message"),
    "vector_fc": ("blstats", "vector", "stats"),
    "blstats_fc": ("blstats", "vector", "stats"),
    "crop_conv": ("crop",),
    "glyph_conv": ("glyph", "map", "full"),
    "image_": ("image", "conv", "cnn", "obs"),
    "gru_": ("core", "rnn", "gru"),
    "lstm_": ("core", "rnn", "lstm"),
}


@dataclasses.dataclass(frozen=True)
class Match:
    """Result of `match`.

    Attributes:
      names: neutral name -> name in the file.
      left_over: names in the file without a layer.
      notes: messages to the user about choices by more than shape and order.
    """

    names: dict[str, str]
    left_over: tuple[str, ...]
    notes: tuple[str, ...]

    def tensors(self, tensors: Sequence[tuple[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """Neutral name -> tensor of the file, float32."""
        arrays = dict(tensors)
        return {
            name: np.asarray(arrays[foreign], np.float32) for name, foreign in self.names.items()
        }


def _hinted(neutral: str, foreign: str) -> bool:
    words = next((words for start, words in HINTS.items() if neutral.startswith(start)), ())
    return any(word in foreign.lower() for word in words)


def match(
    tensors: Sequence[tuple[str, np.ndarray]],
    shapes_of_layers: Mapping[str, tuple[int, ...]],
    chosen: Mapping[str, str] | None = None,
) -> Match:
    """Assigns tensors of a file, in its order, to the layers `shapes_of_layers` (neutral name ->
    shape), in the network's order.

    Tensors of one shape go to the layers of that shape in their order. If names have hints, a layer
    takes the first tensor with its hint. With more tensors than layers and no hint, the user has to
    choose: `chosen`, neutral name -> name in the file.

    Raises:
      ValueError: a layer, which the error names, has no tensor of its shape, too many without a
          hint, or one that was chosen for another layer.
    """
    shapes = {name: array.shape for name, array in tensors}
    names: dict[str, str] = {}
    notes = []
    for neutral, foreign in (chosen or {}).items():
        if neutral not in shapes_of_layers or foreign not in shapes:
            raise ValueError(
                f"{neutral}={foreign}: the network has no {neutral} or the file no {foreign}"
            )
        if shapes[foreign] != tuple(shapes_of_layers[neutral]):
            raise ValueError(
                f"{foreign} has shape {list(shapes[foreign])}, {neutral} {list(shapes_of_layers[neutral])}"
            )
        if foreign in names.values():
            raise ValueError(f"{foreign} is chosen for two layers, of which {neutral} is one")
        names[neutral] = foreign
    # The layers for which no tensor was chosen, by shape.
    layers = defaultdict(list)
    for neutral, shape in shapes_of_layers.items():
        if neutral not in names:
            layers[tuple(shape)].append(neutral)
    taken = set(names.values())
    for shape, open_layers in layers.items():
        free = [foreign for foreign in shapes if shapes[foreign] == shape and foreign not in taken]
        if len(free) < len(open_layers):
            raise ValueError(
                f"{', '.join(open_layers)}: shape {list(shape)} is needed {len(open_layers)} times, the file has it "
                f"{len(free)} times"
            )
        notes += _assign(open_layers, free, names)
    left_over = tuple(name for name, _ in tensors if name not in set(names.values()))
    return Match({name: names[name] for name in shapes_of_layers}, left_over, tuple(notes))


def _assign(layers: list[str], free: list[str], names: dict[str, str]) -> list[str]:
    """Assigns `layers` of one shape to tensors in `free`, by hints first, then by order."""
    free = list(free)
    notes: list[str] = []
    rest: list[str] = []
    for neutral in layers:
        hinted = [foreign for foreign in free if _hinted(neutral, foreign)]
        # A hint in all names does not select any.
        if hinted and len(hinted) < len(free):
            names[neutral] = hinted[0]
            free.remove(hinted[0])
            notes.append(
                f"{neutral} <- {hinted[0]}: by its name, among {len(free) + 1} of this shape"
            )
        else:
            rest.append(neutral)
    # Order says nothing where some tensors of the shape have no layer.
    if len(free) > len(rest) and rest:
        raise ValueError(
            f"{', '.join(rest)} may each be any of {', '.join(free)}, which have the same shape: choose by hand"
        )
    # Where no layer is left, tensors may be.
    names.update(zip(rest, free, strict=False))
    return notes
