"""The configs of trainings from datasets: of rewards, language models, agents that write, clones and models of upvotes."""

from __future__ import annotations

from motif_jax import schema
from motif_jax.core import sections
from motif_jax.rl.config import PlayedTask
from motif_jax.rl.policy_config import LanguagePolicy
from motif_jax.schema import (
    DTYPES,
    fraction,
    layer_size_key,
    length_key,
    non_negative,
    one_of,
    plain_key,
    positive,
    section_class,
    subsection,
)


@section_class
class DatasetConfig:
    """What trainings from datasets have in common."""

    seed: int = sections.SEED_32
    batch_size: int
    accumulate: int = 1
    chunk_steps: int
    optimizer: sections.Optimizer
    early_stopping: sections.EarlyStopping = subsection(sections.EarlyStopping)
    num_devices: int | None = sections.NUM_DEVICES
    sharding: sections.Sharding | None = None
    hosts: sections.ClusterHosts | None = None
    matmul_precision: str = sections.MATMUL_PRECISION
    keep_checkpoints: int | None = None
    save_every_seconds: float = sections.SAVE_EVERY_SECONDS
    log_every_seconds: float | None = None
    nonfinite: sections.Nonfinite = subsection(sections.Nonfinite)
    profile: sections.Profile = subsection(sections.Profile)
    wandb: sections.Wandb = subsection(sections.Wandb)
    compat: sections.Compat = sections.Compat()


@section_class
class GradientConfig(DatasetConfig):
    """What trainings whose evaluations are so many steps apart have in common."""

    evaluate_every: int
    evaluation_batches: int | None
    dropout: float = 0.0


@section_class
class TextDatasetConfig(GradientConfig):
    """What trainings of language models and of agents that write have in common."""

    keep_checkpoints: int = sections.KEEP_CHECKPOINTS
    sharding: sections.Sharding = subsection(sections.Sharding)
    chunk_steps: int = sections.CHUNK_STEPS
    hosts: sections.ClusterHosts = subsection(sections.ClusterHosts)


@section_class
class RewardNetworkSizes:
    """The network of a reward."""

    message: str = one_of(("lt_cnn", "lt_cnn_small", "none"), "encoder of the message")
    status: bool = plain_key(False, "also reads the status line")
    crop: bool = plain_key(False, "also reads a window of the map round the hero (needs the status)")
    glyphs: bool = plain_key(False, "also reads the whole map")
    hidden_dim: int = plain_key(
        512, "size of the hidden layers; the first has half of it", minimum=2, maximum=schema.SIZE
    )
    embedding_dim: int = layer_size_key(128, "size of the embedding of a glyph")
    crop_dim: int = positive(16, "side of the window of glyphs around the hero")
    num_layers: int = positive(2, "convolutions of the crop and of the map", maximum=4)
    dtype: str = one_of(DTYPES, "dtype of the computation")


@section_class
class LabelUse:
    """How labels become targets."""

    soft: bool = plain_key(False, "learns the annotators' probabilities instead of their labels")
    smoothing: float = fraction(0.0, "share of every target that is moved to one half each")
    confidence: str = one_of(("none", "probability"), "weighs pairs by the annotator's probability")
    ties: str = one_of(("half", "drop"), "'drop' leaves ties out of the loss")
    annotator_weights: str = plain_key("", "one number an annotator, such as '2,1'; empty: all count alike")


@section_class
class Ensemble:
    """Models side by side."""

    members: int = layer_size_key(
        1, "models from other initial parameters, side by side; their mean is the reward"
    )
    bootstrap: bool = plain_key(False, "trains each member on its own sample of the pairs")


@section_class
class LeastSteps:
    """Optimiser steps that a small dataset gets at least: an epoch then passes over the pairs several times."""

    per_text: float = non_negative(
        0.0, "optimiser steps for each distinct message at least; 0: one pass an epoch"
    )
    most: int = non_negative(
        250, "greatest number of steps that per_text asks for; epochs of one pass may have more"
    )


@section_class
class RewardConfig(DatasetConfig):
    """A training of a reward model."""

    seed: int = sections.seed(777, maximum=2**32 - 1)
    dataset_dir: str | None = plain_key(None, "folder of a pairs dataset")
    annotator: str | None = plain_key(None, "names of label files, with commas between")
    batch_size: int = sections.batch_size_key(1024, "number of pairs in a batch")
    epochs: int = non_negative(10, "number of epochs over the pairs")
    least_steps: LeastSteps = subsection(LeastSteps)
    train_fraction: float = plain_key(
        0.8, "share of the pairs to train on; losses are measured on the others", above=0, below=1
    )
    network: RewardNetworkSizes = subsection(RewardNetworkSizes)
    optimizer: sections.Optimizer = subsection(sections.Optimizer, learning_rate=1e-5)
    labels: LabelUse = subsection(LabelUse)
    ensemble: Ensemble = subsection(Ensemble)
    chunk_steps: int = sections.batch_size_key(32, "optimiser steps of one program")


@section_class
class PublishedArrays:
    """Published trajectories."""

    dir: str | None = plain_key(
        None,
        "folder of published arrays in place of trajectories: DIR/NAME_prompts_NUMBER.npy, NAME_actions_NUMBER.npy",
    )
    name: str = plain_key("trajectories", "NAME of the published arrays, see dir")
    number: int = non_negative(13, "NUMBER of the published arrays, see dir")


