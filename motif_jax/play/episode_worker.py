"""The process that steps environments for seeded episodes. No jax: one is spawned for every
core.
"""

from __future__ import annotations

import itertools
import multiprocessing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from motif_jax.core import seeds
from motif_jax.envs import registry
from motif_jax.envs.episode import Transition, play
from motif_jax.envs.spec import RUNNING, Action, Environment, row
from motif_jax.rl.actors.worker_process import note_progress

# Numbers from one generator: making it takes several times as long as drawing them.
_BLOCK = 1024


@dataclass
class PlayedEpisode:
    """One played episode. Row t belongs to the observation on which action t was chosen.

    S = T, or T + 1 with the final observation where the environment's `last_text` says so.

    Attributes:
      index: number of the episode in the list of seeds.
      actions: int32 [T], or n real numbers float32 [T, n].
      rewards: float32 [T], the task's, unscaled.
      end: 1 terminated, 2 truncated (the step limit).
      info: the environment's `episode_info()`.
      texts: uint8 [D, L], the distinct texts seen, None where the environment has no text field.
      text_index: int32 [S], row of `texts`.
      text_count: int32 [S], occurrences of that text in the episode, the present step included.
      fields: the observation fields of `keep_fields`, [S, ...] each.
      values: float32 [T], the policy's value estimate; None for policies that have none.
      log_probs: float32 [T], of the chosen actions under the policy; None without a network.
      probabilities: float32 [T, A], of all actions; None unless `keep_probabilities`.
    """

    index: int
    seed: int
    actions: np.ndarray
    rewards: np.ndarray
    end: int
    info: dict[str, float]
    texts: np.ndarray | None = None
    text_index: np.ndarray | None = None
    text_count: np.ndarray | None = None
    fields: dict[str, np.ndarray] = field(default_factory=dict)
    values: np.ndarray | None = None
    log_probs: np.ndarray | None = None
    probabilities: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.actions)


class Uniforms:
    """Uniform numbers in [0, 1) that depend on the episode's seed and the step alone."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        # The block drawn last, and its number.
        self._number = -1
        self._block = np.empty(0)

    def at(self, step: int) -> float:
        """Returns the number of `step`; steps may be asked for in any order."""
        number, offset = divmod(step, _BLOCK)
        if number != self._number:
            self._number = number
            self._block = seeds.rng(self._seed, "actions", number).random(_BLOCK)
        return float(self._block[offset])

    def each(self) -> Iterator[float]:
        """The numbers of steps 0, 1, ..."""
        return map(self.at, itertools.count())


class EpisodeCollector:
    """Collects one episode of `environment` while it is played."""

    def __init__(
        self, environment: Environment, index: int, seed: int, keep_fields: Sequence[str] = ()
    ) -> None:
        self._environment = environment
        self._index = index
        self._seed = seed
        self._spec = environment.spec
        self._actions: list[Action] = []
        self._rewards: list[float] = []
        # Text -> its row in `PlayedEpisode.texts`, and how often each was seen.
        self._rows: dict[bytes, int] = {}
        self._counts: list[int] = []
        self._text_index: list[int] = []
        self._text_count: list[int] = []
        self._fields: dict[str, list[np.ndarray]] = {name: [] for name in keep_fields}

    def add(self, transition: Transition) -> PlayedEpisode | None:
        """Adds a transition; returns the episode once it has ended."""
        if transition.action is not None:
            self._actions.append(transition.action)
            self._rewards.append(transition.reward)
        if transition.end == RUNNING or self._spec.last_text:
            self._add_observation(transition.observation)
        return None if transition.end == RUNNING else self._finished(transition.end)

    def _add_observation(self, observation: Mapping[str, np.ndarray]) -> None:
        if self._spec.text_field is not None:
            text = observation[self._spec.text_field].tobytes()
            index = self._rows.setdefault(text, len(self._rows))
            if index == len(self._counts):
                self._counts.append(0)
            self._counts[index] += 1
            self._text_index.append(index)
            self._text_count.append(self._counts[index])
        for name, rows in self._fields.items():
            # Copied: the next step overwrites the observation.
            rows.append(np.array(observation[name]))

    def _finished(self, end: int) -> PlayedEpisode:
        info = {name: float(value) for name, value in self._environment.episode_info().items()}
        actions = self._spec.action_array(self._actions)
        rewards = np.array(self._rewards, np.float32)
        record = PlayedEpisode(self._index, self._seed, actions, rewards, end, info)
        record.fields = {name: np.stack(rows) for name, rows in self._fields.items()}
        if self._spec.text_field is not None:
            array = self._spec.observation[self._spec.text_field]
            texts = np.frombuffer(b"".join(self._rows), array.dtype)
            record.texts = texts.reshape(len(self._rows), *array.shape).copy()
            record.text_index = np.array(self._text_index, np.int32)
            record.text_count = np.array(self._text_count, np.int32)
        return record


def shared_block(shape: Sequence[int], dtype: Any) -> Any:
    """Shared memory for an array of `shape` and `dtype`, and at least a byte."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    # Without a lock: requests and answers say who may write.
    return multiprocessing.get_context("spawn").RawArray("b", max(1, size))


