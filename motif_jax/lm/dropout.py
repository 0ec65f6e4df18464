"""Dropout keys whose bits cost about ten operations a number.

Bits of jax.random's keys cost about a hundred operations, and on CPU XLA computes them again in
every loop that uses a mask. The keys here are 32-bit hashes (Wellons' lowbias32), the same on every
device and for every split of an array. They are good enough for dropout only. On 2 cores a training
step of a GPT-2 (3 layers, width 96, batch 32 x 100) took 0.81 of its time with jax.random's keys.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import flax
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.core.scope import LazyRng
from jax.extend import random as extended_random

# 2^32 over the golden ratio: tells the second word of a key from the first.
_GOLDEN = np.uint32(0x9E3779B9)


def _hash(x: jax.Array) -> jax.Array:
    """Hashes uint32 numbers, one to one (lowbias32)."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)


def _seed(seed: Any) -> jax.Array:
    """A key, two words uint32, of a number below 2^32."""
    number = jnp.asarray(seed).astype(jnp.uint32)
    return jnp.stack([_hash(number), _hash(number ^ _GOLDEN)])


def _fold_in(words: jax.Array, data: Any) -> jax.Array:
    # Another constant than in `_seed`, so that seeds and folded numbers do not meet.
    number = _hash(jnp.asarray(data).astype(jnp.uint32) + jnp.uint32(0x85EBCA6B))
    return jnp.stack([_hash(words[0] ^ number), _hash(words[1] + number)])


def _flat_index(shape: Sequence[int]) -> jax.Array:
    """The flat index of each element, modulo 2^32: uint32 of that shape."""
    # Made of iotas: the number of an element does not depend on how the array is split over
    # devices.
    index = jnp.zeros(shape, jnp.uint32)
    for axis in range(len(shape)):
        step = jnp.uint32(math.prod(shape[axis + 1 :]) % 2**32)
        index += jax.lax.broadcasted_iota(jnp.uint32, shape, axis) * step
    return index


def _split(words: jax.Array, shape: Sequence[int]) -> jax.Array:
    index = _flat_index(tuple(shape))
    first = _hash(words[0] ^ _hash(index))
    second = _hash(words[1] + _hash(index ^ _GOLDEN))
    return jnp.stack([first, second], -1)


def _bits(words: jax.Array, bit_width: int, shape: Sequence[int]) -> jax.Array:
    index = _flat_index(tuple(shape))
    bits = _hash(_hash(index ^ words[0]) + words[1])
    if bit_width <= 32:
        return bits.astype(f"uint{bit_width}")
    lower_bits = _hash(_hash(index ^ words[1]) + words[0])
    return bits.astype(jnp.uint64) << 32 | lower_bits.astype(jnp.uint64)


_HASH = extended_random.define_prng_impl(
    key_shape=(2,),
    seed=_seed,
    split=_split,
    random_bits=_bits,
    fold_in=_fold_in,
    name="dropout",
    tag="drop",
)


def key(seed: int) -> jax.Array:
    """A key for `LanguageModel.with_dropout` from a seed below 2^32; jax.random can fold and split
    it.
    """
    return jax.random.key(seed, impl=_HASH)


@contextlib.contextmanager
def of_block(key: LazyRng, first: int, last: int, index: jax.Array) -> Iterator[None]:
    """While active, a block that runs by itself drops what it drops as block `first + index` of its
    stack.

    Flax folds into a key the names from the network to the layer and the number of the layer's
    call. In a loop over blocks the name differs from turn to turn: the numbers of all blocks are a
    table, in which `index` (int32 []) finds that of the block.

    Args:
      key: of the stack.
      first, last: the first of the loop's blocks, and the one after the last.
    """
    calls: Counter[tuple[str, ...]] = Counter()

    def intercept(plain: Callable[..., Any], arguments: Any, keywords: Any, context: Any) -> Any:
        module = context.module
        if not isinstance(module, nn.Dropout) or module.deterministic or not module.rate:
            return plain(*arguments, **keywords)
        # Flax numbers the calls of a layer from 1, and folds in the number.
        calls[module.path] += 1
        numbers = []
        for block in range(first, last):
            names = (*key.suffix, f"block_{block}", *module.path, calls[module.path])
            numbers.append(folded_number(names))
        # `index` is traced, and a hash of names is not: the table holds the numbers of all turns.
        number = jnp.asarray(np.array(numbers, np.uint32))[index]
        return plain(*arguments, **keywords, rng=jax.random.fold_in(key.rng, number))

    with nn.intercept_methods(intercept):
        yield


def folded_number(names: Sequence[str | int]) -> int:
    """The number that flax folds into a key for these names: from the network to the layer, and the
    number of its call or parameter.
    """
    digest = hashlib.sha1()  # as flax has it; nothing secret
    for name in names:
        if flax.config.flax_fix_rng_separator:
            digest.update(b"\00")
        if isinstance(name, int):
            digest.update(name.to_bytes((name.bit_length() + 7) // 8, "big"))
        else:
            digest.update(name.encode())
    return int.from_bytes(digest.digest()[:4], "big")
