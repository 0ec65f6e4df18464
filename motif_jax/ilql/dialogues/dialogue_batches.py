"""Batches of dialogues for each step, from a dataset of tokens or drawn from a stream: items padded
to tokens, states, actions and rewards (Snell et al. 2022, `collate`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np

from motif_jax.core import seeds
from motif_jax.core.errors import UserError
from motif_jax.ilql.config import IlqlCompat
from motif_jax.ilql.dialogues import dialogue_tokens
from motif_jax.ilql.dialogues.dialogue import Dialogue, DialogueStream
from motif_jax.ilql.dialogues.dialogue_tokens import TextTokenizer, TokenItem, TokenReward, tokenise
from motif_jax.ilql.methods import TextBatch
from motif_jax.lm.token_batches import BucketBatches, stacked
from motif_jax.lm.token_data import TokensDataset
from motif_jax.lm.tokens import bucket, padded

_NO_INDICES = np.zeros(0, np.int32)
_NO_REWARDS = np.zeros(0, np.float64)
_NO_TERMINALS = np.zeros(0, np.int8)
# A row of a batch that no dialogue is left for.
_EMPTY_ITEM = TokenItem(
    tokens=np.zeros(0, np.int32),
    state_indices=_NO_INDICES,
    action_indices=_NO_INDICES,
    rewards=_NO_REWARDS,
    terminals=_NO_TERMINALS,
    utterance_state_indices=_NO_INDICES,
    utterance_action_indices=_NO_INDICES,
    utterance_rewards=_NO_REWARDS,
    utterance_terminals=_NO_TERMINALS,
)
# So many rejected dialogues in a row end a run on a stream.
_MAX_MISSES = 10_000


@dataclasses.dataclass(frozen=True)
class ItemLayout:
    """The layout of items in a batch."""

    pad: int  # token of the padding
    by_utterance: bool = False  # an action is an utterance, not a token
    max_len: int | None = None  # tokens of an item at most; None: no limit
    compat: IlqlCompat = dataclasses.field(default_factory=IlqlCompat)
    micro_batches: int = 1  # parts of a batch, which a step runs one after the other

    def batch(
        self, items: Sequence[TokenItem], width: int, max_tokens: int, max_utterances: int
    ) -> TextBatch:
        """Pads items that are cut already.

        Args:
          width: T, at least the tokens of any item.
          max_tokens: A, at least the action tokens of any item; also K where an action is a token.
          max_utterances: K where an action is an utterance.
        """
        tokens, valid = padded([item.tokens for item in items], width, self.pad)
        by_token = action_steps(items, False, self.compat, max_tokens, self.micro_batches)
        action_counts = np.array([len(item.action_indices) for item in items])
        policy_mask = np.arange(max_tokens) < action_counts[:, None]
        if self.compat.ilql_padded_positions and not self.by_utterance:
            # Dialogues without actions have a weight at position 0, rows without a dialogue have
            # none.
            policy_mask[:, :1] |= (action_counts[:, None] == 0) & valid[:, :1]

        steps = by_token
        # An action is a token: token a is action a.
        action_of_token = np.tile(np.arange(max_tokens, dtype=np.int32), (len(items), 1))
        if self.by_utterance:
            steps = action_steps(items, True, self.compat, max_utterances, self.micro_batches)
            action_of_token = np.zeros(policy_mask.shape, np.int32)
            for row, item in enumerate(items):
                # The utterance of a token is the first whose `</a>` does not stand before it.
                utterances = np.searchsorted(item.utterance_action_indices, item.action_indices + 1)
                # Tokens of an utterance whose end was cut off have no value.
                policy_mask[row, : len(utterances)] &= utterances < len(
                    item.utterance_action_indices
                )
                # Within the array, also for the tokens that `policy_mask` leaves out.
                action_of_token[row, : len(utterances)] = np.minimum(
                    utterances, max(max_utterances - 1, 0)
                )
        return TextBatch(
            tokens=tokens,
            valid=valid,
            action_token_positions=by_token.action_positions,
            policy_mask=policy_mask,
            action_of_token=action_of_token,
            state_positions=steps.state_positions,
            action_positions=steps.action_positions,
            rewards=steps.rewards,
            terminals=steps.terminals,
            action_mask=steps.action_mask,
            returns=np.array([item.rewards.sum() for item in items], np.float32),
        )

    def cut(self, item: TokenItem) -> TokenItem:
        """The first `max_len` tokens of an item, see `truncated`."""
        return truncated(item, self.max_len, self.compat)


def truncated(item: TokenItem, max_len: int | None, compat: IlqlCompat) -> TokenItem:
    """The first `max_len` tokens of an item; its last state is the one after its last remaining
    action.

    With `compat.ilql_utterance_truncation`, states of removed tokens point to the last remaining
    token. (The published code reads their old positions and fails.)
    """
    if max_len is None or len(item.tokens) <= max_len:
        return item
    states = int((item.state_indices < max_len).sum())
    # One fewer than states: the last action that is left has no next state, and goes, too.
    actions = max(states - 1, 0)
    utterance_states = int((item.utterance_state_indices < max_len).sum())
    utterances = max(utterance_states - 1, 0)
    if compat.ilql_utterance_truncation:
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


class ActionSteps(NamedTuple):
    """The actions of B dialogues, by tokens or by utterances, padded to K."""

    state_positions: np.ndarray  # int32 [B, K + 1], 0 after the last
    action_positions: np.ndarray  # int32 [B, K], see `TextBatch`
    rewards: np.ndarray  # float32 [B, K]
    terminals: np.ndarray  # float32 [B, K + 1], 1 after the last
    action_mask: np.ndarray  # bool [B, K], which actions count


def action_steps(
    items: Sequence[TokenItem],
    by_utterance: bool,
    compat: IlqlCompat,
    width: int,
    micro_batches: int,
) -> ActionSteps:
    """Pads the actions of items to K = `width`.

    Args:
      by_utterance: an action is an utterance; else a token.
      width: at least the number of actions of any item.
      micro_batches: the parts of equal size that B items are divided into;
          `compat.ilql_padded_positions` asks.
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
        # With `compat.ilql_utterance_truncation` an item may have more than K + 1 states.
        state_positions[row, : len(item_states)] = item_states[: width + 1]
        action_positions[row, : len(item_actions)] = item_actions
        rewards[row, : len(item_rewards)] = item_rewards
        terminals[row, : len(item_terminals)] = item_terminals[: width + 1]
        action_counts[row] = len(item_actions)
    if by_utterance and compat.ilql_utterance_int_reward:
        rewards = np.trunc(rewards)

    action_mask = np.arange(width) < action_counts[:, None]
    if compat.ilql_padded_positions:
        # The published arrays of a micro-batch are as wide as its longest dialogue; the width here
        # may be larger.
        longest = action_counts.reshape(micro_batches, -1).max(axis=1, initial=0)
        limits = np.repeat(longest, count // micro_batches)[:, None]
        # Published: what is not terminal counts, the last state of a dialogue without an end, too.
        action_mask = (terminals[:, :width] == 0) & (np.arange(width) < limits)
    return ActionSteps(state_positions, action_positions, rewards, terminals, action_mask)


class ListBatches(BucketBatches):
    """Batches of the items `chosen` int64 [N] of a dataset of tokens (`token_columns`); `group`,
    `by_length`: see `BucketBatches`.
    """

    def __init__(
        self,
        dataset: TokensDataset,
        chosen: np.ndarray,
        layout: ItemLayout,
        batch_size: int,
        seed: int,
        group: int,
        by_length: bool,
    ) -> None:
        self._chosen = chosen
        self._layout = layout
        lengths = dataset.lengths[chosen]
        if layout.max_len is not None:
            lengths = np.minimum(lengths, layout.max_len)
        super().__init__(dataset, lengths, int(lengths.max()), batch_size, seed, group, by_length)
        self._action_widths = self._measure_widths(np.asarray(dataset.token_columns["kinds"]))

    def _measure_widths(self, kinds: np.ndarray) -> dict[int, tuple[int, int]]:
        """For each width of rows how many action tokens and how many utterances a row has at most:
        one program for each width.
        """
        firsts = self.dataset.offsets[:-1][self._chosen]
        stops = firsts + self.lengths
        tokens_before = np.r_[0, np.cumsum(kinds > 0)]
        ends_before = np.r_[0, np.cumsum(kinds == dialogue_tokens.ACTION_END)]
        tokens = tokens_before[stops] - tokens_before[firsts]
        utterances = ends_before[stops] - ends_before[firsts]

        widths = {}
        # They grow with the width: where a chunk has steps of two, the wider one's serve both.
        max_tokens = max_utterances = 1
        narrower = 0
        for width in self.widths:
            rows = (self.lengths > narrower) & (self.lengths <= width)
            if rows.any():
                max_tokens = max(max_tokens, int(tokens[rows].max()))
                # One more than the ends: the last utterance may be cut before its end.
                max_utterances = max(max_utterances, int(utterances[rows].max()) + 1)
            widths[width] = (max_tokens, max_utterances)
            narrower = width
        return widths

    def batch(self, items: np.ndarray, width: int) -> TextBatch:
        """The batch of dialogues `items` int64 [B]; rows of numbers below 0 are empty."""
        rows = []
        for item in items:
            if item < 0:
                rows.append(_EMPTY_ITEM)
            else:
                rows.append(
                    self._layout.cut(dialogue_tokens.item_of(self.dataset, int(self._chosen[item])))
                )
        max_tokens, max_utterances = self._action_widths[width]
        return self._layout.batch(rows, width, max_tokens, max_utterances)


class StreamBatches:
    """Batches drawn from a stream, for each step with a generator of its own.

    Dialogues that `accepts` rejects are drawn again. A stream may yield groups of dialogues: if a
    group has too many, some are chosen at random.
    """

    # A stream has no end, and no dialogue comes twice.
    steps_per_pass: int | None = None

    def __init__(
        self,
        stream: DialogueStream,
        tokenizer: TextTokenizer,
        token_reward: TokenReward,
        layout: ItemLayout,
        batch_size: int,
        seed: int,
        accepts: Callable[[Dialogue], bool] | None = None,
    ) -> None:
        self._stream = stream
        self._tokenizer = tokenizer
        self._token_reward = token_reward
        self._layout = layout
        self.batch_size = batch_size
        self._seed = seed
        self._accepts = accepts

    def batches(self, first: int, count: int) -> TextBatch:
        """The batches of steps `first` to `first + count`, with an axis of steps in front; they
        depend on the seed and the step alone.
        """
        groups = [self._draw(step) for step in range(first, first + count)]
        items = [item for group in groups for item in group]
        width = bucket(max(len(item.tokens) for item in items), self._layout.max_len)
        tokens = bucket(max(1, *(len(item.action_indices) for item in items)), width)
        utterances = bucket(
            max(1, *(len(item.utterance_action_indices) + 1 for item in items)), width
        )
        return stacked([self._layout.batch(group, width, tokens, utterances) for group in groups])

    def _draw(self, step: int) -> list[TokenItem]:
        items: list[TokenItem] = []
        # By step, so that a resumed run draws the same dialogues.
        rng = seeds.rng(self._seed, "stream", step)
        misses = 0
        while len(items) < self.batch_size:
            missing = self.batch_size - len(items)
            drawn = list(self._stream(rng, missing, 0))
            accepted = [
                dialogue for dialogue in drawn if self._accepts is None or self._accepts(dialogue)
            ]
            misses = 0 if accepted else misses + max(1, len(drawn))
            if misses > _MAX_MISSES:
                raise UserError(
                    f"config.filter: none of {misses:,} dialogues in a row passes it: choose a lower cutoff"
                )
            # Without this draw the first of several groups would give all dialogues.
            if len(accepted) > missing:
                chosen = rng.choice(len(accepted), missing, replace=False)
                accepted = [accepted[index] for index in chosen]
            for dialogue in accepted:
                item = tokenise(dialogue, self._tokenizer, self._token_reward)
                items.append(self._layout.cut(item))
        return items

    def all_batches(self, max_batches: int) -> list[TextBatch]:
        """The batches of the first `max_batches` steps, for a measurement."""
        return [
            jax.tree.map(lambda leaf: leaf[0], self.batches(step, 1)) for step in range(max_batches)
        ]


DialogueBatches = ListBatches | StreamBatches
