"""What a training asks of an algorithm: the fields of its state, and how often an update learns
from a row.
"""

from __future__ import annotations

from typing import Any

import pytest

from motif_jax.glam.drrn_update import DrrnTrainState
from motif_jax.rl.algorithms.algorithm import CONSTANT, COUNTS, MEMORY, fields_in
from motif_jax.rl.algorithms.appo import AppoTrainState
from motif_jax.rl.algorithms.ppo import PpoTrainState
from motif_jax.rl.config import agent_config
from motif_jax.rl.settings import algorithm_class
from tests.play.agent_runs import changed, recall_config
from tests.reward_fixtures import load_config
from tests.rl.outside_parts import ReinforceState


def passes_and_parts(config: Any) -> tuple[int, int, int]:
    """Epochs, parts of the rollouts and optimiser steps of an update."""
    training = agent_config(config)
    algorithm = algorithm_class(training)
    return (
        algorithm.epochs(training),
        algorithm.minibatches(training),
        algorithm.optimizer_steps(training),
    )


@pytest.mark.parametrize(
    ("state_class", "constant", "changed_by_all"),
    [
        (AppoTrainState, ("reward_params",), ("step", "env_steps")),
        (PpoTrainState, ("reward_params", "frozen", "reference"), ("step", "env_steps")),
        (DrrnTrainState, ("reward_params",), ("step", "env_steps", "memory")),
        (ReinforceState, ("reward_params",), ("step",)),
    ],
)
def test_fields_of_a_state_are_treated_by_their_names(
    state_class: Any, constant: tuple[str, ...], changed_by_all: tuple[str, ...]
) -> None:
    assert fields_in(state_class, CONSTANT) == constant
    assert fields_in(state_class, (*COUNTS, MEMORY)) == changed_by_all


def test_appo_passes_over_minibatches_of_rollouts() -> None:
    config = recall_config(algorithm__epochs=3, algorithm__minibatches=4)

    assert passes_and_parts(config) == (3, 4, 12)


def test_ppo_passes_over_minibatches_of_steps() -> None:
    config = changed(
        load_config("train_agent", "symbolic"),
        batch_size=64,
        algorithm__epochs=3,
        algorithm__minibatch_size=32,
    )

    assert passes_and_parts(config) == (3, 1, 6)


def test_an_outside_algorithm_has_the_passes_of_its_config() -> None:
    name = "tests.rl.outside_parts:Reinforce"
    config = recall_config(algorithm__name=name, algorithm__epochs=3, algorithm__minibatches=4)
    without_keys = config.copy_and_resolve_references()
    without_keys.algorithm = {"name": name}

    assert passes_and_parts(config) == (3, 4, 12)
    assert passes_and_parts(without_keys) == (1, 1, 1)
