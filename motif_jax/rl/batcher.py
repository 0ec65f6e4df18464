"""Copies finished slots out of shared memory into the learner's batches, with the intrinsic reward."""

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
from motif_jax.rl.reward_lookup import IntrinsicReturn, RewardLookup

# (batch, environments [B] of its columns, episodes [T, B])
BatchListener = Callable[[TrajectoryBatch, np.ndarray, np.ndarray], None]


class ActorSource(NamedTuple):
    """Actors and the inference that serves them."""

    actors: Rollouts
    inference: Inference


class Finished(NamedTuple):
    """A slot that can be read, and the index of its source."""

    source: int
    slot: int


class _Part(NamedTuple):
    """Columns [start, stop) of a slot."""

    finished: Finished
    start: int
    stop: int


class Batch(NamedTuple):
    """A batch on the host, or after `put` on the learner's devices; the initial states lie on the device that acted."""

    trajectories: TrajectoryBatch
    num_steps: int
    intrinsic_returns: list[IntrinsicReturn]
    reward_version: int = 0
    num_bytes: int = 0


def put(batch: Batch, parallel: DataParallel) -> Batch:
    """Starts the transfer of a batch, split over the learner's devices."""
    num_bytes = sum(x.nbytes for x in jax.tree.leaves(batch.trajectories) if isinstance(x, np.ndarray))
    trajectories = parallel.put_batch(batch.trajectories, BATCH_AXES)
    return batch._replace(trajectories=trajectories, num_bytes=num_bytes)


class Batcher:
    """Collects slots until they fill a batch of `columns` rollouts; a slot may be split over two.

    `lookup` is None where there is no intrinsic reward, or where the learner computes it; `crop`: see `PolicyNetwork.cropped`.
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
        self._spec, self._sources, self._columns = spec, list(sources), columns
        self._meters, self._lookup, self._listener, self._crop = meters, lookup, listener, crop
        self._parts: deque[_Part] = deque()
        self._waiting_columns = 0

    def state(self) -> dict[str, Any]:
        parts = [[*part.finished, part.start, part.stop] for part in self._parts]
        return {"parts": parts, "returns": [] if self._lookup is None else self._lookup.returns.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._parts = deque(_Part(Finished(*part[:2]), *part[2:]) for part in state["parts"])
        self._waiting_columns = sum(part.stop - part.start for part in self._parts)
        if self._lookup is not None:
            self._lookup.returns.restore(state["returns"])

    def add(self, finished: Finished) -> None:
        envs = self._sources[finished.source].actors.config.envs_per_group
        self._parts.append(_Part(finished, 0, envs))
        self._waiting_columns += envs

    def is_full(self) -> bool:
        return self._waiting_columns >= self._columns

    def next(self) -> Batch:
        """The next batch, once `is_full`."""
        parts, missing = [], self._columns
        while missing:
            part = self._parts.popleft()
            if part.stop - part.start > missing:
                cut = part.start + missing
                self._parts.appendleft(part._replace(start=cut))
                part = part._replace(stop=cut)
            missing -= part.stop - part.start
            parts.append(part)
        self._waiting_columns -= self._columns
        with self._meters.time("batcher/assemble"):
            batch = self._assemble(parts)
        for part in parts:
            if part.stop == self._actors(part).config.envs_per_group:
                self._actors(part).release(part.finished.slot)
        return batch

    def _assemble(self, parts: Sequence[_Part]) -> Batch:
        length = self._sources[0].actors.config.rollout

        def join(name: str, rows: int, dtype: Any = None) -> np.ndarray:
            arrays = [self._actors(p).slots.arrays[name] for p in parts]
            pieces = [x[p.finished.slot, :rows, p.start : p.stop] for x, p in zip(arrays, parts, strict=True)]
            return np.concatenate(pieces, axis=1).astype(dtype or pieces[0].dtype, copy=False)

        observation = {name: join(name, length + 1) for name in self._spec.observation}
        last = join("last", length + 1, bool)
        intrinsic, version = np.zeros((length, self._columns), np.float32), 0
        last_intrinsic = None
        if self._lookup is not None:
            intrinsic, last_intrinsic, version = self._lookup.pay(observation, last)
        trajectories = TrajectoryBatch(
            observation=observation,
            first=join("first", length + 1, bool),
            last=last,
            **{name: join(name, length) for name in (*INFERENCE_FIELDS, "reward")},
            **{name: join(name, length, bool) for name in ("terminated", "truncated")},
            intrinsic_reward=intrinsic,
            initial_state=self._initial_state(parts),
            last_intrinsic_reward=last_intrinsic,
        )
        envs = _numbers(parts, [self._actors(p).first_env_of(p.finished.slot) for p in parts])
        episode = join("episode", length)
        if self._listener is not None:
            self._listener(trajectories, envs, episode)
        returns = [] if self._lookup is None else self._lookup.ended(trajectories, envs, episode)
        if self._crop is not None:
            trajectories = trajectories._replace(observation=dict(self._crop(observation)))
        return Batch(trajectories, int((~last[:length]).sum()), returns, version)

    def _actors(self, part: _Part) -> Rollouts:
        return self._sources[part.finished.source].actors

    def _initial_state(self, parts: Sequence[_Part]) -> Any:
        owner = np.concatenate([np.full(p.stop - p.start, p.finished.source) for p in parts])
        rows = _numbers(parts, [self._actors(p).config.envs_per_group * p.finished.slot for p in parts])
        # Every source gathers as many rows as a batch has, so that one program serves all; other sources' rows are its row 0.
        gathered = [
            source.inference.initial_states(np.where(owner == number, rows, 0).astype(np.int32))
            for number, source in enumerate(self._sources)
        ]
        if len(gathered) == 1:
            return gathered[0]
        device = next(iter(jax.tree.leaves(gathered[0])[0].devices()))
        return _select(jax.device_put(gathered, device), jax.device_put(owner.astype(np.int32), device))


def _numbers(parts: Sequence[_Part], starts: Sequence[int]) -> np.ndarray:
    """The columns' places [columns], where the first column of each part's slot has the number in `starts`."""
    return np.concatenate([n + np.arange(p.start, p.stop) for n, p in zip(starts, parts, strict=True)])


@jax.jit
def _select(trees: list[Any], owner: jax.Array) -> Any:
    """Takes row b of every leaf from tree number owner[b]."""

    def pick(*leaves: jax.Array) -> jax.Array:
        shape = (-1, *[1] * (leaves[0].ndim - 1))
        return jnp.select([(owner == i).reshape(shape) for i in range(len(leaves))], list(leaves))

    return jax.tree.map(pick, *trees)
