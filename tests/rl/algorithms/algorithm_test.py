"""What a training asks of an algorithm: the fields of its state, and how often an update learns
from a row.
"""

from __future__ import annotations

from typing import Any

import pytest

from motif_jax.glam.drrn_update import DrrnTrainState
from motif_jax.rl.algorithms.algorithm import StateFields
from motif_jax.rl.algorithms.appo import AppoTrainState
from motif_jax.rl.algorithms.ppo_update import PpoTrainState
from motif_jax.rl.config import agent_config
from motif_jax.rl.update_plan import algorithm_of, plan_of
from tests.play.agent_runs import changed, recall_config
from tests.reward_fixtures import load_config
from tests.rl.outside_parts import ReinforceState


def passes_and_parts(config: Any) -> tuple[int, int, int]:
    """Epochs, parts of the rollouts and optimiser steps of an update."""
    training = agent_config(config)
    algorithm = algorithm_of(training)
    plan = plan_of(training)
    return algorithm.epochs(plan), algorithm.minibatches(plan), algorithm.optimizer_steps(plan)


@pytest.mark.parametrize(
    ("state_class", "fields", "constant"),
    [
        (AppoTrainState, {"reward_params", "env_steps"}, ("reward_params",)),
        (
            PpoTrainState,
            {"reward_params", "env_steps", "frozen", "reference"},
            ("reward_params", "frozen", "reference"),
        ),
        (DrrnTrainState, {"reward_params", "env_steps", "memory"}, ("reward_params",)),
        (ReinforceState, {"reward_params"}, ("reward_params",)),
    ],
)
def test_fields_of_a_state_are_treated_by_their_names(
    state_class: Any, fields: set[str], constant: tuple[str, ...]
) -> None:
    treated = StateFields.named_in(state_class)

    assert {name for name, has_field in treated._asdict().items() if has_field} == fields
    assert treated.constant == constant


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
