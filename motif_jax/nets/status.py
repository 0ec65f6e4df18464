"""Scales NetHack's status line to 27 numbers, as the published networks do."""

from __future__ import annotations

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from motif_jax.envs.nethack.status import BLSTATS_CLIP, BLSTATS_SCALE, NUM_STATUS
from motif_jax.nets.layers import Dense

# Cells of NetHack's map.
MAP_COLUMNS = 79
MAP_ROWS = 21


def scale_status(blstats: jax.Array) -> jax.Array:
    """Scales and clips blstats [N, 27], or [N, 26] of engines before 1.0, to float32 [N, 27] in
    [-5, 5].
    """
    chex.assert_rank(blstats, 2)
    missing = NUM_STATUS - blstats.shape[1]
    status = jnp.pad(blstats.astype(jnp.float32), ((0, 0), (0, missing)))
    return jnp.clip(status * BLSTATS_SCALE, -BLSTATS_CLIP, BLSTATS_CLIP)


class StatusEncoder(nn.Module):
    """Scaled status float32 [N, 27] -> two linear layers with ReLU -> [N, 128]."""

    units: int = 128
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(self, status: jax.Array) -> jax.Array:
        chex.assert_shape(status, (None, NUM_STATUS))
        x = nn.relu(Dense(self.units, dtype=self.dtype, name="blstats_fc1")(status))
        return nn.relu(Dense(self.units, dtype=self.dtype, name="blstats_fc2")(x))
