"""Computes the intrinsic reward of a batch's texts, or of their sentences
(`config.reward.by=sentence`), and the intrinsic returns of the episodes that end in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from motif_jax.core.devices.meters import Meters
from motif_jax.core.distinct import distinct_rows
from motif_jax.core.sentences import split_rows
from motif_jax.envs.spec import EnvironmentSpec
from motif_jax.rl.algorithms import trajectory
from motif_jax.rl.algorithms.total_reward import discount_by_count
from motif_jax.rl.algorithms.trajectory import TrajectoryBatch
from motif_jax.rl.count_discount import Visits, pay_sentences, rate_sentences
from motif_jax.rl.intrinsic import BatchMessages, RewardKind
from motif_jax.rl.paid_texts import PaidTexts
from motif_jax.rl.reward_keys import CAUSED


class IntrinsicReturn(NamedTuple):
    """An episode's intrinsic return, discounted by count, without coefficient."""

    env: int
    episode: int
    value: float


class _RunningSum(NamedTuple):
    """What an environment's running episode has earned so far."""

    episode: int
    total: float


class Columns(NamedTuple):
    """Where the rows of a batch come from.

    Attributes:
      envs: int [B], the environments of the columns; a column continues where the environment's
          last column ended.
      episode: int [T, B].
      first, last: bool [T + 1, B], rows with an episode's first and final observation.
    """

    envs: np.ndarray
    episode: np.ndarray
    first: np.ndarray
    last: np.ndarray


