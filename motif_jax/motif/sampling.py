"""Records episodes for the pairs dataset on all cores: who plays, the chunk of each, the worker
process. No jax.

Agents need the device, so that they play first and write down their actions; the recording plays
their episodes again from seeds and actions, on the cores, as it plays those of all other players.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from motif_jax.core import seeds
from motif_jax.core.errors import UserError
from motif_jax.envs import determinism, registry
from motif_jax.envs.episode import Choose, fixed_actions, play
from motif_jax.envs.nethack import status
from motif_jax.envs.nethack.scripted_players import PLAYERS
from motif_jax.envs.spec import RUNNING, EngineError, EnvironmentSpec, Row, empty_observation, row
from motif_jax.motif.annotation.captions import caption
from motif_jax.motif.pairs import chunks, layout
from motif_jax.motif.pairs.assemble import CAPTION_KEY
from motif_jax.rl.actors.worker_process import note_progress, run_jobs

# info/NAME.npy -> position in blstats, read at the last step of a sub-sequence.
STATUS_INFO = {
    "score": status.SCORE,
    "dlvl": status.DEPTH,
    "gold": status.GOLD,
    "experience_level": status.LEVEL,
    "turns": status.TIME,
}
# The hero of NetHack's tasks, nle's default: a male human neutral monk; what info/character.npy
# says.
CHARACTER = "mon-hum-neu-mal"
# Rows of the arrays for an episode, doubled when one is longer: 5,000 steps and the last
# observation.
FIRST_CAPACITY = 5001


@dataclass(frozen=True)
class SamplingPlan:
    """The recording settings of a collection.

    Attributes:
      fields: observation fields that become data/FIELD.npy; 'message' is the environment's field
          `text`.
      share: part of the published number of start points (steps / length) that is kept.
      even: each distinct message of an episode is as likely to be drawn as any other; else each
          step.
    """

    environment: str
    options: Mapping[str, Any]
    fields: tuple[str, ...]
    seed: int
    length: int
    share: float
    folder: str
    even: bool = False
    text: str = "message"


@dataclass(frozen=True)
class ReplayedActions:
    """Plays the actions `taken` [steps, ...] of an episode again and then ends it."""

    taken: np.ndarray

    def player(self, seed: int, spec: EnvironmentSpec) -> Choose:
        return fixed_actions(self.taken)


@dataclass(frozen=True)
class EpisodeJob:
    """One episode to record: its index, the seed of its game, its player's number, and who chooses
    actions.
    """

    index: int
    seed: int
    player: int
    policy: Any


class Players:
    """Draws a player for every episode; the draw depends on the seed and the episode's index alone.

    Args:
      weights: player -> how often it plays, relative to the others.
      policies: player -> what chooses its actions; agents have none.
    """

    def __init__(
        self, weights: Mapping[str, float], seed: int, policies: Mapping[str, Any] = PLAYERS
    ) -> None:
        # In the order of the numbers in info/player.npy.
        self.names = tuple(sorted(weights))
        self._policies = policies
        self._seed = seed
        probabilities = np.array([weights[name] for name in self.names], np.float64)
        self._bounds = (probabilities / probabilities.sum()).cumsum()

    def name(self, episode: int) -> str:
        """The name of an episode's player."""
        return self.names[self.number(episode)]

    def number(self, episode: int) -> int:
        """The index in `names` of an episode's player."""
        uniform = seeds.rng(self._seed, "player", episode).random()
        # The last bound may be a little below 1.
        return min(int(np.searchsorted(self._bounds, uniform, side="right")), len(self.names) - 1)

    def seed(self, episode: int) -> int:
        """The seed of an episode's game."""
        return seeds.derive(self._seed, "episode", episode)

    def job(self, episode: int, actions: np.ndarray | None = None) -> EpisodeJob:
        """The job that records an episode; `actions` are those of an agent that has played it."""
        policy = self._policies[self.name(episode)] if actions is None else ReplayedActions(actions)
        return EpisodeJob(episode, self.seed(episode), self.number(episode), policy)


