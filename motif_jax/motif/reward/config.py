"""The config of a training of a reward from pairs."""

from __future__ import annotations

from motif_jax import schema
from motif_jax.core import sections
from motif_jax.core.compat import QUANTILE_TWO_DECIMALS, quirk
from motif_jax.core.training.config import DatasetConfig
from motif_jax.schema import (
    DTYPES,
    fraction,
    layer_size_key,
    non_negative,
    one_of,
    plain_key,
    positive,
    section_class,
    subsection,
)


@section_class
class RewardNetworkSizes:
    """The network of a reward."""

    message: str = one_of(("lt_cnn", "lt_cnn_small", "none"), "encoder of the message")
    status: bool = plain_key(False, "also reads the status line")
    crop: bool = plain_key(
        False, "also reads a window of the map around the hero (needs the status)"
    )
    glyphs: bool = plain_key(False, "also reads the whole map")
    hidden_dim: int = plain_key(
        512, "size of the hidden layers; the first has half of it", minimum=2, maximum=schema.SIZE
    )
    embedding_dim: int = layer_size_key(128, "size of the embedding of a glyph")
    crop_dim: int = positive(
        16, "side of the window of glyphs around the hero", read_when=(".crop", (True,))
    )
    num_layers: int = positive(2, "convolutions of the crop and of the map", maximum=4)
    dtype: str = one_of(DTYPES, "dtype of the computation")


@section_class
class LabelUse:
    """How labels become targets."""

    soft: bool = plain_key(False, "learns the annotators' probabilities instead of their labels")
    smoothing: float = fraction(0.0, "share of every target that is moved to one half each")
    confidence: str = one_of(("none", "probability"), "weighs pairs by the annotator's probability")
    ties: str = one_of(("half", "drop"), "'drop' leaves ties out of the loss")
    annotator_weights: str = plain_key(
        "", "one number an annotator, such as '2,1'; empty: all count alike"
    )


@section_class
class Ensemble:
    """Models side by side."""

    members: int = layer_size_key(
        1, "models from other initial parameters, side by side; their mean is the reward"
    )


@section_class
class LeastSteps:
    """Optimiser steps that a small dataset gets at least: an epoch then passes over the pairs
    several times.
    """

    per_text: float = non_negative(
        0.0, "optimiser steps for each distinct message at least; 0: one pass an epoch"
    )
    most: int = non_negative(
        250, "greatest number of steps that per_text asks for; epochs of one pass may have more"
    )


@section_class
class RewardCompat:
    """Quirks of the published training of a reward, each off unless a config turns it on."""

    running_statistics: bool = quirk("mean and variance are merged batch by batch from a prior")
    quantile_two_decimals: bool = QUANTILE_TWO_DECIMALS
    glyph_crop_centre: bool = quirk(
        "the glyph crop sits at the map's top left and blends glyph numbers"
    )


@section_class
class RewardConfig(DatasetConfig):
    """A training of a reward model."""

    seed: int = sections.seed(777, maximum=2**32 - 1)
    dataset_dir: str | None = plain_key(
        None, "folder of a pairs dataset, or of several with commas between"
    )
    annotator: str | None = plain_key(
        None,
        "names of label files that annotate wrote (not the kind of judge), with commas between",
    )
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
    compat: RewardCompat = RewardCompat()
