"""Trains a model that says whether a comment will be liked, for the reward `upvote_model` of the task reddit (docs/reddit.md).

    python -m motif_jax.launch --config=configs/train_upvote.py --workdir=runs/upvote --config.reddit.folder=COMMENTS

Out come tokenizer/, tokens/, checkpoints/, metrics.jsonl, tensorboard/, summary.json, and model/, a RoBERTa that transformers opens, with
its head beside it. Stopped at any moment and started again with the same command it resumes, to the same parameters. Without a folder
comments are made up; a small RoBERTa learns those in a minute on 2 cores.

Variants: faithful (the published numbers: roberta-base, batch 16, learning rate 1e-5, no decay), smoke (seconds).
"""

from motif_jax import sections
from motif_jax.schema import LENGTH, Key, configs, positive, with_defaults

_SIZES = with_defaults(sections.MODEL_SIZES, width=128, layers=2, heads=4, max_length=256)
KEYS = {
    "stage": "train_upvote",
    "seed": sections.SEED_32,
    "reddit": {
        "folder": Key("", "with comments_positive.csv and comments_negative.csv; empty: made up"),
        "indexes": Key("", "a JSON list of rows that are used (published: the test split); empty: all"),
        "num_comments": positive(2000, "that are made up"),
        "data_seed": Key(1, "seed of the comments that are made up"),
    },
    "cutoff": Key(0, "comments with a higher score were liked"),
    "held_out_share": Key(0.1, "of the texts, to measure with", above=0, most=0.5),
    "network": {
        # With its tokenizer and, where it has one, its pooler.
        "checkpoint": Key(None, "a RoBERTa's folder or hub name; None: fresh, of these sizes", str),
        **_SIZES,
    },
    "vocab_size": positive(1024, "of the tokenizer that is learned for a fresh one"),
    "max_len": Key(
        256,
        "tokens of a comment that the model reads, with the two round it",
        least=3,
        most=LENGTH,
    ),
    "freeze": Key(False, "learns the head alone"),
    "batch_size": sections.batch(32, "comments of a step"),
    "accumulate": sections.ACCUMULATE,
    "max_steps": positive(300, "of the training"),
    "evaluate_every": positive(100, "steps"),
    "evaluation_batches": positive(64, "of held-out comments, at most"),
    "optimizer": with_defaults(sections.OPTIMIZER, learning_rate=3e-4, final_fraction=0.1)
    | {"weight_decay": sections.WEIGHT_DECAY},
    "dropout": sections.DROPOUT,
    "dtype": sections.DTYPE,
    "early_stopping": sections.EARLY_STOPPING,
    "keep_checkpoints": sections.KEEP_CHECKPOINTS,
    "num_devices": sections.NUM_DEVICES,
    "chunk_steps": sections.batch(4, "optimiser steps of one program"),
    "matmul_precision": sections.MATMUL_PRECISION,
    "save_every_seconds": sections.SAVE_EVERY_SECONDS,
    "nonfinite": sections.NONFINITE,
    "profile": sections.profile(),
    "wandb": sections.WANDB,
}
VARIANTS = {
    "faithful": {
        "network.checkpoint": "roberta-base",
        "batch_size": 16,
        "optimizer.learning_rate": 1e-5,
        "max_steps": 1_000_000,
        "evaluate_every": 4096,
        "evaluation_batches": 32,
    },
    "smoke": {
        "network": {"width": 32, "layers": 1, "heads": 2, "max_length": 64},
        "max_len": 64,
        "vocab_size": 320,
        "batch_size": 8,
        "max_steps": 8,
        "evaluate_every": 4,
        "reddit.num_comments": 200,
        "chunk_steps": 2,
        "evaluation_batches": 2,
    },
}
get_config = configs(KEYS, VARIANTS)
