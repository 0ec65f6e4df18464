"""Computes the intrinsic reward of a batch's texts, and the intrinsic returns of the episodes that end in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from motif_jax.core.devices.meters import Meters
from motif_jax.core.distinct import distinct_rows
from motif_jax.envs.spec import EnvironmentSpec
from motif_jax.rl.algorithms.total_reward import discount_by_count
from motif_jax.rl.algorithms.trajectory import TrajectoryBatch
from motif_jax.rl.intrinsic import BatchMessages, RewardKind


class IntrinsicReturn(NamedTuple):
    """An episode's intrinsic return, discounted by count, without coefficient."""

    env: int
    episode: int
    value: float


class RewardLookup:
    """Computes the rewards of a batch's texts, looking each distinct one up once; `first` is the number of updates before."""

    def __init__(
        self, spec: EnvironmentSpec, reward: RewardKind, exponent: float, meters: Meters, first: int
    ) -> None:
        assert spec.text_field is not None
        self._text, self._count, self._reward = spec.text_field, spec.count_field, reward
        self._pays_last = spec.last_text
        self._exponent, self._meters, self._number = float(exponent), meters, first
        self.returns = ReturnSums(exponent)

    def pay(
        self, observation: Mapping[str, np.ndarray], last: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray | None, int]:
        """The intrinsic rewards of a batch's texts, and their version.

        Args:
          observation: fields [T + 1, B, ...].
          last: bool [T + 1, B], rows with an episode's final observation.

        Returns:
          float32 [T, B] of the rows before row T, float32 [T, B] of the final observations that follow these rows (0
          elsewhere; None where they are not paid), and the version.
        """
        acted = ~last[:-1]
        if not self._pays_last:
            paid, version = self._values(observation, acted, int(acted.sum()))
            return paid, None, version
        # Row 0 repeats the last row of the batch before, where it was paid.
        ended = last[1:]
        rewarded = np.concatenate([acted, np.zeros_like(acted[:1])])
        rewarded[1:] |= ended
        paid, version = self._values(observation, rewarded, int(acted.sum()))
        return paid[:-1], np.where(ended, paid[1:], np.float32(0)), version

    def _values(
        self, observation: Mapping[str, np.ndarray], rewarded: np.ndarray, steps: int
    ) -> tuple[np.ndarray, int]:
        """The values of the texts of the first rows, float32 like `rewarded`, which marks those that are paid."""
        rows = len(rewarded)
        texts = observation[self._text][:rows]
        with self._meters.time("batcher/lookup"):
            distinct, ids = distinct_rows(texts.reshape(rewarded.size, -1))
            shown = ids[rewarded.reshape(-1)]
            counts = np.bincount(shown, minlength=len(distinct))
            discounted = None
            if self._count is not None:
                visits = observation[self._count][:rows][rewarded]
                shares = discount_by_count(np.ones(visits.shape), visits, self._exponent)
                discounted = np.bincount(shown, shares, len(distinct))
            batch = BatchMessages(distinct, counts, steps, self._number, discounted)
            values, version = self._reward.pay(batch)
        self._number += 1
        return np.asarray(values, np.float32)[ids].reshape(rewarded.shape), version

    def ended(self, batch: TrajectoryBatch, envs: np.ndarray, episode: np.ndarray) -> list[IntrinsicReturn]:
        count = None if self._count is None else batch.observation[self._count]
        return self.returns.add(batch, count, envs, episode)


class ReturnSums:
    """Sums the intrinsic reward over each environment's episodes; it is divided by the text's count ** `count_exponent`."""

    def __init__(self, count_exponent: float) -> None:
        self._exponent = count_exponent
        self._sums: dict[int, tuple[int, float]] = {}

    def state(self) -> list[list[float]]:
        return [[env, episode, total] for env, (episode, total) in self._sums.items()]

    def restore(self, state: Sequence[Sequence[float]]) -> None:
        self._sums = {int(env): (int(episode), total) for env, episode, total in state}

    def add(
        self, batch: TrajectoryBatch, count: np.ndarray | None, envs: np.ndarray, episode: np.ndarray
    ) -> list[IntrinsicReturn]:
        """Adds a batch of numpy arrays; returns the episodes that ended in it.

        Args:
          count: [T + 1, B] counts of the rows' texts, None for a reward that is not discounted.
          envs: int [B], the environments of the columns; a column continues where the environment's last column ended.
          episode: int [T, B].
        """
        earned = np.where(batch.last[:-1], 0.0, batch.intrinsic_reward.astype(np.float64))
        if count is not None:
            earned = discount_by_count(earned, count[:-1], self._exponent)
        if batch.last_intrinsic_reward is not None:
            of_last = batch.last_intrinsic_reward.astype(np.float64)
            if count is not None:
                of_last = discount_by_count(of_last, count[1:], self._exponent)
            earned += np.where(batch.last[1:], of_last, 0.0)
        first_rows = batch.last[0].astype(int)
        # In the order of `earned[start:, column].sum()`, so that both give the same bits.
        by_column = np.ascontiguousarray(earned.T)
        whole = np.where(first_rows, by_column[:, 1:].sum(axis=1), by_column.sum(axis=1)).tolist()
        ended = batch.terminated | batch.truncated
        ends = ended.any(axis=0).tolist()
        numbers = episode[first_rows.clip(max=len(earned) - 1), np.arange(len(envs))].tolist()
        finished: list[IntrinsicReturn] = []
        for column, env in enumerate(envs.tolist()):
            if ends[column]:
                finished += self._add_ended(
                    env, by_column[column], ended[:, column], batch.last[:, column], episode[:, column]
                )
            elif first_rows[column] < len(earned):
                self._sums[env] = numbers[column], self._before(env, numbers[column]) + whole[column]
        return finished

    def _before(self, env: int, episode: int) -> float:
        """The sum of an environment's running episode so far."""
        number, total = self._sums.get(env, (episode, 0.0))
        # An environment whose actor died continues with another episode: drop the old sum.
        return total if number == episode else 0.0

    def _add_ended(
        self, env: int, earned: np.ndarray, ended: np.ndarray, last: np.ndarray, episode: np.ndarray
    ) -> list[IntrinsicReturn]:
        """Adds a column [T] in which episodes end (`last` [T + 1]); returns these."""
        finished = []
        start = 0
        for end in [*np.flatnonzero(ended).tolist(), None]:
            stop = len(earned) if end is None else end + 1
            # The row of a final observation still belongs to the episode just summed.
            start += bool(last[start])
            if start >= stop:
                continue
            number = int(episode[start])
            total = self._before(env, number) + float(earned[start:stop].sum())
            if end is None:
                self._sums[env] = (number, total)
            else:
                finished.append(IntrinsicReturn(env, number, total))
                self._sums.pop(env, None)
            start = stop
        return finished
