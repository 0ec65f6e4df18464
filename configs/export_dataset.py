"""Writes a pairs dataset with its preferences as one parquet file.

    python -m motif_jax.launch --config=configs/export_dataset.py --workdir=runs/export_dataset \\
        --config.dataset_dir=DATASET

Out comes pairs.parquet: messages as bytes, numbers as lists, a column for each annotation. Screens
(tty_*, glyphs) are left out unless asked for: --config.arrays=all. configs/import_dataset.py makes
a dataset folder of it again.
"""

from motif_jax.published.config import ExportDatasetConfig
from motif_jax.schema import configs, section_keys

KEYS = {"stage": "export_dataset", **section_keys(ExportDatasetConfig)}
get_config = configs(KEYS)
