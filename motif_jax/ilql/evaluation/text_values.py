"""An agent's values on recorded dialogues."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.ilql.agent.agent_folder import SavedAgent
from motif_jax.ilql.agent.text_agent import TextAgentNetwork
from motif_jax.ilql.dialogues import collate
from motif_jax.ilql.dialogues.collate import Quirks
from motif_jax.ilql.dialogues.dialogue import Dialogue, Dialogues
from motif_jax.ilql.dialogues.items import NO_TOKENS, TextTokenizer, TokenItem, tokenise
from motif_jax.ilql.dialogues.token_rewards import constant
from motif_jax.ilql.evaluation import agent_rewards
from motif_jax.ilql.methods.implicit_q import clipped
from motif_jax.lm.tokens import bucket, padded

_BATCH = 64


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
        actions = tokenise(dialogue, tokenizer, constant(0.0)).action_indices
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
    reward = constant(0.0)
    if saved.network.design.prefix:
        reward = agent_rewards.of_training(saved.about)
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
        cut_items = [collate.truncated(item, max_tokens, Quirks()) for item in items]
        returns[: len(part)] = [item.rewards.sum() for item in cut_items]
        device_values = _look(saved.network, params, tokens, valid, returns, bounds=bounds)
        values = jax.tree.map(np.asarray, device_values)
        for row, (dialogue, item) in enumerate(zip(part, items, strict=True)):
            of_actions = jax.tree.map(lambda array: array[row, item.action_indices], values)  # noqa: B023
            yield ValuedDialogue(dialogue, item, of_actions)


def token_row(
    tokenizer: TextTokenizer,
    tokens: Sequence[int],
    numbers: Mapping[str, np.ndarray],
    by_policy: Sequence[int] = (),
    by_values: Sequence[int] = (),
) -> dict[str, Any]:
    """The numbers (steered, policy, q and v, float [M] each) of an action's tokens for a journal,
    JSON-able.

    `by_policy` and `by_values` are tokens [M] that the policy and the values alone would have
    taken, () if that is not known.
    """

    def pieces(tokens: Sequence[int]) -> list[str]:
        return [tokenizer.decode([token]) for token in tokens]

    def rounded(values: np.ndarray) -> list[float]:
        return [float(f"{value:.5g}") for value in values.tolist()]

    unknown = [""] * len(tokens)
    return {
        "pieces": pieces(tokens),
        **{name: rounded(values) for name, values in numbers.items()},
        "by_policy": pieces(by_policy) or unknown,
        "by_values": pieces(by_values) or unknown,
    }
