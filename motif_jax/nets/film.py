"""The symbolic agent's encoder of BabyAI: the view, modulated by the instruction
(Chevalier-Boisvert et al. 2019).

It has convolutions of the view, and blocks whose channels the instruction scales and shifts (FiLM,
Perez et al. 2018), in the sizes of the published `expert_filmcnn`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.envs.babyai_text import instructions
from motif_jax.nets.cores import Core
from motif_jax.nets.layers import Dense, KernelAndBias, convolve, unit_rows
from motif_jax.nets.running_statistics import STATISTICS

Array = jax.Array
IMAGE = "image"
INSTRUCTION = "instruction"
FIELDS = (IMAGE, INSTRUCTION)
BLOCKS = 2
# PyTorch's default of what a batch norm adds to the variance.
_EPSILON = 1e-5
# Instructions are cropped to multiples of this number of words, so that few lengths are compiled.
_WORDS = 8


class BatchNorm(nn.Module):
    """Batch normalisation (Ioffe and Szegedy 2015) of [T, B, H, W, C] over all but the first and
    the last axis.

    By default moving statistics normalise each channel, both in play and in learning. So a row's
    features do not depend on other rows, and the policy that plays equals the policy that learns.
    The statistics are parameters without a gradient, which `running_statistics.with_statistics`
    updates. While they are collected (`STATISTICS` is mutable), and with `of_batch`, mean and
    variance are those of each step's rows.

    Attributes:
      of_batch: normalise by the batch, as published (`compat.symbolic_train_mode_batchnorm`).
    """

    of_batch: bool

    @nn.compact
    def __call__(self, x: Array) -> Array:
        chex.assert_rank(x, 5)
        channels = x.shape[-1:]
        scale = self.param("scale", nn.initializers.ones_init(), channels)
        bias = self.param("bias", nn.initializers.zeros_init(), channels)
        mean = jax.lax.stop_gradient(self.param("mean", nn.initializers.zeros_init(), channels))
        variance = jax.lax.stop_gradient(
            self.param("variance", nn.initializers.ones_init(), channels)
        )
        self.param("count", nn.initializers.zeros_init(), ())
        collects = self.is_mutable_collection(STATISTICS)
        y = x.astype(jnp.float32)
        if collects or self.of_batch:
            axes = (1, 2, 3)
            mean = jnp.mean(y, axes, keepdims=True)
            variance = jnp.mean(jnp.square(y - mean), axes, keepdims=True)
        if collects:
            # Averages the statistics of all steps.
            self.variable(STATISTICS, "mean", jnp.zeros, channels).value = jnp.mean(
                mean, (0, 1, 2, 3)
            )
            self.variable(STATISTICS, "variance", jnp.ones, channels).value = jnp.mean(
                variance, (0, 1, 2, 3)
            )
        y = (y - mean) * jax.lax.rsqrt(variance + _EPSILON) * scale + bias
        return y.astype(x.dtype)


class FilmEncoder(nn.Module):
    """BabyAI's view and instruction -> [N, features].

    Reads `image` uint8 [N, 7, 7, 3], raw numbers as published, and `instruction` uint8 [N, words],
    padded with 0. `features` are the channels of the convolutions, and the width of the output.
    """

    features: int
    instruction_features: int
    of_batch: bool = False
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(self, observation: Mapping[str, Array], steps: int = 1) -> Array:
        """Encodes N rows, which are `steps` consecutive steps of N / steps rows."""
        # minigrid's views have columns first, which makes no difference to learning.
        x = self._convolve(observation[IMAGE].astype(self.dtype), 2, "conv1")
        # From [N, 7, 7, 3] a padded 2x2 kernel gives [N, 8, 8, F]; here it becomes [N, 4, 4, F].
        x = _max_pool(nn.relu(self._norm(x, steps, "norm1")))
        x = self._convolve(x, 3, "conv2")
        # Now [N, 2, 2, F].
        x = _max_pool(nn.relu(self._norm(x, steps, "norm2")))
        instruction = Instruction(self.instruction_features, name="instruction")(
            observation[INSTRUCTION]
        )
        for block in range(1, BLOCKS + 1):
            x = self._block(x, instruction, steps, f"film{block}")
        # Now [N, 1, 1, F].
        x = nn.relu(_max_pool(x))
        return x.reshape(x.shape[0], -1)

    def _block(self, x: Array, instruction: Array, steps: int, name: str) -> Array:
        x = self._convolve(x, 3, f"{name}_conv1")
        x = nn.relu(self._norm(x, steps, f"{name}_norm1"))
        x = self._convolve(x, 3, f"{name}_conv2")

        weight = Dense(self.features, start=unit_rows, name=f"{name}_weight")(instruction)
        bias = Dense(self.features, start=unit_rows, name=f"{name}_bias")(instruction)
        x = x * weight[:, None, None].astype(self.dtype) + bias[:, None, None].astype(self.dtype)
        return nn.relu(self._norm(x, steps, f"{name}_norm2"))

    def _convolve(self, x: Array, size: int, name: str) -> Array:
        shape = (size, size, x.shape[-1], self.features)
        limit = 1 / math.sqrt(math.prod(shape[:3]))  # PyTorch's default
        return convolve(x, KernelAndBias(shape, limit, name=name)(), padding=1)

    def _norm(self, x: Array, steps: int, name: str) -> Array:
        by_step = x.reshape(steps, -1, *x.shape[1:])
        return BatchNorm(self.of_batch, name=name)(by_step).reshape(x.shape)


class Instruction(nn.Module):
    """Words uint8 [N, L], padded with 0 -> the state float32 [N, features] of a GRU after them;
    zeros without words.
    """

    features: int

    @nn.compact
    def __call__(self, words: Array) -> Array:
        table = self.param(
            "embedding", nn.initializers.normal(1.0), (instructions.SIZE, self.features)
        )
        # [L, N, F], since a core takes time first.
        embedded = table[words.astype(jnp.int32).T]
        start = jnp.zeros((len(words), self.features))
        first = jnp.zeros(words.T.shape, bool)
        states, _ = Core("gru", self.features, name="core")(embedded, start, first)

        # The state after the last word; padding behind it has changed the later ones.
        count = jnp.sum(words > 0, axis=1)
        last = jnp.take_along_axis(states, jnp.maximum(count - 1, 0)[None, :, None], axis=0)[0]
        return jnp.where(count[:, None] > 0, last, 0.0)


def _max_pool(x: Array) -> Array:
    """Maxima over squares of 2 x 2 pixels: [N, H, W, C] -> [N, H / 2, W / 2, C]."""
    rows, height, width, channels = x.shape
    return jnp.max(x.reshape(rows, height // 2, 2, width // 2, 2, channels), axis=(2, 4))


def cropped(observation: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    """Crops a batch's instructions to the longest, rounded up to a multiple of 8 words.

    Args:
      observation: `INSTRUCTION` is integers [..., W], numbers of words, 0 after the last; the other
          fields stay as they are.

    Returns:
      The fields, with `INSTRUCTION` [..., W'], W' at most W.
    """
    words = observation[INSTRUCTION]
    longest = int((words > 0).sum(axis=-1).max(initial=1))
    length = math.ceil(longest / _WORDS) * _WORDS
    return {**observation, INSTRUCTION: words[..., :length]}
