"""Pads tokenised dialogues to batches of tokens, states, actions and rewards (Snell et al. 2022, `collate`)."""

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
      padded_positions: a truncated dialogue that is shorter than the longest of its micro-batch has one more live position;
        a dialogue without actions has a weight at position 0 (`compat.ilql_padded_positions`).
      whole_rewards: truncates rewards of utterances to integers (`compat.ilql_utterance_int_reward`).
      utterances_by_tokens: `max_len` keeps equally many states of utterances and of tokens
        (`compat.ilql_utterance_truncation`).
    """

    padded_positions: bool = False
    whole_rewards: bool = False
    utterances_by_tokens: bool = False


class ActionSteps(NamedTuple):
    """The actions of B dialogues, by tokens or by utterances, padded to K."""

    states: np.ndarray  # int32 [B, K + 1], positions of the states, 0 after the last
    actions: np.ndarray  # int32 [B, K]
    rewards: np.ndarray  # float32 [B, K]
    terminals: np.ndarray  # float32 [B, K + 1], 1 after the last
    live: np.ndarray  # bool [B, K]


def truncated(item: TokenItem, max_len: int | None, quirks: Quirks) -> TokenItem:
    """The first `max_len` tokens of an item; its last state is the one after its last remaining action.

    With `quirks.utterances_by_tokens`, states of removed tokens point to the last remaining token. (The published code reads
    their old positions and fails.)
    """
    if max_len is None or len(item.tokens) <= max_len:
        return item
    states = int((item.state_indices < max_len).sum())
    utterances = int((item.utterance_state_indices < max_len).sum())
    spoken = max(utterances - 1, 0)
    if quirks.utterances_by_tokens:
        utterances = min(states, len(item.utterance_state_indices))
        spoken = int((item.utterance_action_indices < max_len).sum())
    return TokenItem(
        item.tokens[:max_len],
        item.state_indices[:states],
        item.action_indices[: max(states - 1, 0)],
        item.rewards[: max(states - 1, 0)],
        item.terminals[:states],
        np.minimum(item.utterance_state_indices[:utterances], max_len - 1),
        item.utterance_action_indices[:spoken],
        item.utterance_rewards[:spoken],
        item.utterance_terminals[:utterances],
    )


def steps(
    items: Sequence[TokenItem], by_utterance: bool, quirks: Quirks, width: int, micro_batches: int
) -> ActionSteps:
    """Pads the actions (tokens, or utterances) of items to K = `width`; the batch has `micro_batches` parts of equal size."""
    prefix, count = "utterance_" if by_utterance else "", len(items)
    names = [prefix + name for name in ("state_indices", "action_indices", "rewards", "terminals")]
    states, actions = np.zeros((count, width + 1), np.int32), np.zeros((count, width), np.int32)
    rewards, terminals = np.zeros((count, width), np.float32), np.ones((count, width + 1), np.float32)
    numbers = np.zeros(count, np.int64)
    for row, item in enumerate(items):
        positions, acted, paid, ends = (getattr(item, name) for name in names)
        states[row, : len(positions)] = positions[: width + 1]
        actions[row, : len(acted)] = acted
        rewards[row, : len(paid)] = paid
        terminals[row, : len(ends)] = ends[: width + 1]
        numbers[row] = len(acted)
    if by_utterance and quirks.whole_rewards:
        rewards = np.trunc(rewards)
    live = np.arange(width) < numbers[:, None]
    if quirks.padded_positions:
        # The published arrays of a micro-batch are as wide as its longest dialogue; the width here may be larger.
        most_of = numbers.reshape(micro_batches, -1).max(axis=1, initial=0)
        most = np.repeat(most_of, count // micro_batches)[:, None]
        live = (terminals[:, :width] == 0) & (np.arange(width) < most)
    return ActionSteps(states, actions, rewards, terminals, live)
