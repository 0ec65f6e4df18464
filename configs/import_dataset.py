"""Makes a pairs dataset of a parquet file that export_dataset wrote.

    python -m motif_jax.launch --config=configs/import_dataset.py --workdir=DATASET --config.file=pairs.parquet

The workdir becomes the dataset folder. The same command again finds it done, or after a kill makes it anew; a folder that
holds another dataset is refused. What comes out is compared with the digests that the file brings.
"""

from __future__ import annotations

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from motif_jax.support.config import unknown_variant


def get_config(variant: str | None = None) -> ConfigDict:
    if variant not in (None, ""):
        raise unknown_variant(variant, ("",))
    config = ConfigDict()
    config.stage = "import_dataset"
    config.seed = 0
    config.file = placeholder(str)  # pairs.parquet
    return config
