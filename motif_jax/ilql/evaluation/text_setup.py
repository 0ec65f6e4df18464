"""Opens the speaker and the task of an evaluation of texts, with the rewards of tokens that the
agent was trained with; plays the episodes of the evaluations of a training.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from motif_jax.core import digests, run_folder, seeds
from motif_jax.core.errors import UserError
from motif_jax.ilql.agent import agent_folder
from motif_jax.ilql.agent.decoding import Decoding
from motif_jax.ilql.agent.text_agent import Design, TextAgentNetwork
from motif_jax.ilql.agent.text_session import AgentDecoder
from motif_jax.ilql.config import (
    LOW_RANK_WEIGHT,
    PUBLISHED_RETURN,
    PUBLISHED_WEIGHT,
    Decode,
    EvaluatedTokenReward,
    EvaluateTextConfig,
    EvaluationGames,
    TextConfig,
    TextMethod,
    TokenRewardSection,
)
from motif_jax.ilql.dialogues import dialogue_data
from motif_jax.ilql.dialogues.dialogue_tokens import TextTokenizer, TokenReward, tokenise
from motif_jax.ilql.evaluation import text_episodes
from motif_jax.ilql.evaluation.text_episodes import PlayedText, TextActor
from motif_jax.ilql.evaluation.text_games_page import dialogue_entry, token_row
from motif_jax.ilql.tasks import registry, text_scores
from motif_jax.ilql.tasks.contract import TextTask

# Method -> kind and width of decoding that it was published with.
OF_METHOD = {"ilql_utterance": ("rerank", 4), "chai": ("rerank", 5)}


def decoding_of(decode: Decode, about: Mapping[str, Any] | None) -> Decoding:
    """How actions are written: `decode`, completed by `about` from `agent_folder.describe`.

    `about` is None if a policy of the task writes them. Raises UserError for a value that is not
    allowed, or if the length of an action is not known.
    """
    values = {key: value for key, value in dataclasses.asdict(decode).items() if value is not None}
    if about is None:
        return Decoding(**values)
    kind, width = OF_METHOD.get(about["method"], ("sample", 1))
    if decode.kind not in (None, kind):
        # The published width belongs to the published kind.
        kind, width = decode.kind, 1
    longest = about["settings"].get("longest_action")
    if longest is None and decode.max_tokens is None:
        raise UserError(
            f"config.decode.max_tokens=None: {about['folder']} does not say how long the actions of its training data were: "
            "give a number of tokens"
        )
    low_rank = Design(**about["design"]).rank is not None
    weight = LOW_RANK_WEIGHT if low_rank else PUBLISHED_WEIGHT
    defaults = {"kind": kind, "width": width, "max_tokens": longest, "advantage_weight": weight}
    return Decoding(**{**defaults, **values})


def print_target_return(network: TextAgentNetwork, decoding: Decoding, task: str, key: str) -> None:
    """Prints the return that a decision transformer is conditioned on where it is the default of
    another task, for the config's section `key`.
    """
    is_default = decoding.target_return == PUBLISHED_RETURN and task != "visdial"
    if network.design.prefix and is_default:
        print(
            f"config.{key}.target_return={PUBLISHED_RETURN}: the agent is conditioned on this return, VisDial's published one; give that of {task}",
            flush=True,
        )


def describe_agent(agent: str | None) -> dict[str, Any] | None:
    """The description in an agent's folder, see `agent_folder.describe`; None without an agent."""
    if not agent:
        return None
    if agent_folder.is_model(agent):
        return agent_folder.describe_model(agent, "agent")
    return agent_folder.describe(agent, "agent")


def named_task(
    config: EvaluateTextConfig, about: Mapping[str, Any] | None
) -> tuple[str, dict[str, Any]]:
    """The task and its options: the agent's, replaced by the config's; UserError for another than
    the agent's.
    """
    user_options = registry.json_options(config.options)
    agent_task = about["task"] if about else None
    name = config.task or agent_task or ""
    registry.load(name)
    # A decoder from a model's folder has no task, and plays any.
    if agent_task and agent_task != name:
        raise UserError(
            f"config.agent={config.agent}: was trained for the task {agent_task}; give an agent of config.task={name}, or leave config.task out"
        )
    options = agent_folder.options_of(about) if about and agent_task else {}
    if config.url:
        user_options["url"] = config.url
    return name, registry.overlaid(name, options, user_options)


