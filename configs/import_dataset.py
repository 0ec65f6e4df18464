"""Makes a pairs dataset from a parquet file that export_dataset wrote.

    python -m motif_jax.launch --config=configs/import_dataset.py --workdir=DATASET \\
        --config.file=pairs.parquet

The workdir becomes the dataset folder. The same command again finds it done, or starts over after a
kill; a folder that holds another dataset is refused. The result is compared with the digests in the
file.
"""

from motif_jax.published.config import ImportDatasetConfig
from motif_jax.schema import configs, section_keys

KEYS = {"stage": "import_dataset", **section_keys(ImportDatasetConfig)}
get_config = configs(KEYS)
