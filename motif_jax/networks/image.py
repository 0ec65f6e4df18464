"""Encoders of the policy's picture of the game: windows of characters and colours to features."""

from __future__ import annotations

import math
from collections.abc import Callable

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from motif_jax.networks.layers import ACTIVATIONS, ConvWeights, Dense, convolve, flatten_channels_first
from motif_jax.networks.tiles import TileSet, convolve_tiles, fits, tile_table

Array = jax.Array
Weights = dict[str, tuple[Array, Array]]

# Of each convolution: output channels, side, stride.
CONVOLUTIONS: dict[str, tuple[tuple[int, int, int], ...]] = {
    "convnet_simple": ((32, 8, 4), (64, 4, 2), (128, 3, 2)),
    "convnet_impala": ((16, 8, 4), (32, 4, 2)),
}
RESIDUAL_STAGES: dict[str, tuple[int, ...]] = {"resnet_impala": (16, 32, 32)}
IMAGE_ENCODERS = (*CONVOLUTIONS, *RESIDUAL_STAGES, "mlp")
CHANNELS = 3
# Rows that are convolved at a time on CPU; 8 to 48 measured alike.
CHUNK = 24
# Fewer rows than this do not pay for a table of the first convolution.
TABLE_ROWS = 256


class ImageEncoder(nn.Module):
    """Windows of characters -> features [N, features].

    In the 'patches' form the convolutions run over a few rows at a time, and again in the backward pass
    instead of keeping what they gave: their intermediate arrays then stay in the processor's cache, which
    saves more than it costs. The first convolution is looked up (see `networks.tiles`); its table is read from
    the variable `tables` where `AgentNetwork.prepare` has put it, or made here for many rows.

    Attributes:
      tiles: the drawn glyphs.
      kind: one of IMAGE_ENCODERS (Espeholt et al. 2018 for the two named impala).
      features: width of the output.
      scale: pixels are divided by it.
      nonlinearity: name of the activation.
      form: how convolutions are computed, see `layers.convolve`.
      dtype: of the computation.
    """

    tiles: TileSet
    kind: str
    features: int
    scale: float
    nonlinearity: str
    form: str
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(self, chars: Array, colors: Array) -> Array:
        """Encodes N windows, integers [N, rows, columns] each."""
        chex.assert_rank([chars, colors], 3)
        chex.assert_equal_shape([chars, colors])
        act = ACTIVATIONS[self.nonlinearity]
        kinds = self.tiles.look_up(chars, colors)
        if self.kind == "mlp":
            x = flatten_channels_first(self._picture(kinds))
            x = act(Dense(self.features, self.dtype, name="image_fc1")(x))
            return act(Dense(self.features, self.dtype, name="image_fc2")(x))
        weights = {name: ConvWeights(*sizes, name=name)() for name, *sizes in layers(self.kind)}
        table = self._table(weights, len(kinds))

        def convolutions(weights: Weights, table: Array | None, kinds: Array) -> Array:
            if self.kind in RESIDUAL_STAGES:
                stages = RESIDUAL_STAGES[self.kind]
                return residual_net(weights, self._picture(kinds), len(stages), act, self.form)
            return self._convnet(weights, table, kinds)

        if self.form == "conv":
            x = convolutions(weights, table, kinds)
        else:
            # Closed over, the table would be copied for each chunk.
            recomputed = jax.checkpoint(convolutions, prevent_cse=False)
            x = in_chunks(lambda rows: recomputed(weights, table, rows), kinds)
        return act(Dense(self.features, self.dtype, name="image_fc")(x))

    def _picture(self, kinds: Array) -> Array:
        return self.tiles.draw(kinds).astype(self.dtype) / jnp.asarray(self.scale, self.dtype)

    def _scaled_kernel(self, weights: Weights) -> Array:
        return (weights["image_conv1"][0] / self.scale).astype(self.dtype)

    def _table(self, weights: Weights, rows: int) -> Array | None:
        """The first convolution's table, where there is one to use."""
        convolutions = CONVOLUTIONS.get(self.kind)
        if self.form == "conv" or convolutions is None or not fits(*convolutions[0][1:]):
            return None
        if self.has_variable("tables", "image_conv1"):
            return self.get_variable("tables", "image_conv1")
        making = self.is_mutable_collection("tables") and not self.is_initializing()
        if rows < TABLE_ROWS and not making:
            return None
        table = tile_table(self.tiles, self._scaled_kernel(weights))
        if making:
            self.put_variable("tables", "image_conv1", table)
        return table

    def _convnet(self, weights: Weights, table: Array | None, kinds: Array) -> Array:
        act = ACTIVATIONS[self.nonlinearity]
        x = self._picture(kinds) if table is None else kinds
        for i, (_, _, stride) in enumerate(CONVOLUTIONS[self.kind], start=1):
            weight = weights[f"image_conv{i}"]
            if i == 1 and table is not None:
                x = convolve_tiles(self.tiles, self._scaled_kernel(weights), table, kinds)
                x = x + weight[1].astype(self.dtype)
            else:
                x = convolve(x, weight, stride, form=self.form)
            x = act(x)
        return flatten_channels_first(x)


def layers(kind: str) -> list[tuple[str, int, int, int]]:
    """Name, input channels, output channels and side of each convolution of an encoder."""
    found, inputs = [], CHANNELS
    for i, (channels, size, _) in enumerate(CONVOLUTIONS.get(kind, ()), start=1):
        found.append((f"image_conv{i}", inputs, channels, size))
        inputs = channels
    for i, channels in enumerate(RESIDUAL_STAGES.get(kind, ()), start=1):
        found.append((f"image_stage{i}_conv", inputs, channels, 3))
        names = [f"image_stage{i}_block{block}_conv{conv}" for block in (1, 2) for conv in (1, 2)]
        found.extend((name, channels, channels, 3) for name in names)
        inputs = channels
    return found


def residual_net(weights: Weights, x: Array, stages: int, act: Callable[[Array], Array], form: str) -> Array:
    """Stages of convolution, pooling and two residual blocks, and one activation at the end.

    The skip connection carries the ACTIVATED input of the block: the published network computes its first
    activation in place, and weights trained by either only fit this form.

    Args:
      weights: kernel and bias by layer name.
      x: pictures [N, H, W, 3].
      stages: how many there are.
      act: the activation.
      form: see `layers.convolve`.

    Returns:
      [N, F], channels first.
    """
    for i in range(1, stages + 1):
        x = convolve(x, weights[f"image_stage{i}_conv"], padding=1, form=form)
        x = nn.max_pool(x, (3, 3), (2, 2), ((1, 1), (1, 1)))
        for block in (1, 2):
            first, second = (weights[f"image_stage{i}_block{block}_conv{conv}"] for conv in (1, 2))
            skip = act(x)
            x = act(convolve(skip, first, padding=1, form=form))
            x = skip + convolve(x, second, padding=1, form=form)
    return flatten_channels_first(act(x))


def in_chunks(function: Callable[[Array], Array], rows: Array) -> Array:
    """Applies `function` ([n, ...] -> [n, F]) to about CHUNK of the N rows at a time -> [N, F]."""
    count = rows.shape[0]
    chunks = math.ceil(count / CHUNK)
    size = math.ceil(count / chunks)
    padded = jnp.pad(rows, ((0, chunks * size - count), *[(0, 0)] * (rows.ndim - 1)))
    _, out = jax.lax.scan(
        lambda _, part: (None, function(part)), None, padded.reshape(chunks, size, *rows.shape[1:])
    )
    return out.reshape(chunks * size, -1)[:count]