def paid_for_tokens(
    config: EvaluateTextConfig, about: Mapping[str, Any] | None
) -> TokenRewardSection:
    """What tokens are paid; raises as `trained_token_reward`."""
    # Nothing counts these rewards in games at the terminal.
    if config.kind == "play":
        return TokenRewardSection()
    return evaluated_token_reward(config.token_reward, about)


def check(config: EvaluateTextConfig, plays: bool = True) -> None:
    """Raises UserError for what `open_setup` would refuse, without reading networks.

    `plays`: in the task's environment, which a conversation at the terminal does not need.
    """
    agent = config.agent or ""
    about = describe_agent(config.agent)
    decoding = decoding_of(config.decode, None if config.policy else about)
    task = registry.make(*named_task(config, about))
    if plays:
        task.check_episodes()
        text_scores.check(task, plays=True)
    is_model = not config.policy and agent_folder.is_model(agent)

    def tokens() -> int:
        # A model has a tokenizer of its own; the task's need not be there.
        if is_model:
            return agent_folder.network_of_model(agent).model.config.vocab_size
        return task.tokenizer().size

    paid = paid_for_tokens(config, about)
    dialogue_data.check_token_reward(paid, tokens)
    if config.policy:
        task.policy(config.policy)
    elif is_model:
        AgentDecoder(agent_folder.network_of_model(agent)).check(decoding)
    else:
        about = agent_folder.describe(agent, "agent")
        agent_folder.require_tokens(about, task, agent, "agent")
        AgentDecoder(agent_folder.network_of(about)).check(decoding)


@dataclasses.dataclass(frozen=True)
class TextEvalSetup:
    """A task and the actor that plays it."""

    task: TextTask
    actor: TextActor
    plan: dict[str, Any]  # what determines the episodes, for plan.json
    tokenizer: TextTokenizer
    token_reward: TokenReward

    def row(self, episode: PlayedText, seed: int, tokens: bool) -> dict[str, Any]:
        """The numbers of an episode for the journal, JSON-able; with those of every token where
        `tokens` is set.
        """
        dialogue = episode.dialogue
        actions = [action for action in episode.actions if action.tokens is not None]
        if len(actions) == len(episode.actions):
            token_rewards = float(sum(self.token_reward(action.tokens).sum() for action in actions))
        else:  # a policy of the task writes texts: their tokens are the tokenizer's
            item = tokenise(dialogue, self.tokenizer, self.token_reward)
            # An item's rewards have those of the actions in them.
            token_rewards = float(item.rewards.sum()) - dialogue.total
        row: dict[str, Any] = {
            "index": episode.index,
            "seed": text_episodes.environment_seed(seed, episode.index),
            "return": dialogue.total,
            "length": sum(reward is not None for reward in dialogue.rewards),
            "end_reason": "terminal" if dialogue.terminal else "step limit",
            **self.task.outcome(dialogue),
            "token_return": dialogue.total + token_rewards,
        }
        if actions:
            end = self.tokenizer.delimiters.action_end
            row["actions_cut"] = sum(end not in action.tokens[-1:] for action in actions)
            row["tokens_said"] = sum(len(action.tokens) for action in actions)
            row["divergence"] = float(sum(action.divergence for action in actions))
            # -log p of what was drawn, an estimate of the entropy from one sample.
            row["entropy"] = -float(sum(action.facts.steered.sum() for action in actions))
            if tokens:
                row["tokens"] = [self._token_row(action.tokens, action.facts) for action in actions]
        return row | dialogue_entry(dialogue)

    def _token_row(self, tokens: np.ndarray, facts: Any) -> dict[str, Any]:
        numbers = {"steered": facts.steered, "policy": facts.policy, "q": facts.q, "v": facts.v}
        return token_row(
            self.tokenizer,
            tokens.tolist(),
            numbers,
            facts.by_policy.tolist(),
            facts.by_values.tolist(),
        )


