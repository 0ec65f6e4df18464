"""Evaluates an agent on recorded dialogues: the loss of its policy, its values, the numbers of each
token.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.core import config as checks
from motif_jax.core.errors import UserError
from motif_jax.ilql.agent import agent_folder
from motif_jax.ilql.agent.agent_folder import SavedAgent
from motif_jax.ilql.agent.text_agent import TextAgentNetwork
from motif_jax.ilql.config import EvaluateTextConfig, IlqlCompat
from motif_jax.ilql.dialogues import (
    dialogue_batches,
    dialogue_data,
    dialogue_files,
    dialogue_tokens,
)
from motif_jax.ilql.dialogues.dialogue import Dialogue, Dialogues
from motif_jax.ilql.dialogues.dialogue_tokens import (
    NO_TOKENS,
    TextTokenizer,
    TokenItem,
    constant_reward,
    tokenise,
)
from motif_jax.ilql.evaluation import text_games_page, text_setup
from motif_jax.ilql.methods import clipped
from motif_jax.ilql.tasks import registry
from motif_jax.lm import token_data
from motif_jax.lm.tokens import bucket, padded

END = "recorded"
_BATCH = 64


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
    if config.policy or not config.agent or agent_folder.is_model(config.agent):
        return False
    name, options = text_setup.named_task(config, agent_folder.describe(config.agent, "agent"))
    return name == dialogue_data.RECORDED and not options.get("environment")


def check(config: EvaluateTextConfig) -> None:
    """Raises UserError where there are no dialogues that the agent can read."""
    agent = config.agent or ""
    about = agent_folder.describe(agent, "agent")
    text_setup.named_task(config, about)
    tokenizer = registry.make(about["task"], agent_folder.options_of(about)).tokenizer()
    network = agent_folder.network_of(about)
    # A decision transformer reads returns, with the rewards of tokens of its training.
    if network.design.prefix:
        text_setup.token_reward_of_training(about)
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
        dialogues: Iterable[Dialogue] = dialogue_files.read(dialogue_files.find(data, "data"))
    else:
        held_out = Path(agent) / token_data.TOKENS / token_data.HELD_OUT
        token_reward = text_setup.token_reward_of_training(about)
        dialogues = dialogue_tokens.stored_dialogues(held_out, tokenizer, token_reward)
    readable: list[Dialogue] = []
    too_long = 0
    for number, dialogue in enumerate(dialogues):
        if len(readable) == count:
            break
        if all(reward is None for reward in dialogue.rewards):
            continue
        if fits(network, tokenizer, dialogue, f"config.data={data}: dialogue {number}"):
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
    for index, valued in zip(missing, values_of(saved, chosen), strict=True):
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
    return row | text_games_page.dialogue_entry(dialogue)


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
    return text_games_page.token_row(tokenizer, tokens, numbers)


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


class ActionValues(NamedTuple):
    """Numbers of the tokens of a dialogue's actions, float32 [A] each (on the device [B, T]).

    Of an agent without values of tokens all but `log_probs` are None.

    Attributes:
      q, target_q: the smaller online and target Q; the latter clipped where training clips it.
      v: of the state before the token.
      log_probs: the policy's, in nats.
    """

    q: Any
    target_q: Any
    v: Any
    log_probs: Any


class ValuedDialogue(NamedTuple):
    """A dialogue, its tokens, and the numbers of its actions' tokens."""

    dialogue: Dialogue
    item: TokenItem
    values: ActionValues

    @property
    def spans(self) -> list[slice]:
        """The positions of each action's tokens among all tokens."""
        # `</a>` at position p is predicted at p - 1, the last of its action's indices.
        ends = np.searchsorted(self.item.action_indices, self.item.utterance_action_indices - 1) + 1
        return [slice(start, end) for start, end in itertools.pairwise([0, *ends.tolist()])]


