"""Evaluates an agent on recorded dialogues: the loss of its policy, its values, the numbers of each
token.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.core import config as checks
from motif_jax.core.errors import UserError
from motif_jax.ilql.agent import agent_folder, model_agent
from motif_jax.ilql.agent.text_agent import TextAgentNetwork
from motif_jax.ilql.dialogues import dialogue_source, files, token_columns
from motif_jax.ilql.dialogues.dialogue import Dialogue, Dialogues
from motif_jax.ilql.dialogues.items import TextTokenizer
from motif_jax.ilql.evaluation import agent_rewards, text_setup, text_values
from motif_jax.ilql.evaluation.config import EvaluateTextConfig
from motif_jax.ilql.evaluation.text_values import ValuedDialogue
from motif_jax.ilql.tasks import registry
from motif_jax.lm import token_data

END = "recorded"


class ReadableDialogues(NamedTuple):
    """What an agent reads of a file of dialogues.

    Attributes:
      dialogues: those with actions within the agent's positions.
      too_long: the number of those left out, whose actions go beyond its positions. A training cuts
          them.
    """

    dialogues: Dialogues
    too_long: int


def replace_episodes(config: EvaluateTextConfig) -> bool:
    """Whether recorded dialogues replace episodes: `config.data` names some, or the agent's task
    has no environment.
    """
    if config.data:
        allowed = "None with config.policy, or without config.agent: an agent is looked at"
        checks.require_key(config, "data", bool(config.agent) and not config.policy, allowed)
        return True
    if config.policy or not config.agent or model_agent.is_model(config.agent):
        return False
    name, options = text_setup.named_task(config, agent_folder.describe(config.agent, "agent"))
    return name == dialogue_source.RECORDED and not options.get("environment")


def check(config: EvaluateTextConfig) -> None:
    """Raises UserError where there are no dialogues that the agent can read, or for keys of
    episodes, which recorded dialogues do not have.

    Variants of a task set `config.decode`, which is left unread.
    """
    unread = "recorded dialogues are read, and nothing is played"
    rules = {
        "options": (not config.options, f"empty: {unread}"),
        "url": (not config.url, f"None: {unread}"),
    }
    for key, (fits, allowed) in rules.items():
        checks.require_key(config, key, fits, allowed)
    paid = config.token_reward
    for field in dataclasses.fields(paid):
        value = getattr(paid, field.name)
        is_default = value == field.default
        checks.require(
            is_default, f"token_reward.{field.name}", value, f"{field.default}: {unread}"
        )
    agent = config.agent or ""
    about = agent_folder.describe(agent, "agent")
    text_setup.named_task(config, about)
    tokenizer = registry.make(about["task"], agent_folder.options_of(about)).tokenizer()
    network = agent_folder.network_of(about)
    # A decision transformer reads returns, with the rewards of tokens of its training.
    if network.design.prefix:
        agent_rewards.of_training(about)
    # One that can be read is enough for a check.
    dialogues_of(about, agent, config.data, network, tokenizer, 1)


def dialogues_of(
    about: Mapping[str, Any],
    agent: str,
    data: str | None,
    network: TextAgentNetwork,
    tokenizer: TextTokenizer,
    count: int,
) -> ReadableDialogues:
    """The first `count` dialogues with actions of the file `data`, or of the held-out ones of the
    training in the folder `agent`, which `about` describes.

    Raises:
      UserError: there are none, or they do not fit the agent's tokens.
    """
    if data:
        dialogues: Iterable[Dialogue] = files.read(files.find(data, "data"))
    else:
        held_out = Path(agent) / token_data.TOKENS / token_data.HELD_OUT
        if not held_out.is_dir():
            raise UserError(
                f"config.data=None: {agent} has no held-out dialogues: name some with --config.data=FILE"
            )
        token_reward = agent_rewards.of_training(about)
        dialogues = token_columns.read_dialogues(held_out, tokenizer, token_reward)
    readable: list[Dialogue] = []
    too_long = 0
    for number, dialogue in enumerate(dialogues):
        if len(readable) == count:
            break
        if all(reward is None for reward in dialogue.rewards):
            continue
        if text_values.fits(network, tokenizer, dialogue, f"config.data={data}: dialogue {number}"):
            readable.append(dialogue)
        else:
            too_long += 1
    if not readable:
        raise UserError(
            f"config.data={data}: must hold actions (utterances of the agent) within its positions, and has none"
        )
    return ReadableDialogues(Dialogues.of(readable), too_long)


def rows(
    saved: agent_folder.SavedAgent, dialogues: Dialogues, missing: Sequence[int], shown: int
) -> Iterator[dict[str, Any]]:
    """A row for each dialogue in `missing`; those below `shown` with every token."""
    chosen = Dialogues.of(dialogues[index] for index in missing)
    for index, valued in zip(missing, text_values.values_of(saved, chosen), strict=True):
        row = _row(index, valued)
        if index < shown:
            row["tokens"] = [_token_row(valued, span, saved.tokenizer) for span in valued.spans]
        yield row


def _row(index: int, valued: ValuedDialogue) -> dict[str, Any]:
    dialogue = valued.dialogue
    values = valued.values
    row: dict[str, Any] = {
        "index": index,
        "seed": index,
        "return": dialogue.total,
        "length": len(valued.spans),
        "end_reason": END,
        "tokens_said": len(values.log_probs),
        "policy_loss": -float(np.mean(values.log_probs)),
    }
    if values.q is not None:
        row |= {
            "q": float(values.q.mean()),
            "v": float(values.v.mean()),
            "advantage": float((values.target_q - values.v).mean()),
        }
    return row | text_setup.dialogue_entry(dialogue)


def _token_row(valued: ValuedDialogue, span: slice, tokenizer: Any) -> dict[str, Any]:
    """The numbers of the tokens of the action at `span`; 0 for those that the agent does not
    have.
    """
    values = valued.values
    of_tokens = {
        # Nothing is drawn here, so that nothing is steered.
        "steered": values.log_probs,
        "policy": values.log_probs,
        "q": values.target_q,
        "v": values.v,
    }
    zeros = np.zeros(span.stop - span.start)
    numbers = {name: zeros if array is None else array[span] for name, array in of_tokens.items()}
    tokens = valued.item.tokens[valued.item.action_indices + 1][span].tolist()
    return text_values.token_row(tokenizer, tokens, numbers)


def ranking(rows: Sequence[Mapping[str, Any]]) -> dict[str, float] | None:
    """Of two dialogues with different returns, how often the one with the greater return has the
    greater mean Q.

    Returns:
      `accuracy` and the number of `pairs`, each dialogue with the next one by index; None where the
      agent has no values, or all returns are equal.
    """
    if not rows or "q" not in rows[0]:
        return None
    return_gains = np.diff(np.array([row["return"] for row in rows]))
    # Pairs of neighbours: as many as dialogues, where all pairs would be their square.
    q_gains = np.diff(np.array([row["q"] for row in rows]))
    differ = return_gains != 0
    if not differ.any():
        return None
    is_right = (np.sign(return_gains) == np.sign(q_gains))[differ]
    return {"accuracy": float(is_right.mean()), "pairs": int(is_right.size)}
