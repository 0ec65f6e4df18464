"""Copies finished slots out of shared memory into the learner's batches, with the intrinsic
reward.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.core.devices.meters import Meters
from motif_jax.core.devices.parallel import DataParallel
from motif_jax.envs.spec import EnvironmentSpec
from motif_jax.rl.actors.rollouts import Rollouts
from motif_jax.rl.actors.slots import INFERENCE_FIELDS
from motif_jax.rl.algorithms.trajectory import BATCH_AXES, TrajectoryBatch
from motif_jax.rl.inference import Inference
from motif_jax.rl.paid_texts import PaidTexts
from motif_jax.rl.reward_lookup import Columns, IntrinsicReturn, RewardLookup

# (batch, environments [B] of its columns, episodes [T, B])
BatchListener = Callable[[TrajectoryBatch, np.ndarray, np.ndarray], None]


class ActorSource(NamedTuple):
    """Actors and the inference that serves them."""

    actors: Rollouts
    inference: Inference


class Finished(NamedTuple):
    """A full slot, and the index of its source."""

    source: int
    slot: int


class _Part(NamedTuple):
    """Columns [start, stop) of a slot."""

    finished: Finished
    start: int
    stop: int


class Batch(NamedTuple):
    """A batch on the host, or after `put` on the learner's devices; its initial states are on the
    device that acted.

    Attributes:
      num_steps: environment steps, without the rows of final observations.
      intrinsic_returns: of the episodes that end in the batch.
      reward_version: version of the intrinsic reward's values.
      num_bytes: bytes that went from the host to the devices.
    """

    trajectories: TrajectoryBatch
    num_steps: int
    intrinsic_returns: list[IntrinsicReturn]
    reward_version: int = 0
    num_bytes: int = 0


def put(batch: Batch, parallel: DataParallel) -> Batch:
    """Starts the transfer of a batch, split over the learner's devices."""
    num_bytes = sum(
        x.nbytes for x in jax.tree.leaves(batch.trajectories) if isinstance(x, np.ndarray)
    )
    trajectories = parallel.put_batch(batch.trajectories, BATCH_AXES)
    return batch._replace(trajectories=trajectories, num_bytes=num_bytes)


