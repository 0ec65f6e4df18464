"""What the configs of all trainings from datasets share; each method's own config stands in its
folder.
"""

from __future__ import annotations

from motif_jax.core import sections
from motif_jax.core.cluster import ClusterHosts
from motif_jax.schema import (
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
    hosts: ClusterHosts | None = None
    matmul_precision: str = sections.MATMUL_PRECISION
    keep_checkpoints: int | None = None
    save_every_seconds: float = sections.SAVE_EVERY_SECONDS
    log_every_seconds: float | None = None
    nonfinite: sections.Nonfinite = subsection(sections.Nonfinite)
    profile: sections.Profile = subsection(sections.Profile)
    wandb: sections.Wandb = subsection(sections.Wandb)


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
    hosts: ClusterHosts = subsection(ClusterHosts)
