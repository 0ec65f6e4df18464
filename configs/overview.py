"""A page of what lies in a folder of runs: state, newest value and curve of each, and links to its reports.

    python -m motif_jax.launch --config=configs/overview.py --config.runs=runs

Writes RUNS/overview.html (or WORKDIR/overview.html, where --workdir is given). While runs go on it is written anew, and a browser
that shows it loads it again; it ends when none goes on any more, or on Ctrl-C. Reads only; seconds.
"""

from __future__ import annotations

from ml_collections import ConfigDict

from motif_jax.support.config import unknown_variant


def get_config(variant: str | None = None) -> ConfigDict:
    if variant not in (None, ""):
        raise unknown_variant(variant, ("",))
    config = ConfigDict()
    config.stage = "overview"
    config.runs = "runs"  # folder in which the runs lie, however deep
    config.refresh_seconds = 10.0  # while runs go on; 0: write it once
    return config
