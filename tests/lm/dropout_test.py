"""Keys of dropout: their bits are those of earlier versions."""

from __future__ import annotations

import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.lm import dropout

SEED = 5
# Of the keys below: a resumed run continues with the masks that it would have had.
BITS = [[89382631, 4178211215], [3050097796, 2429612], [331787753, 4282494192]]


def made_keys() -> list[jax.Array]:
    """A key, one with a folded number, and one of a split."""
    key = dropout.key(SEED)
    return [key, jax.random.fold_in(key, 7), jax.random.split(key, 2)[1]]


def test_bits_of_keys_stay_the_same() -> None:
    assert [jax.random.bits(key, (2,)).tolist() for key in made_keys()] == BITS


def test_stacked_keys_give_the_bits_of_single_ones() -> None:
    draw = jax.vmap(lambda key: jax.random.bits(key, (2,)))

    assert draw(jnp.stack(made_keys())).tolist() == BITS


@pytest.mark.parametrize(
    ("width", "checksum"), [(8, 3257796785), (16, 2023275374), (64, 576529655)]
)
def test_bits_of_other_widths_stay_the_same(width: int, checksum: int) -> None:
    with jax.enable_x64(True):
        bits = np.asarray(jax.random.bits(dropout.key(SEED), (2000,), f"uint{width}"))

    assert zlib.crc32(bits.tobytes()) == checksum
