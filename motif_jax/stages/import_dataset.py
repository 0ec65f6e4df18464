"""Makes a pairs dataset of a parquet file."""

from __future__ import annotations

from pathlib import Path

from ml_collections import ConfigDict

from motif_jax.datasets import parquet
from motif_jax.datasets.pairs import PairsDataset
from motif_jax.support import config as checks


def check(config: ConfigDict, workdir: Path) -> None:
    """Raises UserError if there is no such file."""
    del workdir
    checks.require(bool(config.file), "file", config.file, "a file: give it with --config.file=pairs.parquet")
    checks.require(Path(config.file).is_file(), "file", config.file, "an existing file")


def run(config: ConfigDict, workdir: Path) -> None:
    """Writes the dataset folder."""
    pairs = max(parquet.read(config.file, workdir))
    dataset = PairsDataset.open(workdir)
    print(f"{workdir}: {pairs:,} pairs, content {dataset.content_hash()}")
