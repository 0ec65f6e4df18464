"""Join datasets of pairs to one, with the labels that all of them have: several players, or several rounds of play.

    python -m motif_jax.launch --config=configs/join_datasets.py --workdir=runs/joined --config.dataset_dirs=runs/random,runs/agent

Seconds to minutes. What comes out is a dataset in WORKDIR: the arrays that all of them have, the pairs of the first one first, `info/dataset` (from
which one a pair is, counted from 0), `preference/NAME.npy`, and `annotations/NAME/probabilities.npy` where all have it. Killed and started again
it writes the same.
"""

from motif_jax.core import sections
from motif_jax.schema import Key, configs

KEYS = {
    "stage": "join_datasets",
    "seed": sections.SEED,
    "dataset_dirs": Key("", "folders of pairs datasets, with commas between"),
    "names": Key("", "label files to join, with commas between; empty: all that every dataset has"),
}
get_config = configs(KEYS)
