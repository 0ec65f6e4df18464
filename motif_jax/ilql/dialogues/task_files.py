"""Makes the files that a task's dialogues need: data, scores of recorded texts, a tokenizer,
dialogues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from motif_jax.core import seeds
from motif_jax.core.errors import UserError
from motif_jax.core.interruption import StoppedError, never
from motif_jax.core.progress import Progress
from motif_jax.ilql.dialogues import dialogue_files
from motif_jax.ilql.dialogues.dialogue import DialogueStream
from motif_jax.ilql.tasks import file_tokens, registry
from motif_jax.ilql.tasks.contract import TextTask

# The form of tokenizers that are learned from dialogues.
_ARCHITECTURE = "gpt2"
# Dialogues that a tokenizer is learned from: more of them change few merges.
_TOKENIZER_DIALOGUES = 4096
# Dialogues that are drawn together for it.
_GROUP = 256


def prepare_files(
    name: str,
    options: Mapping[str, Any],
    kind: str,
    policy: str,
    folder: Path,
    seed: int,
    stopped: Callable[[], bool] = never,
) -> dict[str, Any]:
    """Makes what is missing in `folder`; returns the options of a task that reads it. Raises
    UserError and StoppedError.
    """
    # In this order: scores are of the prepared texts, and a tokenizer learns from dialogues, whose
    # rewards need the scores.
    prepared = registry.make(name, options).prepare(kind, policy, folder)
    prepared = _with_scores(name, prepared, kind, folder, stopped)
    task = registry.make(name, prepared)
    return with_tokenizer(task, kind, policy, folder, seed, stopped)


def _with_scores(
    name: str, options: dict[str, Any], kind: str, folder: Path, stopped: Callable[[], bool]
) -> dict[str, Any]:
    """Returns the options, with a file of the scores of all recorded texts if rewards depend on
    them; unknown texts go to judges.
    """
    task = registry.make(name, options)
    if not task.scored_by():
        return options
    texts = task.texts_to_score(kind)
    if not texts:
        return options
    from motif_jax.ilql.tasks import text_scores

    path = folder / text_scores.FILE
    if not path.exists() or Path(options["scores"]) == path:
        with Progress(len(texts), "texts", "score") as progress:
            text_scores.write(task, texts, folder, progress.update, stopped)
    return {**options, "scores": str(path)}


def write_dialogues(
    name: str,
    options: Mapping[str, Any],
    kind: str,
    policy: str,
    folder: Path,
    stopped: Callable[[], bool] = never,
) -> Path:
    """The file in `folder` with all dialogues of a finite kind, written unless it exists. Raises
    StoppedError.
    """
    path = folder / dialogue_files.DIALOGUES
    # Written atomically, so that it is complete.
    if path.exists():
        return path
    task = registry.make(name, options)
    stream = task.stream(kind, policy)
    count = task.count(kind)
    size = task.dialogues_per_draw(kind)
    assert count is not None
    with Progress(count, "dialogues", "list") as progress:

        def parts() -> Any:
            for first in range(0, count, size):
                if stopped():
                    raise StoppedError
                # A finite kind draws nothing; a stream has a generator in any case.
                yield stream(seeds.rng(0, "listed", first), min(size, count - first), first)
                progress.update(min(first + size, count))

        dialogue_files.write(path, parts(), {"task": name, "kind": kind})
    return path


def with_tokenizer(
    task: TextTask, kind: str, policy: str, folder: Path, seed: int, stopped: Callable[[], bool]
) -> dict[str, Any]:
    """Learns byte pairs into `folder` if the task needs them and they do not exist; returns its
    options, which name them.

    Raises StoppedError, and UserError if the task wants fewer tokens than bytes need.
    """
    if not task.learned_tokens():
        return dict(task.options)
    require_size(task)
    if not (folder / file_tokens.FILE).exists():
        from motif_jax.ilql.tasks import text_scores
        from motif_jax.lm import byte_pairs

        # Games reward each reply, so that the task needs its scorer even though texts alone are
        # read here.
        stream = text_scores.attach(task).stream(kind, policy)
        texts = list(_texts(stream, task.count(kind), seed, stopped))
        pairs = byte_pairs.train(texts, _ARCHITECTURE, task.learned_tokens())
        byte_pairs.save(folder, pairs, _ARCHITECTURE)
    return {**task.options, "tokenizer": str(folder)}


def require_size(task: TextTask) -> None:
    """Raises UserError if the vocabulary to be learned for a task is too small for any text."""
    size = task.learned_tokens()
    if not size:
        return
    from motif_jax.lm import byte_pairs

    least = byte_pairs.smallest(_ARCHITECTURE)
    if size < least:
        raise UserError(
            f"config.{task.name}.vocab_size={size}: must be at least {least}, so that every byte has a token"
        )


def _texts(
    stream: DialogueStream, count: int | None, seed: int, stopped: Callable[[], bool]
) -> Iterator[str]:
    """The utterances of the first dialogues of a stream of `count` (None: endless). Raises
    StoppedError.
    """
    rng = seeds.rng(seed, "tokenizer")
    total = _TOKENIZER_DIALOGUES if count is None else min(count, _TOKENIZER_DIALOGUES)
    for first in range(0, total, _GROUP):
        size = min(_GROUP, total - first)
        if stopped():
            raise StoppedError
        for dialogue in stream(rng, size, first):
            yield from dialogue.texts
