"""Trains a reward model from the preferences of a dataset.

    python -m motif_jax.launch --config=configs/train_reward.py --workdir=runs/reward \
        --config.dataset_dir=DATASET --config.annotator=NAME

How long 10 epochs over 500,000 pairs take depends on the machine and on how many of the messages are distinct:
`configs/benchmark.py:reward --config.options.dataset_dir=DATASET` measures pairs a second.
Out come checkpoints/ (one an evaluation, with its own statistics and quantiles), train_metrics.csv, val_metrics.csv,
reward_metrics/train_norm_quantiles.csv, metrics.jsonl, tensorboard/ and summary.json. Stopped at any moment and
started again with the same command it resumes, to the same parameters.

Variants:
  (none)      the published hyperparameters, quirks of the published code off.
  faithful    the published command line, all published quirks on.
  quickstart  half a minute on 2 cores for 20,000 pairs.
  minigrid    the few captions of docs/results_minigrid.md: half a minute on 2 cores for 3,000 pairs.
  smoke       seconds: whether everything works.
"""

from motif_jax import sections
from motif_jax.schema import (
    DTYPES,
    SIZE,
    Key,
    configs,
    fraction,
    natural,
    one_of,
    positive,
    size,
    with_defaults,
)

KEYS = {
    "stage": "train_reward",
    "seed": sections.seed(777, most=2**32 - 1),
    "dataset_dir": Key(None, "folder of a pairs dataset", str),
    "annotator": Key(None, "names of label files, with commas between", str),
    "batch_size": sections.batch(1024, "pairs"),
    "epochs": natural(10, "over the pairs"),
    "train_fraction": Key(0.8, "of the pairs; losses are measured on the others", above=0, below=1),
    "network": {
        "message": one_of(("lt_cnn", "lt_cnn_small", "none"), "what reads the message"),
        "status": Key(False, "also reads the status line"),
        "crop": Key(False, "also reads a window of the map round the hero (needs the status)"),
        "glyphs": Key(False, "also reads the whole map"),
        "hidden_dim": Key(512, "of the layers; the first has half of it", least=2, most=SIZE),
        "embedding_dim": size(128, "of glyphs"),
        "crop_dim": positive(16, "of the window"),
        "num_layers": positive(2, "convolutions of the crop and of the map", most=4),
        "dtype": one_of(DTYPES, "of the computation"),
    },
    "optimizer": with_defaults(sections.OPTIMIZER, learning_rate=1e-5),
    "labels": {
        "soft": Key(False, "learns the annotators' probabilities instead of their labels"),
        "smoothing": fraction(0.0, "share of every target that is moved to one half each"),
        "confidence": one_of(("none", "probability"), "weighs pairs by the annotator's probability"),
        "ties": one_of(("half", "drop"), "'drop' leaves ties out of the loss"),
        "annotator_weights": Key("", "one number an annotator, such as '2,1'; empty: all count alike"),
    },
    "ensemble": {
        "members": size(1, "models from other initial parameters, side by side; their mean is the reward"),
        "bootstrap": Key(False, "each learns from its own sample of the pairs"),
    },
    "early_stopping": sections.EARLY_STOPPING,
    "num_devices": sections.NUM_DEVICES,
    "chunk_steps": sections.batch(32, "optimiser steps of one program"),
    "matmul_precision": sections.MATMUL_PRECISION,
    "save_every_seconds": sections.SAVE_EVERY_SECONDS,
    "nonfinite": sections.NONFINITE,
    "profile": sections.profile(),
    "wandb": sections.WANDB,
    "compat": sections.compat("running_statistics quantile_two_decimals glyph_crop_centre"),
}
_QUICK = {
    "batch_size": 256,
    "epochs": 4,
    "optimizer": {"learning_rate": 1e-3, "schedule": "cosine", "final_fraction": 0.05},
    "save_every_seconds": 30.0,
}
VARIANTS = {
    "faithful": {
        **sections.on(*KEYS["compat"]),
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
