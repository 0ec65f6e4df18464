"""Collects pairs: plays what chunks are missing, then writes the dataset."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.core import seeds
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_text, json_line
from motif_jax.core.interruption import Interruption
from motif_jax.core.progress import Progress
from motif_jax.motif import sampling
from motif_jax.motif.config import CollectConfig
from motif_jax.motif.pairs import assemble, chunks, layout
from motif_jax.motif.pairs.writer import PairsWriter
from motif_jax.motif.sampling import Players, SamplingPlan
from motif_jax.rl.actors.episodes import EpisodeJob, PlaySettings

# Agents play ahead of the recording by so many episodes at least, and at most.
_FEWEST_AHEAD = 8
_MAX_AHEAD = 1024
# Without a sub-sequence in so many games, there will be none.
MAX_EMPTY_GAMES = 500
# Without two captions that differ among so many sub-sequences, there will be none.
MAX_EQUAL_SEQUENCES = 10_000


class Collection:
    """Plays, pairs and writes; episodes with a chunk are not played again.

    Every draw depends on the seed and the episode's index alone, so that a collection that was
    stopped, or ran with other workers, writes the same dataset.

    Args:
      plan: its seed decides every draw; the parent of its folder holds chunks and agents' actions,
          and is removed at the end.
      agents: name -> checkpoint (`agents.CollectingAgent`) of the players that are agents.
      folder: of the dataset.
    """

    def __init__(
        self,
        config: CollectConfig,
        plan: SamplingPlan,
        players: Players,
        agents: Mapping[str, Any],
        folder: Path,
        stop: Interruption,
    ) -> None:
        self._config = config
        self._plan = plan
        self._players = players
        self._agents = agents
        self._num_pairs = config.num_pairs
        self._folder = folder
        self._stop = stop

        self._chunks = Path(plan.folder)
        self._staging = self._chunks.parent
        # The actions of agents' episodes, which the recording plays again.
        self._actions = self._staging / "tapes"
        self._chunks.mkdir(parents=True, exist_ok=True)

        # Episode -> its number of sub-sequences, of all episodes with a chunk; their sum; steps
        # played by this command.
        self._counts = chunks.scan(self._chunks)
        self._drawn = sum(self._counts.values())
        self._steps = 0
        self._usable = assemble.UsableShare()
        # Of a resumed collection: its chunks have their captions' keys.
        for episode in self._counts:
            self._count_captions(episode)

    def run(self, meta: Mapping[str, Any]) -> bool:
        """Plays until there are enough pairs and writes them with `meta`; False when stopped before
        that.

        Raises:
          UserError: all of the first games are shorter than a sub-sequence, or all captions are
              equal and such pairs are dropped.
        """
        num_pairs = self._num_pairs
        rows = 2 * num_pairs
        with Progress(num_pairs, "pairs", "collect", self._pairs_done(rows)) as progress:
            # How many pairs are usable is known only once pairs are drawn. With more sub-sequences
            # the shuffle is another one, so that all pairs are drawn again.
            while True:
                episodes = self._play(rows, progress)
                if episodes is None:
                    return False
                pairs, num_usable = self._pair(episodes)
                if len(pairs) == num_pairs:
                    break
                if not num_usable and self._drawn >= MAX_EQUAL_SEQUENCES:
                    raise UserError(
                        f"config.drop_equal_captions=True: leaves out every pair, since all {self._drawn:,} sub-sequences have equal "
                        "captions; give False, or an environment or players that show more, with another --workdir"
                    )
                progress.log(
                    f"{num_usable:,} of {num_pairs:,} pairs have two different captions: playing on"
                )
                rows = assemble.more_rows(rows, num_pairs, num_usable)
            progress.update(num_pairs, episodes=episodes)

        # The chunks go last: until dataset.json is there, they are all that a resumed command has.
        if not self._write(pairs, episodes, meta):
            return False
        shutil.rmtree(self._staging)
        return True

    def _play(self, rows: int, progress: Progress) -> int | None:
        """Records episodes until the first ones hold `rows` sub-sequences; their number, None when
        stopped.
        """
        while True:
            episodes = assemble.enough_episodes(self._counts.get, rows)
            if episodes is not None:
                return episodes
            # Agents first, on the device; then everything below `end` is recorded on the cores.
            end = self._play_agents(rows, progress) if self._agents else None
            if self._stop.requested:
                return None
            jobs = self._jobs(rows, end)
            has_episodes = bool(self._counts)
            for sampled in sampling.record(
                jobs,
                self._players.policies,
                self._plan,
                self._config.workers,
                self._stop,
                has_episodes,
            ):
                self._count(sampled, rows, progress)
            if self._stop.requested:
                return None

    def _count(self, sampled: sampling.Sampled, rows: int, progress: Progress) -> None:
        """Counts a recorded episode. Raises UserError: none of the first games was as long as a
        sub-sequence.
        """
        self._counts[sampled.job.index] = sampled.count
        self._drawn += sampled.count
        self._steps += sampled.steps
        self._count_captions(sampled.job.index)
        if sampled.left_out:
            progress.log(f"episode {sampled.job.index} ends every process that plays it: left out")
        if not self._drawn and len(self._counts) >= MAX_EMPTY_GAMES:
            raise UserError(
                f"config.length={self._plan.length}: none of {len(self._counts):,} games was that long; give a smaller "
                "one, or other players, with another --workdir"
            )
        progress.update(self._pairs_done(rows), episodes=len(self._counts), game_steps=self._steps)

    def _count_captions(self, episode: int) -> None:
        if self._config.drop_equal_captions and self._counts[episode]:
            self._usable.add(self._caption_keys(episode))

    def _caption_keys(self, episode: int) -> np.ndarray:
        count = self._counts[episode]
        return chunks.load_array_of(self._chunks, episode, count, assemble.CAPTION_KEY)

    def _pairs_done(self, rows: int) -> int:
        """How many pairs the sub-sequences drawn so far are worth, for the progress line."""
        return assemble.pairs_done(self._drawn, rows, self._num_pairs, self._usable.value)

    def _jobs(self, rows: int, end: int | None) -> Iterator[EpisodeJob]:
        """The episodes below `end` that have no chunk, in order, until the chunks hold `rows`
        sub-sequences.

        Episodes before one that was recorded are all played: the dataset is made of the first ones,
        without a gap.
        """
        last = max(self._counts, default=-1)
        index = 0
        # `_drawn` grows while the caller records what this yields.
        while (index <= last or self._drawn < rows) and (end is None or index < end):
            if index not in self._counts:
                is_agent = self._players.name(index) in self._agents
                actions = np.load(self._actions_file(index)) if is_agent else None
                yield self._players.job(index, actions)
            index += 1

    def _actions_file(self, episode: int) -> Path:
        return self._actions / f"{episode:08d}.npy"

    def _play_agents(self, rows: int, progress: Progress) -> int:
        """Plays the agents' next episodes on the device and writes their actions; the end of the
        episodes that may be recorded.
        """
        # jax is needed from here on, and only for agents.
        from motif_jax.play import agents

        end = self._ahead(rows)
        game_seeds = [self._players.seed(episode) for episode in range(end)]
        # The additional fields are for the recording; an agent plays with those that it was trained
        # on.
        options = {key: value for key, value in self._plan.options.items() if key != "fields"}
        for name, agent in self._agents.items():
            # An episode's actions are written when it has ended, so that a resumed command plays
            # the others.
            unplayed = [
                episode
                for episode in range(end)
                if self._players.name(episode) == name
                and episode not in self._counts
                and not self._actions_file(episode).exists()
            ]
            if not unplayed:
                continue
            played = agents.play(
                agent,
                self._plan.environment,
                options,
                unplayed,
                game_seeds,
                self._actions_file,
                PlaySettings(self._config.workers, self._config.lanes),
                self._stop,
            )
            for number, _ in enumerate(played, 1):
                progress.update(
                    self._pairs_done(rows),
                    agent=name,
                    agent_episodes=f"{number} of {len(unplayed)}",
                )
            if self._stop.requested:
                break
        return end

    def _ahead(self, rows: int) -> int:
        """The end of the episodes that agents play now: about as many as are still needed, by the
        mean of those recorded.
        """
        if not self._drawn:
            # No mean yet: as many as the device plays at a time.
            return max(self._counts, default=-1) + 1 + self._config.lanes
        # A tenth more than the mean says: with too few, agents have to play another round.
        needed = math.ceil(1.1 * (rows - self._drawn) * len(self._counts) / self._drawn)
        return max(self._counts) + 1 + min(max(needed, _FEWEST_AHEAD), _MAX_AHEAD)

    def _pair(self, episodes: int) -> tuple[np.ndarray, int]:
        """Which sub-sequences of the first episodes form which pair, int64 [pairs, 2], and how many
        pairs are usable.
        """
        rows = sum(self._counts[episode] for episode in range(episodes))
        keys = None
        if self._config.drop_equal_captions:
            # The chunk of an episode that was left out has no arrays.
            not_empty = [episode for episode in range(episodes) if self._counts[episode]]
            keys = np.concatenate([self._caption_keys(episode) for episode in not_empty])
        shuffle = seeds.rng(self._plan.seed, "shuffle")
        return assemble.draw_pairs(rows, self._num_pairs, shuffle, keys)

    def _load(self, episode: int) -> dict[str, np.ndarray]:
        return chunks.load(self._chunks, episode, self._counts[episode])

    def _write(self, pairs: np.ndarray, episodes: int, meta: Mapping[str, Any]) -> bool:
        """Copies the chunks into the dataset and writes a line for each episode; False when
        stopped.
        """
        counts = [self._counts[episode] for episode in range(episodes)]
        rows: list[dict[str, Any]] = []

        # `fill` calls it in the order of the episodes, for those that have sub-sequences.
        def load(episode: int) -> dict[str, np.ndarray]:
            arrays = self._load(episode)
            row: dict[str, Any] = {
                "episode": episode,
                "seed": self._players.seed(episode),
                "player": self._players.name(episode),
            }
            names = arrays["summary_names"].tolist()
            values = arrays["summary_values"].tolist()
            row |= dict(zip(names, values, strict=True))
            rows.append(row)
            return arrays

        with (
            PairsWriter(self._folder, len(pairs), self._staging) as writer,
            Progress(episodes, "episodes", "write") as progress,
        ):
            for episode in assemble.fill(writer, pairs, counts, load):
                progress.update(episode + 1)
                # The next command fills the arrays from the first episode again.
                if self._stop.requested:
                    return False

            num_cut = sum(row.get("captions_cut", 0.0) for row in rows)
            if num_cut:
                progress.log(
                    f"{num_cut:,.0f} texts were longer than config.environment.text_bytes and were cut"
                )
            # Before `commit`, whose dataset.json says that everything is there.
            atomic_write_text(self._folder / layout.EPISODES, "".join(map(json_line, rows)))
            writer.commit(
                {
                    **meta,
                    "players": list(self._players.names),
                    "episodes": len(counts),
                    "left_out_episodes": [
                        episode for episode, count in enumerate(counts) if not count
                    ],
                    "length": self._plan.length,
                }
            )
        return True