class RewardLookup:
    """Computes the rewards of a batch's texts, looking each distinct one up once.

    Args:
      pay: 'read' or 'caused', see `reward_keys.PAY`.
      exponent: the power of a text's count that its reward is divided by in the returns.
      updates: the number of updates before the first batch.
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
        assert spec.text_field is not None
        self._text_field = spec.text_field
        self._count_field = spec.count_field
        self._pays_last = spec.last_text
        self._reward = reward
        self._pay = pay
        self._exponent = float(exponent)
        self._meters = meters
        self._update_index = updates  # of the next batch
        self.returns = ReturnSums(exponent)
        self.paid_texts = PaidTexts()

    def pay(
        self, observation: Mapping[str, np.ndarray], columns: Columns
    ) -> tuple[np.ndarray, np.ndarray | None, int]:
        """The intrinsic rewards of a batch's texts with the fields `observation` [T + 1, B, ...],
        and their version.

        Returns:
          `intrinsic_reward` and `next_intrinsic_reward` of a `TrajectoryBatch`, and the version.
        """
        last = columns.last
        has_action = ~last[:-1]
        steps = int(has_action.sum())
        if self._pay == CAUSED:
            leads_on = trajectory.leads_on(columns.first, last)
            if not self._pays_last:
                leads_on &= ~last[1:]
            # Row 0 was paid as row T of the batch before.
            is_paid = np.concatenate([np.zeros_like(leads_on[:1]), leads_on])
            values, version = self._values(observation, is_paid, steps, columns)
            of_next_row = np.where(leads_on, values[1:], np.float32(0))
            return np.zeros_like(of_next_row), of_next_row, version
        if not self._pays_last:
            values, version = self._values(observation, has_action, steps, columns)
            return values, None, version
        # A final observation in row 0 repeats the last row of the batch before, where it was paid.
        ends_episode = last[1:]
        is_paid = np.concatenate([has_action, np.zeros_like(has_action[:1])])
        is_paid[1:] |= ends_episode
        values, version = self._values(observation, is_paid, steps, columns)
        return values[:-1], np.where(ends_episode, values[1:], np.float32(0)), version

    def _values(
        self,
        observation: Mapping[str, np.ndarray],
        is_paid: np.ndarray,
        steps: int,
        columns: Columns,
    ) -> tuple[np.ndarray, int]:
        """The values of the texts of the first rows, and their version.

        Args:
          observation: fields [T + 1, B, ...].
          is_paid: bool [rows, B], the rows that are rewarded.
          steps: environment steps of the batch.

        Returns:
          float32 [rows, B], and the version.
        """
        rows = len(is_paid)
        texts = observation[self._text_field][:rows]
        with self._meters.time("batcher/lookup"):
            distinct, ids = distinct_rows(texts.reshape(is_paid.size, -1))
            paid_ids = ids[is_paid.reshape(-1)]
            counts = np.bincount(paid_ids, minlength=len(distinct))
            discounted = None
            if self._count_field is not None:
                visits = observation[self._count_field][:rows][is_paid]
                shares = discount_by_count(np.ones(visits.shape), visits, self._exponent)
                discounted = np.bincount(paid_ids, shares, len(distinct))
            batch = BatchMessages(distinct, counts, steps, self._update_index, discounted)
            paid = self._reward.pay(batch)
            values = np.asarray(paid.values, np.float32)
            self.paid_texts.add(
                distinct, counts, values * (counts if discounted is None else discounted)
            )
        self._update_index += 1
        return values[ids].reshape(is_paid.shape), paid.version

    def ended(
        self, batch: TrajectoryBatch, envs: np.ndarray, episode: np.ndarray
    ) -> list[IntrinsicReturn]:
        """The intrinsic returns of the episodes that end in a batch; arguments as for
        `ReturnSums.add`.
        """
        count = None if self._count_field is None else batch.observation[self._count_field]
        return self.returns.add(batch, count, envs, episode)


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


class ReturnSums:
    """Sums the intrinsic reward over each environment's episodes; it is divided by the text's count
    ** `count_exponent`.
    """

    def __init__(self, count_exponent: float) -> None:
        self._exponent = count_exponent
        self._sums: dict[int, _RunningSum] = {}  # by environment

    def add(
        self,
        batch: TrajectoryBatch,
        count: np.ndarray | None,
        envs: np.ndarray,
        episode: np.ndarray,
    ) -> list[IntrinsicReturn]:
        """Adds a batch of numpy arrays; returns the episodes that ended in it.

        Args:
          count: [T + 1, B] counts of the rows' texts, None for a reward that is not discounted.
          envs: int [B], the environments of the columns; a column continues where the environment's
              last column ended.
          episode: int [T, B].
        """
        earned = np.where(batch.last[:-1], 0.0, batch.intrinsic_reward.astype(np.float64))
        if count is not None:
            earned = discount_by_count(earned, count[:-1], self._exponent)
        if batch.next_intrinsic_reward is not None:
            of_next_row = batch.next_intrinsic_reward.astype(np.float64)
            if count is not None:
                of_next_row = discount_by_count(of_next_row, count[1:], self._exponent)
            earned += of_next_row

        # Most columns have no end of an episode: their sums are taken together. A final observation
        # in row 0 belongs to the episode before.
        first_rows = batch.last[0].astype(int)
        # In the order of `earned[start:, column].sum()` of `_add_ended`, so that both give the same
        # bits.
        by_column = np.ascontiguousarray(earned.T)
        column_sums = np.where(
            first_rows, by_column[:, 1:].sum(axis=1), by_column.sum(axis=1)
        ).tolist()
        ended = batch.terminated | batch.truncated
        has_end = ended.any(axis=0).tolist()
        # Clipped for rollouts of one row: the number of a final observation there is not used.
        numbers = episode[first_rows.clip(max=len(earned) - 1), np.arange(len(envs))].tolist()

        finished: list[IntrinsicReturn] = []
        for column, env in enumerate(envs.tolist()):
            if has_end[column]:
                finished += self._add_ended(
                    env,
                    by_column[column],
                    ended[:, column],
                    batch.last[:, column],
                    episode[:, column],
                )
            elif first_rows[column] < len(earned):
                self._sums[env] = self._joined(env, numbers[column], column_sums[column])
        return finished

    def _joined(self, env: int, episode: int, earned: float) -> _RunningSum:
        """The sum of an environment's episode with what further steps have earned."""
        before = self._sums.get(env)
        # An environment whose actor died continues with another episode: drop the old sum.
        if before is None or before.episode != episode:
            before = _RunningSum(episode, 0.0)
        return _RunningSum(episode, before.total + earned)

    def _add_ended(
        self, env: int, earned: np.ndarray, ended: np.ndarray, last: np.ndarray, episode: np.ndarray
    ) -> list[IntrinsicReturn]:
        """Adds a column [T] in which episodes end (`last` is [T + 1]); returns the episodes that
        ended.
        """
        finished = []
        start = 0
        # The last piece, after all ends, belongs to the episode that is still running.
        for end in [*np.flatnonzero(ended).tolist(), None]:
            stop = len(earned) if end is None else end + 1
            if last[start]:
                start += 1  # the row of a final observation belongs to the episode just summed
            if start >= stop:
                continue
            earned_here = float(earned[start:stop].sum())
            running = self._joined(env, int(episode[start]), earned_here)
            if end is None:
                self._sums[env] = running
            else:
                finished.append(IntrinsicReturn(env, *running))
                self._sums.pop(env, None)
            start = stop
        return finished
