"""Collect: plays games and writes the pairs dataset. The work folder becomes the dataset."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from motif_jax.datasets import assemble, chunks, layout
from motif_jax.datasets.pairs import PairsDataset
from motif_jax.datasets.writer import PairsWriter
from motif_jax.envs import registry
from motif_jax.envs.habits import HABITS
from motif_jax.runtime import recording
from motif_jax.runtime.players import Players
from motif_jax.runtime.record_worker import Job, Recording
from motif_jax.support import config as checks
from motif_jax.support import run_folder, seeds
from motif_jax.support.errors import UserError
from motif_jax.support.files import FolderLock, atomic_write_text
from motif_jax.support.interruption import EXIT_CODE, Interruption
from motif_jax.support.progress import Progress

POLICIES = ("random", "mixture")
# Everything that decides what the dataset holds; only the number of workers may change.
IDENTITY = (
    "seed num_pairs length start_share drop_equal_captions environment policy mixture screens glyphs"
).split()


def _extra_fields(config: ConfigDict) -> tuple[str, ...]:
    screens = ("tty_chars", "tty_colors") if config.screens else ()
    return (*screens, "glyphs") if config.glyphs else screens


def _options(config: ConfigDict) -> dict[str, Any]:
    return {"max_episode_steps": config.environment.max_episode_steps, "fields": _extra_fields(config)}


def _weights(config: ConfigDict) -> dict[str, float]:
    """Player -> weight, for the players that take part."""
    if config.policy == "random":
        return {"uniform": 1.0}
    return {name: float(weight) for name, weight in config.mixture.items() if weight > 0}


def check(config: ConfigDict, workdir: Path) -> None:
    """Raises UserError for a bad value, or a folder that holds something else."""
    for key in ("num_pairs", "length", "workers", "environment.max_episode_steps", "start_share"):
        checks.positive(config, key)
    checks.fraction(config, "start_share")
    checks.choice(config, "policy", POLICIES)
    steps = config.environment.max_episode_steps
    checks.require(
        config.length <= steps, "length", config.length, f"at most environment.max_episode_steps={steps}"
    )
    name = config.environment.name
    registry.check(name)
    nethack = name in registry.NETHACK_TASKS
    checks.require(nethack, "environment.name", name, "a NetHack task: captions are made of its messages")
    for name in config.mixture:
        checks.positive(config, f"mixture.{name}", allow_zero=True)
    checks.require(bool(_weights(config)), "mixture", "all 0", "at least one weight above 0")
    run_folder.check_identity(workdir, config, IDENTITY)
    if not (workdir / "config.json").exists() and (workdir / "data").exists():
        raise UserError(f"{workdir} holds a dataset that was not collected here: choose another --workdir")


def run(config: ConfigDict, workdir: Path) -> int | None:
    """Collects what is missing; returns the exit code of an interrupted stage when it was asked to stop."""
    with FolderLock(workdir):
        run_folder.prepare(workdir, config, IDENTITY)
        if (workdir / layout.META).exists():
            shutil.rmtree(workdir / layout.STAGING, ignore_errors=True)
            print(f"{workdir} is whole: {PairsDataset.open(workdir).num_pairs:,} pairs")
            return None
        with Interruption() as stop:
            return _Collection(config, workdir, stop).run()


class _Collection:
    """One collection, from the chunks that are there to the dataset."""

    def __init__(self, config: ConfigDict, workdir: Path, stop: Interruption) -> None:
        self._config, self._workdir, self._stop = config, workdir, stop
        self._staging = workdir / layout.STAGING
        self._folder = self._staging / "chunks"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._players = Players(_weights(config), config.seed)
        self._recording = Recording(
            environment=config.environment.name,
            options=_options(config),
            fields=("message", "blstats", *_extra_fields(config)),
            seed=config.seed,
            length=config.length,
            share=config.start_share,
            folder=str(self._folder),
        )
        self._counts = chunks.scan(self._folder)
        self._drawn = sum(self._counts.values())
        self._steps = 0

    def run(self) -> int | None:
        """Plays until there are enough pairs, and writes them."""
        wanted = self._config.num_pairs
        rows = 2 * wanted
        with Progress(wanted, "pairs", "collect", min(self._drawn // 2, wanted)) as progress:
            while True:
                episodes = self._play(rows, progress)
                if episodes is None:
                    return EXIT_CODE
                pairs, kept = self._pair(episodes)
                if len(pairs) == wanted:
                    break
                progress.log(f"{kept:,} of {wanted:,} pairs have two different captions: playing on")
                rows = assemble.more_rows(rows, wanted, kept)
            progress.update(wanted, episodes=episodes)
        if not self._write(pairs, episodes):
            return EXIT_CODE
        shutil.rmtree(self._staging)
        return None

    def _play(self, rows: int, progress: Progress) -> int | None:
        """Records episodes until the first ones hold `rows` sub-sequences; their number, None when stopped."""
        while (episodes := assemble.enough_episodes(self._counts.get, rows)) is None:
            jobs = self._jobs(rows)
            for done in recording.record(jobs, self._recording, self._config.workers, self._stop):
                self._counts[done.job.index] = done.count
                self._drawn += done.count
                self._steps += done.steps
                if done.left_out:
                    progress.log(f"episode {done.job.index} ends every process that plays it: left out")
                share = min(1.0, self._drawn / rows)
                progress.update(
                    int(share * self._config.num_pairs), episodes=len(self._counts), game_steps=self._steps
                )
            if self._stop.requested:
                return None
        return episodes

    def _jobs(self, rows: int) -> Iterator[Job]:
        """The episodes that have no chunk, in order, until the chunks hold enough."""
        last = max(self._counts, default=-1)
        index = 0
        while index <= last or self._drawn < rows:
            if index not in self._counts:
                yield self._players.job(index)
            index += 1

    def _pair(self, episodes: int) -> tuple[np.ndarray, int]:
        """Which of the first episodes' sub-sequences form which pair, and how many pairs there are at all."""
        rows = sum(self._counts[episode] for episode in range(episodes))
        keys = None
        if self._config.drop_equal_captions:
            keys = np.concatenate(
                [
                    self._load(episode)[assemble.CAPTION_KEY]
                    for episode in range(episodes)
                    if self._counts[episode]
                ]
            )
        shuffle = seeds.rng(self._config.seed, "shuffle")
        return assemble.draw_pairs(rows, self._config.num_pairs, shuffle, keys)

    def _load(self, episode: int) -> dict[str, np.ndarray]:
        return chunks.load(self._folder, episode, self._counts[episode])

    def _write(self, pairs: np.ndarray, episodes: int) -> bool:
        """Writes the dataset; False when asked to stop before it was whole."""
        counts = [self._counts[episode] for episode in range(episodes)]
        lines: list[str] = []

        def load(episode: int) -> dict[str, np.ndarray]:
            arrays = self._load(episode)
            lines.append(self._episode_line(episode, arrays))
            return arrays

        with (
            PairsWriter(self._workdir, len(pairs), self._staging) as writer,
            Progress(episodes, "episodes", "write") as progress,
        ):
            for episode in assemble.fill(writer, pairs, counts, load):
                progress.update(episode + 1)
                if self._stop.requested:
                    return False
            atomic_write_text(self._workdir / "episodes.jsonl", "".join(lines))
            writer.commit(self._meta(episodes))
        return True

    def _episode_line(self, episode: int, arrays: dict[str, np.ndarray]) -> str:
        names, values = arrays["summary_names"].tolist(), arrays["summary_values"].tolist()
        job = self._players.job(episode)
        head = {"episode": episode, "seed": job.seed, "player": self._players.names[job.player]}
        return json.dumps({**head, **dict(zip(names, values, strict=True))}) + "\n"

    def _meta(self, episodes: int) -> dict[str, Any]:
        config = run_folder.as_plain(self._config)
        versions = run_folder.versions()
        return {
            "origin": "motif_jax collect",
            "config": {key: config[key] for key in IDENTITY},
            "players": list(self._players.names),
            "episodes": episodes,
            "left_out_episodes": [episode for episode in range(episodes) if not self._counts[episode]],
            "length": self._config.length,
            "engine": {name: versions[name] for name in ("nle", "gymnasium", "numpy") if name in versions},
        }
