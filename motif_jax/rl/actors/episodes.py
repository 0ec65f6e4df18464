"""Plays seeded episodes on all cores: whole ones in a process each (`EpisodeServer`), or those of a
network in lanes, whose observations it reads in batches (`LaneServer`). Free of jax.

Results depend on policy, environment, seeds and the number of lanes, not on the number of workers
or on timing. Episode i is always played in lane i mod `lanes`, and the network always sees batches
of lanes / 2 rows: a row's arithmetic does not depend on the other rows. The draw of an action
depends on the episode's seed and the step alone. Language agents are an exception: their batches
are padded to the longest prompt in them, so that a number may differ in its last digits with what
is played beside it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.envs import registry
from motif_jax.envs.episode import EpisodePlayer, PlayedEpisode, Transition, fixed_actions
from motif_jax.envs.spec import RUNNING, Action, row
from motif_jax.rl.actors import policies
from motif_jax.rl.actors.policies import BatchPolicy, Uniforms, WorkerPolicy
from motif_jax.rl.actors.processes import MAX_DEATHS, Deaths
from motif_jax.rl.actors.worker_process import WorkerProcess, close_all, note_progress, run_jobs


@dataclasses.dataclass(frozen=True)
class EpisodeJob:
    """An episode to play.

    Attributes:
      index: its number, for `PlayedEpisode.index`.
      seed: of its game.
      player: the number of its policy.
      actions: [steps, ...], played in place of a policy's: those of an episode that was played
          before.
    """

    index: int
    seed: int
    player: int = 0
    actions: np.ndarray | None = None


class EpisodeServer:
    """A worker that plays one whole episode for each `EpisodeJob`.

    Its setup: environment, options; and where they are needed policies, by their number;
    keep_fields, keep_texts and digest_fields of the `EpisodePlayer`; finish, what makes the answer
    of a job and its episode, whose fields the next episode overwrites. Without it the episode is
    the answer.
    """

    def __init__(self, setup: Mapping[str, Any]) -> None:
        self._policies: Sequence[WorkerPolicy] = setup.get("policies", ())
        self._finish: Callable[[EpisodeJob, PlayedEpisode], Any] | None = setup.get("finish")
        self._player = EpisodePlayer(
            registry.make(setup["environment"], **setup["options"]),
            setup.get("keep_fields", ()),
            setup.get("keep_texts", True),
            setup.get("digest_fields"),
        )

    def answer(self, request: EpisodeJob) -> Any:
        """Plays the episode of a job."""
        job = request
        if job.actions is None:
            spec = self._player.environment.spec
            choose = self._policies[job.player].player(job.seed, spec)
        else:
            choose = fixed_actions(job.actions)
        # A long game is no process that hangs: each of its steps is noted.
        for _ in self._player.transitions(job.seed, choose):
            note_progress()
        episode = self._player.episode(job.index)
        return episode if self._finish is None else self._finish(job, episode)

    def close(self) -> None:
        self._player.close()


def shared_block(shape: Sequence[int], dtype: Any) -> Any:
    """Shared memory for an array of `shape` and `dtype`, and at least a byte."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    # Without a lock: requests and answers say who may write.
    return multiprocessing.get_context("spawn").RawArray("b", max(1, size))


def shared_view(block: Any, shape: Sequence[int], dtype: str) -> np.ndarray:
    """Returns a shared block of memory as an array of `shape` and `dtype`."""
    count = int(np.prod(shape))
    return np.frombuffer(block, dtype=dtype, count=count).reshape(shape)


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
        self._players: dict[int, EpisodePlayer] = {}
        # The number of the episode that each lane plays, and its transitions.
        self._running: dict[int, tuple[int, Iterator[Transition]]] = {}

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
        if lane not in self._players:
            environment = registry.make(self._name, **self._options)
            self._players[lane] = EpisodePlayer(environment, self._keep_fields)
        transitions = self._players[lane].transitions(
            seed,
            # Read when a step is asked for, which is after the pool has written the action.
            lambda _: self._actions[lane].tolist(),
            row(self._rows, lane),
        )
        self._running[lane] = (index, transitions)
        return self._step(lane)

    def _step(self, lane: int) -> PlayedEpisode | None:
        self._current_lane[0] = lane
        # A restored episode plays all of its actions within one request.
        note_progress()
        index, transitions = self._running[lane]
        if next(transitions).end == RUNNING:
            return None
        return self._players[lane].episode(index)

    def close(self) -> None:
        for player in self._players.values():
            player.close()


