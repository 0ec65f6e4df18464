"""Trains a model that says whether a comment will be liked, for the reward `upvote_model` of the
task reddit.
"""

from __future__ import annotations

import functools
from pathlib import Path

from ml_collections import ConfigDict

from motif_jax.core import config as checks
from motif_jax.core import run_folder
from motif_jax.core.devices.parallel import DataParallel
from motif_jax.core.devices.sharding import training_devices
from motif_jax.core.training import trainer
from motif_jax.ilql.config import UpvoteConfig
from motif_jax.ilql.tasks.reddit import upvote
from motif_jax.ilql.tasks.reddit.task import RECORDED
from motif_jax.lm import byte_pairs
from motif_jax.lm.text import fetch
from motif_jax.lm.tokens import Tokenizer
from motif_jax.schema import read_section

# A run is resumed only with the same values of these keys.
IDENTITY = (
    "stage",
    "seed",
    "reddit",
    "cutoff",
    "network",
    "vocab_size",
    "max_len",
    "freeze",
    "batch_size",
    "accumulate",
    "max_steps",
    "evaluate_every",
    "evaluation_batches",
    "chunk_steps",
    "optimizer",
    "dropout",
    "dtype",
    "early_stopping",
    "num_devices",
)


def check(config_tree: ConfigDict, workdir: Path) -> None:
    run_folder.check_identity(workdir, config_tree, IDENTITY)
    config = read_section(UpvoteConfig, config_tree)
    trainer.check(config, config.max_steps)
    upvote.task_of(config.reddit).check(RECORDED, RECORDED)
    tokenizer = None
    if config.network.checkpoint:
        tokenizer = Tokenizer.read(fetch(config.network.checkpoint, "network.checkpoint"))
    else:
        # A fresh tokenizer is trained by the run, whose size must hold every byte.
        least = byte_pairs.smallest("roberta")
        allowed = f"at least {least}: all bytes and special tokens"
        checks.require_key(config, "vocab_size", config.vocab_size >= least, allowed)
    settings = upvote.settings_of(config, tokenizer)
    if tokenizer is not None:
        upvote.check_checkpoint(config, tokenizer, settings)


def run(config_tree: ConfigDict, workdir: Path) -> int:
    config = read_section(UpvoteConfig, config_tree)
    parallel = DataParallel(training_devices(config.num_devices))
    build = functools.partial(upvote.build, config, workdir, parallel)
    return trainer.run(config, config_tree.to_dict(), workdir, IDENTITY, build)
