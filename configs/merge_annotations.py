"""Combine several annotators' labels of a dataset, and print how much they agree (Cohen's kappa, by goal).

    python -m motif_jax.launch --config=configs/merge_annotations.py --workdir=runs/merge --config.dataset_dir=DATASET \
        --config.names=llama70b_msg_defaultgoal_default,llama13b_msg_defaultgoal_default --config.name=ensemble

Seconds. What comes out: the tables in the terminal and in agreement.txt, DATASET/preference/ensemble.npy and
DATASET/annotations/ensemble/probabilities.npy. Without a name only the tables; without names, of all label files.
"""

from motif_jax.core import sections
from motif_jax.schema import Key, configs, one_of

KEYS = {
    "stage": "merge_annotations",
    "seed": sections.SEED,
    "dataset_dir": Key("", "folder of a pairs dataset"),
    "names": Key("", "label files to combine, with commas between; empty: all of the dataset"),
    "name": Key("", "name of the label file to write; empty: only the tables"),
    "method": one_of(
        ("majority", "mean"),
        "majority: the verdict with most votes, a draw is a tie. mean: of the probabilities, where annotators keep them",
    ),
    "restart": Key(False, "replaces a label file of that name, and annotate's answers for it"),
}
get_config = configs(KEYS)
