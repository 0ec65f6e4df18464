"""Serves synthetic pictures over the published protocol of visual dialogue."""

from __future__ import annotations

from pathlib import Path

from ml_collections import ConfigDict

from motif_jax.envs.scenes import files
from motif_jax.envs.scenes.replies import Replies
from motif_jax.envs.scenes.speaking import Speaker
from motif_jax.support import config as checks
from motif_jax.support import http_server

NEEDS_WORKDIR = False


def check(config: ConfigDict, workdir: Path | None) -> None:
    """Raises UserError for a bad value."""
    del workdir
    checks.positive(config, "latency_seconds", allow_zero=True)
    checks.port(config, "port")
    count = config.num_val
    checks.require(isinstance(count, int) and count > 0, "num_val", count, "a whole number above 0")
    checks.require(isinstance(config.data_seed, int), "data_seed", config.data_seed, "a whole number")


def run(config: ConfigDict, workdir: Path | None) -> int:
    """Serves until it is told to stop."""
    del workdir
    pool = files.features(files.draw(config.data_seed, "val", config.num_val))

    def listening(port: int) -> None:
        print(f"scenes are talked about at http://{config.host}:{port}", flush=True)

    http_server.run(
        Replies(Speaker(pool)).handle, config.host, config.port, config.latency_seconds, listening
    )
    return 0
