"""Writes a pairs dataset with its preferences as one parquet file.

    python -m motif_jax.launch --config=configs/export_dataset.py --workdir=runs/export_dataset --config.dataset_dir=DATASET

Out comes pairs.parquet: messages as bytes, numbers as lists, a column for each annotation. Screens (tty_*, glyphs) are
left out unless asked for: --config.arrays=all. configs/import_dataset.py makes a dataset folder of it again.
"""

from motif_jax.core import sections
from motif_jax.schema import Key, configs

KEYS = {
    "stage": "export_dataset",
    "seed": sections.SEED,
    "dataset_dir": Key(None, "folder of a pairs dataset", str),
    "arrays": Key("", "such as 'data/message,info/score'; 'all'; empty: all but screens"),
}
get_config = configs(KEYS)
