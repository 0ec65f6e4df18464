"""The agent's reward from messages to total: network, normalisation, threshold, count discount,
coefficients.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from motif_jax.motif.reward.normalisation import Normalisation
from motif_jax.rl.algorithms.total_reward import discount_by_count, total_reward
from tests.golden_numbers import VTRACE_FILES, recipe_reward

CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def test_messages_of_a_learner_step_are_worth_what_they_were(golden: Any) -> None:
    n = golden("learner_step.npz")
    network, params = recipe_reward(golden("weight_shapes.json")["reward"])
    raw = np.asarray(network.reward(params, {"message": n["message"].reshape(-1, 256)}))
    np.testing.assert_allclose(raw, n["raw_reward"].reshape(-1), **CLOSE)
    numbers = map(float, (n["reward_mean"], n["reward_var"], n["reward_threshold"]))
    normalisation = Normalisation(*numbers)
    intrinsic = np.asarray(normalisation(raw)).reshape(n["intrinsic_reward"].shape)
    np.testing.assert_allclose(intrinsic, n["intrinsic_reward"], **CLOSE)


@pytest.mark.parametrize("name", VTRACE_FILES)
def test_rewards_of_the_vtrace_files(golden: Any, name: str) -> None:
    n = golden(name)
    normalisation = Normalisation(
        *map(float, (n["reward_mean"], n["reward_var"], n["llm_threshold"]))
    )
    intrinsic = np.asarray(normalisation(n["in_llm_raw"]))
    if n["llm_coef"]:
        np.testing.assert_allclose(intrinsic, n["out_llm_final"], **CLOSE)
    else:  # the published learner does not compute it then; here it is worth nothing in the sum
        assert not n["out_llm_final"].any()
    discounted = discount_by_count(intrinsic, n["in_msg_count"], float(n["beta_count_exponent"]))
    total = total_reward(
        n["in_env_rewards"], discounted, float(n["extrinsic_coef"]), float(n["llm_coef"])
    )
    np.testing.assert_allclose(total, n["out_rewards_used"], **CLOSE)
