"""What the tests against golden numbers share: weights from their recipe, and how close summaries
of tensors have to be.

tests/golden/README.md describes both.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.nets import layout
from motif_jax.nets.agent import AgentNetwork
from motif_jax.nets.reward import RewardArchitecture, RewardNetwork


def recipe_tensors(shapes: Mapping[str, list[int]]) -> dict[str, np.ndarray]:
    """The golden weights of a network: name -> float32 array in PyTorch's layout."""
    tensors = {}
    for name, shape in shapes.items():
        draws = (
            np.random.default_rng(zlib.crc32(name.encode()))
            .standard_normal(shape)
            .astype(np.float32)
        )
        scale = 0.05 if len(shape) == 1 else 1.5 / np.sqrt(np.prod(shape[1:]))
        tensors[name] = draws * np.float32(scale)
        if name == "embedding/weight":
            tensors[name][0] = 0
    return tensors


def recipe_params(network: AgentNetwork, shapes: Mapping[str, list[int]]) -> Any:
    """The golden weights as parameters of an agent's network."""
    abstract = jax.eval_shape(network.init, jax.random.key(0))
    return jax.tree.map(jnp.asarray, layout.from_torch(recipe_tensors(shapes), abstract))


def recipe_reward(
    shapes: Mapping[str, list[int]], **architecture: Any
) -> tuple[RewardNetwork, Any]:
    """A reward network and the golden weights as its parameters."""
    network = RewardNetwork(RewardArchitecture(**architecture))
    return network, layout.from_named(recipe_tensors(shapes), network)


class Closeness(NamedTuple):
    """How far a tensor may be from its golden summary: norm, first entries and sum, relative to
    what they would be.

    Attributes:
      norm: of the norm.
      entry: of each of the first 8 entries, where a typical entry or the largest of them is 1.
      total: of the sum, where the norm is 1 (a sum of numbers of both signs is about as large).
    """

    norm: float
    entry: float
    total: float

    def times(self, factor: float) -> Closeness:
        return Closeness(*(factor * limit for limit in self))


# Rollouts with their returns, advantages and losses.
VTRACE_FILES = (
    "vtrace_tiny_T4_N2.npz",
    "vtrace_T8_N2_stdfloor.npz",
    "vtrace_T32_N8.npz",
    "vtrace_T32_N8_llm.npz",
    "vtrace_T32_N8_llm_invalid_mask.npz",
)
# Measured, at most: 1.5e-6, 4.9e-6 and 2.9e-5 over all networks and gradients but those of
# resnet_impala.
GRADIENT = Closeness(norm=1e-5, entry=2e-5, total=1e-4)
# What one step of Adam changes. Entries whose gradient is as small as Adam's epsilon move by what
# rounding says of them. Measured, at most: 1.0e-5, 1.5e-4 and 3.5e-4. An entry that goes the other
# way is 2e-3 or more of any sum.
UPDATE = Closeness(norm=5e-5, entry=5e-4, total=1e-3)


def assert_golden(
    tensors: Mapping[str, np.ndarray],
    golden: Mapping[str, Any],
    prefix: str,
    limit: Closeness,
    but: Mapping[str, Closeness] | None = None,
    noise: Collection[str] = (),
) -> None:
    """Asserts that every tensor of either side has the norm, the sum and the first 8 entries of its
    golden summary.

    `tensors` are in PyTorch's layout; `prefix` is 'gradient' or 'update', with the variant before
    it where there is one. `but` has other limits of single tensors; `noise` is rounding in the
    golden file, and not compared.
    """
    keys = [key.removeprefix(f"{prefix}/") for key in golden if key.startswith(f"{prefix}/")]
    assert set(tensors) == {key.rsplit("/", 1)[0] for key in keys} - set(noise)
    far = {}
    for name, tensor in tensors.items():
        values = np.asarray(tensor, np.float64)
        norm = float(golden[f"{prefix}/{name}/l2"])
        head = golden[f"{prefix}/{name}/head8"]
        entry = max(norm / np.sqrt(values.size), np.abs(head).max())
        distance = Closeness(
            abs(np.linalg.norm(values) - norm) / norm,
            np.abs(values.reshape(-1)[:8] - head).max() / entry,
            abs(values.sum() - float(golden[f"{prefix}/{name}/sum"])) / norm,
        )
        allowed = (but or {}).get(name, limit)
        if not all(one <= largest for one, largest in zip(distance, allowed, strict=True)):
            far[name] = distance
    assert not far, f"{prefix}: {far}"
