"""Batches of dialogues for each step, from a dataset of tokens or drawn from a stream."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import jax
import numpy as np

from motif_jax.core import seeds
from motif_jax.core.errors import UserError
from motif_jax.ilql.dialogues import collate, token_columns
from motif_jax.ilql.dialogues.collate import Quirks
from motif_jax.ilql.dialogues.dialogue import Dialogue, DialogueStream
from motif_jax.ilql.dialogues.items import TextTokenizer, TokenItem, tokenise
from motif_jax.ilql.dialogues.token_rewards import TokenReward
from motif_jax.ilql.methods.implicit_q import TextBatch
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
    quirks: Quirks = dataclasses.field(default_factory=Quirks)
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
        by_token = collate.steps(items, False, self.quirks, max_tokens, self.micro_batches)
        action_counts = np.array([len(item.action_indices) for item in items])
        policy_mask = np.arange(max_tokens) < action_counts[:, None]
        if self.quirks.padded_positions and not self.by_utterance:
            # Dialogues without actions have a weight at position 0, rows without a dialogue have
            # none.
            policy_mask[:, :1] |= (action_counts[:, None] == 0) & valid[:, :1]

        steps = by_token
        # An action is a token: token a is action a.
        action_of_token = np.tile(np.arange(max_tokens, dtype=np.int32), (len(items), 1))
        if self.by_utterance:
            steps = collate.steps(items, True, self.quirks, max_utterances, self.micro_batches)
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
        """The first `max_len` tokens of an item, see `collate.truncated`."""
        return collate.truncated(item, self.max_len, self.quirks)


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
        ends_before = np.r_[0, np.cumsum(kinds == token_columns.ACTION_END)]
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
                    self._layout.cut(token_columns.item_of(self.dataset, int(self._chosen[item])))
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
