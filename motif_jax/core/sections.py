"""Sections and keys that several configs have, each with its defaults, ranges and meanings
(`schema.py`).
"""

from __future__ import annotations

from typing import Any

from motif_jax.schema import (
    DTYPES,
    batch_size_key,
    fraction,
    layer_size_key,
    non_negative,
    one_of,
    plain_key,
    positive,
    section_class,
)


def seed(default: int, maximum: int | None = None) -> Any:
    """The key `seed` of a stage; with `maximum` a negative seed is refused, too."""
    return plain_key(
        default,
        "seed of all random numbers",
        minimum=None if maximum is None else 0,
        maximum=maximum,
    )


SEED = seed(0)
SEED_32 = seed(0, maximum=2**32 - 1)
DTYPE = one_of(DTYPES, "dtype of the computation; parameters, optimiser and losses are float32")
MATMUL_PRECISION = one_of(
    ("default", "highest"),
    "precision of float32 matrix products; 'default' rounds their factors to TF32 (10 bits) on recent GPUs",
)
SAVE_EVERY_SECONDS = positive(300.0, "seconds between checkpoints, besides those of evaluations")


NUM_DEVICES = positive(
    None,
    "number of devices of each host; None: all. With dropout a run resumes only with as many",
    int,
)


@section_class
class Nonfinite:
    """What happens after a loss that is not finite."""

    policy: str = one_of(
        ("stop", "skip"),
        "if a loss, a gradient or a parameter is not finite, the step is not taken and its batch is written to nonfinite/step-N.npz: "
        "'stop' ends the training there, 'skip' continues",
    )
    most_skips: int = positive(
        10, "'skip' ends a run after this many", read_when=(".policy", ("skip",))
    )

    @property
    def budget(self) -> int:
        """How many steps a run may skip before it ends."""
        return self.most_skips if self.policy == "skip" else 0


@section_class
class EarlyStopping:
    """When a training ends before its last step."""

    patience: int = non_negative(
        0, "number of evaluations without a better held-out loss after which the run ends; 0: never"
    )


@section_class
class Wandb:
    """Weights & Biases."""

    enabled: bool = plain_key(False, "logs to Weights & Biases, too")
    project: str = plain_key("motif_jax", "project of the run in W&B")


@section_class
class Sharding:
    """How a model is split over devices."""

    fsdp: int = positive(
        1,
        "for models that do not fit one device: splits parameters and optimiser over fsdp x tensor devices of a host, batches over the "
        "other devices and fsdp (docs/language.md); 1 and 1: every device holds all",
    )
    tensor: int = positive(1, "devices along tensor, which work on the same rows; see fsdp")


@section_class
class Lora:
    """Low-rank additions to a frozen model."""

    patterns: str = plain_key(
        "",
        "layers that get low-rank additions, such as '*/attention/query,*/attention/value' (docs/language.md); only they and the heads "
        "are learned; empty: all is learned",
    )
    rank: int = layer_size_key(8, "rank of the low-rank additions", read_when=(".patterns", ()))
    alpha: float = positive(
        16.0,
        "scale of the low-rank additions, which are multiplied by alpha / rank",
        read_when=(".patterns", ()),
    )


@section_class
class LoraOnBase(Lora):
    """Low-rank additions to a frozen model of any precision."""

    base: str = one_of(
        ("float32", "bfloat16", "int8", "nf4"),
        "dtype or format of the frozen weights",
        read_when=(".patterns", ()),
    )


@section_class
class Profile:
    """A trace of XLA."""

    start: int | None = non_negative(None, "update after which a trace starts; None: no trace")
    steps: int = positive(2, "number of updates in the trace")
    server_port: int | None = positive(
        None, "port at which TensorBoard can ask for a trace; None: none", below=1 << 16
    )


@section_class
class Optimizer:
    """Adam and its learning rate."""

    learning_rate: float = positive(1e-4, "learning rate of Adam", maximum=100.0)
    schedule: str = one_of(
        ("constant", "linear", "cosine"),
        "'linear' and 'cosine' fall until the last step, down to final_fraction of the rate",
    )
    warmup_steps: int | None = non_negative(
        0, "optimiser steps over which a factor of the rate rises to 1"
    )
    final_fraction: float = fraction(
        0.0,
        "final learning rate of the schedule, as a share of the first",
        read_when=(".schedule", ("linear", "cosine")),
    )
    b1: float = plain_key(0.9, "decay rate of Adam's mean", minimum=0, below=1)
    b2: float = plain_key(0.999, "decay rate of Adam's second moment", minimum=0, below=1)
    eps: float = positive(1e-8, "epsilon of Adam, added to the denominator")
    max_gradient_norm: float = non_negative(
        0.0, "gradients of a greater norm are clipped to it; 0: no clip"
    )


@section_class
class DecayingOptimizer(Optimizer):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""

    weight_decay: float = non_negative(0.0, "weight decay of matrices, times the learning rate")


DROPOUT = plain_key(0.1, "share of units left out while training (dropout)", minimum=0, below=1)
# Keys of trainings in steps.
ACCUMULATE = batch_size_key(1, "micro-batches of a step, one after the other: changes only memory")
CHUNK_STEPS = batch_size_key(8, "optimiser steps of one program")
EVALUATE_EVERY = positive(500, "steps between evaluations")
KEEP_CHECKPOINTS = positive(2, "number of newest checkpoints that stay, besides the best")
REMAT = plain_key(False, "computes activations again in the backward pass instead of keeping them")
LOGITS_CHUNK = positive(
    None,
    "positions whose logits and Qs of all tokens are in memory at once; None: all of a micro-batch. Dropout of heads depends on it",
    int,
)


@section_class
class ModelSizes:
    """The sizes of a fresh language model."""

    width: int = layer_size_key(768, "width of the residual stream")
    layers: int = layer_size_key(12, "number of layers; of a T5, on each side")
    heads: int = layer_size_key(12, "number of attention heads")
