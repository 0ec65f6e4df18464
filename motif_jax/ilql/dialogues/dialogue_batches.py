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
from motif_jax.lm.bucket_batches import BucketBatches, stacked
from motif_jax.lm.token_data.dataset import TokensDataset
from motif_jax.lm.tokens import bucket, padded

# An empty row of a batch.
_NO_INTEGERS = np.zeros(0, np.int32)
_NOTHING = TokenItem(
    _NO_INTEGERS, _NO_INTEGERS, _NO_INTEGERS, np.zeros(0), np.zeros(0, np.int8),
    _NO_INTEGERS, _NO_INTEGERS, np.zeros(0), np.zeros(0, np.int8),
)  # fmt: skip
# So many rejected dialogues in a row end a run on a stream.
_MOST_MISSES = 10_000


@dataclasses.dataclass(frozen=True)
class ItemLayout:
    """The layout of items in a batch."""

    pad: int  # token of the padding
    by_utterance: bool = False  # an action is an utterance, not a token
    max_len: int | None = None  # most tokens of an item; None: no limit
    quirks: Quirks = dataclasses.field(default_factory=Quirks)
    micro_batches: int = 1  # one after the other

    def batch(
        self, items: Sequence[TokenItem], width: int, most_tokens: int, most_utterances: int
    ) -> TextBatch:
        """Pads items that are cut already to T = `width` and A = `most_tokens`."""
        tokens, valid = padded([item.tokens for item in items], width, self.pad)
        by_token = collate.steps(items, False, self.quirks, most_tokens, self.micro_batches)
        numbers = np.array([len(item.action_indices) for item in items])
        acts = np.arange(most_tokens) < numbers[:, None]
        if self.quirks.padded_positions and not self.by_utterance:
            # Not in empty rows.
            acts[:, :1] |= (numbers[:, None] == 0) & valid[:, :1]
        found, step_of = by_token, np.broadcast_to(np.arange(most_tokens, dtype=np.int32), acts.shape)
        if self.by_utterance:
            found = collate.steps(items, True, self.quirks, most_utterances, self.micro_batches)
            step_of = np.zeros(acts.shape, np.int32)
            for row, item in enumerate(items):
                step = np.searchsorted(item.utterance_action_indices, item.action_indices + 1)
                # Tokens of an utterance whose end was cut off have no value.
                acts[row, : len(step)] &= step < len(item.utterance_action_indices)
                step_of[row, : len(step)] = np.minimum(step, max(most_utterances - 1, 0))
        returns = np.array([item.rewards.sum() for item in items], np.float32)
        where = (by_token.actions, acts, np.ascontiguousarray(step_of))
        return TextBatch(tokens, valid, *where, *found, returns)

    def cut(self, item: TokenItem) -> TokenItem:
        return collate.truncated(item, self.max_len, self.quirks)


class ListBatches(BucketBatches):
    """Batches of the items `chosen` int64 [N] of a dataset of tokens (`token_columns`); `group`, `by_length`: see `BucketBatches`."""

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
        self._chosen, self._layout = chosen, layout
        lengths = dataset.lengths[chosen]
        if layout.max_len is not None:
            lengths = np.minimum(lengths, layout.max_len)
        super().__init__(dataset, lengths, int(lengths.max()), batch_size, seed, group, by_length)
        self._most = self._most_actions(np.asarray(dataset.token_columns["kinds"]))

    def _most_actions(self, kinds: np.ndarray) -> dict[int, tuple[int, int]]:
        """For each width the most action tokens and the most utterances of a row."""
        found, most = {}, (1, 1)
        firsts = self.dataset.offsets[:-1][self._chosen]
        stops = firsts + self.lengths
        acting, ends = (np.r_[0, np.cumsum(of)] for of in (kinds > 0, kinds == token_columns.ACTION_END))
        tokens, utterances = acting[stops] - acting[firsts], ends[stops] - ends[firsts]
        for before, width in zip([0, *self.widths], self.widths, strict=False):
            here = (self.lengths > before) & (self.lengths <= width)
            if here.any():
                most = (max(most[0], int(tokens[here].max())), max(most[1], int(utterances[here].max()) + 1))
            found[width] = most
        return found

    def batch(self, items: np.ndarray, width: int) -> TextBatch:
        found = [
            token_columns.item_of(self.dataset, int(self._chosen[item])) if item >= 0 else _NOTHING
            for item in items
        ]
        return self._layout.batch([self._layout.cut(item) for item in found], width, *self._most[width])


class StreamBatches:
    """Batches drawn from a stream, for each step with a generator of its own; what is not `wanted` is drawn again.

    A stream may yield groups of dialogues: if a group has too many, some are chosen at random.
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
        wanted: Callable[[Dialogue], bool] | None = None,
    ) -> None:
        self._stream, self._tokenizer, self._token_reward = stream, tokenizer, token_reward
        self._layout, self.batch_size, self._seed, self._wanted = layout, batch_size, seed, wanted

    def batches(self, first: int, count: int) -> TextBatch:
        groups = [self._drawn(step) for step in range(first, first + count)]
        flat = [item for group in groups for item in group]
        width = bucket(max(len(item.tokens) for item in flat), self._layout.max_len)
        tokens = bucket(max(1, *(len(item.action_indices) for item in flat)), width)
        utterances = bucket(max(1, *(len(item.utterance_action_indices) + 1 for item in flat)), width)
        return stacked([self._layout.batch(group, width, tokens, utterances) for group in groups])

    def _drawn(self, step: int) -> list[TokenItem]:
        found: list[TokenItem] = []
        rng, misses = seeds.rng(self._seed, "stream", step), 0
        while len(found) < self.batch_size:
            drawn = list(self._stream(rng, self.batch_size - len(found), 0))
            kept = [each for each in drawn if self._wanted is None or self._wanted(each)]
            misses = 0 if kept else misses + len(drawn)
            if misses > _MOST_MISSES:
                raise UserError(
                    f"config.filter: none of {misses:,} dialogues in a row passes it: choose a lower cutoff"
                )
            missing = self.batch_size - len(found)
            if len(kept) > missing:  # otherwise the first of several groups would give all dialogues
                kept = [kept[place] for place in rng.choice(len(kept), missing, replace=False)]
            found += [self._layout.cut(tokenise(each, self._tokenizer, self._token_reward)) for each in kept]
        return found

    def whole(self, most: int) -> list[TextBatch]:
        return [jax.tree.map(lambda leaf: leaf[0], self.batches(step, 1)) for step in range(most)]


DialogueBatches = ListBatches | StreamBatches