@section_class
class CloningConfig(GradientConfig):
    """A training of a language agent on trajectories."""

    seed: int = sections.SEED
    trajectories: str | None = plain_key(None, "folder of collect_trajectories to learn from")
    # Arrays of Python objects are refused.
    published: PublishedArrays = subsection(PublishedArrays)
    train_pairs: int | None = positive(
        None, "the first ones (published: 400,000); None: all but held_out_share"
    )
    held_out_share: float = plain_key(
        0.05, "share of the steps that is held out to measure with", above=0, maximum=0.5
    )
    loss: str = one_of(
        ("tokens", "candidates"),
        "'tokens': cross-entropy of each token of the action's words and of the end token after them, as published. 'candidates': "
        "cross-entropy of the action among all actions, as PPO acts",
    )
    target_tokens: int = layer_size_key(3, "number of pads, at most, that count with compat.bc_pad_in_loss")
    batch_size: int = sections.batch_size_key(64, "steps of a batch")
    accumulate: int = sections.ACCUMULATE
    epochs: int = positive(1, "passes over the pairs")
    evaluate_every: int = positive(250, "optimiser steps between evaluations")
    evaluation_batches: int = positive(64, "greatest number of batches of held-out steps in an evaluation")
    chunk_steps: int = sections.CHUNK_STEPS
    warmup_share: float = fraction(
        0.01, "share of the steps that warm up, where optimizer.warmup_steps is None"
    )
    optimizer: sections.Optimizer = subsection(
        sections.Optimizer, learning_rate=5e-4, schedule="cosine", warmup_steps=None, max_gradient_norm=0.0
    )
    # What a language agent is made of.
    network: LanguagePolicy = subsection(LanguagePolicy)
    lora: sections.LoraOnBase = subsection(sections.LoraOnBase, rank=16, alpha=32.0)
    # Of our trajectories name, options and the wording of French goals (compat.glam_french_goal) are theirs.
    environment: PlayedTask = PlayedTask()
    keep_checkpoints: int = positive(
        3, "number of newest evaluations whose checkpoints stay, besides the best"
    )
    profile: sections.Profile = subsection(sections.Profile, steps=5)

    @property
    def source(self) -> str:
        """The place of the trajectories."""
        return self.trajectories or self.published.dir or ""


@section_class
class HeldOutTexts:
    """Texts to measure with."""

    share: float = plain_key(
        0.02, "share of the items, evenly spread, on which perplexity is measured", above=0, maximum=0.5
    )
    texts: str | None = plain_key(None, "files of held-out text, in place of a share")


@section_class
class FreshModel(sections.ModelSizes):
    """The model that is trained."""

    folder: str | None = plain_key(
        None, "fine-tunes this folder or hub model; keys below are those of a fresh one"
    )
    architecture: str = one_of(("gpt2", "t5", "llama", "qwen2", "roberta"), "'t5' as version 1.1")
    key_value_heads: int | None = positive(None, "fewer than heads in 'llama' and 'qwen2'; None: as many")
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
    most_texts: int = positive(1_000_000, "texts that it is made from, the first ones")


@section_class
class LanguageModelConfig(TextDatasetConfig):
    """A training of a language model on texts."""

    texts: str | None = plain_key(None, "files and folders, with commas between them")
    text_item: str = one_of(
        ("paragraph", "line", "file"), "what is one text in .txt and .md files; empty lines divide paragraphs"
    )
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


@section_class
class CommentFiles:
    """The comments of Reddit."""

    folder: str = plain_key("", "folder with comments_positive.csv and comments_negative.csv; empty: made up")
    indexes: str = plain_key("", "a JSON list of rows that are used (published: the test split); empty: all")
    num_comments: int = positive(2000, "number of comments that are made up")
    data_seed: int = plain_key(1, "seed of the comments that are made up")


@section_class
class UpvoteNetwork:
    """The classifier of comments."""

    # With its tokenizer and, where it has one, its pooler.
    checkpoint: str | None = plain_key(None, "a RoBERTa's folder or hub name; None: fresh, of these sizes")
    width: int = layer_size_key(128, "width of the residual stream")
    layers: int = layer_size_key(2, "number of layers; of a T5, on each side")
    heads: int = layer_size_key(4, "number of attention heads")
    max_length: int = length_key(256, "positions of the table")


@section_class
class UpvoteConfig(GradientConfig):
    """A training of a model of upvotes."""

    reddit: CommentFiles = subsection(CommentFiles)
    cutoff: int = plain_key(0, "comments with a higher score were liked")
    held_out_share: float = plain_key(
        0.1, "share of the texts that is held out to measure with", above=0, maximum=0.5
    )
    network: UpvoteNetwork = subsection(UpvoteNetwork)
    vocab_size: int = positive(1024, "size of the vocabulary that is learned for a fresh tokenizer")
    max_len: int = plain_key(
        256,
        "tokens of a comment that the model reads, with the two round it",
        minimum=3,
        maximum=schema.LENGTH,
    )
    freeze: bool = plain_key(False, "learns the head alone")
    batch_size: int = sections.batch_size_key(32, "comments of a step")
    accumulate: int = sections.ACCUMULATE
    max_steps: int = positive(300, "number of optimiser steps of the training")
    evaluate_every: int = positive(100, "optimiser steps between evaluations")
    evaluation_batches: int = positive(64, "greatest number of batches of held-out comments in an evaluation")
    optimizer: sections.DecayingOptimizer = subsection(
        sections.DecayingOptimizer, learning_rate=3e-4, final_fraction=0.1
    )
    dropout: float = sections.DROPOUT
    dtype: str = sections.DTYPE
    keep_checkpoints: int = sections.KEEP_CHECKPOINTS
    chunk_steps: int = sections.batch_size_key(4, "optimiser steps of one program")
