"""Writes a pairs dataset with its preferences as one parquet file.

    python -m motif_jax.launch --config=configs/export_dataset.py --workdir=runs/export_dataset --config.dataset_dir=DATASET

Out comes pairs.parquet: messages as bytes, numbers as lists, a column for each annotation. Screens (tty_*, glyphs) are
left out unless asked for: --config.arrays=all. configs/import_dataset.py makes a dataset folder of it again.
"""

from __future__ import annotations

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from motif_jax.support.config import unknown_variant


def get_config(variant: str | None = None) -> ConfigDict:
    if variant not in (None, ""):
        raise unknown_variant(variant, ("",))
    config = ConfigDict()
    config.stage = "export_dataset"
    config.seed = 0
    config.dataset_dir = placeholder(str)
    config.arrays = ""  # such as 'data/message,info/score'; 'all'; empty: all but screens
    return config
