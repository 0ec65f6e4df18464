"""Who speaks, and in which task, as a config of `evaluate_text` says; rows of what was played."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from motif_jax.datasets.dialogues import token_rewards
from motif_jax.datasets.dialogues.items import TextTokenizer
from motif_jax.datasets.dialogues.token_rewards import TokenReward
from motif_jax.envs.text import registry
from motif_jax.envs.text.contract import TextTask
from motif_jax.language.decoding import Decoding
from motif_jax.rollouts import text_scores
from motif_jax.rollouts.agent_decoder import AgentDecoder
from motif_jax.rollouts.text_episodes import (
    AgentTextActor,
    PlayedText,
    PolicyTextActor,
    TextActor,
    environment_seed,
)
from motif_jax.rollouts.text_values import token_row
from motif_jax.support import config as checks
from motif_jax.support import digests
from motif_jax.support.errors import UserError
from motif_jax.trainers import agent_folder, model_agent

DTYPES = ("float32", "bfloat16")


# Method -> kind and width of decoding that it was published with.
OF_METHOD = {"ilql_utterance": ("rerank", 4), "chai": ("rerank", 5)}


def decoding_of(decode: Mapping[str, Any], about: Mapping[str, Any] | None) -> Decoding:
    """How actions are written: the section `decode` of a config, completed by what the agent says of itself.

    Args:
      decode: kind, width and max_tokens may be None.
      about: of `agent_folder.describe`; None without an agent, whose actions are written by a policy of the task.

    Raises:
      UserError: a value is not allowed, or the length of an action is not known.
    """
    if about is None:
        return Decoding(**{key: value for key, value in decode.items() if value is not None})
    kind, width = OF_METHOD.get(about["method"], ("sample", 1))
    if decode["kind"] not in (None, kind):
        kind, width = decode["kind"], 1
    longest = about["settings"].get("longest_action")
    if longest is None and decode["max_tokens"] is None:
        raise UserError(
            f"config.decode.max_tokens=None: {about['folder']} does not say how long the actions were that it learned from: "
            "give a number of tokens"
        )
    own = {"kind": kind, "width": width, "max_tokens": longest}
    return Decoding(**{**decode, **{key: own[key] for key in own if decode[key] is None}})


def named_task(config: ConfigDict, about: Mapping[str, Any] | None) -> tuple[str, dict[str, Any]]:
    """The task and its options: those of the agent, and what the config says over them.

    Raises:
      UserError: there is no task, `options` are no JSON object, or the agent's task is another one.
    """
    own = registry.json_options(config.options)
    own_task = about["task"] if about else None
    name = str(config.task or own_task or "")
    checks.require(
        bool(name),
        "task",
        config.task,
        f"one of {', '.join(registry.names())}, or module:Class; or give an agent",
    )
    registry.load(name)
    if own_task and own_task != name:
        raise UserError(
            f"config.agent={config.agent}: was trained for the task {own_task}, config.task is {name}"
        )
    found = agent_folder.options_of(about) if about and own_task else {}
    url = config.get("url")
    return name, registry.overlaid(name, found, {**own, **({"url": url} if url else {})})


def _token_reward(config: ConfigDict) -> TokenReward:
    given = config.token_reward
    if not given.file:
        return token_rewards.constant(given.constant)
    return token_rewards.from_file(given.file, given.scale, given.shift)


def check(config: ConfigDict) -> None:
    """Raises UserError for what `open_setup` would refuse, as far as that is known without networks being read."""
    checks.require(
        bool(config.agent or config.policy),
        "agent",
        config.agent,
        "a run folder of train_text, a Hugging Face folder of a decoder, or config.policy a policy of the task",
    )
    about = _described(config)
    decoding = decoding_of(config.decode, None if config.policy else about)
    name, options = named_task(config, about)
    task = registry.make(name, options)
    task.check_episodes()
    text_scores.check(task, plays=True)
    _token_reward(config)
    if config.policy:
        task.policy(config.policy)
    elif model_agent.is_model(config.agent):
        AgentDecoder(model_agent.network_of(config.agent)).check(decoding)
    else:
        assert about is not None
        agent_folder.require_tokens(about, task, config.agent, "agent")
        AgentDecoder(agent_folder.network_of(about)).check(decoding)


def _described(config: ConfigDict) -> dict[str, Any] | None:
    if not config.agent:
        return None
    return (model_agent if model_agent.is_model(config.agent) else agent_folder).describe(
        config.agent, "agent"
    )


@dataclasses.dataclass(frozen=True)
class TextEvalSetup:
    """Who plays what.

    Attributes:
      plan: both in words, and how actions are written.
    """

    task: TextTask
    actor: TextActor
    plan: dict[str, Any]
    tokenizer: TextTokenizer
    token_reward: TokenReward

    def row(self, episode: PlayedText, seed: int, tokens: bool) -> dict[str, Any]:
        dialogue = episode.dialogue
        paid = [reward for reward in dialogue.rewards if reward is not None]
        row: dict[str, Any] = {
            "index": episode.index,
            "seed": environment_seed(seed, episode.index),
            "return": dialogue.total,
            "length": len(paid),
            "end_reason": "terminal",
            **self.task.outcome(dialogue),
        }
        said = [action for action in episode.actions if action.tokens is not None]
        written = [action.tokens for action in said if action.tokens is not None]
        row["token_return"] = dialogue.total + float(sum(self.token_reward(t).sum() for t in written))
        if said:
            facts = [action.facts for action in said if action.facts is not None]
            row["actions_cut"] = sum(not self._ended(tokens) for tokens in written)
            row["tokens_said"] = int(sum(len(t) for t in written))
            row["divergence"] = float(sum(action.divergence for action in said))
            row["entropy"] = -float(sum(fact.steered.sum() for fact in facts))
            if tokens:
                row["tokens"] = [self._shown(t, f) for t, f in zip(written, facts, strict=True)]
        row["dialogue"] = {
            "texts": list(dialogue.texts),
            "rewards": list(dialogue.rewards),
            "terminal": dialogue.terminal,
        }
        return row

    def _ended(self, tokens: np.ndarray) -> bool:
        return bool(len(tokens)) and tokens[-1] == self.tokenizer.delimiters.action_end

    def _shown(self, tokens: np.ndarray, facts: Any) -> dict[str, Any]:
        numbers = {name: getattr(facts, name) for name in ("steered", "policy", "q", "v")}
        chosen = facts.by_policy.tolist(), facts.by_values.tolist()
        return token_row(self.tokenizer, tokens.tolist(), numbers, *chosen)


def open_setup(config: ConfigDict) -> TextEvalSetup:
    """Reads the agent, where there is one.

    Raises:
      UserError: what a config names is not there, or does not fit.
    """
    about = _described(config)
    name, options = named_task(config, about)
    task = text_scores.attach(registry.make(name, options))
    plan: dict[str, Any] = {"environment": name, "options": options, "seed": config.seed}
    plan["drawn_from"] = registry.drawn_from(task)
    tokenizer = task.tokenizer()
    if config.policy:
        actor: TextActor = PolicyTextActor(task.policy(config.policy), config.seed)
        plan |= {"policy": config.policy, "digest": None, "decode": None, "values": False}
    else:
        assert about is not None
        if model_agent.is_model(config.agent):
            saved = model_agent.load(config.agent, "agent", name, task, options, config.dtype)
            tokenizer = saved.tokenizer
        else:
            saved = agent_folder.load(config.agent, task=task, dtype=config.dtype)
        decoder = decoder_of(saved)
        decoding = decoding_of(config.decode, about)
        decoder.check(decoding)
        if saved.network.design.q in ("utterance", "mean") and decoding.kind != "rerank":
            print(
                f"config.decode.kind={decoding.kind}: the values of {saved.method} are of whole actions and decide nothing; with rerank they do",
                flush=True,
            )
        actor = AgentTextActor(decoder, saved.params, tokenizer, decoding, config.seed)
        plan |= {**agent_plan(config, saved), "decode": dataclasses.asdict(decoding)}
    return TextEvalSetup(task, actor, plan, tokenizer, _token_reward(config))


def agent_plan(config: ConfigDict, saved: agent_folder.SavedAgent) -> dict[str, Any]:
    """What an evaluation says of its agent."""
    return {
        "policy": str(config.agent),
        "method": saved.method,
        "digest": digests.of_tensors(json.dumps(saved.about["design"], sort_keys=True), _flat(saved.params)),
        "values": saved.network.design.q == "token",
    }


def decoder_of(saved: agent_folder.SavedAgent) -> AgentDecoder:
    """What an agent writes with."""
    return AgentDecoder(saved.network, saved.settings.get("q_min"), saved.settings.get("q_max"))


def _flat(params: Any) -> dict[str, np.ndarray]:
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}
