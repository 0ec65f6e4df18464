"""Join datasets of pairs to one, with the labels that all of them have: several players, or several
rounds of play.

    python -m motif_jax.launch --config=configs/join_datasets.py --workdir=runs/joined \\
        --config.dataset_dirs=runs/random,runs/agent

Seconds to minutes. What comes out is a dataset in WORKDIR: the arrays that all of them have, the
pairs of the first one first, `info/dataset` (from which one a pair is, counted from 0),
`preference/NAME.npy`, and `annotations/NAME/probabilities.npy` where all have it. Killed and
started again it writes the same.
"""

from motif_jax.motif.config import JoinDatasetsConfig
from motif_jax.schema import configs, section_keys

KEYS = {"stage": "join_datasets", **section_keys(JoinDatasetsConfig)}
get_config = configs(KEYS)
