"""The process that steps environments for seeded episodes. No jax: it is spawned once for every core."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Protocol

import numpy as np

from motif_jax.actors.worker_process import WorkerFailure
from motif_jax.envs import registry
from motif_jax.envs.spec import RUNNING, EnvironmentSpec, empty_observation, row
from motif_jax.support import seeds

_BLOCK = 1024


@dataclass
class PlayedEpisode:
    """One played episode. Row t belongs to the observation on which action t was chosen.

    Attributes:
      index: the episode's place in the list of seeds.
      seed: the seed that determines its game and its random actions.
      actions: int32 [T].
      rewards: float32 [T], the task's, unscaled.
      end: 1 terminated, 2 truncated (the step limit).
      info: numbers of the environment's `episode_info()`.
      texts: uint8 [D, L], the distinct texts seen, None where the environment has no text field.
      text_index: int32 [T], row of `texts`.
      text_count: int32 [T], how often that text was seen in the episode, this step included.
      fields: further observation fields that were asked for, [T, ...] each.
      values: float32 [T], the policy's value estimate; None for policies that have none.
      log_probs: float32 [T], log-probability of the chosen action under the policy; None likewise.
      probabilities: float32 [T, A], of all actions where that was asked for, else None.
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


class WorkerPolicy(Protocol):
    """A policy that needs no network: it is sent to the workers and plays there."""

    def actions(self, seed: int, num_actions: int) -> Iterator[int]:
        """Yields the actions of the episode `seed`."""
        ...


class Uniforms:
    """Uniform numbers in [0, 1) that depend on the episode's seed and the step alone."""

    def __init__(self, seed: int) -> None:
        self._seed, self._number = seed, -1
        self._block = np.empty(0)

    def at(self, step: int) -> float:
        """Returns the number of `step`; steps may be asked for in any order."""
        number, offset = divmod(step, _BLOCK)
        if number != self._number:
            self._number, self._block = number, seeds.rng(self._seed, "actions", number).random(_BLOCK)
        return float(self._block[offset])


class EpisodeCollector:
    """Collects one episode while it is played."""

    def __init__(self, index: int, seed: int, spec: EnvironmentSpec, keep_fields: Sequence[str] = ()) -> None:
        self._index, self._seed, self._spec = index, seed, spec
        self._actions: list[int] = []
        self._rewards: list[float] = []
        self._rows: dict[bytes, int] = {}
        self._counts: list[int] = []
        self._text_index: list[int] = []
        self._text_count: list[int] = []
        self._kept: dict[str, list[np.ndarray]] = {name: [] for name in keep_fields}

    def observe(self, out: Mapping[str, np.ndarray]) -> None:
        """Notes the observation on which the next action is chosen."""
        if self._spec.text_field is not None:
            text = out[self._spec.text_field].tobytes()
            place = self._rows.setdefault(text, len(self._rows))
            if place == len(self._counts):
                self._counts.append(0)
            self._counts[place] += 1
            self._text_index.append(place)
            self._text_count.append(self._counts[place])
        for name, rows in self._kept.items():
            rows.append(np.array(out[name]))

    def act(self, action: int, reward: float) -> None:
        """Notes the action taken and what it paid."""
        self._actions.append(action)
        self._rewards.append(reward)

    def record(self, end: int, info: Mapping[str, float]) -> PlayedEpisode:
        """Returns the finished episode."""
        text = self._spec.text_field
        shape = None if text is None else (len(self._rows), *self._spec.observation[text].shape)
        dtype = None if text is None else self._spec.observation[text].dtype
        return PlayedEpisode(
            index=self._index,
            seed=self._seed,
            actions=np.array(self._actions, np.int32),
            rewards=np.array(self._rewards, np.float32),
            end=end,
            info={name: float(value) for name, value in info.items()},
            texts=None if text is None else np.frombuffer(b"".join(self._rows), dtype).reshape(shape).copy(),
            text_index=None if text is None else np.array(self._text_index, np.int32),
            text_count=None if text is None else np.array(self._text_count, np.int32),
            fields={name: np.stack(rows) for name, rows in self._kept.items()},
        )


