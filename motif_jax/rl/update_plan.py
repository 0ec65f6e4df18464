"""The algorithm that an agent's config names, and the values of the config that it reads."""

from __future__ import annotations

from typing import Any

from motif_jax.core import config as checks
from motif_jax.core import entry_points
from motif_jax.rl import agent_networks, choices
from motif_jax.rl.algorithms.algorithm import Algorithm, OutsideAlgorithm, UpdatePlan
from motif_jax.rl.algorithms.total_reward import RewardTerms
from motif_jax.rl.config import AgentConfig
from motif_jax.rl.reward_keys import SENTENCE


def algorithm_of(config: AgentConfig) -> Algorithm:
    """The algorithm that `config.algorithm.name` names."""
    name = config.algorithm.name
    algorithm_class: Any = choices.ALGORITHMS.load(name)
    checks.require(callable(algorithm_class), "algorithm.name", name, "a class")
    entry_points.require_signature("algorithm.name", name, algorithm_class)
    algorithm: Any = algorithm_class()
    if isinstance(algorithm, Algorithm):
        return algorithm
    has_methods = all(
        callable(getattr(algorithm, method, None)) for method in OutsideAlgorithm.METHODS
    )
    allowed = f"a class with {', '.join(OutsideAlgorithm.METHODS)}"
    checks.require(has_methods, "algorithm.name", name, allowed)
    return OutsideAlgorithm(algorithm)


def plan_of(config: AgentConfig) -> UpdatePlan:
    """The values of a resolved config that the algorithm reads."""
    reward = config.reward
    assert reward.extrinsic_coefficient is not None
    # Rewards of sentences are divided by their counts before the learner gets them.
    count_exponent = 0.0 if reward.by == SENTENCE else reward.count_exponent
    return UpdatePlan(
        algorithm=config.algorithm,
        reward=RewardTerms(
            count_exponent=count_exponent,
            intrinsic_coefficient=reward.intrinsic_coefficient,
            extrinsic_coefficient=reward.extrinsic_coefficient,
            extrinsic_scale=reward.extrinsic_scale,
            extrinsic_clip=reward.extrinsic_clip,
            pay=reward.pay,
        ),
        train_for_env_steps=config.train_for_env_steps,
        batch_size=config.batch_size,
        rollout=config.rollout,
        compat=config.compat,
        network=agent_networks.kind_of(config),
    )
