"""Trains a reward model from the preferences of a dataset.

    python -m motif_jax.launch --config=configs/train_reward.py --workdir=runs/reward \
        --config.dataset_dir=DATASET --config.annotator=NAME

How long 10 epochs over 500,000 pairs take depends on the machine and on how many of the messages are distinct:
`configs/benchmark.py:reward --config.options.dataset_dir=DATASET` measures pairs a second.
Out come checkpoints/ (one an evaluation, with its own statistics and quantiles), train_metrics.csv, val_metrics.csv,
reward_metrics/train_norm_quantiles.csv, metrics.jsonl, tensorboard/ and summary.json. Stopped at any moment and
started again with the same command it goes on, to the same parameters.

Variants:
  (none)      the published hyperparameters, quirks of the published code off.
  faithful    the published command line, all published quirks on.
  quickstart  half a minute on 2 cores for 20,000 pairs.
  minigrid    the few captions of docs/results_minigrid.md: half a minute on 2 cores for 3,000 pairs.
  smoke       seconds: whether everything works.
"""

from __future__ import annotations

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from motif_jax.support import nonfinite
from motif_jax.support.config import all_compat_on, compat, unknown_variant

VARIANTS = ("", "faithful", "quickstart", "minigrid", "smoke")


def _network() -> ConfigDict:
    network = ConfigDict()
    network.message = "lt_cnn"  # 'lt_cnn_small', 'none'
    network.status = False  # also read the status line
    network.crop = False  # also read a window of the map round the hero (needs the status)
    network.glyphs = False  # also read the whole map
    network.hidden_dim = 512
    network.embedding_dim = 128  # of glyphs
    network.crop_dim = 16
    network.num_layers = 2  # convolutions of the crop and of the map
    network.dtype = "float32"  # of the computation: 'float32', 'bfloat16'
    return network


def _optimizer() -> ConfigDict:
    optimizer = ConfigDict()
    optimizer.learning_rate = 1e-5
    optimizer.schedule = "constant"  # 'linear', 'cosine'
    optimizer.warmup_steps = 0  # over so many the rate rises; then it falls until the last epoch ends
    optimizer.final_fraction = 0.0
    optimizer.b1 = 0.9
    optimizer.b2 = 0.999
    optimizer.eps = 1e-8
    optimizer.max_gradient_norm = 0.0  # 0: no clip
    return optimizer


def _labels() -> ConfigDict:
    labels = ConfigDict()
    labels.soft = False  # learn the annotators' probabilities instead of their labels
    labels.smoothing = 0.0  # share of every target that is moved to one half each
    labels.confidence = "none"  # 'probability': weigh pairs by the probability of the annotator's answer
    labels.ties = "half"  # 'drop' leaves ties out of the loss
    labels.annotator_weights = ""  # such as '2,1'; empty: all annotators count alike
    return labels


def get_config(variant: str | None = None) -> ConfigDict:
    config = ConfigDict()
    config.stage = "train_reward"
    config.seed = 777
    config.dataset_dir = placeholder(str)
    config.annotator = placeholder(str)  # names of label files, separated by commas
    config.batch_size = 1024  # pairs
    config.epochs = 10
    config.train_fraction = 0.8
    config.network = _network()
    config.optimizer = _optimizer()
    config.labels = _labels()
    # Models trained side by side from other initial parameters; their mean is the reward. bootstrap: each on
    # its own sample of the pairs.
    config.ensemble = ConfigDict({"members": 1, "bootstrap": False})
    # End when the validation loss was no better for so many evaluations, and use the best; 0: never.
    config.early_stopping = ConfigDict({"patience": 0})
    config.num_devices = placeholder(int)  # of this machine; None: all
    config.chunk_steps = 32  # optimiser steps of one program
    # Of float32 matrix products: 'highest', or 'default', which on recent GPUs rounds their factors to TF32 (10 bits).
    config.matmul_precision = "default"
    config.save_every_seconds = 300.0  # besides every epoch
    # Where a loss, a gradient or a parameter is not finite the step is not taken, and its batch is written to
    # nonfinite/step-N.npz: 'stop' ends the training there, 'skip' goes on, most_skips times at most.
    config.nonfinite = nonfinite.defaults()
    config.profile = ConfigDict({"start": placeholder(int), "steps": 2, "server_port": placeholder(int)})
    config.wandb = ConfigDict({"enabled": False, "project": "motif_jax", "name": placeholder(str)})
    config.compat = compat("running_statistics", "quantile_two_decimals", "glyph_crop_centre")
    if variant == "faithful":
        all_compat_on(config)
        config.matmul_precision = "highest"
        config.dataset_dir = "motif_dataset"
        config.annotator = "llama70b_msg_defaultgoal_default"
    elif variant in ("quickstart", "minigrid"):
        config.batch_size = 256
        config.epochs = 4
        if variant == "minigrid":
            config.batch_size, config.epochs = 64, 10
        config.optimizer.learning_rate = 1e-3
        config.optimizer.schedule = "cosine"
        config.optimizer.final_fraction = 0.05
        config.save_every_seconds = 30.0
    elif variant == "smoke":
        config.batch_size = 32
        config.epochs = 2
        config.network.message = "lt_cnn_small"
        config.network.hidden_dim = 64
        config.optimizer.learning_rate = 1e-3
        config.chunk_steps = 8
    elif variant not in (None, ""):
        raise unknown_variant(variant, VARIANTS)
    return config
