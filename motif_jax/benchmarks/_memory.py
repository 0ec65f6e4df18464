"""Shared parts of the benchmarks of memory: each side works in a process of its own, which imports
no more than it needs.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from motif_jax.benchmarks import result
from motif_jax.core.errors import UserError


def of_process(side: str, folder: Path) -> dict[str, float]:
    """Peaks of resident memory in GB of a process that does the work of `_alone.SIDES[side]`.

    Raises UserError where it fails.
    """
    command = [sys.executable, "-m", "motif_jax.benchmarks._alone", side, str(folder)]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode != 0:
        raise UserError(f"the process of side {side} failed: {ended.stderr.strip()[-2000:]}")
    # Libraries may print before it.
    return json.loads(ended.stdout.splitlines()[-1])


def line(
    config: ConfigDict, folder: Path, side: str, other_name: str, other: str | None
) -> dict[str, Any]:
    """The JSON line of a benchmark: peaks of both sides while they work; the ratio is better where
    it is lower.

    Args:
      folder: what both sides read.
      other_name: words for the user.
      other: the other side; None where it is not measured.
    """
    ours: list[dict[str, float]] = []
    others: list[dict[str, float]] = []
    for _ in range(config.repeats):
        ours.append(of_process(side, folder))
        if other is not None:
            others.append(of_process(other, folder))
    values = result(
        config,
        "GB",
        [memory["working"] for memory in ours],
        other_name,
        [memory["working"] for memory in others] if others else None,
        peak_with_start=max(memory["from_start"] for memory in ours),
    )
    if others:
        values["baseline"]["peak_with_start"] = max(memory["from_start"] for memory in others)
    return values
