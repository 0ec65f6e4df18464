"""Makes a run folder of a reward in a safetensors file."""

from __future__ import annotations

from pathlib import Path

from ml_collections import ConfigDict

from motif_jax.support import config as checks
from motif_jax.support.errors import UserError


def check(config: ConfigDict, workdir: Path) -> None:
    """Raises UserError if there is no such file or the folder holds another run."""
    checks.require(
        bool(config.file), "file", config.file, "a file: give it with --config.file=reward.safetensors"
    )
    checks.require(Path(config.file).is_file(), "file", config.file, "an existing file")
    if (workdir / "checkpoints").exists():
        raise UserError(f"--workdir={workdir} already holds checkpoints: choose another folder")


def run(config: ConfigDict, workdir: Path) -> None:
    """Reads the file and writes the folder."""
    from motif_jax.rewards import exchange

    reward = exchange.read_safetensors(config.file)
    exchange.write_run_folder(reward, workdir)
    print(f"{config.file}: evaluation {reward.step}, written to {workdir}")
