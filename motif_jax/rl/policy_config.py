"""The sections `network` and `algorithm` of agents, by their kinds."""

from __future__ import annotations

from motif_jax.core import sections
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
        ("convnet_simple", "convnet_impala", "resnet_impala", "mlp"), "encoder of the image of the window"
    )
    image_features: int = layer_size_key(512, "size of the features of the image")
    vector_features: int = layer_size_key(128, "size of the features of the status")
    message_features: int = layer_size_key(128, "size of the features of the message")
    flat_sizes: tuple[int, ...] = layer_size_key((128,), "layers of the flat encoder")
    obs_scale: float = positive(255.0, "pixels are divided by it")
    nonlinearity: str = one_of(("elu", "relu", "tanh"), "nonlinearity of the encoders")
    core: str = one_of(("gru", "lstm", "none"), "kind of the recurrent memory")
    hidden_size: int = layer_size_key(512, "size of the recurrent memory")
    core_layers: int = layer_size_key(1, "number of layers of the recurrent memory")
    head_sizes: tuple[int, ...] = layer_size_key(
        (), "layers, with tanh, before the heads of policy and value"
    )
    separate_critic: bool = plain_key(False, "the value has a network of its own")
    first_convolution: str = one_of(
        ("auto", "table", "picture"), "looks tiles up (fast on CPU), or draws them"
    )
    dtype: str = one_of(
        DTYPES, "dtype of the computation; parameters, states, losses and targets are float32"
    )


@section_class
class LanguagePolicy:
    """A language model as an agent."""

    kind: str = one_of(("language",), "kind of policy, a language model that scores actions")
    model: str = plain_key("", "a folder, or a name of the Hugging Face hub")
    pretrained: bool = plain_key(
        True, "starts from the weights in the model's folder; False: fresh weights of the model's shapes"
    )
    keep_embedding: bool = plain_key(False, "takes the folder's embeddings all the same, with fresh weights")
    policy: str = one_of(
        ("score", "actions"), "scores the actions' words, or has a head on the value's state"
    )
    score: str = one_of(
        ("log_probability", "raw_logit", "scaled_probability"),
        "score of an action by its words: the sum of their tokens' log-probabilities, or of their logits, or the product of their tokens' "
        "probabilities over the greatest of all actions'",
    )
    by_length: bool = plain_key(False, "divides an action's sum by its number of tokens")
    special_tokens: str = one_of(
        ("prompt", "nowhere"),
        "where the tokens that the tokenizer adds to a text (such as T5's end token) stand: round the prompt, as in pretraining, or "
        "nowhere, as in the released code",
    )
    head_widths: tuple[int, ...] = layer_size_key(
        (1024, 1024), "sizes of the hidden layers of the value's and the action's heads"
    )
    prompt_tokens: int = length_key(
        512, "greatest number of tokens of a prompt; batches are padded to the longest in them"
    )
    dtype: str = sections.DTYPE
    remat: bool = sections.REMAT


@section_class
class DrrnPolicy:
    """DRRN (He et al. 2016) as an agent, with the published sizes."""

    kind: str = one_of(("drrn",), "kind of policy, the DRRN baseline")
    tokenizer: str = plain_key("", "a tokenizer.json, or a folder with one")
    embedding: int = layer_size_key(128, "width of a token's")
    hidden_size: int = layer_size_key(128, "size of both encoders and of the layer before Q")
    prompt_tokens: int = length_key(
        512, "greatest number of tokens of a prompt; batches are padded to the longest in them"
    )


