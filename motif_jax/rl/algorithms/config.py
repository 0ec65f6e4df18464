"""The sections `algorithm` of APPO and PPO, which configs read without jax."""

from __future__ import annotations

from motif_jax.core import sections
from motif_jax.schema import (
    fraction,
    non_negative,
    one_of,
    plain_key,
    positive,
    section_class,
    subsection,
)


@section_class
class Kl:
    """The penalty on the divergence from the first policy (rl/algorithms/ppo.py)."""

    coefficient: float = non_negative(
        0.0,
        "coefficient of log pi - log pi_ref in the reward, with pi_ref the policy at the start; 0: none",
    )
    target: float | None = positive(
        None,
        "nats an action to which the coefficient adapts; None: it is fixed",
    )
    horizon: int = positive(
        10_000, "actions over which the coefficient changes by the relative error"
    )


@section_class
class Appo:
    """APPO (rl/algorithms/appo.py)."""

    name: str = plain_key(
        "appo", "algorithm, or module:Class of your own (motif_jax/rl/algorithms/algorithm.py)"
    )
    gamma: float = fraction(0.99, "discount of a step")
    advantage: str = one_of(("vtrace", "gae"), "how advantages are estimated")
    # Where rewards are rare, most batches hold none. Divided by such a batch's spread, noise would
    # become as large as a reward.
    advantage_scale: str = one_of(
        ("batch", "returns"),
        "what advantages are divided by: their standard deviation in the batch, or that of value targets of many batches "
        "('returns', with a value_normalisation)",
    )
    rho_clip: float = positive(
        1.0,
        "clipping of V-trace's weights of temporal differences (rho bar)",
        read_when=(".advantage", ("vtrace",)),
    )
    c_clip: float = positive(
        1.0,
        "clipping of V-trace's weights of traces (c bar)",
        read_when=(".advantage", ("vtrace",)),
    )
    gae_lambda: float = fraction(
        0.95,
        "lambda of generalised advantage estimation, where advantages are 'gae'",
        read_when=(".advantage", ("gae",)),
    )
    ratio_min: float = positive(
        0.05,
        "smallest ratio of the policies in the losses, which is 1 where nothing has changed",
        below=1,
    )
    ratio_max: float = plain_key(
        20.0,
        "greatest ratio of the policies in the losses, which is 1 where nothing has changed",
        above=1,
    )
    clip_ratio: float = positive(
        0.1, "clipping range of the surrogate's probability ratio; 0.1: [1 / 1.1, 1.1]"
    )
    clip_value: float = positive(
        1.0,
        "greatest change of the value in its clipped loss: in units of reward, with a value_normalisation in its standard deviations",
    )
    value_coefficient: float = non_negative(0.5, "weight of the value loss")
    exploration: str = one_of(
        ("entropy", "symmetric_kl", "none"), "the loss that keeps the policy exploring"
    )
    exploration_coefficient: float = non_negative(
        0.003,
        "weight of the loss that exploration names",
        read_when=(".exploration", ("entropy", "symmetric_kl")),
    )
    epochs: int = positive(1, "passes over a batch")
    # Each deals with a rollout of every `minibatches` consecutive ones: the same on any number of
    # devices.
    minibatches: int = positive(
        1, "minibatches of a pass, each of whole rollouts (docs/clusters.md)"
    )
    max_policy_lag: int = positive(
        10_000, "updates; older rows are left out of the losses", below=1 << 31
    )
    value_normalisation: str = one_of(
        ("none", "running", "popart"), "normalisation of the targets of values"
    )
    value_statistics_rate: float = positive(
        3e-4,
        "update rate of the statistics of value_normalisation",
        maximum=1,
        read_when=(".value_normalisation", ("running", "popart")),
    )


@section_class
class Ppo:
    """PPO in minibatches of steps or sequences (rl/algorithms/ppo.py)."""

    name: str = plain_key(
        "ppo", "algorithm, or module:Class of your own (motif_jax/rl/algorithms/algorithm.py)"
    )
    gamma: float = fraction(0.99, "discount of a step")
    gae_lambda: float = fraction(0.99, "lambda of generalised advantage estimation")
    clip_ratio: float = positive(
        0.2, "clipping range of the surrogate's probability ratio; 0.2: [0.8, 1.2]"
    )
    clip_value: float = positive(0.2, "greatest change of the value in its clipped loss")
    value_coefficient: float = non_negative(0.5, "weight of the value loss")
    entropy_coefficient: float = non_negative(0.01, "weight of the entropy loss")
    epochs: int = positive(4, "passes over a batch")
    minibatch_size: int = sections.batch_size_key(64, "steps, of all devices together")
    microbatch_size: int = sections.batch_size_key(
        16, "steps of a minibatch at a time on a device: changes memory alone"
    )
    recurrence: int = positive(
        1, "steps that gradients run back through; a language model has no memory: 1"
    )
    normalise_advantage: bool = plain_key(
        False, "subtracts the batch's mean, divides by its standard deviation"
    )
    kl_limit: float | None = positive(
        None, "nats from the policy that played until an update ends; None: never"
    )
    kl: Kl = subsection(Kl)
    positive_reward: bool = plain_key(
        False, "negative rewards of the task count as 0, as in GLAM's code"
    )
    broadcast_rows: int = positive(
        16, "steps of a published process, with compat.glam_value_broadcast"
    )
