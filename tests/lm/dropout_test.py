"""Keys of dropout: a share is left out at places that have nothing to do with each other."""

from __future__ import annotations

import zlib

import jax
import numpy as np

from motif_jax.lm import dropout


def test_bits_stay_what_they_were() -> None:
    """Runs go on with the masks that they would have had."""
    key = dropout.key(5)
    keys = [key, jax.random.fold_in(key, 7), jax.random.split(key, 2)[1]]
    found = [jax.random.bits(each, (2,)).tolist() for each in keys]
    assert found == [[89382631, 4178211215], [3050097796, 2429612], [331787753, 4282494192]]
    assert jax.vmap(lambda each: jax.random.bits(each, (2,)))(jax.numpy.stack(keys)).tolist() == found
    with jax.enable_x64(True):
        wide = [np.asarray(jax.random.bits(key, (2000,), f"uint{width}")) for width in (8, 16, 64)]
    assert [zlib.crc32(bits.tobytes()) for bits in wide] == [3257796785, 2023275374, 576529655]
