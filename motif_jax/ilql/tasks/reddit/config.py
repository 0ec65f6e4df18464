"""The config of a training of a model of upvotes."""

from __future__ import annotations

from motif_jax import schema
from motif_jax.core import sections
from motif_jax.core.training.config import GradientConfig
from motif_jax.schema import (
    layer_size_key,
    length_key,
    plain_key,
    positive,
    section_class,
    subsection,
)


@section_class
class CommentFiles:
    """The comments of Reddit."""

    folder: str = plain_key(
        "", "folder with comments_positive.csv and comments_negative.csv; empty: made up"
    )
    indexes: str = plain_key(
        "", "a JSON list of rows that are used (published: the test split); empty: all"
    )
    num_comments: int = positive(2000, "number of comments that are made up")


@section_class
class UpvoteNetwork:
    """The classifier of comments."""

    # With its tokenizer and, where it has one, its pooler.
    checkpoint: str | None = plain_key(
        None, "a RoBERTa's folder or hub name; None: fresh, of these sizes"
    )
    width: int = layer_size_key(128, "width of the residual stream")
    layers: int = layer_size_key(2, "number of layers; of a T5, on each side")
    heads: int = layer_size_key(4, "number of attention heads")
    max_length: int = length_key(256, "positions of the table")


@section_class
class UpvoteConfig(GradientConfig):
    """A training of a model of upvotes."""

    reddit: CommentFiles = subsection(CommentFiles)
    cutoff: int = plain_key(0, "comments with a higher score were liked")
    network: UpvoteNetwork = subsection(UpvoteNetwork)
    vocab_size: int = positive(1024, "size of the vocabulary that is learned for a fresh tokenizer")
    max_len: int = plain_key(
        256,
        "tokens of a comment that the model reads, with the two around it",
        minimum=3,
        maximum=schema.LENGTH,
    )
    freeze: bool = plain_key(False, "learns the head alone")
    batch_size: int = sections.batch_size_key(32, "comments of a step")
    accumulate: int = sections.ACCUMULATE
    max_steps: int = positive(300, "number of optimiser steps of the training")
    evaluate_every: int = positive(100, "optimiser steps between evaluations")
    evaluation_batches: int = positive(
        64, "greatest number of batches of held-out comments in an evaluation"
    )
    optimizer: sections.DecayingOptimizer = subsection(
        sections.DecayingOptimizer, learning_rate=3e-4, final_fraction=0.1
    )
    dropout: float = sections.DROPOUT
    dtype: str = sections.DTYPE
    keep_checkpoints: int = sections.KEEP_CHECKPOINTS
    chunk_steps: int = sections.batch_size_key(4, "optimiser steps of one program")
