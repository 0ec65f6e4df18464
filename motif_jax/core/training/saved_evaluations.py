"""Which saved evaluation of a training from a dataset is used where nobody names one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from motif_jax.core.checkpoint_items import JSON
from motif_jax.core.checkpoints import Checkpoints
from motif_jax.core.metric_files import best_row

_reported: set[tuple[Path, int]] = set()


def default_step(checkpoints: Checkpoints, config: Mapping[str, Any]) -> int | None:
    """The evaluation that is used where no step is given; None if there is none yet.

    It is the newest one; in a run that stops early, whose newest is `patience` evaluations too
    late, the best one, which is reported once in a process.
    """
    newest = checkpoints.latest()
    if newest is None or not config.get("early_stopping", {}).get("patience", 0):
        return newest
    rows = checkpoints.restore(newest, {"curve": JSON})["curve"]["rows"]
    best = int(rows[best_row(rows, "validation/loss")]["epoch"])
    if best == newest or best not in checkpoints.steps():
        return newest
    folder = checkpoints.folder.parent.resolve()
    if (folder, best) not in _reported:
        _reported.add((folder, best))
        print(
            f"{folder}: uses evaluation {best} of 0 to {newest}, which has the best validation loss (the run stops early); "
            "give a step for another"
        )
    return best
