"""Trains a reward model from the preferences of a dataset.

    python -m motif_jax.launch --config=configs/train_reward.py --workdir=runs/reward \\
        --config.dataset_dir=DATASET --config.annotator=NAME

How long 10 epochs over 500,000 pairs take depends on the machine and on how many of the messages
are distinct: `configs/benchmark.py:reward --config.options.dataset_dir=DATASET` measures pairs a
second.

Out come checkpoints/ (one an evaluation, with its own statistics and quantiles), train_metrics.csv,
val_metrics.csv, reward_metrics/train_norm_quantiles.csv, metrics.jsonl, tensorboard/ and
summary.json. Stopped at any moment and started again with the same command it resumes, to the same
parameters.

Variants:
  (none)      the published hyperparameters, quirks of the published code off.
  faithful    the published command line, all published quirks on.
  quickstart  half a minute on 2 cores for 20,000 pairs.
  minigrid    the few captions of docs/studies/minigrid.md: half a minute on 2 cores for 3,000
              pairs.
  smoke       seconds: whether everything works.
"""

from motif_jax.core import compat
from motif_jax.motif.reward.config import RewardCompat, RewardConfig
from motif_jax.schema import configs, section_keys

KEYS = {
    "stage": "train_reward",
    **section_keys(RewardConfig),
    "compat": compat.switches(
        "running_statistics quantile_two_decimals glyph_crop_centre", RewardCompat
    ),
}
_QUICK = {
    "batch_size": 256,
    "epochs": 4,
    # A few hundred pairs are a few steps, which teach nothing of a rare text.
    "least_steps.per_text": 20.0,
    "optimizer": {"learning_rate": 1e-3, "schedule": "cosine", "final_fraction": 0.05},
    "save_every_seconds": 30.0,
}
VARIANTS = {
    "faithful": {
        **compat.switched_on(*KEYS["compat"]),
        "matmul_precision": "highest",
        "dataset_dir": "motif_dataset",
        "annotator": "llama70b_msg_defaultgoal_default",
    },
    "quickstart": _QUICK,
    "minigrid": {**_QUICK, "batch_size": 64, "epochs": 10},
    "smoke": {
        "batch_size": 32,
        "epochs": 2,
        "network": {"message": "lt_cnn_small", "hidden_dim": 64},
        "optimizer.learning_rate": 1e-3,
        "chunk_steps": 8,
    },
}
get_config = configs(KEYS, VARIANTS)