class _Lane:
    """The episodes that one lane plays, one after the other."""

    index = -1
    seed = -1
    running = False

    def __init__(self, todo: Iterable[tuple[int, int]]) -> None:
        self.todo = deque(todo)
        self.actions: list[Action] = []

    def begin(self) -> None:
        self.index, self.seed = self.todo.popleft()
        self.running = True
        self.uniforms = Uniforms(self.seed)
        self.actions = []
        self.values: list[float] = []
        self.log_probs: list[float] = []
        self.probabilities: list[np.ndarray] = []

    def finish(self, record: PlayedEpisode) -> PlayedEpisode:
        self.running = False
        record.values = np.array(self.values, np.float32) if self.values else None
        record.log_probs = np.array(self.log_probs, np.float32)
        if self.probabilities:
            record.probabilities = np.stack(self.probabilities)
        return record


class _LanePool:
    """The worker processes of a batched policy; lane l belongs to worker l mod workers."""

    def __init__(self, order: _Order, lanes: Sequence[_Lane]) -> None:
        self.spec = registry.spec(order.environment, **order.options)
        self.lanes = lanes
        self._order = order
        self._deaths = Deaths(order.on_death)
        self._workers = min(order.how.workers, len(lanes))

        # Workers write observations, and the lane that each of them steps; this process writes
        # actions.
        count = len(lanes)
        fields = self.spec.observation
        blocks = {
            name: shared_block((count, *array.shape), array.dtype) for name, array in fields.items()
        }
        action = self.spec.action
        actions = shared_block((count, *action.shape), action.dtype)
        current_lanes = shared_block((self._workers,), "int32")
        # "at" is the lane that a worker steps, as `LaneServer` reads it.
        shared = {"blocks": blocks, "actions": actions, "at": current_lanes}
        self._setup = {
            "environment": order.environment,
            "options": order.options,
            "keep_fields": order.how.keep_fields,
            **shared,
            "lanes": count,
            "workers": self._workers,
        }
        self._actions = shared_view(actions, (count, *action.shape), action.dtype)
        self._current_lanes = shared_view(current_lanes, (self._workers,), "int32")
        self._current_lanes[:] = -1
        self.rows = {
            name: shared_view(blocks[name], (count, *array.shape), array.dtype)
            for name, array in fields.items()
        }
        # Halves whose answer a worker still owes, oldest first; a worker answers in the order it
        # was asked.
        self._owed: list[deque[int]] = [deque() for _ in range(self._workers)]
        self._processes = [self._spawn(worker) for worker in range(self._workers)]

    def _spawn(self, worker: int) -> WorkerProcess:
        return WorkerProcess(LaneServer, {**self._setup, "worker": worker})

    def half(self, number: int) -> range:
        """The lanes of the half 0 or 1: while one is stepped, the network reads the other."""
        middle = len(self.lanes) // 2
        return range(middle) if number == 0 else range(middle, len(self.lanes))

    def _lanes_of(self, worker: int, lanes: Sequence[int]) -> list[int]:
        # Neighbours go to different workers, so that all workers step a part of each half.
        return [lane for lane in lanes if lane % self._workers == worker]

    def send(self, half: int, steps: Sequence[int], starts: Sequence[int]) -> None:
        """Asks the workers to step the lanes `steps` of `half` with their newest actions, and to
        start episodes in `starts`.
        """
        # Before the request: the worker reads the action as soon as it has the request.
        for lane in steps:
            self._actions[lane] = self.lanes[lane].actions[-1]
        for worker in range(self._workers):
            worker_steps = self._lanes_of(worker, steps)
            worker_starts = self._lanes_of(worker, starts)
            if not worker_steps and not worker_starts:
                continue
            self._owed[worker].append(half)
            self._ask(worker, worker_steps, worker_starts)

    def _ask(self, worker: int, steps: Sequence[int], starts: Sequence[int]) -> None:
        episodes = []
        for number in starts:
            lane = self.lanes[number]
            episodes.append((number, lane.index, lane.seed, lane.actions))
        self._processes[worker].send((steps, episodes))

    def receive(self, half: int) -> list[tuple[int, PlayedEpisode]]:
        """Waits for every answer owed to `half`; returns (lane, record) of the episodes that
        ended.
        """
        finished: list[tuple[int, PlayedEpisode]] = []
        for worker in range(self._workers):
            while half in self._owed[worker]:
                # The pipe keeps the order of the requests, so the next answer is that of this half.
                try:
                    answer = self._processes[worker].receive()
                except EOFError:
                    # The requests stay owed: the new process has been asked them again, in the same
                    # order.
                    self._replace(worker)
                    continue
                self._owed[worker].popleft()
                finished += answer
        return finished

    def _replace(self, worker: int) -> None:
        """Replaces a dead process and replays its episodes to where they were."""
        number = int(self._current_lanes[worker])
        lane = self.lanes[number] if number >= 0 else None
        if self._deaths.note(-1 if lane is None else lane.index):
            self._order.lost(None if lane is None else (lane.index, lane.seed))

        self._processes[worker].close(timeout=0)
        # Else a new process that dies before its first step would be blamed on this lane, too.
        self._current_lanes[worker] = -1
        self._processes[worker] = self._spawn(worker)
        # All environments of the process are gone, not only the one in which it died. Each running
        # lane is in a half that is owed: a half is asked again before the other's answers are read.
        for half in self._owed[worker]:
            lanes = self._lanes_of(worker, self.half(half))
            running = [number for number in lanes if self.lanes[number].running]
            # The actions of a running lane are replayed, the one that is still owed too.
            self._ask(worker, [], running)

    def close(self) -> None:
        close_all(self._processes)


