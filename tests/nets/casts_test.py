"""Kernels that are multiplied in another dtype are cast once."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.nets.agent import cast_ahead
from tests.agents import NETHACK_SPEC, nethack_network, random_batch, random_params


def test_only_what_is_always_read_in_another_dtype_is_cast() -> None:
    params = {name: jnp.ones((2, 2)) for name in ("cast", "plain", "both", "unread")}

    def function(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        short = x.astype(jnp.bfloat16) @ params["cast"].astype(jnp.bfloat16)
        both = short @ params["both"].astype(jnp.bfloat16)
        return both.astype(jnp.float32) + params["plain"] + params["both"]

    cast = cast_ahead(function, params, jnp.ones((2, 2)))
    assert {name: leaf.dtype.name for name, leaf in cast.items()} == {
        "cast": "bfloat16", "plain": "float32", "both": "float32", "unread": "float32",
    }  # fmt: skip


@pytest.mark.extra
def test_prepared_parameters_act_as_the_learners_do() -> None:
    # With a table for the first convolution, its kernel is not read.
    network = nethack_network(dtype="bfloat16", hidden_size=16, first_convolution="picture")
    params = random_params(network)
    batch = random_batch(NETHACK_SPEC, network.state_size, length=1, rollouts=3, seed=0)
    observation = {name: x[:1] for name, x in batch.observation.items()}
    rows = (observation, batch.initial_state, batch.first[:1])

    prepared = network.prepare(params)

    kernels = {
        leaf.dtype.name for leaf in jax.tree.leaves(prepared.params["actor"]) if leaf.ndim > 1
    }
    assert kernels == {"bfloat16"}
    assert prepared.params["policy_head"]["kernel"].dtype == jnp.float32
    learner_outputs = jax.jit(network.apply)(params, *rows)
    actor_outputs = jax.jit(network.apply)(prepared, *rows)
    for actor_output, learner_output in zip(actor_outputs, learner_outputs, strict=True):
        np.testing.assert_allclose(actor_output, learner_output, rtol=0.02, atol=0.02)
