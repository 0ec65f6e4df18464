"""Which steps of an expert the batches of a training have."""

from __future__ import annotations

import numpy as np
import pytest

from motif_jax.glam.cloning_data import CloningData
from motif_jax.glam.cloning_task import CloningBatches
from motif_jax.glam.config import CloningConfig
from motif_jax.schema import read_section
from tests.reward_fixtures import load_config

# Four steps of an expert, of which the first three train.
STEPS = CloningData(
    tokens=np.arange(9),
    offsets=np.array([0, 2, 5, 6, 9]),
    actions=np.array([5, 6, 7, 8]),
    train=np.arange(3),
    held_out=np.array([3]),
    digest="",
)
PROMPTS = [[0, 1, -1, -1], [2, 3, 4, -1], [5, -1, -1, -1], [6, 7, 8, -1]]


def cloning_batches(unshuffled: bool) -> CloningBatches:
    values = {
        "batch_size": 2,
        "seed": 3,
        "compat.bc_unshuffled": unshuffled,
        "network.prompt_tokens": 4,
    }
    return CloningBatches(
        read_section(CloningConfig, load_config("clone_behaviour", "", values)), STEPS
    )


@pytest.mark.parametrize("unshuffled", [False, True])
def test_every_step_of_an_expert_comes_once_a_pass(unshuffled: bool) -> None:
    batches = cloning_batches(unshuffled)
    assert batches.steps_per_pass == 2

    for first in (0, 2):
        batch = batches.batches(first, 2)
        assert batch.valid.sum() == 3
        actions = batch.actions[batch.valid]
        assert sorted(actions.tolist()) == [5, 6, 7]
        assert batch.prompts[batch.valid].tolist() == [PROMPTS[action - 5] for action in actions]


def test_the_published_order_of_steps_is_that_of_the_file() -> None:
    batch = cloning_batches(unshuffled=True).batches(0, 2)

    assert batch.actions[batch.valid].tolist() == [5, 6, 7]


def test_held_out_steps_fill_a_batch_with_empty_rows() -> None:
    (batch,) = cloning_batches(unshuffled=False).all_batches(99)

    assert batch.prompts.tolist() == [PROMPTS[3], [-1] * 4]
    assert batch.actions.tolist() == [8, 0]
    assert batch.valid.tolist() == [True, False]