class History:
    """The observations of the episode that is played, in arrays that are used again for the
    next.
    """

    def __init__(self, environment: Any) -> None:
        self._environment = environment
        self._arrays = empty_observation(environment.spec, (FIRST_CAPACITY,))
        self._rewards = np.zeros(FIRST_CAPACITY, np.float32)
        # Making the views of a row costs as much as a step of the game; the next episode writes
        # into the same rows.
        self._rows: list[Row] = []

    def play(self, seed: int, policy: Any) -> tuple[dict[str, np.ndarray], int, int]:
        """Plays one episode; returns name -> array [rows, ...], the number of its steps, and how it
        ended.

        The arrays are views that the next episode overwrites. Row t is the observation on which
        action t was chosen, with the reward that came with it (0 in row 0); the final observation
        has a row where the environment's `last_text` says so. Raises EngineError: the policy has no
        more actions before the episode ends.
        """
        choose = policy.player(seed, self._environment.spec)
        for step, moment in enumerate(play(self._environment, seed, choose, self._row)):
            self._rewards[step] = moment.reward
            note_progress()
        if moment.end == RUNNING:
            raise EngineError(f"the player had no more actions in the episode with seed {seed}")
        rows = step + 1 if self._environment.spec.last_text else step
        history = {name: array[:rows] for name, array in self._arrays.items()}
        return {**history, "rewards": self._rewards[:rows]}, step, moment.end

    def _row(self, step: int) -> Row:
        """The views into which the environment writes the observation of a step; doubles the arrays
        when they are full.
        """
        if step == len(self._rewards):
            self._arrays = {name: _doubled(array) for name, array in self._arrays.items()}
            self._rewards = _doubled(self._rewards)
            # The views of the old arrays would keep them alive, and lose what is written from now
            # on.
            self._rows = [row(self._arrays, index) for index in range(len(self._rows))]
        if step == len(self._rows):
            self._rows.append(row(self._arrays, step))
        return self._rows[step]


def _doubled(array: np.ndarray) -> np.ndarray:
    return np.concatenate([array, np.zeros_like(array)])


def caption_keys(messages: np.ndarray) -> np.ndarray:
    """Keys of the captions of sub-sequences uint8 [rows, length, bytes]: uint64 [rows], equal for
    equal captions.
    """
    keys: dict[bytes, int] = {}
    for message in messages:
        raw = message.tobytes()
        if raw not in keys:
            # Once for equal bytes, since most messages of a game repeat.
            digest = hashlib.blake2b(caption(message).encode(), digest_size=8).digest()
            keys[raw] = int.from_bytes(digest, "little")
    return np.array([keys[message.tobytes()] for message in messages], np.uint64)


def chunk_arrays(
    history: Mapping[str, np.ndarray],
    steps: int,
    job: EpisodeJob,
    plan: SamplingPlan,
    info: Mapping[str, float],
) -> dict[str, np.ndarray]:
    """The arrays of the chunk of an episode of `steps`: 'data/NAME' [rows, length, ...],
    'info/NAME' [rows], caption keys.
    """
    rows = len(history["rewards"])
    length = plan.length

    texts = history[plan.text]
    # An environment's text may be narrower than the dataset's array; `collect.check` refuses wider
    # ones.
    missing = layout.MESSAGE_BYTES - texts.shape[1]
    if missing:
        texts = np.pad(texts, ((0, 0), (0, missing)))
    history = {**history, "message": texts}

    # Weights [starts] where each distinct message counts alike, None where each step does.
    weights = chunks.evenly(history["message"], length) if plan.even else None
    rng = seeds.rng(plan.seed, "starts", job.index)
    starts = chunks.draw_starts(rows, length, plan.share, rng, weights)
    data = chunks.gather(
        {name: history[name] for name in (*plan.fields, "rewards")}, starts, length
    )
    arrays = {f"data/{name}": array for name, array in data.items()}
    constants: dict[str, Any] = {}
    if "blstats" in plan.fields:
        # info/ has the status at the last step of each sub-sequence.
        last = history["blstats"][starts + length - 1]
        for name, position in STATUS_INFO.items():
            arrays[f"info/{name}"] = last[:, position].astype(np.int64)
        if plan.environment.startswith("NetHack"):
            constants["character"] = np.str_(CHARACTER)
    constants |= {
        "episode": np.int64(job.index),
        "episode_seed": np.int64(job.seed),
        "player": np.int16(job.player),
        "episode_length": np.int64(steps),
        "episode_return": np.float64(info["return"]),
    }
    arrays |= {f"info/{name}": np.full(len(starts), value) for name, value in constants.items()}
    arrays["info/step"] = starts
    arrays[CAPTION_KEY] = caption_keys(data["message"])
    return arrays


