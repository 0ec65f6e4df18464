"""Inputs and outputs of a call that are packed into one array are unpacked unchanged."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from motif_jax.envs.spec import ArraySpec
from motif_jax.rl.acting_program import CallLayout, pack_choice, unpack_choice

FIELDS = {
    "letters": ((3,), "uint8"),
    "signed": ((), "int8"),
    "glyphs": ((2, 2), "int16"),
    "status": ((5,), "int32"),
    "speed": ((2,), "float32"),
    "seen": ((3,), "bool"),
}
GROUPS = 3
ENVS = 5


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_is_unpacked_as_it_was_packed(name: str) -> None:
    layout = CallLayout.of(GROUPS, ENVS, FIELDS)
    packed = np.zeros(layout.size, np.uint8)
    shape, dtype = FIELDS[name]
    rng = np.random.default_rng(0)
    numbers = rng.normal(scale=1000, size=(GROUPS * ENVS, *shape)).astype(np.int32).astype(dtype)
    layout.views(packed).observation[name][...] = numbers
    unpacked = jax.jit(layout.unpack)(packed).observation[name]
    assert unpacked.dtype == dtype
    np.testing.assert_array_equal(unpacked, numbers)


def test_parts_of_a_call_do_not_overlap() -> None:
    layout = CallLayout.of(GROUPS, ENVS, FIELDS)
    packed = np.zeros(layout.size, np.uint8)
    call = layout.views(packed)
    parts = [call.groups, call.slots, call.first, *call.observation.values()]
    for number, part in enumerate(parts):
        part[...] = number % 2
    assert all((part == number % 2).all() for number, part in enumerate(parts))


@pytest.mark.parametrize(
    "action",
    [
        np.arange(4, dtype=np.int32),
        np.array([[-0.0, 1.0], [0.3, -1.0], [1e-42, 0.5], [-0.1, 0.2]], np.float32),
    ],
    ids=["numbered", "real"],
)
def test_a_choice_keeps_its_bits(action: np.ndarray) -> None:
    log_prob = np.array([-0.0, -1e-42, -np.inf, -3.25], np.float32)
    value = np.array([np.nan, 1e38, 0.1, 5.0], np.float32)
    spec = ArraySpec(action.shape[1:], str(action.dtype))
    unpacked = unpack_choice(np.asarray(jax.jit(pack_choice)(action, log_prob, value)), spec)
    for array, original in zip(unpacked, (action, log_prob, value), strict=True):
        assert array.shape == original.shape
        assert array.tobytes() == original.tobytes()