@section_class
class Appo:
    """APPO (rl/algorithms/appo.py)."""

    name: str = plain_key(
        "appo", "algorithm, or module:Class of your own (motif_jax/rl/algorithms/registry.py)"
    )
    gamma: float = fraction(0.99, "discount of a step")
    advantage: str = one_of(("vtrace", "gae"), "how advantages are estimated")
    # Where rewards are rare most batches hold none, and by its own spread a batch's noise becomes as large as they are.
    advantage_scale: str = one_of(
        ("batch", "returns"),
        "what advantages are divided by: their standard deviation in the batch, or that of value targets of many batches "
        "('returns', with a value_normalisation)",
    )
    rho_clip: float = positive(1.0, "clipping of V-trace's weights of temporal differences (rho bar)")
    c_clip: float = positive(1.0, "clipping of V-trace's weights of traces (c bar)")
    gae_lambda: float = fraction(
        0.95, "lambda of generalised advantage estimation, where advantages are 'gae'"
    )
    ratio_min: float = positive(
        0.05, "smallest ratio of the policies in the losses, which is 1 where nothing has changed", below=1
    )
    ratio_max: float = plain_key(
        20.0, "greatest ratio of the policies in the losses, which is 1 where nothing has changed", above=1
    )
    clip_ratio: float = positive(
        0.1, "clipping range of the surrogate's probability ratio; 0.1: [1 / 1.1, 1.1]"
    )
    clip_value: float = positive(1.0, "greatest change of the value in its clipped loss")
    value_coefficient: float = non_negative(0.5, "weight of the value loss")
    exploration: str = one_of(("entropy", "symmetric_kl", "none"), "the loss that keeps the policy exploring")
    exploration_coefficient: float = non_negative(0.003, "weight of the loss that exploration names")
    epochs: int = positive(1, "passes over a batch")
    # Each deals with a rollout of every `minibatches` consecutive ones: the same on any number of devices.
    minibatches: int = positive(1, "minibatches of a pass, each of whole rollouts (docs/clusters.md)")
    max_policy_lag: int = positive(10_000, "updates; older rows are left out of the losses", below=1 << 31)
    value_normalisation: str = one_of(("none", "running", "popart"), "normalisation of the targets of values")
    value_statistics_rate: float = fraction(3e-4, "update rate of the statistics of value_normalisation")


@section_class
class Ppo:
    """PPO in minibatches of steps or sequences (rl/algorithms/ppo_update.py)."""

    name: str = plain_key(
        "ppo", "algorithm, or module:Class of your own (motif_jax/rl/algorithms/registry.py)"
    )
    gamma: float = fraction(0.99, "discount of a step")
    gae_lambda: float = fraction(0.99, "lambda of generalised advantage estimation")
    clip_ratio: float = positive(0.2, "clipping range of the surrogate's probability ratio; 0.2: [0.8, 1.2]")
    clip_value: float = positive(0.2, "greatest change of the value in its clipped loss")
    value_coefficient: float = non_negative(0.5, "weight of the value loss")
    entropy_coefficient: float = non_negative(0.01, "weight of the entropy loss")
    epochs: int = positive(4, "passes over a batch")
    minibatch_size: int = sections.batch_size_key(64, "steps, of all devices together")
    microbatch_size: int = sections.batch_size_key(
        16, "steps of a minibatch at a time on a device: changes memory alone"
    )
    recurrence: int = positive(1, "steps that gradients run back through; a language model has no memory: 1")
    normalise_advantage: bool = plain_key(
        False, "subtracts the batch's mean, divides by its standard deviation"
    )
    kl_limit: float | None = positive(
        None, "nats from the policy that played until an update ends; None: never"
    )
    kl: sections.Kl = subsection(sections.Kl)
    positive_reward: bool = plain_key(True, "negative rewards of the task count as 0, as published")
    broadcast_rows: int = positive(16, "steps of a published process, with compat.glam_value_broadcast")


@section_class
class QLearning:
    """DRRN's Q-learning (glam/drrn_update.py)."""

    name: str = plain_key(
        "drrn", "algorithm, or module:Class of your own (motif_jax/rl/algorithms/registry.py)"
    )
    gamma: float = fraction(0.9, "discount of a step")
    epochs: int = positive(1, "steps of learning after each batch, each on its own draw")
    # All of the published run.
    replay_steps: int = positive(1_500_000, "steps remembered, each in 2.5 bytes x network.prompt_tokens")
    replay_draw: int = positive(64, "steps of a draw, of all devices together")
    positive_reward: bool = plain_key(True, "negative rewards of the task count as 0, as published")