class Sampler:
    """A worker process that plays an `EpisodeJob` and writes its chunk; it answers (sub-sequences
    drawn, steps played).

    It fails where the player runs out of actions, and where given ones continue after the episode's
    end.
    """

    def __init__(self, setup: Mapping[str, Any]) -> None:
        self._plan: SamplingPlan = setup["plan"]
        self._environment = registry.make(self._plan.environment, **self._plan.options)
        self._history = History(self._environment)

    def answer(self, request: EpisodeJob) -> tuple[int, int]:
        """Plays and writes an episode; returns the number of its sub-sequences and of its steps."""
        job = request
        plan = self._plan
        is_replay = isinstance(job.policy, ReplayedActions)
        try:
            history, steps, end = self._history.play(job.seed, job.policy)
            if is_replay and len(job.policy.taken) != steps:
                raise EngineError(
                    f"episode {job.index} ended after {steps} steps, more actions were given"
                )
        except EngineError as error:
            # With a cause, the environment itself failed.
            differs = is_replay and error.__cause__ is None
            if differs and determinism.is_outside(plan.environment):
                raise self._not_repeatable(job, error) from error
            raise

        infinite_rows = np.flatnonzero(~np.isfinite(history["rewards"]))
        if infinite_rows.size:
            # Now, and not when the whole collection is written.
            raise UserError(
                f"config.environment.name={plan.environment}: the reward in row {infinite_rows[0]} of the episode with seed {job.seed} is "
                f"{history['rewards'][infinite_rows[0]]}: a dataset holds finite rewards, so clip them in the environment"
            )

        info = self._environment.episode_info()
        arrays = chunk_arrays(history, steps, job, plan, info)
        # Goes to the episode's line of episodes.jsonl. Names and values are arrays of their own,
        # since a chunk is read without pickles and so without objects.
        summary = {"end": float(end), **info}
        names = sorted(summary)
        arrays["summary_names"] = np.array(names)
        arrays["summary_values"] = np.array([summary[name] for name in names], np.float64)
        count = len(arrays["info/step"])
        chunks.save(plan.folder, job.index, count, arrays)
        return count, steps

    def _not_repeatable(self, job: EpisodeJob, error: EngineError) -> UserError:
        """The error of a user's environment that plays an agent's episode otherwise the second
        time.

        A UserError, as the next process would fail in the same way.
        """
        return UserError(
            f"config.policy=agents plays episodes again from their seeds and actions, and config.environment.name="
            f"{self._plan.environment} plays that of seed {job.seed} otherwise the second time ({error}): {determinism.REMEDY}"
        )

    def close(self) -> None:
        """Closes the environment."""
        self._environment.close()


@dataclass(frozen=True)
class Sampled:
    """One finished job: its number of sub-sequences and steps; `left_out` if every process died of
    it.
    """

    job: EpisodeJob
    count: int
    steps: int
    left_out: bool = False


def record(
    jobs: Iterable[EpisodeJob],
    plan: SamplingPlan,
    workers: int,
    stop: Any,
    has_episodes: bool = False,
) -> Generator[Sampled, None, None]:
    """Yields jobs as `run_jobs` records them into chunk files; an episode in which several
    processes die is left out.

    Raises UserError if they die before the first episode is played, for then it is hardly the
    episode's fault; `has_episodes` says that an earlier command or call has played one.
    """

    def check_lost(job: EpisodeJob) -> None:
        if not has_episodes:
            raise UserError(
                "the recording processes die before they have played one episode: see their output above"
            )

    with contextlib.closing(
        run_jobs(Sampler, {"plan": plan}, jobs, workers, stop, check_lost)
    ) as answers:
        for job, answer in answers:
            if answer is None:
                # An empty chunk: a resumed collection does not play it again, and no gap is left in
                # front of later episodes.
                chunks.save(plan.folder, job.index, 0, {})
                yield Sampled(job, count=0, steps=0, left_out=True)
            else:
                has_episodes = True
                count, steps = answer
                yield Sampled(job, count, steps)
