"""Parameters of equal blocks in stacks, and apart again."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.core.training import block_stack
from motif_jax.core.training.schedules import RateState, matrices


def test_blocks_are_stacked_and_taken_apart_again() -> None:
    blocks = {f"block_{number}": {"norm": {"scale": jnp.full(3, number)}} for number in range(2)}
    moments = RateState(
        jnp.int32(7), {"decoder/block_1/query": {"a": jnp.ones((2, 3))}, "bias": jnp.zeros(3)}
    )
    tree = {"model": {"decoder": {**blocks, "final_norm": jnp.ones(3)}}, "state": [moments]}
    joint = block_stack.stacked(tree)
    np.testing.assert_array_equal(
        joint["model"]["decoder"]["blocks_0_2"]["norm"]["scale"], [[0] * 3, [1] * 3]
    )
    assert joint["state"][0].rate["decoder/blocks_1_2/query"]["a"].shape == (1, 2, 3)
    assert jax.tree.structure(block_stack.stacked(joint)) == jax.tree.structure(joint)
    again = block_stack.unstacked(joint)
    assert jax.tree.structure(again) == jax.tree.structure(tree)
    jax.tree.map(np.testing.assert_array_equal, again, tree)


def test_blocks_that_differ_fall_into_stacks_of_equal_ones() -> None:
    wide = jnp.ones((3, 4))
    narrow = jnp.ones((3, 2))
    tree = {f"block_{number}": {"kernel": wide if number < 2 else narrow} for number in range(11)}
    joint = block_stack.stacked(tree)
    assert {name: part["kernel"].shape for name, part in joint.items()} == {
        "blocks_0_2": (2, 3, 4),
        "blocks_2_11": (9, 3, 2),
    }
    assert set(block_stack.unstacked(joint)) == set(tree)


def test_a_cpu_runs_blocks_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not block_stack.looped()
    assert block_stack.looped(True)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert block_stack.looped()
    assert not block_stack.looped(False)


def test_weights_decay_in_stacks_as_they_do_in_blocks() -> None:
    tree = {
        f"block_{number}": {"kernel": jnp.ones((2, 3)), "bias": jnp.ones(3)} for number in range(4)
    }
    joint = matrices(block_stack.stacked(tree))
    assert joint == {"blocks_0_4": {"kernel": True, "bias": False}}
    assert matrices(tree)["block_3"] == {"kernel": True, "bias": False}
