"""Combine several annotators' labels of a dataset, and print how far they agree (Cohen's kappa, by goal).

    python -m motif_jax.launch --config=configs/merge_annotations.py --workdir=runs/merge --config.dataset_dir=DATASET \
        --config.names=llama70b_msg_defaultgoal_default,llama13b_msg_defaultgoal_default --config.name=ensemble

Seconds. What comes out: the tables in the terminal and in agreement.txt, DATASET/preference/ensemble.npy and
DATASET/annotations/ensemble/probabilities.npy. Without a name only the tables; without names, of all label files.
"""

from __future__ import annotations

from ml_collections import ConfigDict

from motif_jax.support.config import unknown_variant

VARIANTS = ("",)


def get_config(variant: str | None = None) -> ConfigDict:
    """The merge_annotations stage's config."""
    if (variant or "") not in VARIANTS:
        raise unknown_variant(variant, VARIANTS)
    config = ConfigDict()
    config.stage = "merge_annotations"
    config.seed = 0
    config.dataset_dir = ""
    # Label files to combine, separated by commas; empty: all of the dataset.
    config.names = ""
    # Name of the label file to write; empty: only the tables.
    config.name = ""
    # majority: the verdict with most votes, a draw is a tie. mean: of the probabilities, where annotators keep them.
    config.method = "majority"
    # Replace a label file of that name, and what annotate has answered under it.
    config.restart = False
    return config