@dataclasses.dataclass(frozen=True)
class PlaySettings:
    """How episodes are played.

    Attributes:
      lanes: episodes of a `BatchPolicy` at a time, an even number; the network's batch is
        lanes / 2, which decides the last bits of its results.
      keep_fields: observation fields that the records keep for every step.
      keep_probabilities: whether records keep the probabilities of all actions, too, where these
        are numbered.
    """

    workers: int
    lanes: int = 32
    keep_fields: Sequence[str] = ()
    greedy: bool = False
    keep_probabilities: bool = False


@dataclasses.dataclass(frozen=True)
class _Order:
    """Arguments of `play_episodes`; `todo` lists (index, seed)."""

    environment: str
    options: dict[str, Any]
    todo: list[tuple[int, int]]
    how: PlaySettings
    stop: Any
    on_death: Any
    on_steps: Callable[[int], None] | None

    def lost(self, episode: tuple[int, int] | None) -> None:
        """Raises UserError for an episode (index, seed) that ended `MAX_DEATHS` processes, None:
        before any was begun.
        """
        if episode is None:
            raise UserError(
                f"{self.environment}: workers die before they play anything; see their output"
            )
        index, seed = episode
        fewer = f", or play only the {index} before it" if index else ""
        raise UserError(
            f"{self.environment}: episode {index} with seed {seed} ended {MAX_DEATHS} worker processes: give another "
            f"--config.seed with another --workdir{fewer}"
        )


def _play_lanes(order: _Order, policy: BatchPolicy) -> Iterator[PlayedEpisode]:
    count = order.how.lanes
    # By an episode's number and not by its place in `todo`, which lacks what a resumed run has.
    lanes = [_Lane(pair for pair in order.todo if pair[0] % count == lane) for lane in range(count)]
    pool = _LanePool(order, lanes)
    states = [policy.initial_state(len(pool.half(half))) for half in (0, 1)]
    total_steps = 0
    with contextlib.closing(pool):
        while any(lane.running or lane.todo for lane in lanes):
            # While the workers step one half, the network reads the other.
            for half in (0, 1):
                for lane, record in pool.receive(half):
                    yield lanes[lane].finish(record)
                # Only here, so that a stop loses no episode that has ended.
                if order.stop is not None and order.stop.requested:
                    return
                members = pool.half(half)
                steps = [lane for lane in members if lanes[lane].running]
                starts = [lane for lane in members if not lanes[lane].running and lanes[lane].todo]
                if steps:
                    states[half] = _decide(order, pool, members, steps, policy, states[half])
                    total_steps += len(steps)
                    if order.on_steps is not None:
                        order.on_steps(total_steps)
                # After the decision: their first observations come with the next answers.
                for lane in starts:
                    lanes[lane].begin()
                pool.send(half, steps, starts)