def shared_view(block: Any, shape: Sequence[int], dtype: str) -> np.ndarray:
    """Returns a shared block of memory as an array of `shape` and `dtype`."""
    count = int(np.prod(shape))
    return np.frombuffer(block, dtype=dtype, count=count).reshape(shape)


def play_episode(
    env: Any, index: int, seed: int, policy: WorkerPolicy, keep_fields: Sequence[str] = ()
) -> PlayedEpisode:
    """Plays one whole episode of a policy without a network."""
    out = empty_observation(env.spec)
    collector = EpisodeCollector(index, seed, env.spec, keep_fields)
    env.reset(seed, out)
    for action in policy.actions(seed, env.spec.num_actions):
        collector.observe(out)
        reward, end = env.step(action, out)
        collector.act(action, reward)
        if end != RUNNING:
            return collector.record(end, env.episode_info())
    raise RuntimeError(f"the policy ran out of actions in the episode with seed {seed}")


class _Lanes:
    """A worker's environments, one for each lane; observations go to rows of shared memory."""

    def __init__(self, setup: Mapping[str, Any]) -> None:
        self._name, self._options = setup["environment"], setup["options"]
        self._keep = setup["keep_fields"]
        spec = registry.spec(self._name, **self._options)
        lanes = setup["lanes"]
        self._rows = {
            name: shared_view(setup["blocks"][name], (lanes, *array.shape), array.dtype)
            for name, array in spec.observation.items()
        }
        self._actions = shared_view(setup["actions"], (lanes,), "int32")
        self._at = shared_view(setup["at"], (setup["workers"],), "int32")[setup["worker"] :]
        self._environments: dict[int, Any] = {}
        self._collectors: dict[int, EpisodeCollector] = {}

    def advance(
        self, steps: Sequence[int], starts: Sequence[tuple[int, int, int, Sequence[int]]]
    ) -> list[tuple[int, PlayedEpisode]]:
        """Steps the lanes `steps` with their shared actions and starts episodes; returns those that ended.

        A start is (lane, index, seed, actions): the episode's first actions are played at once, which brings
        an episode back that another process was playing when it died.
        """
        finished = []
        for lane in steps:
            record = self._step(lane, int(self._actions[lane]))
            if record is not None:
                finished.append((lane, record))
        for lane, index, seed, actions in starts:
            record = self._start(lane, index, seed, actions)
            if record is not None:
                finished.append((lane, record))
        self._at[0] = -1
        return finished

    def _start(self, lane: int, index: int, seed: int, actions: Sequence[int]) -> PlayedEpisode | None:
        self._at[0] = lane
        if lane not in self._environments:
            self._environments[lane] = registry.make(self._name, **self._options)
        env = self._environments[lane]
        self._collectors[lane] = EpisodeCollector(index, seed, env.spec, self._keep)
        env.reset(seed, row(self._rows, lane))
        record = None
        for action in actions:
            record = self._step(lane, action)
        return record

    def _step(self, lane: int, action: int) -> PlayedEpisode | None:
        self._at[0] = lane
        out, env, collector = row(self._rows, lane), self._environments[lane], self._collectors[lane]
        collector.observe(out)
        reward, end = env.step(action, out)
        collector.act(action, reward)
        return None if end == RUNNING else collector.record(end, env.episode_info())

    def close(self) -> None:
        for env in self._environments.values():
            env.close()


def serve_lanes(connection: Connection, setup: Mapping[str, Any]) -> None:
    """Answers ('advance' arguments) until the parent closes the pipe or dies."""
    lanes = _Lanes(setup)
    try:
        while True:
            steps, starts = connection.recv()
            connection.send(lanes.advance(steps, starts))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass
    except Exception:
        connection.send(WorkerFailure(traceback.format_exc()))
    finally:
        lanes.close()


def serve_episodes(connection: Connection, setup: Mapping[str, Any]) -> None:
    """Plays one whole episode for each (index, seed) received, until the parent closes the pipe or dies."""
    env = None
    try:
        env = registry.make(setup["environment"], **setup["options"])
        while True:
            index, seed = connection.recv()
            connection.send(play_episode(env, index, seed, setup["policy"], setup["keep_fields"]))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass
    except Exception:
        connection.send(WorkerFailure(traceback.format_exc()))
    finally:
        if env is not None:
            env.close()
