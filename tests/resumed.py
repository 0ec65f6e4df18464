"""How far a run has come, and how much its next start does: a training that begins again ends with
the same bits as one that is resumed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from motif_jax.core.checkpoints import JSON, Checkpoints
from motif_jax.core.training.run_files import CHECKPOINTS, RESUME
from motif_jax.core.training.trainer import FINITE, OfflineTrainer
from motif_jax.lm.token_data import TokensWriter


@contextlib.contextmanager
def takes(steps: int) -> Iterator[None]:
    """Fails unless the offline trainings in the block take so many steps together."""
    train_chunk = OfflineTrainer.train_chunk
    chunk_steps: list[int] = []

    def count_steps(self: OfflineTrainer, *arguments: Any) -> Any:
        carry, call_metrics = train_chunk(self, *arguments)
        chunk_steps.append(sum(len(metrics[FINITE]) for metrics in call_metrics))
        return carry, call_metrics

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OfflineTrainer, "train_chunk", count_steps)
        yield
    assert sum(chunk_steps) == steps


def saved_step(workdir: Path) -> int:
    """The step that a run continues from, 0 where none was saved."""
    steps = [0]
    for folder in (workdir / CHECKPOINTS, workdir / RESUME):
        if folder.is_dir():
            with Checkpoints(folder, keep=None, read_only=True) as checkpoints:
                latest = checkpoints.latest()
                if latest is not None:
                    position = checkpoints.restore(latest, {"position": JSON})["position"]
                    steps.append(position["step"])
    return max(steps)


@contextlib.contextmanager
def tokenised(max_items: int | None = None) -> Iterator[list[Any]]:
    """Yields the items that datasets of tokens get in the block; after `max_items` of them it ends,
    as if it were killed there.
    """
    add = TokensWriter.add
    items = list[Any]()

    def add_and_note(self: TokensWriter, *arguments: Any, **named: Any) -> None:
        if len(items) == max_items:
            raise KeyboardInterrupt
        items.append(arguments)
        add(self, *arguments, **named)

    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
        patch.setattr(TokensWriter, "add", add_and_note)
        yield items