def open_setup(config: EvaluateTextConfig) -> TextEvalSetup:
    """Reads the agent, where there is one; UserError where something is missing or does not fit."""
    agent = config.agent or ""
    about = describe_agent(config.agent)
    name, options = named_task(config, about)
    task = text_scores.attach(registry.make(name, options))
    plan: dict[str, Any] = {
        "environment": name,
        "options": options,
        "seed": config.seed,
        "drawn_from": registry.drawn_from(task),
    }
    paid = paid_for_tokens(config, about)
    token_reward = dialogue_data.token_reward_of(paid)
    if config.policy:
        plan |= {"policy": config.policy, "digest": None, "decode": None, "values": False}
        policy = text_episodes.PolicyTextActor(task.policy(config.policy), config.seed)
        return TextEvalSetup(task, policy, plan, task.tokenizer(), token_reward)
    if agent_folder.is_model(agent):
        # It has a tokenizer of its own; the task's need not be there.
        saved = agent_folder.load_model(agent, "agent", name, task, options, config.dtype)
        tokenizer = saved.tokenizer
    else:
        saved = agent_folder.load(agent, task=task, dtype=config.dtype)
        tokenizer = task.tokenizer()
    decoder = decoder_of(saved)
    decoding = decoding_of(config.decode, about)
    decoder.check(decoding)
    if saved.network.design.q in ("utterance", "mean") and decoding.kind != "rerank":
        print(
            f"config.decode.kind={decoding.kind}: {saved.method} has values of whole actions only, which this kind does not use; rerank does",
            flush=True,
        )
    print_target_return(saved.network, decoding, name, "decode")
    actor = text_episodes.AgentTextActor(decoder, saved.params, tokenizer, decoding, config.seed)
    plan |= {**agent_plan(agent, saved), "decode": dataclasses.asdict(decoding)}
    return TextEvalSetup(task, actor, plan, tokenizer, token_reward)


def agent_plan(folder: str, saved: agent_folder.SavedAgent) -> dict[str, Any]:
    """The entries of an evaluation's plan that describe its agent, with a digest of design and
    parameters.
    """
    # By content, so that an agent that was trained again in the same folder is another one.
    leaves = jax.tree_util.tree_leaves_with_path(saved.params)
    tensors = {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}
    design = json.dumps(saved.about["design"], sort_keys=True)
    return {
        "policy": folder,
        "method": saved.method,
        "digest": digests.of_tensors(design, tensors),
        "values": saved.network.design.q == "token",
    }


def decoder_of(saved: agent_folder.SavedAgent) -> AgentDecoder:
    """The networks of an agent for decoding, with the limits of its target Q."""
    return AgentDecoder(saved.network, saved.settings.get("q_min"), saved.settings.get("q_max"))


def trained_token_reward(about: Mapping[str, Any]) -> TokenRewardSection:
    """The section `token_reward` of the training of an agent, described by
    `agent_folder.describe`; the default where it did not save one. Its file is found from any
    working directory, see `run_folder.stored_path`.

    Raises UserError: it is damaged, or its file is gone.
    """
    section = TokenRewardSection(**about["settings"].get("token_reward", {}))
    if not section.file:
        return section
    path = run_folder.stored_path(agent_folder.run_of(about), section.file)
    if path is None or not path.is_file():
        raise UserError(
            f"{about['folder']}: was trained with rewards of tokens from {section.file}, which is gone: give that file again"
        )
    return dataclasses.replace(section, file=str(path))


def evaluated_token_reward(
    configured: EvaluatedTokenReward, about: Mapping[str, Any] | None
) -> TokenRewardSection:
    """What an evaluation pays for tokens: what its config says, else what the agent was trained
    with; raises as `trained_token_reward`.

    Args:
      configured: by the config.
      about: describes the agent; None without one.
    """
    # All keys at their defaults: the config says nothing of its own.
    if configured == EvaluatedTokenReward() and about is not None:
        return trained_token_reward(about)
    return TokenRewardSection(
        constant=configured.constant or 0.0,
        file=configured.file,
        scale=configured.scale,
        shift=configured.shift,
    )


def token_reward_of_training(about: Mapping[str, Any]) -> TokenReward:
    """The reward of each token in the training of an agent; raises as `trained_token_reward`."""
    return dialogue_data.token_reward_of(trained_token_reward(about))


def playable(task: TextTask) -> bool:
    """Whether the task has an environment that needs neither a server nor a scorer."""
    try:
        task.check_episodes()
    except (UserError, OSError):
        # A file that only games need may be gone, and does not end a training.
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
    return decoding_of(decode, about)


def check_games(
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
    print_target_return(network, decoding, config.task, "games.decode")
    seed = seeds.derive(config.seed, "games")

    def play(params: Any) -> dict[str, float]:
        actor = text_episodes.AgentTextActor(decoder, params, task.tokenizer(), decoding, seed)
        rows: list[Mapping[str, float]] = []
        for episode in text_episodes.play(task, actor, seed, range(count), count):
            row = {"return": episode.dialogue.total, "length": float(len(episode.actions))}
            rows.append({**row, **task.outcome(episode.dialogue)})
        return {f"games/{name}": float(np.mean([row[name] for row in rows])) for name in rows[0]}

    return play
