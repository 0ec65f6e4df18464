"""Makes a pairs dataset from a parquet file that export_dataset wrote.

    python -m motif_jax.launch --config=configs/import_dataset.py --workdir=DATASET --config.file=pairs.parquet

The workdir becomes the dataset folder. The same command again finds it done, or starts over after a kill; a folder that
holds another dataset is refused. The result is compared with the digests in the file.
"""

from motif_jax.core import sections
from motif_jax.schema import Key, configs

KEYS = {
    "stage": "import_dataset",
    "seed": sections.SEED,
    "file": Key(None, "file pairs.parquet of export_dataset", str),
}
get_config = configs(KEYS)