def _decide(
    order: _Order,
    pool: _LanePool,
    members: range,
    steps: Sequence[int],
    policy: BatchPolicy,
    state: Any,
) -> Any:
    """Chooses an action for the lanes `steps` of the half `members`; returns the network's new
    state.
    """
    lanes = pool.lanes
    # Copied out: the device may alias host memory that the workers overwrite.
    observation = {
        name: np.array(rows[members.start : members.stop]) for name, rows in pool.rows.items()
    }
    first = np.array([not lanes[lane].actions for lane in members])
    # Lanes without an episode have rows, too, so that the batch keeps its shape. Nothing reads
    # their outputs, and `first` clears their state when an episode begins.
    outputs, values, state = policy.act(observation, first, state)
    outputs = policies.masked(outputs, observation, pool.spec)

    rows = np.array(steps) - members.start
    uniforms = np.array([lanes[lane].uniforms.at(len(lanes[lane].actions)) for lane in steps])
    actions, log_probs = policies.choose_actions(
        outputs[rows], uniforms, order.how.greedy, pool.spec
    )

    for position, lane in enumerate(steps):
        lanes[lane].actions.append(actions[position].tolist())
        if values is not None:
            lanes[lane].values.append(float(values[rows[position]]))
        lanes[lane].log_probs.append(float(log_probs[position]))
        if order.how.keep_probabilities and not pool.spec.action_size:
            probabilities = np.exp(policies.log_softmax(outputs[rows[position]]))
            lanes[lane].probabilities.append(probabilities.astype(np.float32))
    return state


def _play_in_workers(order: _Order, policy: WorkerPolicy) -> Iterator[PlayedEpisode]:
    setup = {
        "environment": order.environment,
        "options": order.options,
        "keep_fields": order.how.keep_fields,
        "policies": [policy],
    }
    jobs = [EpisodeJob(index, seed) for index, seed in order.todo]
    # Only random actions have a known duration: a bot may think for as long as it likes.
    patient = type(policy) is not policies.RandomPolicy
    answers = run_jobs(
        EpisodeServer,
        setup,
        jobs,
        order.how.workers,
        order.stop,
        lambda job: order.lost((job.index, job.seed)),
        patient,
        order.on_death,
    )
    with contextlib.closing(answers) as played:
        for job, episode in played:
            if episode.end == RUNNING:
                raise RuntimeError(f"the policy ran out of actions in episode {job.index}")
            yield episode


def play_episodes(
    environment: str,
    options: Mapping[str, Any],
    episode_seeds: Sequence[int],
    policy: Any,
    how: PlaySettings,
    *,
    skip: Collection[int] = (),
    stop: Any = None,
    on_death: Any = None,
    on_steps: Callable[[int], None] | None = None,
) -> Generator[PlayedEpisode]:
    """Yields episodes as they end, in no particular order.

    A worker process that dies is replaced, and its episodes are replayed from their seeds and
    actions. Worker processes end with the generator: exhaust it or close it.

    Args:
      policy: a `policies.WorkerPolicy` or `policies.BatchPolicy`.
      episode_seeds: seeds of the episodes 0, 1, ...; those in `skip` exist already.
      stop: an object whose attribute `requested`, once true, ends the generator early.
      on_death: called at each worker death with their number so far.
      on_steps: called with the number of steps so far after each call of a `policies.BatchPolicy`,
          whose games may take minutes.

    Raises:
      UserError: an episode ended three worker processes.
    """
    todo = [(index, seed) for index, seed in enumerate(episode_seeds) if index not in skip]
    if not todo:
        return
    order = _Order(environment, dict(options), todo, how, stop, on_death, on_steps)
    yield from _play_in_workers(order, policy) if policy.in_workers else _play_lanes(order, policy)
