"""Episodes that an agent of text plays in the evaluations of its training."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from motif_jax.core import seeds
from motif_jax.core.errors import UserError
from motif_jax.ilql.agent.agent_decoder import AgentDecoder
from motif_jax.ilql.agent.config import Decode
from motif_jax.ilql.agent.decoding import Decoding
from motif_jax.ilql.agent.text_agent import TextAgentNetwork
from motif_jax.ilql.config import EvaluationGames, TextConfig, TextMethod
from motif_jax.ilql.evaluation import text_episodes, text_setup
from motif_jax.ilql.tasks.contract import TextTask


def playable(task: TextTask) -> bool:
    """Whether the task has an environment that needs neither a server nor a scorer."""
    try:
        task.check_episodes()
    except UserError:
        return False
    return not task.patient and not task.scored_by()


def evaluation_decoding(
    decode: Decode, method: str, network: TextAgentNetwork, longest_action: int
) -> Decoding:
    """How a training's evaluations write: `decode`, which the method and the data complete, as in
    `evaluate_text`.
    """
    # As `AgentDecoder.check` asks: a token of the text and a prefix stand before an action.
    positions = network.model.config.max_length
    room = longest_action if positions is None else positions - 2
    about = {
        "method": method,
        "design": dataclasses.asdict(network.design),
        "settings": {"longest_action": max(1, min(longest_action, room))},
    }
    with _keys_of_games():
        return text_setup.decoding_of(decode, about)


@contextlib.contextmanager
def _keys_of_games() -> Iterator[None]:
    """Names keys in a UserError of the body as they are in a training's config."""
    try:
        yield
    except UserError as error:
        raise UserError(str(error).replace("config.decode.", "config.games.decode.")) from None


def check(
    games: EvaluationGames, method: TextMethod, task: TextTask, network: TextAgentNetwork
) -> None:
    """Raises UserError for a way to write actions that cannot work in the training's
    evaluations.
    """
    # The data's longest action is not known before they are read; any length does for a check.
    decoding = evaluation_decoding(games.decode, method.name, network, 1)
    if games.episodes and task.options.get("environment"):
        # A class of the user's, which has to be there; a server, which other tasks play with, need
        # not run.
        task.check_episodes()
    if games.episodes and playable(task):
        with _keys_of_games():
            AgentDecoder(network, method.q_min, method.q_max).check(decoding)


def evaluation_player(
    config: TextConfig,
    task: TextTask,
    network: TextAgentNetwork,
    longest_action: int,
) -> Callable[[Any], dict[str, float]] | None:
    """Returns a function that plays the same `config.games.episodes` at each evaluation; None where
    nothing is played.

    The function maps an agent's parameters to means over the episodes by name.
    """
    count = config.games.episodes
    method = config.method
    if not count or not playable(task):
        return None
    decoder = AgentDecoder(network, method.q_min, method.q_max)
    decoding = evaluation_decoding(config.games.decode, method.name, network, longest_action)
    text_setup.print_target_return(network, decoding, config.task, "games.decode")
    seed = seeds.derive(config.seed, "games")

    def play(params: Any) -> dict[str, float]:
        actor = text_episodes.AgentTextActor(decoder, params, task.tokenizer(), decoding, seed)
        rows: list[Mapping[str, float]] = []
        for episode in text_episodes.play(task, actor, seed, range(count), count):
            row = {"return": episode.dialogue.total, "length": float(len(episode.actions))}
            rows.append({**row, **task.outcome(episode.dialogue)})
        return {f"games/{name}": float(np.mean([row[name] for row in rows])) for name in rows[0]}

    return play
