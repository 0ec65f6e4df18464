"""Computes what the sentences of a batch's texts are paid: `config.reward.by=sentence`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from motif_jax.core.devices.meters import Meters
from motif_jax.core.distinct import distinct_rows
from motif_jax.core.sentences import split_rows
from motif_jax.envs.spec import EnvironmentSpec
from motif_jax.rl.intrinsic import BatchMessages, RewardKind
from motif_jax.rl.reward_keys import CAUSED
from motif_jax.rl.reward_lookup import Columns, RewardLookup
from motif_jax.rl.sentence_rewards import Visits, pay_sentences, rate_sentences


class SentenceLookup(RewardLookup):
    """Pays the sentences of a batch's texts; what it returns is divided by the counts already.

    Args:
      exponent: the power of a sentence's count that its reward is divided by.
    """

    def __init__(
        self,
        spec: EnvironmentSpec,
        reward: RewardKind,
        pay: str,
        exponent: float,
        meters: Meters,
        updates: int,
    ) -> None:
        # Neither the sums of episodes nor the learner divide again.
        super().__init__(spec, reward, pay, 0.0, meters, updates)
        self._sentence_exponent = float(exponent)
        # Environment -> its running episode, and the visits in it.
        self._visits: dict[int, tuple[int, Visits]] = {}

    def _values(
        self,
        observation: Mapping[str, np.ndarray],
        is_paid: np.ndarray,
        steps: int,
        columns: Columns,
    ) -> tuple[np.ndarray, int]:
        texts = observation[self._text_field][: len(is_paid)]
        with self._meters.time("batcher/lookup"):
            messages, ids = distinct_rows(texts.reshape(is_paid.size, -1))
            divided = split_rows(messages)
            # A frozen reward looks at no counts.
            counts = np.ones(len(divided.sentences), np.int64)
            paid = self._reward.pay(
                BatchMessages(divided.sentences, counts, steps, self._update_index)
            )
            sentences_of, value_of = rate_sentences(divided, paid.values)
            pays = np.array(
                [any(value_of[sentence] for sentence in parts) for parts in sentences_of]
            )
            ids = ids.reshape(is_paid.shape)
            values = np.zeros(is_paid.shape, np.float32)
            sums: dict[bytes, tuple[int, float]] = {}
            # Column by column, since an environment may have several columns, one after the other.
            for column, row in np.argwhere((is_paid & pays[ids]).T).tolist():
                sentences = sentences_of[ids[row, column]]
                visits = self._visits_of(columns, row, column)
                amounts = pay_sentences(sentences, value_of, visits, self._sentence_exponent)
                values[row, column] = sum(amounts)
                for sentence, amount in zip(sentences, amounts, strict=True):
                    steps_before, paid_before = sums.get(sentence, (0, 0.0))
                    sums[sentence] = (steps_before + 1, paid_before + amount)
            self.paid_texts.add_sums(sums)
        self._update_index += 1
        return values, paid.version

    def _visits_of(self, columns: Columns, row: int, column: int) -> Visits:
        """The visits in the episode of a paid row."""
        env = int(columns.envs[column])
        # The row of a final observation belongs to the episode of the row before, and so does one
        # that is paid with the action that led to it.
        is_of_row_before = self._pay == CAUSED or bool(columns.last[row, column])
        episode = int(columns.episode[row - 1 if is_of_row_before else row, column])
        running = self._visits.get(env)
        if running is None or running[0] != episode:
            running = (episode, {})
            self._visits[env] = running
        return running[1]
