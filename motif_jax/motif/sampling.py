"""Records episodes for the pairs dataset on all cores: who plays, and the chunk of each. No jax.

Agents need the device, so that they play first and write down their actions; the recording plays
their episodes again from seeds and actions, on the cores, as it plays those of all other players.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from motif_jax.core import seeds
from motif_jax.core.errors import UserError
from motif_jax.envs import determinism
from motif_jax.envs.episode import PlayedEpisode
from motif_jax.envs.nethack import status
from motif_jax.envs.nethack.scripted_players import PLAYERS
from motif_jax.envs.spec import RUNNING, EngineError
from motif_jax.motif.annotation.captions import caption
from motif_jax.motif.pairs import chunks, layout
from motif_jax.motif.pairs.assemble import CAPTION_KEY
from motif_jax.rl.actors.episodes import EpisodeJob, EpisodeServer
from motif_jax.rl.actors.worker_process import run_jobs

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

    @property
    def kept_fields(self) -> tuple[str, ...]:
        """The observation fields that are kept of an episode."""
        return (self.text, *(name for name in self.fields if name != "message"))


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
        return EpisodeJob(episode, self.seed(episode), self.number(episode), actions)

    @property
    def policies(self) -> list[Any]:
        """The policies of the players, in the order of `names`; None for agents."""
        return [self._policies.get(name) for name in self.names]


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


def row_rewards(episode: PlayedEpisode, plan: SamplingPlan) -> np.ndarray:
    """The rewards that came with the observations of an episode, float32 [S]; 0 with the first."""
    rewards = np.concatenate([np.zeros(1, np.float32), episode.rewards])
    return rewards[: len(episode.fields[plan.text])]


def chunk_arrays(episode: PlayedEpisode, player: int, plan: SamplingPlan) -> dict[str, np.ndarray]:
    """The arrays of the chunk of an episode that was played with `plan.kept_fields`: 'data/NAME'
    [rows, length, ...], 'info/NAME' [rows], caption keys.

    Row t is the observation on which action t was chosen, with the reward that came with it; the
    final observation has a row where the environment's `last_text` says so.
    """
    texts = episode.fields[plan.text]
    rows = len(texts)
    length = plan.length

    # An environment's text may be narrower than the dataset's array; `collect.check` refuses wider
    # ones.
    missing = layout.MESSAGE_BYTES - texts.shape[1]
    if missing:
        texts = np.pad(texts, ((0, 0), (0, missing)))
    history = {**episode.fields, "message": texts, "rewards": row_rewards(episode, plan)}

    # Weights [starts] where each distinct message counts alike, None where each step does.
    weights = chunks.evenly(history["message"], length) if plan.even else None
    rng = seeds.rng(plan.seed, "starts", episode.index)
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
        "episode": np.int64(episode.index),
        "episode_seed": np.int64(episode.seed),
        "player": np.int16(player),
        "episode_length": np.int64(len(episode)),
        "episode_return": np.float64(episode.info["return"]),
    }
    arrays |= {f"info/{name}": np.full(len(starts), value) for name, value in constants.items()}
    arrays["info/step"] = starts
    arrays[CAPTION_KEY] = caption_keys(data["message"])
    return arrays


def write_chunk(plan: SamplingPlan, job: EpisodeJob, episode: PlayedEpisode) -> tuple[int, int]:
    """Writes the chunk of an episode; returns the number of its sub-sequences and of its steps.

    Raises EngineError, for which the episode is played again, where the player ran out of actions,
    and where given ones continue after the episode's end.
    """
    problem = ""
    if episode.end == RUNNING:
        problem = f"the player had no more actions in the episode with seed {job.seed}"
    elif job.actions is not None and len(job.actions) != len(episode):
        problem = f"episode {job.index} ended after {len(episode)} steps, more actions were given"
    if problem and job.actions is not None and determinism.is_outside(plan.environment):
        # A UserError, as the next process would fail in the same way.
        raise UserError(
            f"config.policy=agents plays episodes again from their seeds and actions, and config.environment.name="
            f"{plan.environment} plays that of seed {job.seed} otherwise the second time ({problem}): {determinism.REMEDY}"
        )
    if problem:
        raise EngineError(problem)

    rewards = row_rewards(episode, plan)
    infinite_rows = np.flatnonzero(~np.isfinite(rewards))
    if infinite_rows.size:
        # Now, and not when the whole collection is written.
        raise UserError(
            f"config.environment.name={plan.environment}: the reward in row {infinite_rows[0]} of the episode with seed {job.seed} is "
            f"{rewards[infinite_rows[0]]}: a dataset holds finite rewards, so clip them in the environment"
        )
    arrays = chunk_arrays(episode, job.player, plan)
    # Goes to the episode's line of episodes.jsonl. Names and values are arrays of their own, since
    # a chunk is read without pickles and so without objects.
    summary = {"end": float(episode.end), **episode.info}
    names = sorted(summary)
    arrays["summary_names"] = np.array(names)
    arrays["summary_values"] = np.array([summary[name] for name in names], np.float64)
    count = len(arrays["info/step"])
    chunks.save(plan.folder, job.index, count, arrays)
    return count, len(episode)


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
    policies: Sequence[Any],
    plan: SamplingPlan,
    workers: int,
    stop: Any,
    has_episodes: bool = False,
) -> Generator[Sampled, None, None]:
    """Yields jobs as worker processes record them into chunk files; an episode in which several
    processes die is left out. `policies` are those of `EpisodeJob.player`.

    Raises UserError if they die before the first episode is played, for then it is hardly the
    episode's fault; `has_episodes` says that an earlier command or call has played one.
    """

    def check_lost(job: EpisodeJob) -> None:
        if not has_episodes:
            raise UserError(
                "the recording processes die before they have played one episode: see their output above"
            )

    setup = {
        "environment": plan.environment,
        "options": plan.options,
        "policies": policies,
        "keep_fields": plan.kept_fields,
        "keep_texts": False,
        "finish": functools.partial(write_chunk, plan),
    }
    with contextlib.closing(
        run_jobs(EpisodeServer, setup, jobs, workers, stop, check_lost)
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
