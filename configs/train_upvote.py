"""Trains a model that says whether a comment will be liked, for the reward `upvote_model` of the task reddit (docs/reddit.md).

    python -m motif_jax.launch --config=configs/train_upvote.py --workdir=runs/upvote --config.reddit.folder=COMMENTS

Out come tokenizer/, tokens/, checkpoints/, metrics.jsonl, tensorboard/, summary.json, and model/, a RoBERTa that transformers opens, with
its head beside it. Stopped at any moment and started again with the same command it goes on, to the same parameters. Without a folder
comments are made up; a small RoBERTa learns those in a minute on 2 cores.

Variants: faithful (the published numbers: roberta-base, batch 16, learning rate 1e-5, no decay), smoke (seconds).
"""

from __future__ import annotations

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from motif_jax.support import nonfinite
from motif_jax.support.config import unknown_variant

VARIANTS = ("", "faithful", "smoke")


def get_config(variant: str | None = None) -> ConfigDict:
    if (variant or "") not in VARIANTS:
        raise unknown_variant(variant, VARIANTS)
    config = ConfigDict()
    config.stage = "train_upvote"
    config.seed = 0
    # The comments: a folder with comments_positive.csv and comments_negative.csv, and a JSON list of the rows that are used (published:
    # those of the test split), empty for all; without a folder num_comments are made up.
    config.reddit = ConfigDict({"folder": "", "indexes": "", "num_comments": 2000, "data_seed": 1})
    config.cutoff = 0  # comments with a higher score were liked
    config.held_out_share = 0.1  # of the texts, to measure with
    config.network = ConfigDict()
    # A RoBERTa's folder or hub name, with its tokenizer and, where it has one, its pooler; None: fresh, of these sizes.
    config.network.checkpoint = placeholder(str)
    config.network.width = 128
    config.network.layers = 2
    config.network.heads = 4
    config.network.max_length = 256
    config.vocab_size = 1024  # of the tokenizer that is learned for a fresh one
    config.max_len = 256  # tokens of a comment that count, in the training and wherever the model judges
    config.freeze = False  # learn the head alone
    config.batch_size = 32  # comments of a step
    config.accumulate = 1  # micro-batches of a step: less memory
    config.max_steps = 300
    config.evaluate_every = 100  # steps
    config.evaluation_batches = 64  # of held-out comments, at most
    config.optimizer = ConfigDict(
        {
            "learning_rate": 3e-4,
            "schedule": "constant",  # 'linear', 'cosine'
            "warmup_steps": 0,  # over so many the rate rises; then it falls until the last step
            "final_fraction": 0.1,
            "b1": 0.9,
            "b2": 0.999,
            "eps": 1e-8,
            "weight_decay": 0.0,  # of matrices, times the learning rate
            "max_gradient_norm": 0.0,  # 0: no clip
        }
    )
    config.dropout = 0.1  # share left out while training
    config.dtype = "float32"  # of the computation: 'bfloat16'
    # End when the loss on held-out comments was no better for so many evaluations, and use the best; 0: never.
    config.early_stopping = ConfigDict({"patience": 0})
    config.keep_checkpoints = 2  # the newest, besides the best
    # Of this machine; None: all. With dropout a run goes on with as many alone.
    config.num_devices = placeholder(int)
    config.chunk_steps = 4  # optimiser steps of one program
    # Of float32 matrix products: 'highest', or 'default', which on recent GPUs rounds their factors to TF32 (10 bits).
    config.matmul_precision = "default"
    config.save_every_seconds = 300.0  # besides every evaluation
    # Where a loss, a gradient or a parameter is not finite: 'stop' ends the training there, 'skip' goes on, most_skips times at most.
    config.nonfinite = nonfinite.defaults()
    config.profile = ConfigDict({"start": placeholder(int), "steps": 2, "server_port": placeholder(int)})
    config.wandb = ConfigDict({"enabled": False, "project": "motif_jax", "name": placeholder(str)})
    if variant == "faithful":
        config.network.checkpoint, config.batch_size = "roberta-base", 16
        config.optimizer.learning_rate, config.max_steps, config.evaluate_every = 1e-5, 1_000_000, 4096
        config.evaluation_batches = 32
    elif variant == "smoke":
        config.network.update({"width": 32, "layers": 1, "heads": 2, "max_length": 64})
        config.update(
            {"max_len": 64, "vocab_size": 320, "batch_size": 8, "max_steps": 8, "evaluate_every": 4}
        )
        config.reddit.num_comments, config.chunk_steps, config.evaluation_batches = 200, 2, 2
    return config
