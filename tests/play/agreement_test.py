"""How often a policy chooses an expert's action, and by which return its best episode is chosen."""

from __future__ import annotations

import numpy as np

from motif_jax.play import evaluate


def test_agreement_is_the_share_of_equal_actions() -> None:
    actions = np.array([0, 1, 2, 255])
    expert_actions = np.array([0, 2, 2, 255], np.uint8)

    assert evaluate.agreement(actions, expert_actions) == 0.75


def test_without_an_expert_s_answer_nothing_agrees() -> None:
    assert evaluate.agreement(np.zeros(0, int), np.zeros(0, np.uint8)) == 0


def test_the_best_episode_has_the_greatest_intrinsic_return() -> None:
    rows = [{"return": 1.0, "intrinsic_return": 2.0}]

    assert evaluate.return_key(rows) == "intrinsic_return"


def test_the_tasks_return_counts_where_an_episode_lacks_others() -> None:
    rows = [{"return": 1.0, "intrinsic_return": 2.0}, {"return": 0.0, "intrinsic_return": None}]

    assert evaluate.return_key(rows) == "return"
