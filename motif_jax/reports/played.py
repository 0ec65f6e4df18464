"""Plays the episodes that a journal does not have yet, with progress."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from motif_jax.reports import evaluation_files
from motif_jax.rollouts.episodes import How, play_episodes
from motif_jax.rollouts.generalisation import PlayedLevel
from motif_jax.support.interruption import Interruption
from motif_jax.support.progress import Progress


def play(
    folder: Path,
    place: PlayedLevel,
    policy: Any,
    episode_seeds: list[int],
    how: How,
    title: str,
    stop: Interruption,
) -> list[dict[str, Any]]:
    """Plays the episodes that the journal in `folder` does not have; returns all that it has of them, by index.

    They are fewer than `episode_seeds` where it was asked to stop.
    """
    folder.mkdir(parents=True, exist_ok=True)
    count = len(episode_seeds)
    with evaluation_files.Journal(folder) as journal:
        before = [row["return"] or 0.0 for row in journal.rows if row["index"] < count]
        done, earned = len(before), sum(before)
        if done < count:
            with Progress(count, "episodes", title, done) as progress:
                session, started, steps = journal.session, time.monotonic(), 0
                records = play_episodes(
                    place.environment,
                    place.options,
                    episode_seeds,
                    policy,
                    how,
                    skip=journal.done,
                    stop=stop,
                    on_death=lambda deaths: progress.log(
                        f"worker processes that died and were replaced: {deaths}"
                    ),
                )
                for record in records:
                    row = evaluation_files.episode_row(record)
                    spent = time.monotonic() - started
                    journal.append({**row, "session": session, "session_seconds": round(spent, 3)})
                    steps, done, earned = steps + len(record), done + 1, earned + row["return"]
                    rate = steps / max(spent, 1e-9)
                    progress.update(done, **{"mean return": earned / done, "steps/s": rate})
        rows = [row for row in journal.rows if row["index"] < count]
    return sorted(rows, key=lambda row: row["index"])
