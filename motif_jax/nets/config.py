"""The section `network` of an agent that sees fields."""

from __future__ import annotations

from motif_jax.schema import (
    DTYPES,
    layer_size_key,
    one_of,
    plain_key,
    positive,
    section_class,
)


@section_class
class GameNetwork:
    """The network of an agent that sees fields."""

    encoder: str = one_of(
        ("auto", "nethack", "tiles", "tiles_underfoot", "flat", "film"),
        "'nethack' (window, status, message), 'flat' (all fields as numbers), 'auto': one of these by fields; 'tiles' (what 'nethack' "
        "reads, by embeddings in place of pictures: a tenth of the time), 'tiles_underfoot' (and remembers the tile that the hero "
        "covers); 'film' (BabyAI's view and instruction: image_features channels, words and the GRU that reads them "
        "message_features wide)",
    )
    read_text: bool = plain_key(
        False,
        "the network of gym:ID with environment.text=info:KEY or a function reads the caption's bytes, too; else only the reward does",
    )
    image_encoder: str = one_of(
        ("convnet_simple", "convnet_impala", "resnet_impala", "mlp"),
        "encoder of the image of the window",
    )
    image_features: int = layer_size_key(512, "size of the features of the image")
    vector_features: int = layer_size_key(128, "size of the features of the status")
    message_features: int = layer_size_key(128, "size of the features of the message")
    flat_sizes: tuple[int, ...] = layer_size_key((128,), "layers of the flat encoder")
    observation_normalisation: str = one_of(
        ("none", "running"),
        "'running': the flat encoder takes numbers less their mean over all steps so far and divides them by their standard deviation; "
        "pictures, captions and the one-hot values of Discrete spaces stay",
    )
    picture_normalisation: str = one_of(
        ("pixel", "picture"),
        "what the flat encoder normalises behind the first convolution of a picture: each pixel's channels by themselves, or those of "
        "the 'picture' together, which keeps how bright its parts are beside each other",
    )
    obs_scale: float = positive(255.0, "pixels are divided by it")
    nonlinearity: str = one_of(("elu", "relu", "tanh"), "nonlinearity of the encoders")
    core: str = one_of(("gru", "lstm", "none"), "kind of the recurrent memory")
    hidden_size: int = layer_size_key(512, "size of the recurrent memory")
    core_layers: int = layer_size_key(
        1, "number of layers of the recurrent memory", read_when=(".core", ("gru", "lstm"))
    )
    head_sizes: tuple[int, ...] = layer_size_key(
        (), "layers, with tanh, before the heads of policy and value"
    )
    separate_critic: bool = plain_key(False, "the value has a network of its own")
    # How the first convolution is computed: 'table' looks tiles up, which is fast on a CPU,
    # 'picture' draws them, 'auto' takes what suits the platform. Both have the same parameters.
    first_convolution: str = "auto"
    dtype: str = one_of(
        DTYPES, "dtype of the computation; parameters, states, losses and targets are float32"
    )
