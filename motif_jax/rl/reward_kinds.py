"""The functions that a command calls for the intrinsic reward that `config.reward.kind` names, and
the kind 'none'.
"""

from __future__ import annotations

from typing import Self

import jax

from motif_jax.core import config as checks
from motif_jax.core import digests
from motif_jax.rl import choices
from motif_jax.rl.config import AgentReward
from motif_jax.rl.intrinsic import ObservationSpec, RewardKind, RewardSetup, RunSetup
from motif_jax.rl.reward_keys import MESSAGE, RANKING_THRESHOLD, THRESHOLD


class NoReward(RewardKind):
    """Kind 'none': the task's reward alone."""

    reads_dir = False

    @classmethod
    def check(cls, config: AgentReward) -> None:
        value = config.intrinsic_coefficient
        checks.require(
            value == 0, "reward.intrinsic_coefficient", value, "0 with reward.kind='none'"
        )

    @classmethod
    def make(cls, setup: RewardSetup) -> Self | None:
        return None


def kind_of(config: AgentReward) -> type[RewardKind]:
    """The class that `config.reward.kind` names, else UserError."""
    return choices.REWARDS.load(config.kind)


def check(config: AgentReward) -> None:
    """Raises UserError for invalid values of `config.reward`, before anything is computed."""
    kind = kind_of(config)
    if not kind.reads_dir:
        allowed = f"empty with reward.kind={config.kind}, which reads no folder"
        checks.require(not config.dir, "reward.dir", config.dir, allowed)
    kind.check(config)
    if config.by != MESSAGE:
        allowed = (
            f"{MESSAGE!r} for reward.kind={config.kind}, which is learned while the agent plays"
        )
        checks.require(kind.rates(config), "reward.by", config.by, allowed)


def check_threshold(config: AgentReward) -> None:
    """Raises UserError for a number as threshold of a frozen reward, which configs/oni.py takes for
    'ranking': nothing would read it.
    """
    if config.kind not in choices.REWARDS.parts or config.kind in choices.LEARNED_REWARDS:
        return
    is_read = config.threshold in (*THRESHOLD.choices, RANKING_THRESHOLD)
    words = ", ".join(THRESHOLD.choices)
    allowed = (
        f"one of {words}, or left at {RANKING_THRESHOLD} in configs/oni.py, with reward.kind={config.kind}: "
        "only ranking reads another number"
    )
    checks.require(is_read, "reward.threshold", config.threshold, allowed)


def digest(config: AgentReward) -> str | None:
    """Digest that distinguishes the reward of `config.reward` from a replacement; None without
    one.
    """
    of_files = [digests.of_input(path) for path in kind_of(config).files(config) if path.is_file()]
    return digests.of_bytes("".join(of_files).encode()) if of_files else None


def load_intrinsic(
    config: AgentReward,
    spec: ObservationSpec,
    two_decimals: bool | None = None,
    device: jax.Device | None = None,
    run: RunSetup | None = None,
) -> RewardKind | None:
    """The reward that `config.reward` names, None for none. Raises UserError: it cannot be made.

    Args:
      config, spec, two_decimals, device, run: see `RewardSetup`.
    """
    reward = kind_of(config).make(RewardSetup(config, spec, two_decimals, device, run))
    # Only the batcher, on the host, divides texts into sentences.
    if reward is not None and reward.in_step is not None:
        allowed = (
            f"{MESSAGE!r} for a reward that reads {', '.join(reward.fields)}, not the text alone"
        )
        checks.require(config.by == MESSAGE, "reward.by", config.by, allowed)
    return reward