def shared_view(block: Any, shape: Sequence[int], dtype: str) -> np.ndarray:
    """Returns a shared block of memory as an array of `shape` and `dtype`."""
    count = int(np.prod(shape))
    return np.frombuffer(block, dtype=dtype, count=count).reshape(shape)


class EpisodeServer:
    """A worker that plays one whole episode of a policy without a network for each (index,
    seed).
    """

    def __init__(self, setup: Mapping[str, Any]) -> None:
        self._policy = setup["policy"]
        self._keep_fields = setup["keep_fields"]
        self._environment = registry.make(setup["environment"], **setup["options"])

    def answer(self, request: tuple[int, int]) -> PlayedEpisode:
        """Plays the episode of a request (index, seed)."""
        index, seed = request
        env = self._environment
        collector = EpisodeCollector(env, index, seed, self._keep_fields)
        # A long game is no process that hangs: each of its steps is noted.
        for transition in play(env, seed, self._policy.player(seed, env.spec)):
            note_progress()
            record = collector.add(transition)
            if record is not None:
                return record
        raise RuntimeError(f"the policy ran out of actions in the episode with seed {seed}")

    def close(self) -> None:
        self._environment.close()


class LaneServer:
    """A worker that holds an environment for each of its lanes; observations go to rows of shared
    memory.

    A request says which lanes are stepped with their shared actions, and which begin an episode:
    (lane, index, seed, actions). These actions are played at once, which restores an episode of a
    process that died.
    The answer is (lane, episode) of the episodes that ended.
    """

    def __init__(self, setup: Mapping[str, Any]) -> None:
        self._name = setup["environment"]
        self._options = setup["options"]
        self._keep_fields = setup["keep_fields"]
        spec = registry.spec(self._name, **self._options)
        lanes = setup["lanes"]
        self._rows = {
            name: shared_view(setup["blocks"][name], (lanes, *array.shape), array.dtype)
            for name, array in spec.observation.items()
        }
        self._actions = shared_view(
            setup["actions"], (lanes, *spec.action.shape), spec.action.dtype
        )
        # The lane that this worker is stepping, -1 for none: tells the pool which episode a dead
        # worker died of.
        self._current_lane = shared_view(setup["at"], (setup["workers"],), "int32")[
            setup["worker"] :
        ]
        self._environments: dict[int, Any] = {}
        self._episodes: dict[int, tuple[EpisodeCollector, Iterator[Transition]]] = {}

    def answer(
        self, request: tuple[Sequence[int], Sequence[tuple]]
    ) -> list[tuple[int, PlayedEpisode]]:
        """Steps and starts lanes; returns (lane, episode) of the episodes that ended."""
        steps, starts = request
        finished = [(lane, self._step(lane)) for lane in steps]
        for lane, index, seed, actions in starts:
            record = self._start(lane, index, seed)
            # Actions of a restored episode; only the last of them may have ended it.
            for action in actions:
                self._actions[lane] = action
                record = self._step(lane)
            finished.append((lane, record))
        self._current_lane[0] = -1
        return [(lane, record) for lane, record in finished if record is not None]

    def _start(self, lane: int, index: int, seed: int) -> PlayedEpisode | None:
        self._current_lane[0] = lane
        if lane not in self._environments:
            self._environments[lane] = registry.make(self._name, **self._options)
        env = self._environments[lane]
        out = row(self._rows, lane)
        # The action is read when a step is asked for, which is after the pool has written it.
        transitions = play(env, seed, lambda _: self._actions[lane].tolist(), lambda _: out)
        self._episodes[lane] = (EpisodeCollector(env, index, seed, self._keep_fields), transitions)
        return self._step(lane)

    def _step(self, lane: int) -> PlayedEpisode | None:
        self._current_lane[0] = lane
        # A restored episode plays all of its actions within one request.
        note_progress()
        collector, transitions = self._episodes[lane]
        return collector.add(next(transitions))

    def close(self) -> None:
        for env in self._environments.values():
            env.close()
