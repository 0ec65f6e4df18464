"""The algorithm of an agent's config, and what it reads of the config."""

from __future__ import annotations

from typing import Any

from motif_jax.core import config as checks
from motif_jax.rl import agent_networks, choices
from motif_jax.rl.algorithms.algorithm import Algorithm, OutsideAlgorithm, UpdatePlan
from motif_jax.rl.algorithms.total_reward import RewardTerms
from motif_jax.rl.config import AgentConfig


def algorithm_of(config: AgentConfig) -> Algorithm:
    """The algorithm that `config.algorithm.name` names."""
    name = config.algorithm.name
    made: Any = choices.ALGORITHMS.load(name)()
    if isinstance(made, Algorithm):
        return made
    fits = all(callable(getattr(made, method, None)) for method in OutsideAlgorithm.METHODS)
    allowed = f"a class with {', '.join(OutsideAlgorithm.METHODS)}"
    checks.require(fits, "algorithm.name", name, allowed)
    return OutsideAlgorithm(made)


def plan_of(config: AgentConfig) -> UpdatePlan:
    """What the algorithm reads of a resolved config."""
    reward = config.reward
    assert reward.extrinsic_coefficient is not None
    return UpdatePlan(
        algorithm=config.algorithm,
        reward=RewardTerms(
            count_exponent=reward.count_exponent,
            intrinsic_coefficient=reward.intrinsic_coefficient,
            extrinsic_coefficient=reward.extrinsic_coefficient,
            extrinsic_scale=reward.extrinsic_scale,
            extrinsic_clip=reward.extrinsic_clip,
        ),
        train_for_env_steps=config.train_for_env_steps,
        batch_size=config.batch_size,
        rollout=config.rollout,
        compat=config.compat,
        network=agent_networks.kind_of(config),
    )
