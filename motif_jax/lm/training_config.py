"""The config of a training of a language model on texts."""

from __future__ import annotations

from motif_jax.core import sections
from motif_jax.core.training.config import TextDatasetConfig
from motif_jax.schema import (
    layer_size_key,
    length_key,
    one_of,
    plain_key,
    positive,
    section_class,
    subsection,
)


@section_class
class HeldOutTexts:
    """Texts to measure with."""

    share: float = plain_key(
        0.02,
        "share of the items, evenly spread, on which perplexity is measured",
        above=0,
        maximum=0.5,
    )
    texts: str | None = plain_key(None, "files of held-out text, in place of a share")


@section_class
class FreshModel(sections.ModelSizes):
    """The model that is trained."""

    folder: str | None = plain_key(
        None, "fine-tunes this folder or hub model; keys below are those of a fresh one"
    )
    architecture: str = one_of(
        ("gpt2", "t5", "llama", "qwen2", "roberta"),
        "'t5' has the gated layers of version 1.1 and the tied head of version 1.0",
    )
    key_value_heads: int | None = positive(
        None, "fewer than heads in 'llama' and 'qwen2'; None: as many"
    )
    feed_forward: int | None = layer_size_key(
        None, "width of the feed-forward layers; None: 4 times the width"
    )
    max_length: int | None = length_key(None, "positions of the table; None: config.length")
    attention: str = one_of(
        ("random", "comparing"),
        "how a fresh model's attention begins; 'comparing': heads of a T5 look at equal tokens and at neighbours (docs/glam.md)",
    )


@section_class
class LearnedTokenizer:
    """The tokenizer of a model."""

    folder: str | None = plain_key(None, "folder with tokenizer.json; None: made from the texts")
    vocab_size: int = positive(32_768, "greatest size of the vocabulary")
    phrases: bool = plain_key(False, "merges over spaces too, up to the end of a sentence or line")
    phrase: str = plain_key(
        "", "a regular expression of a phrase; empty: up to the end of a sentence or line"
    )


@section_class
class LanguageModelConfig(TextDatasetConfig):
    """A training of a language model on texts."""

    texts: str | None = plain_key(None, "files and folders, with commas between them")
    tokens: str | None = plain_key(
        None, "tokens/ of another run, in place of texts; its tokenizer is named below"
    )
    held_out: HeldOutTexts = subsection(HeldOutTexts)
    model: FreshModel = subsection(FreshModel)
    tokenizer: LearnedTokenizer = subsection(LearnedTokenizer)
    objective: str | None = plain_key(
        None,
        "what is predicted: 'causal' (decoders), 'masked' (roberta), 'spans' or 'prefix' (t5); None: the first that the architecture has",
    )
    packing: str = one_of(
        ("windows", "items"),
        "'windows': items laid end to end and cut, none of them with a prompt; 'items': a row each, with rows of about one length together",
    )
    length: int = plain_key(1024, "tokens of a row", minimum=4, maximum=1 << 20)
    batch_size: int = sections.batch_size_key(256, "rows of a step")
    accumulate: int = sections.ACCUMULATE
    steps: int = positive(20_000, "number of optimiser steps of the training")
    evaluate_every: int = sections.EVALUATE_EVERY
    evaluation_batches: int | None = positive(
        None, "number of batches of held-out text in an evaluation; None: all"
    )
    optimizer: sections.DecayingOptimizer = subsection(
        sections.DecayingOptimizer,
        learning_rate=6e-4,
        schedule="cosine",
        warmup_steps=700,
        final_fraction=0.1,
        b2=0.95,
        max_gradient_norm=1.0,
        weight_decay=0.1,
    )
    dropout: float = plain_key(
        0.0, "left out while training, where the architecture has dropout", minimum=0, below=1
    )
    dtype: str = sections.DTYPE
    remat: bool = sections.REMAT
    logits_chunk: int | None = sections.LOGITS_CHUNK
    lora: sections.LoraOnBase = subsection(sections.LoraOnBase)
