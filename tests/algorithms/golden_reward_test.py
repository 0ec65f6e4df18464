"""The agent's reward from messages to total: network, normalisation, threshold, count discount, coefficients."""

from __future__ import annotations

from typing import Any

import numpy as np

from motif_jax.rewards.normalisation import Normalisation
from tests.golden_numbers import recipe_reward

CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def test_messages_of_a_learner_step_are_worth_what_they_were(golden: Any) -> None:
    n = golden("learner_step.npz")
    network, params = recipe_reward(golden("weight_shapes.json")["reward"])
    raw = np.asarray(network.reward(params, {"message": n["message"].reshape(-1, 256)}))
    np.testing.assert_allclose(raw, n["raw_reward"].reshape(-1), **CLOSE)
    normalisation = Normalisation(
        float(n["reward_mean"]), float(n["reward_var"]), float(n["reward_threshold"])
    )
    intrinsic = np.asarray(normalisation(raw)).reshape(n["intrinsic_reward"].shape)
    assert 0 < (intrinsic != 0).mean() < 1
    np.testing.assert_allclose(intrinsic, n["intrinsic_reward"], **CLOSE)
