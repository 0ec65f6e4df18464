"""Makes the files that a task's dialogues need: data, scores of recorded texts, a tokenizer, dialogues."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from motif_jax.datasets.dialogues import parquet
from motif_jax.envs.reddit import task as reddit
from motif_jax.envs.text import file_tokens, registry
from motif_jax.rollouts import text_tokens
from motif_jax.rollouts.dialogues import DIALOGUES
from motif_jax.support import seeds
from motif_jax.support.interruption import StoppedError, never
from motif_jax.support.progress import Progress


def made(options: Mapping[str, Any], folder: Path) -> list[str]:
    """Names of the files that `prepared` may put into `folder` for a task of the package with these options."""
    from motif_jax.rollouts import text_scores

    # The option that names something else in the place of each.
    named = {
        reddit.FOLDER: "folder",
        text_scores.FILE: "scores",
        file_tokens.FILE: "tokenizer",
    }
    found = [name for name, option in named.items() if not options.get(option)]
    # Scores that are given may lack some, and those in the folder are then made of them.
    given = options.get("scores")
    return found if not given or Path(given) == folder / text_scores.FILE else [*found, text_scores.FILE]


def prepared(
    name: str,
    options: Mapping[str, Any],
    kind: str,
    policy: str,
    folder: Path,
    seed: int,
    stopped: Callable[[], bool] = never,
) -> dict[str, Any]:
    """Makes what is missing in `folder`; returns the options of a task that reads it.

    Args:
      name, options: of `registry.make`.
      kind, policy: of the dialogues.
      folder: where files go; what a start before has made stays.
      seed: of the tokenizer's dialogues.
      stopped: whether to stop, asked between parts of what takes long.

    Raises:
      UserError: something cannot be read or scored.
      StoppedError: it was asked to.
    """
    found = registry.make(name, options).prepare(kind, policy, folder)
    found = _with_scores(name, found, kind, folder, stopped)
    task = registry.make(name, found)
    return text_tokens.with_tokenizer(task, kind, policy, folder, seed, stopped)


def _with_scores(
    name: str, options: dict[str, Any], kind: str, folder: Path, stopped: Callable[[], bool]
) -> dict[str, Any]:
    """The options with a file of what is known and what judges say of all other recorded texts, where rewards depend on that."""
    task = registry.make(name, options)
    if not task.scored_by() or not (texts := task.texts_to_score(kind)):
        return options
    from motif_jax.rollouts import text_scores

    path = folder / text_scores.FILE
    if not path.exists() or Path(options["scores"]) == path:
        with Progress(len(texts), "texts", "score") as progress:
            text_scores.write(task, texts, folder, progress.update, stopped)
    return {**options, "scores": str(path)}


def listed(
    name: str,
    options: Mapping[str, Any],
    kind: str,
    policy: str,
    folder: Path,
    stopped: Callable[[], bool] = never,
) -> Path:
    """The file in `folder` with all dialogues of a kind that has an end, written unless a start before has; order and number are the task's.

    Raises:
      StoppedError: `stopped` said so before all were written.
    """
    path = folder / DIALOGUES
    if path.exists():
        return path
    task = registry.make(name, options)
    stream, count, size = task.stream(kind, policy), task.count(kind), task.at_a_time(kind)
    assert count is not None
    with Progress(count, "dialogues", "list") as progress:

        def parts() -> Any:
            for first in range(0, count, size):
                if stopped():
                    raise StoppedError
                rng = seeds.rng(0, "listed", first)
                yield stream.sample(rng, min(size, count - first), first)
                progress.update(min(first + size, count))

        parquet.write(path, parts(), {"task": name, "kind": kind})
    return path
