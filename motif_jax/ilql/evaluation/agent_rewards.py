"""The rewards of tokens that an agent was trained with, which its evaluation takes up."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from motif_jax.core import run_folder
from motif_jax.core.errors import UserError
from motif_jax.ilql.agent import agent_folder
from motif_jax.ilql.dialogues import dialogue_data
from motif_jax.ilql.dialogues.config import TokenRewardSection
from motif_jax.ilql.dialogues.token_rewards import TokenReward
from motif_jax.ilql.evaluation.config import EvaluatedTokenReward


def section_of(about: Mapping[str, Any]) -> TokenRewardSection:
    """The section `token_reward` of the training of an agent, described by
    `agent_folder.describe`; the default where it did not save one. Its file is found from any
    working directory, see `run_folder.stored_path`.

    Raises UserError: it is damaged, or its file is gone.
    """
    try:
        section = TokenRewardSection(**about["settings"].get("token_reward", {}))
    except TypeError as error:
        raise UserError(
            f"{about['folder']}/agent.json is damaged (token_reward: {error}): train it again"
        ) from None
    if not section.file:
        return section
    path = run_folder.stored_path(agent_folder.run_of(about), section.file)
    if path is None or not path.is_file():
        raise UserError(
            f"{about['folder']}: was trained with rewards of tokens from {section.file}, which is gone: give that file again"
        )
    return dataclasses.replace(section, file=str(path))


def evaluated(
    configured: EvaluatedTokenReward, about: Mapping[str, Any] | None
) -> TokenRewardSection:
    """What an evaluation pays for tokens: what its config says, else what the agent was trained
    with; raises as `section_of`.

    Args:
      configured: by the config.
      about: describes the agent; None without one.
    """
    # All keys at their defaults: the config says nothing of its own.
    if configured == EvaluatedTokenReward() and about is not None:
        return section_of(about)
    return TokenRewardSection(
        constant=configured.constant or 0.0,
        file=configured.file,
        scale=configured.scale,
        shift=configured.shift,
    )


def of_training(about: Mapping[str, Any]) -> TokenReward:
    """The reward of each token in the training of an agent; raises as `section_of`."""
    return dialogue_data.token_reward_of(section_of(about))
