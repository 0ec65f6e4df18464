"""Episodes that an agent of text plays during its training, for evaluations and to learn from."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from motif_jax.core import seeds
from motif_jax.core.errors import UserError
from motif_jax.ilql.agent.agent_decoder import AgentDecoder
from motif_jax.ilql.agent.config import Decode
from motif_jax.ilql.agent.decoding import Decoding
from motif_jax.ilql.agent.text_agent import TextAgentNetwork
from motif_jax.ilql.config import EvaluationGames, TextConfig, TextMethod
from motif_jax.ilql.dialogues.dialogue_batches import ItemLayout
from motif_jax.ilql.dialogues.items import TextTokenizer, TokenItem, tokenise
from motif_jax.ilql.dialogues.token_rewards import TokenReward
from motif_jax.ilql.evaluation import text_episodes, text_setup
from motif_jax.ilql.evaluation.text_episodes import PlayedText
from motif_jax.ilql.methods.token_ppo import EpisodeBatch
from motif_jax.ilql.tasks.contract import TextTask
from motif_jax.lm.config import ModelConfig


def playable(task: TextTask) -> bool:
    """Whether the task has an environment that needs neither a server nor a scorer."""
    try:
        task.check_episodes()
    except UserError:
        return False
    return not task.patient and not task.scored_by()


def require_playable(task: TextTask, name: str) -> None:
    """Raises UserError where an agent cannot play the task, of the config's `task` name, while it
    is trained.
    """
    task.check_episodes()
    if not playable(task):
        raise UserError(
            f"config.task={name}: with this method, its environment must need no server and no scorer"
        )


def evaluation_decoding(
    decode: Decode, method: str, trunk_config: ModelConfig, longest_action: int
) -> Decoding:
    """How a training's evaluations write: `decode`, which the method and the data complete, as in
    `evaluate_text`.
    """
    # As `AgentDecoder.check` asks: a token of the text and a prefix stand before an action.
    room = longest_action if trunk_config.max_length is None else trunk_config.max_length - 2
    about = {"method": method, "settings": {"longest_action": max(1, min(longest_action, room))}}
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
    decoding = evaluation_decoding(games.decode, method.name, network.model.config, 1)
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
    as_written: bool,
) -> Callable[[Any], dict[str, float]] | None:
    """Returns a function that plays the same `config.games.episodes` at each evaluation; None where
    nothing is played.

    The function maps an agent's parameters to means over the episodes by name. With `as_written`
    the agent reads its own actions as the tokens that it wrote.
    """
    count = config.games.episodes
    method = config.method
    if not count or not playable(task):
        return None
    decoder = AgentDecoder(network, method.q_min, method.q_max)
    decoding = evaluation_decoding(
        config.games.decode, method.name, network.model.config, longest_action
    )
    text_setup.print_target_return(network, decoding, config.task, "games.decode")
    seed = seeds.derive(config.seed, "games")

    def play(params: Any) -> dict[str, float]:
        actor = text_episodes.AgentTextActor(
            decoder, params, task.tokenizer(), decoding, seed, as_written
        )
        rows: list[Mapping[str, float]] = []
        for episode in text_episodes.play(task, actor, seed, range(count), count):
            row = {"return": episode.dialogue.total, "length": float(len(episode.actions))}
            rows.append({**row, **task.outcome(episode.dialogue)})
        return {f"games/{name}": float(np.mean([row[name] for row in rows])) for name in rows[0]}

    return play


def rollout_player(
    count: int,
    seed: int,
    task: TextTask,
    network: TextAgentNetwork,
    layout: ItemLayout,
    reward: TokenReward,
    longest: int,
) -> Callable[[Any, int], EpisodeBatch]:
    """Returns a function (parameters, step) that plays `count` new episodes, sampled from the
    policy.

    `reward` is paid for each token of an action, of which there are `longest` at most.
    """
    decoder = AgentDecoder(network)
    # The policy alone and unfiltered, under which `PpoTraining.estimates` computes the ratio.
    decoding = Decoding("sample", longest, advantages=False)
    tokenizer = task.tokenizer()
    rollout_seed = seeds.derive(seed, "rollouts")

    def play(params: Any, step: int) -> EpisodeBatch:
        actor = text_episodes.AgentTextActor(
            decoder, params, tokenizer, decoding, rollout_seed, as_written=True
        )
        # New episodes in each step, the same ones after a resumption.
        numbers = range(step * count, (step + 1) * count)
        episodes = list(text_episodes.play(task, actor, rollout_seed, numbers, count))
        episodes.sort(key=lambda episode: episode.index)  # they come in the order in which they end
        return jax.tree.map(lambda leaf: leaf[None], batch_of(episodes, tokenizer, layout, reward))

    return play


def batch_of(
    episodes: list[PlayedText], tokenizer: TextTokenizer, layout: ItemLayout, reward: TokenReward
) -> EpisodeBatch:
    """Episodes as a batch [B, ...], without what the layout cuts off."""
    items: list[TokenItem] = []
    log_probs: list[np.ndarray] = []
    utterances: list[int] = []
    for episode in episodes:
        written = [action.tokens for action in episode.actions]
        # Log-probabilities as they were drawn: PPO's behaviour policy.
        of_actions = [action.facts.policy for action in episode.actions]
        item = layout.cut(tokenise(episode.dialogue, tokenizer, reward, written))
        tokens = len(item.action_indices)
        ends = np.cumsum([len(numbers) for numbers in of_actions])
        items.append(item)
        log_probs.append(np.concatenate(of_actions)[:tokens])
        # The last of them may have been cut: its tokens count, and so does it.
        utterances.append(int(np.searchsorted(ends, tokens)) + 1 if tokens else 0)

    width = _rounded(max(len(item.tokens) for item in items), layout.max_len)
    longest = _rounded(max(1, *map(len, log_probs)), layout.max_len)
    table = np.zeros((len(items), longest), np.float32)
    for row, numbers in zip(table, log_probs, strict=True):
        row[: len(numbers)] = numbers
    return EpisodeBatch(
        layout.batch(items, width, longest, 1), table, np.array(utterances, np.float32)
    )


def _rounded(length: int, limit: int | None) -> int:
    """The padded size of so many tokens: a multiple of an eighth of the next power of two, for few
    programs; at most `limit`.
    """
    step = max(8, (1 << (length - 1).bit_length()) // 8)
    size = math.ceil(length / step) * step
    return size if limit is None else max(length, min(size, limit))
