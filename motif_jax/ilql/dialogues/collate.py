"""Pads tokenised dialogues to batches of tokens, states, actions and rewards (Snell et al. 2022,
`collate`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from motif_jax.ilql.dialogues.items import TokenItem


@dataclasses.dataclass(frozen=True)
class Quirks:
    """Quirks of the published code, all off by default.

    Attributes:
      padded_positions: a truncated dialogue that is shorter than the longest of its micro-batch has
        one more action that counts; a dialogue without actions has a weight at position 0
        (`compat.ilql_padded_positions`).
      whole_rewards: truncates rewards of utterances to integers
        (`compat.ilql_utterance_int_reward`).
      utterances_by_tokens: `max_len` keeps equally many states of utterances and of tokens
        (`compat.ilql_utterance_truncation`).
    """

    padded_positions: bool = False
    whole_rewards: bool = False
    utterances_by_tokens: bool = False


class ActionSteps(NamedTuple):
    """The actions of B dialogues, by tokens or by utterances, padded to K."""

    state_positions: np.ndarray  # int32 [B, K + 1], 0 after the last
    action_positions: np.ndarray  # int32 [B, K], see `TextBatch`
    rewards: np.ndarray  # float32 [B, K]
    terminals: np.ndarray  # float32 [B, K + 1], 1 after the last
    action_mask: np.ndarray  # bool [B, K], which actions count


def truncated(item: TokenItem, max_len: int | None, quirks: Quirks) -> TokenItem:
    """The first `max_len` tokens of an item; its last state is the one after its last remaining
    action.

    With `quirks.utterances_by_tokens`, states of removed tokens point to the last remaining token.
    (The published code reads their old positions and fails.)
    """
    if max_len is None or len(item.tokens) <= max_len:
        return item
    states = int((item.state_indices < max_len).sum())
    # One fewer than states: the last action that is left has no next state, and goes, too.
    actions = max(states - 1, 0)
    utterance_states = int((item.utterance_state_indices < max_len).sum())
    utterances = max(utterance_states - 1, 0)
    if quirks.utterances_by_tokens:
        utterance_states = min(states, len(item.utterance_state_indices))
        utterances = int((item.utterance_action_indices < max_len).sum())
    return TokenItem(
        tokens=item.tokens[:max_len],
        state_indices=item.state_indices[:states],
        action_indices=item.action_indices[:actions],
        rewards=item.rewards[:actions],
        terminals=item.terminals[:states],
        utterance_state_indices=np.minimum(
            item.utterance_state_indices[:utterance_states], max_len - 1
        ),
        utterance_action_indices=item.utterance_action_indices[:utterances],
        utterance_rewards=item.utterance_rewards[:utterances],
        utterance_terminals=item.utterance_terminals[:utterance_states],
    )


def steps(
    items: Sequence[TokenItem], by_utterance: bool, quirks: Quirks, width: int, micro_batches: int
) -> ActionSteps:
    """Pads the actions of items to K = `width`.

    Args:
      by_utterance: an action is an utterance; else a token.
      width: at least the number of actions of any item.
      micro_batches: the parts of equal size that B items are divided into;
          `quirks.padded_positions` asks.
    """
    count = len(items)
    prefix = "utterance_" if by_utterance else ""
    state_positions = np.zeros((count, width + 1), np.int32)
    action_positions = np.zeros((count, width), np.int32)
    rewards = np.zeros((count, width), np.float32)
    # 1 in the padding, as published: nothing bootstraps from there.
    terminals = np.ones((count, width + 1), np.float32)
    action_counts = np.zeros(count, np.int64)
    for row, item in enumerate(items):
        item_states = getattr(item, f"{prefix}state_indices")
        item_actions = getattr(item, f"{prefix}action_indices")
        item_rewards = getattr(item, f"{prefix}rewards")
        item_terminals = getattr(item, f"{prefix}terminals")
        # With `quirks.utterances_by_tokens` an item may have more than K + 1 states.
        state_positions[row, : len(item_states)] = item_states[: width + 1]
        action_positions[row, : len(item_actions)] = item_actions
        rewards[row, : len(item_rewards)] = item_rewards
        terminals[row, : len(item_terminals)] = item_terminals[: width + 1]
        action_counts[row] = len(item_actions)
    if by_utterance and quirks.whole_rewards:
        rewards = np.trunc(rewards)

    action_mask = np.arange(width) < action_counts[:, None]
    if quirks.padded_positions:
        # The published arrays of a micro-batch are as wide as its longest dialogue; the width here
        # may be larger.
        longest = action_counts.reshape(micro_batches, -1).max(axis=1, initial=0)
        limits = np.repeat(longest, count // micro_batches)[:, None]
        # Published: what is not terminal counts, the last state of a dialogue without an end, too.
        action_mask = (terminals[:, :width] == 0) & (np.arange(width) < limits)
    return ActionSteps(state_positions, action_positions, rewards, terminals, action_mask)
