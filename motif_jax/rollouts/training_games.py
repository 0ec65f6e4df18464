"""Episodes that an agent of text plays while it is trained, the same ones at every evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from motif_jax.envs.text.contract import TextTask
from motif_jax.language.config import ModelConfig
from motif_jax.language.decoding import Decoding
from motif_jax.language.text_agent import TextAgentNetwork
from motif_jax.rollouts import text_episodes, text_setup
from motif_jax.rollouts.speakers import AgentSpeaker
from motif_jax.support import seeds
from motif_jax.support.errors import UserError

# Means by name, of an agent's parameters on the host.
Play = Callable[[Any], dict[str, float]]


def playable(task: TextTask) -> bool:
    """Whether the task has an environment that needs neither a server nor a scorer."""
    try:
        task.check_episodes()
    except UserError:
        return False
    return not task.patient and not task.scored_by()


def require_playable(task: TextTask, name: str) -> None:
    """Raises UserError where an agent cannot play the task, of the config's `task` name, while it is trained."""
    task.check_episodes()
    if not playable(task):
        raise UserError(
            f"config.task={name}: must have an environment that needs neither a server nor a scorer with this method"
        )


def decoding_of(config: ConfigDict, settings: ModelConfig, longest_action: int) -> Decoding:
    """How actions are written: `config.games.decode`, completed by the method and the longest action of the data, as in `evaluate_text`.

    Raises:
      UserError: a value is not allowed.
    """
    room = longest_action if settings.max_length is None else settings.max_length - 2
    own = {"method": config.method.name, "settings": {"longest_action": max(1, min(longest_action, room))}}
    try:
        return text_setup.decoding_of(config.games.decode, own)
    except UserError as error:
        raise UserError(str(error).replace("config.decode.", "config.games.decode.")) from None


def check(config: ConfigDict, task: TextTask, network: TextAgentNetwork) -> None:
    """Raises UserError for a way to write actions that cannot work."""
    decoding = decoding_of(config, network.model.config, 1)
    if config.games.episodes and playable(task):
        _speaker(config, network).check(decoding)


def _speaker(config: ConfigDict, network: TextAgentNetwork) -> AgentSpeaker:
    return AgentSpeaker(network, config.method.q_min, config.method.q_max)


def player(
    config: ConfigDict,
    task: TextTask,
    network: TextAgentNetwork,
    longest_action: int,
    as_written: bool = False,
) -> Play | None:
    """What plays `config.games.episodes` episodes; None where none are wanted, or the task has none (see `playable`).

    `as_written` is that of `AgentTextActor`.
    """
    count = config.games.episodes
    if not count or not playable(task):
        return None
    speaker, decoding = _speaker(config, network), decoding_of(config, network.model.config, longest_action)
    seed = seeds.derive(config.seed, "games")

    def play(params: Any) -> dict[str, float]:
        actor = text_episodes.AgentTextActor(
            speaker, params, task.tokenizer(), decoding, seed, as_written=as_written
        )
        rows: list[Mapping[str, float]] = []
        for episode in text_episodes.play(task, actor, seed, range(count), count):
            own = {"return": episode.dialogue.total, "length": float(len(episode.actions))}
            rows.append({**own, **task.outcome(episode.dialogue)})
        return {f"games/{name}": float(np.mean([row[name] for row in rows])) for name in rows[0]}

    return play
