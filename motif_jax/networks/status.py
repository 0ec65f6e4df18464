"""The status line of NetHack as the published networks read it: 27 scaled numbers."""

from __future__ import annotations

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.networks.layers import Dense

NUM_STATUS = 27
COLUMN, ROW = 0, 1
MAP_COLUMNS, MAP_ROWS = 79, 21
LIMIT = 5.0

# By index of blstats: position, attributes and the like over 10, gold and time over 1000. 0 hides an entry.
SCALES = np.zeros(NUM_STATUS, np.float32)
SCALES[[COLUMN, ROW]] = 1 / MAP_COLUMNS, 1 / MAP_ROWS
SCALES[[3, 4, 5, 6, 7, 8, 10, 11, 14, 15, 16, 18, 22]] = 1 / 10
SCALES[[13, 20]] = 1 / 1000
SCALES[19] = 1 / 100
SCALES[21] = 1


def scale_status(blstats: jax.Array) -> jax.Array:
    """Scales and clips blstats.

    Args:
      blstats: numbers [N, 27], or [N, 26] as engines before 1.0 give them.

    Returns:
      float32 [N, 27] in [-5, 5].
    """
    chex.assert_rank(blstats, 2)
    missing = NUM_STATUS - blstats.shape[1]
    status = jnp.pad(blstats.astype(jnp.float32), ((0, 0), (0, missing)))
    return jnp.clip(status * SCALES, -LIMIT, LIMIT)


class StatusEncoder(nn.Module):
    """Scaled status [N, 27] -> two linear layers with ReLU -> [N, 128]."""

    units: int = 128
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(self, status: jax.Array) -> jax.Array:
        """Returns the features of `status` float32 [N, 27]."""
        chex.assert_shape(status, (None, NUM_STATUS))
        x = nn.relu(Dense(self.units, dtype=self.dtype, name="blstats_fc1")(status))
        return nn.relu(Dense(self.units, dtype=self.dtype, name="blstats_fc2")(x))
