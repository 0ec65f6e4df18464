"""How far a run has come, and how much its next start does: a training that begins again ends with the same bits as one that is resumed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from motif_jax.core.checkpoint_items import JSON
from motif_jax.core.checkpoints import Checkpoints
from motif_jax.core.training.records import CHECKPOINTS, RESUME
from motif_jax.core.training.train_steps import FINITE
from motif_jax.core.training.trainer import OfflineTrainer
from motif_jax.lm.token_data.writer import TokensWriter


@contextlib.contextmanager
def takes(steps: int) -> Iterator[None]:
    """Fails where the offline trainings in the block take other than so many steps together."""
    train_chunk = OfflineTrainer.train_chunk
    taken = [0]

    def counted(self: OfflineTrainer, *arguments: Any) -> Any:
        carry, numbers = train_chunk(self, *arguments)
        taken.append(sum(len(part[FINITE]) for part in numbers))
        return carry, numbers

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OfflineTrainer, "train_chunk", counted)
        yield
    assert sum(taken) == steps


def saved_step(workdir: Path) -> int:
    """The step that a run continues from, 0 where none was saved."""
    count = [0]
    for folder in (workdir / CHECKPOINTS, workdir / RESUME):
        if folder.is_dir():
            with Checkpoints(folder, keep=None, read_only=True) as checkpoints:
                if (latest := checkpoints.latest()) is not None:
                    count.append(checkpoints.restore(latest, {"position": JSON})["position"]["step"])
    return max(count)


@contextlib.contextmanager
def tokenised(max_items: int | None = None) -> Iterator[list[Any]]:
    """Gives the items that datasets of tokens get in the block; the one behind `most` of them ends it, as if it were killed there."""
    add = TokensWriter.add
    items = list[Any]()

    def told(self: TokensWriter, *arguments: Any, **named: Any) -> None:
        if len(items) == max_items:
            raise KeyboardInterrupt
        items.append(arguments)
        add(self, *arguments, **named)

    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
        patch.setattr(TokensWriter, "add", told)
        yield items
