"""Trains a model that says whether a comment will be liked, for the reward `upvote_model` of the
task reddit (docs/reddit.md).

    python -m motif_jax.launch --config=configs/train_upvote.py --workdir=runs/upvote \\
        --config.reddit.folder=COMMENTS

Out come tokenizer/, tokens/, checkpoints/, metrics.jsonl, tensorboard/, summary.json, and model/, a
RoBERTa that transformers opens, with its head beside it. Stopped at any moment and started again
with the same command it resumes, to the same parameters. Without a folder comments are made up; a
small RoBERTa learns those in a minute on 2 cores.

Variants: faithful (the published numbers: roberta-base, batch 16, learning rate 1e-5, no decay),
smoke (seconds).
"""

from motif_jax.ilql.config import UpvoteConfig
from motif_jax.schema import configs, section_keys

KEYS = {
    "stage": "train_upvote",
    **section_keys(UpvoteConfig),
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
