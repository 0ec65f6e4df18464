"""Stores dialogues as a tokens dataset (motif_jax/lm/token_data), with kinds and rewards of tokens.

Columns of tokens: `kinds` uint8 (`CONTEXT`, `ACTION`, `ACTION_END`), `rewards` float32 (0 outside
of actions). Columns of items: `terminal` bool, `return` float64 without rewards of tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.ilql.dialogues.dialogue import ROLES, SYSTEM, Dialogue
from motif_jax.ilql.dialogues.items import (
    TextTokenizer,
    TokenItem,
    begins_with_system,
    terminals,
    utterances,
)
from motif_jax.ilql.dialogues.token_rewards import TokenReward
from motif_jax.lm.token_data import TokensDataset, TokensWriter

CONTEXT, ACTION, ACTION_END = 0, 1, 2
TOKEN_COLUMNS: dict[str, Any] = {"kinds": "uint8", "rewards": "float32"}
ITEM_COLUMNS: dict[str, Any] = {"terminal": "bool", "return": "float64"}


def add(writer: TokensWriter, item: TokenItem, total: float) -> None:
    """Appends an item and its return to a dataset with these columns."""
    kinds = np.zeros(len(item.tokens), np.uint8)
    rewards = np.zeros(len(item.tokens), np.float32)
    kinds[item.action_indices + 1] = ACTION
    # After the line above: `</a>` is a token of its action, too.
    kinds[item.utterance_action_indices] = ACTION_END
    rewards[item.action_indices + 1] = item.rewards
    columns = {"terminal": bool(item.terminals[-1]), "return": total}
    writer.add(item.tokens, {"kinds": kinds, "rewards": rewards}, columns)


def longest_action(dataset: TokensDataset) -> int:
    """Tokens of the longest action, with `</a>`; 0 without actions."""
    kinds = np.asarray(dataset.token_columns["kinds"])
    # Without the context an action's tokens stand between two ends.
    of_actions = kinds[np.flatnonzero(kinds)]
    ends = np.flatnonzero(of_actions == ACTION_END)
    return int(np.diff(ends, prepend=-1).max(initial=0))


def item_of(dataset: TokensDataset, index: int) -> TokenItem:
    """An item of such a dataset; its rewards are rounded to float32."""
    rows = slice(int(dataset.offsets[index]), int(dataset.offsets[index + 1]))
    return rebuilt(
        np.asarray(dataset.tokens[rows], np.int32),
        np.asarray(dataset.token_columns["kinds"][rows]),
        np.asarray(dataset.token_columns["rewards"][rows]),
        bool(dataset.item_columns["terminal"][index]),
    )


def rebuilt(
    tokens: np.ndarray, kinds: np.ndarray, rewards: np.ndarray, terminal: bool
) -> TokenItem:
    """The `TokenItem` with these columns."""
    token_positions = np.flatnonzero(kinds).astype(np.int32)
    ends = np.flatnonzero(kinds == ACTION_END).astype(np.int32)
    positions = token_positions - 1  # an action stands at the position before its token
    last = np.array([len(tokens) - 1], np.int32)
    action_rewards = rewards[token_positions].astype(np.float64)
    # Index of each action's first token among the tokens of all actions.
    firsts = np.zeros(0, np.int64)
    utterance_rewards = np.zeros(0)
    # `reduceat` wants a first index.
    if len(ends):
        firsts = np.concatenate([[0], np.searchsorted(token_positions, ends[:-1]) + 1])
        utterance_rewards = np.add.reduceat(action_rewards, firsts)
    return TokenItem(
        tokens=tokens,
        state_indices=np.concatenate([positions, last]),
        action_indices=positions,
        rewards=action_rewards,
        terminals=terminals(len(positions), terminal),
        utterance_state_indices=np.concatenate([positions[firsts], last]),
        utterance_action_indices=ends,
        utterance_rewards=utterance_rewards,
        utterance_terminals=terminals(len(ends), terminal),
    )


def read_dialogues(
    folder: Path, tokenizer: TextTokenizer, token_reward: TokenReward
) -> Iterator[Dialogue]:
    """The dialogues of a run's tokenised part, as text; `token_reward` is what the run pays for
    tokens, which is no part of an action's reward. Rewards are rounded to float32.
    """
    dataset = TokensDataset(folder)
    for index in range(dataset.num_items):
        item = item_of(dataset, index)
        action_rewards = iter(_without_token_rewards(item, token_reward).tolist())
        texts: list[str] = []
        rewards: list[float | None] = []
        for tokens, is_action in utterances(item, tokenizer):
            texts.append(tokenizer.decode(tokens))
            rewards.append(next(action_rewards) if is_action else None)
        meta: dict[str, Any] = {}
        # The roles that the file had are not stored: tokens tell a system message alone.
        if begins_with_system(item, tokenizer):
            meta[ROLES] = [
                SYSTEM,
                *("user" if reward is None else "assistant" for reward in rewards[1:]),
            ]
        yield Dialogue(tuple(texts), tuple(rewards), bool(item.terminals[-1]), meta)


def _without_token_rewards(item: TokenItem, token_reward: TokenReward) -> np.ndarray:
    """The reward of each action alone, float32 [U]: its last token has it beside that token's
    own.
    """
    last_tokens = np.searchsorted(item.action_indices, item.utterance_action_indices - 1)
    # In the precision of the columns: an unpaid action gets 0 and not a remainder.
    of_tokens = token_reward(item.tokens[item.utterance_action_indices]).astype(np.float32)
    return (item.rewards[last_tokens] - of_tokens).astype(np.float32)
