"""Evaluates an agent on recorded dialogues: the loss of its policy, its values, the numbers of each token."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.core import config as checks
from motif_jax.core.errors import UserError
from motif_jax.ilql.agent import agent_folder, model_agent
from motif_jax.ilql.agent.text_agent import TextAgentNetwork
from motif_jax.ilql.dialogues import dialogue_data, files
from motif_jax.ilql.dialogues.dialogue import Dialogue, Dialogues
from motif_jax.ilql.dialogues.items import TextTokenizer
from motif_jax.ilql.evaluation import text_setup, text_values
from motif_jax.ilql.evaluation.config import TextSpeaker
from motif_jax.ilql.evaluation.text_values import ValuedDialogue
from motif_jax.ilql.tasks import registry
from motif_jax.lm import tokenised

END = "recorded"


def wanted(config: TextSpeaker) -> bool:
    """Whether recorded dialogues replace episodes: `config.data` names some, or the agent's task has no environment."""
    if config.data:
        allowed = "None with config.policy, or without config.agent: an agent is looked at"
        checks.require_key(config, "data", bool(config.agent) and not config.policy, allowed)
        return True
    if config.policy or not config.agent or model_agent.is_model(config.agent):
        return False
    name, options = text_setup.named_task(config, agent_folder.describe(config.agent, "agent"))
    return name == dialogue_data.RECORDED and not options.get("environment")


def check(config: TextSpeaker) -> None:
    """Raises UserError where there are no dialogues that the agent can read."""
    agent = config.agent or ""
    about = agent_folder.describe(agent, "agent")
    text_setup.named_task(config, about)
    tokenizer = registry.make(about["task"], agent_folder.options_of(about)).tokenizer()
    dialogues_of(agent, config.data, agent_folder.network_of(about), tokenizer, 1)


def dialogues_of(
    agent: str, data: str | None, network: TextAgentNetwork, tokenizer: TextTokenizer, count: int
) -> Dialogues:
    """The first `count` dialogues with actions of the file `data`, or of the held-out ones of the training in the folder `agent`.

    Raises:
      UserError: there are none, or they do not fit the agent.
    """
    if data:
        given: Iterable[Dialogue] = files.read(files.find(data, "data"))
    else:
        held_out = Path(agent) / tokenised.TOKENS / tokenised.HELD_OUT
        if not held_out.is_dir():
            raise UserError(
                f"config.data=None: {agent} has no held-out dialogues: name some with --config.data=FILE"
            )
        given = dialogue_data.read_tokenised(held_out, tokenizer)
    acting = (each for each in given if any(reward is not None for reward in each.rewards))
    found = Dialogues.of(itertools.islice(acting, count))
    if not len(found):
        raise UserError(f"config.data={data}: must hold actions (utterances of the agent), and has none")
    text_values.require_fit(network, tokenizer, found, f"config.data={data}")
    return found


def rows(
    saved: agent_folder.SavedAgent, dialogues: Dialogues, missing: Sequence[int], shown: int
) -> Iterator[dict[str, Any]]:
    """A row for each dialogue in `missing`; those below `shown` with every token."""
    chosen = Dialogues.of(dialogues[index] for index in missing)
    for index, each in zip(missing, text_values.values_of(saved, chosen), strict=True):
        row = _row(index, each)
        if index < shown:
            row["tokens"] = [_shown(each, span, saved.tokenizer) for span in each.spans]
        yield row


def _row(index: int, each: ValuedDialogue) -> dict[str, Any]:
    dialogue, values = each.dialogue, each.values
    row: dict[str, Any] = {
        "index": index,
        "seed": 0,
        "return": dialogue.total,
        "length": len(each.spans),
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
    return row | text_setup.said_in(dialogue)


def _shown(each: ValuedDialogue, span: slice, tokenizer: Any) -> dict[str, Any]:
    values, unknown = each.values, np.zeros(span.stop - span.start)
    numbers = {"steered": values.log_probs, "policy": values.log_probs, "q": values.target_q, "v": values.v}
    tokens = each.item.tokens[each.item.action_indices + 1][span].tolist()
    shown = {name: unknown if found is None else found[span] for name, found in numbers.items()}
    return text_values.token_row(tokenizer, tokens, shown)


def ranking(played: Sequence[Mapping[str, Any]]) -> dict[str, float] | None:
    """Of two dialogues with different returns, how often the one with the greater return has the greater mean Q.

    Returns:
      `accuracy` and the number of `pairs`, each dialogue with the next one by index; None where the agent has no values, or all
      returns are equal.
    """
    if not played or "q" not in played[0]:
        return None
    returns, q = (np.array([row[name] for row in played]) for name in ("return", "q"))
    gains, values = np.diff(returns), np.diff(q)
    differ = gains != 0
    if not differ.any():
        return None
    right = (np.sign(gains) == np.sign(values))[differ]
    return {"accuracy": float(right.mean()), "pairs": int(right.size)}