@functools.partial(jax.jit, static_argnums=0, static_argnames="bounds")
def _look(
    network: TextAgentNetwork,
    params: Any,
    tokens: jax.Array,
    valid: jax.Array,
    returns: jax.Array,
    bounds: tuple[Any, Any],
) -> ActionValues:
    """The numbers of the token after each position of dialogues int32 [B, T]; `bounds` are q_min
    and q_max.

    `returns`, float32 [B], are read by agents that have them before the tokens.
    """
    readout = network.readouts(params, tokens, valid, returns)
    # The last position gets the first token, and is no action's.
    next_tokens = jnp.roll(tokens, -1, axis=1)

    def of_next(numbers: jax.Array) -> jax.Array:
        return jnp.take_along_axis(numbers, next_tokens[..., None], axis=-1)[..., 0]

    log_probs = of_next(jax.nn.log_softmax(readout.logits))
    if network.design.q != "token" or readout.values is None:
        return ActionValues(None, None, None, log_probs)
    assert readout.target_q is not None
    return ActionValues(
        q=of_next(functools.reduce(jnp.minimum, readout.qs)),
        target_q=clipped(of_next(readout.target_q), *bounds),
        v=readout.values,
        log_probs=log_probs,
    )


def _most_tokens(network: TextAgentNetwork) -> int | None:
    """The most tokens of a dialogue; None: no limit. A return before the tokens takes a
    position.
    """
    positions = network.model.config.max_length
    return None if positions is None else positions - int(network.design.prefix)


def require_fit(
    network: TextAgentNetwork, tokenizer: TextTokenizer, dialogues: Dialogues, source: str
) -> None:
    """Raises UserError for dialogues with texts that the tokenizer cannot encode, or actions after
    the network's last position.
    """
    longest = _most_tokens(network)
    for number, dialogue in enumerate(dialogues):
        last = last_position(tokenizer, dialogue, f"{source}: dialogue {number}")
        if longest is not None and last > longest:
            raise UserError(
                f"{source}: dialogue {number} has actions up to token {last}, the agent {longest} positions"
            )


def fits(
    network: TextAgentNetwork, tokenizer: TextTokenizer, dialogue: Dialogue, source: str
) -> bool:
    """Whether all actions of a dialogue lie within the network's positions. Raises UserError: the
    tokenizer cannot encode it.
    """
    longest = _most_tokens(network)
    return last_position(tokenizer, dialogue, source) <= (math.inf if longest is None else longest)


def last_position(tokenizer: TextTokenizer, dialogue: Dialogue, source: str) -> int:
    """How many positions a dialogue takes to its last action, 0 without any. Raises UserError: the
    tokenizer cannot encode it.
    """
    try:
        actions = tokenise(dialogue, tokenizer, constant_reward(0.0)).action_indices
    except NO_TOKENS as error:
        raise UserError(
            f"{source} does not fit the agent's tokens: {error}; give dialogues of its task"
        ) from None
    return int(actions[-1]) + 2 if len(actions) else 0


def values_of(saved: SavedAgent, dialogues: Dialogues) -> Iterator[ValuedDialogue]:
    """Runs dialogues through an agent, some at a time."""
    longest = _most_tokens(saved.network)
    bounds = (saved.settings.get("q_min"), saved.settings.get("q_max"))
    params = jax.device_put(saved.params)
    # Alone a decision transformer reads returns: those of its training, of whose dialogues the end
    # was cut off.
    reward = constant_reward(0.0)
    if saved.network.design.prefix:
        reward = text_setup.token_reward_of_training(saved.about)
    limits = [limit for limit in (longest, saved.settings.get("max_len")) if limit is not None]
    max_tokens = min(limits, default=None)
    for start in range(0, len(dialogues), _BATCH):
        part = [dialogues[i] for i in range(start, min(start + _BATCH, len(dialogues)))]
        items = [tokenise(dialogue, saved.tokenizer, reward) for dialogue in part]
        rows = [item.tokens[:longest].tolist() for item in items]
        width = bucket(max(map(len, rows)), longest)
        # The last batch is filled up, so that all have one program for each width.
        filling = [[0]] * (_BATCH - len(rows))
        tokens, valid = padded([*rows, *filling], width)
        returns = np.zeros(_BATCH, np.float32)
        cut_items = [dialogue_batches.truncated(item, max_tokens, IlqlCompat()) for item in items]
        returns[: len(part)] = [item.rewards.sum() for item in cut_items]
        device_values = _look(saved.network, params, tokens, valid, returns, bounds=bounds)
        values = jax.tree.map(np.asarray, device_values)
        for row, (dialogue, item) in enumerate(zip(part, items, strict=True)):
            of_actions = jax.tree.map(lambda array: array[row, item.action_indices], values)  # noqa: B023
            yield ValuedDialogue(dialogue, item, of_actions)
