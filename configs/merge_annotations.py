"""Combine several annotators' labels of a dataset, and print how much they agree (Cohen's kappa, by
goal).

    python -m motif_jax.launch --config=configs/merge_annotations.py --workdir=runs/merge \\
        --config.dataset_dir=DATASET \\
        --config.names=llama70b_msg_defaultgoal_default,llama13b_msg_defaultgoal_default \\
        --config.name=ensemble

Seconds. What comes out: the tables in the terminal and in agreement.txt,
DATASET/preference/ensemble.npy and DATASET/annotations/ensemble/probabilities.npy. Without a name
only the tables; without names, of all label files.
"""

from motif_jax.motif.config import MergeAnnotationsConfig
from motif_jax.schema import configs, section_keys

KEYS = {"stage": "merge_annotations", **section_keys(MergeAnnotationsConfig)}
get_config = configs(KEYS)
