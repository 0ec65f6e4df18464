"""Opens the speaker and the task of an evaluation of texts."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from motif_jax.datasets.dialogues.dialogue import Dialogue
from motif_jax.datasets.dialogues.items import TextTokenizer
from motif_jax.datasets.dialogues.token_rewards import TokenReward
from motif_jax.envs.text import registry
from motif_jax.envs.text.contract import TextTask
from motif_jax.language.decoding import Decoding
from motif_jax.rollouts import text_episodes, text_scores
from motif_jax.rollouts.agent_decoder import AgentDecoder
from motif_jax.rollouts.text_episodes import PlayedText, TextActor
from motif_jax.rollouts.text_values import token_row
from motif_jax.support import config as checks
from motif_jax.support import digests
from motif_jax.support.errors import UserError
from motif_jax.trainers import agent_folder, dialogue_data, model_agent

DTYPES = ("float32", "bfloat16")
# Method -> kind and width of decoding that it was published with.
OF_METHOD = {"ilql_utterance": ("rerank", 4), "chai": ("rerank", 5)}


def decoding_of(decode: Mapping[str, Any], about: Mapping[str, Any] | None) -> Decoding:
    """How actions are written: the section `decode` of a config, completed by what the agent says of itself.

    Args:
      decode: kind, width and max_tokens may be None.
      about: from `agent_folder.describe`; None if a policy of the task writes the actions.

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
            f"config.decode.max_tokens=None: {about['folder']} does not say how long the actions of its training data were: "
            "give a number of tokens"
        )
    own = {"kind": kind, "width": width, "max_tokens": longest}
    return Decoding(**{**decode, **{key: own[key] for key in own if decode[key] is None}})


@dataclasses.dataclass(frozen=True)
class TextRequest:
    """The speaker and the task to open; the fields are keys of evaluate_text's config.

    Attributes:
      agent: a run folder of train_text, or the Hugging Face folder of a decoder.
      policy: of the task, in the agent's place.
      task: None for the agent's.
      options: of the task, JSON; they replace the agent's.
      decode, token_reward: see `decoding_of`, `dialogue_data.token_reward_of`.
    """

    agent: str | None
    policy: str | None
    task: str | None
    options: str
    decode: Mapping[str, Any]
    token_reward: Mapping[str, Any]
    seed: int = 0
    dtype: str = "float32"
    url: str | None = None

    def described(self) -> dict[str, Any] | None:
        """What the agent says of itself; None without one."""
        if not self.agent:
            return None
        kind = model_agent if model_agent.is_model(self.agent) else agent_folder
        return kind.describe(self.agent, "agent")


def named_task(request: TextRequest, about: Mapping[str, Any] | None) -> tuple[str, dict[str, Any]]:
    """The task and its options: the agent's, replaced by the request's.

    Raises:
      UserError: there is no task, `options` is not a JSON object, or the agent has another task.
    """
    own = registry.json_options(request.options)
    own_task = about["task"] if about else None
    name = str(request.task or own_task or "")
    checks.require(
        bool(name),
        "task",
        request.task,
        f"one of {', '.join(registry.names())}, or module:Class; or give an agent",
    )
    registry.load(name)
    if own_task and own_task != name:
        raise UserError(
            f"config.agent={request.agent}: was trained for the task {own_task}, config.task is {name}"
        )
    found = agent_folder.options_of(about) if about and own_task else {}
    url = {"url": request.url} if request.url else {}
    return name, registry.overlaid(name, found, {**own, **url})


def check(request: TextRequest) -> None:
    """Raises UserError for what `open_setup` would refuse, without reading networks."""
    checks.require(
        bool(request.agent or request.policy),
        "agent",
        request.agent,
        "a run folder of train_text, a Hugging Face folder of a decoder, or config.policy a policy of the task",
    )
    about, folder = request.described(), str(request.agent)
    decoding = decoding_of(request.decode, None if request.policy else about)
    name, options = named_task(request, about)
    task = registry.make(name, options)
    task.check_episodes()
    text_scores.check(task, plays=True)
    dialogue_data.token_reward_of(request.token_reward)
    if request.policy:
        task.policy(request.policy)
    elif model_agent.is_model(folder):
        AgentDecoder(model_agent.network_of(folder)).check(decoding)
    else:
        assert about is not None
        agent_folder.require_tokens(about, task, folder, "agent")
        AgentDecoder(agent_folder.network_of(about)).check(decoding)


def said_in(dialogue: Dialogue) -> dict[str, Any]:
    """The part of a row that is the dialogue, JSON-able."""
    texts, rewards = list(dialogue.texts), list(dialogue.rewards)
    return {"dialogue": {"texts": texts, "rewards": rewards, "terminal": dialogue.terminal}}


@dataclasses.dataclass(frozen=True)
class TextEvalSetup:
    """Who plays what; `plan` says it in words."""

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
            "seed": text_episodes.environment_seed(seed, episode.index),
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
        return row | said_in(dialogue)

    def _ended(self, tokens: np.ndarray) -> bool:
        return bool(len(tokens)) and tokens[-1] == self.tokenizer.delimiters.action_end

    def _shown(self, tokens: np.ndarray, facts: Any) -> dict[str, Any]:
        numbers = {name: getattr(facts, name) for name in ("steered", "policy", "q", "v")}
        chosen = facts.by_policy.tolist(), facts.by_values.tolist()
        return token_row(self.tokenizer, tokens.tolist(), numbers, *chosen)


def open_setup(request: TextRequest) -> TextEvalSetup:
    """Reads the agent, where there is one; UserError where something is missing or does not fit."""
    about, folder = request.described(), str(request.agent)
    name, options = named_task(request, about)
    task = text_scores.attach(registry.make(name, options))
    plan: dict[str, Any] = {"environment": name, "options": options, "seed": request.seed}
    plan["drawn_from"] = registry.drawn_from(task)
    tokenizer = task.tokenizer()
    if request.policy:
        actor: TextActor = text_episodes.PolicyTextActor(task.policy(request.policy), request.seed)
        plan |= {"policy": request.policy, "digest": None, "decode": None, "values": False}
    else:
        assert about is not None
        if model_agent.is_model(folder):
            saved = model_agent.load(folder, "agent", name, task, options, request.dtype)
            tokenizer = saved.tokenizer
        else:
            saved = agent_folder.load(folder, task=task, dtype=request.dtype)
        decoder = decoder_of(saved)
        decoding = decoding_of(request.decode, about)
        decoder.check(decoding)
        if saved.network.design.q in ("utterance", "mean") and decoding.kind != "rerank":
            print(
                f"config.decode.kind={decoding.kind}: {saved.method} has values of whole actions only, which this kind does not use; rerank does",
                flush=True,
            )
        actor = text_episodes.AgentTextActor(decoder, saved.params, tokenizer, decoding, request.seed)
        plan |= {**agent_plan(folder, saved), "decode": dataclasses.asdict(decoding)}
    return TextEvalSetup(task, actor, plan, tokenizer, dialogue_data.token_reward_of(request.token_reward))


def agent_plan(folder: str, saved: agent_folder.SavedAgent) -> dict[str, Any]:
    """What an evaluation says of its agent."""
    return {
        "policy": folder,
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