class Batcher:
    """Collects slots until they fill a batch of `columns` rollouts; a slot may be split over two
    batches.

    Args:
      lookup: computes intrinsic rewards; None where there are none, or where the learner computes
          them.
      listener: called with every batch.
      crop: see `PolicyNetwork.cropped`; None: observations are not cropped.
    """

    def __init__(
        self,
        spec: EnvironmentSpec,
        sources: Sequence[ActorSource],
        columns: int,
        meters: Meters,
        lookup: RewardLookup | None = None,
        listener: BatchListener | None = None,
        crop: Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]] | None = None,
    ) -> None:
        self._spec = spec
        self._sources = list(sources)
        self._columns = columns
        self._meters = meters
        self._lookup = lookup
        self._listener = listener
        self._crop = crop
        self._parts: deque[_Part] = deque()
        self._waiting_columns = 0  # of all `_parts`

    @property
    def paid_texts(self) -> PaidTexts | None:
        """What texts were paid; None where no text has a reward of its own."""
        return None if self._lookup is None else self._lookup.paid_texts

    def add(self, finished: Finished) -> None:
        envs = self._sources[finished.source].actors.config.envs_per_group
        self._parts.append(_Part(finished, 0, envs))
        self._waiting_columns += envs

    def is_full(self) -> bool:
        return self._waiting_columns >= self._columns

    def next(self) -> Batch:
        """The next batch, once `is_full`; slots that are read to their end go back to the
        actors.
        """
        parts = []
        missing = self._columns
        while missing:
            part = self._parts.popleft()
            if part.stop - part.start > missing:
                # The batch ends within this slot, whose other columns begin the next one.
                cut = part.start + missing
                self._parts.appendleft(part._replace(start=cut))
                part = part._replace(stop=cut)
            missing -= part.stop - part.start
            parts.append(part)
        self._waiting_columns -= self._columns
        with self._meters.time("batcher/assemble"):
            batch = self._assemble(parts)
        # After the copy: actors write into a released slot at once. A slot that was cut waits.
        for part in parts:
            if part.stop == self._actors(part).config.envs_per_group:
                self._actors(part).release(part.finished.slot)
        return batch

    def _assemble(self, parts: Sequence[_Part]) -> Batch:
        """Copies the parts' columns into one batch, with intrinsic rewards."""
        length = self._sources[0].actors.config.rollout

        def join(name: str, rows: int, dtype: Any = None) -> np.ndarray:
            """The first `rows` rows of a field of the slots, [rows, B, ...]."""
            pieces = []
            for part in parts:
                array = self._actors(part).slots.arrays[name]
                pieces.append(array[part.finished.slot, :rows, part.start : part.stop])
            # A copy, also of one piece: a CPU device may read a numpy array in place, and the
            # slot is written again.
            return np.concatenate(pieces, axis=1).astype(dtype or pieces[0].dtype, copy=False)

        # Row T has no action yet: its value bootstraps.
        observation = {name: join(name, length + 1) for name in self._spec.observation}
        first = join("first", length + 1, bool)
        last = join("last", length + 1, bool)
        episode = join("episode", length)
        envs = _numbers(parts, [self._actors(p).first_env_of(p.finished.slot) for p in parts])
        intrinsic = np.zeros((length, self._columns), np.float32)
        next_intrinsic = None
        version = 0
        if self._lookup is not None:
            intrinsic, next_intrinsic, version = self._lookup.pay(
                observation, Columns(envs, episode, first, last)
            )

        trajectories = TrajectoryBatch(
            observation=observation,
            first=first,
            last=last,
            **{name: join(name, length) for name in (*INFERENCE_FIELDS, "reward")},
            **{name: join(name, length, bool) for name in ("terminated", "truncated")},
            intrinsic_reward=intrinsic,
            initial_state=self._initial_state(parts),
            next_intrinsic_reward=next_intrinsic,
        )

        if self._listener is not None:
            self._listener(trajectories, envs, episode)
        returns = [] if self._lookup is None else self._lookup.ended(trajectories, envs, episode)
        # After the reward and the listener, which read whole fields.
        if self._crop is not None:
            trajectories = trajectories._replace(observation=dict(self._crop(observation)))
        return Batch(trajectories, int((~last[:length]).sum()), returns, version)

    def _actors(self, part: _Part) -> Rollouts:
        return self._sources[part.finished.source].actors

    def _initial_state(self, parts: Sequence[_Part]) -> Any:
        """The recurrent states [B, ...] before the columns' rollouts."""
        source_of_column = np.concatenate(
            [np.full(p.stop - p.start, p.finished.source) for p in parts]
        )
        rows = _numbers(
            parts, [self._actors(p).config.envs_per_group * p.finished.slot for p in parts]
        )
        # Each source gathers as many rows as a batch has, so that one program serves all; for
        # columns of other sources it gathers its row 0.
        gathered = []
        for number, source in enumerate(self._sources):
            own_rows = np.where(source_of_column == number, rows, 0)
            gathered.append(source.inference.initial_states(own_rows.astype(np.int32)))
        if len(gathered) == 1:
            return gathered[0]
        device = next(iter(jax.tree.leaves(gathered[0])[0].devices()))
        index = jax.device_put(source_of_column.astype(np.int32), device)
        return select_rows(jax.device_put(gathered, device), index)


def _numbers(parts: Sequence[_Part], starts: Sequence[int]) -> np.ndarray:
    """A number for each column, int [columns]: column c of a part's slot has c more than the part's
    entry of `starts`.
    """
    pieces = []
    for part, start in zip(parts, starts, strict=True):
        pieces.append(start + np.arange(part.start, part.stop))
    return np.concatenate(pieces)


@jax.jit
def select_rows(trees: list[Any], index: jax.Array) -> Any:
    """Row b of tree number index[b]: the trees have leaves [B, ...] of equal shapes, `index` is
    int32 [B].
    """

    def pick(*leaves: jax.Array) -> jax.Array:
        # One axis for rows, the others for broadcasting.
        shape = (-1, *[1] * (leaves[0].ndim - 1))
        return jnp.select([(index == i).reshape(shape) for i in range(len(leaves))], list(leaves))

    return jax.tree.map(pick, *trees)
