"""Plays the episodes that a journal does not have yet, with progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from motif_jax.core.interruption import Interruption
from motif_jax.core.progress import Progress
from motif_jax.envs.episode import PlayedEpisode
from motif_jax.play.evaluation_files import Journal
from motif_jax.rl.actors.episodes import PlaySettings, play_episodes

FAILED = "failed_requests"


def play_missing(
    journal: Journal,
    count: int,
    title: str,
    play: Callable[[Progress], Iterator[Any]],
    row_of: Callable[[Any], Mapping[str, Any]],
    unit: str = "steps",
) -> list[dict[str, Any]]:
    """Appends a row (`row_of`, with index, return and length) for each episode as it ends.

    Returns the rows of the wanted episodes by index; fewer than `count` if `play` was stopped.
    """
    # JSON has null for a return that is no number.
    earlier = [row["return"] or 0.0 for row in journal.rows if row["index"] < count]
    done = len(earlier)
    total_return = sum(earlier)
    failed = sum(row.get(FAILED, 0) for row in journal.rows)
    session = journal.session
    started = time.monotonic()
    steps = 0
    with Progress(count, "episodes", title, done) as progress:
        # No process is started where all rows are there.
        for episode in play(progress) if done < count else ():
            row = row_of(episode)
            seconds = round(time.monotonic() - started, 3)
            journal.append({**row, "session": session, "session_seconds": seconds})
            done += 1
            steps += row["length"]
            total_return += row["return"]
            failed += row.get(FAILED, 0)
            figures = {"mean return": total_return / done, f"{unit}/s": steps / max(seconds, 1e-3)}
            if failed:
                figures[FAILED] = failed
            progress.update(done, **figures)
    return sorted(
        (row for row in journal.rows if row["index"] < count), key=lambda row: row["index"]
    )


def play_policy(
    journal: Journal,
    title: str,
    game: tuple[str, Mapping[str, Any]],
    policy: Any,
    episode_seeds: Sequence[int],
    how: PlaySettings,
    stop: Interruption,
    row_of: Callable[[PlayedEpisode], Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """`play_missing` by a policy in `game`, (environment, options); deaths of workers are
    logged.
    """

    def play(progress: Progress) -> Iterator[PlayedEpisode]:
        def log(deaths: int) -> None:
            progress.log(f"worker processes that died and were replaced: {deaths}")

        def show(steps: int) -> None:
            progress.show(steps=steps)

        return play_episodes(
            *game,
            episode_seeds,
            policy,
            how,
            skip=journal.done,
            stop=stop,
            on_death=log,
            on_steps=show,
        )

    return play_missing(journal, len(episode_seeds), title, play, row_of)
