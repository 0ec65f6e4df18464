"""Precision of float32 matrix products."""

from __future__ import annotations

import jax
from ml_collections import ConfigDict


def set_matmul_precision(config: ConfigDict) -> None:
    """Sets `config.matmul_precision` for this process: 'default' lets recent GPUs round factors to TF32 (10 bits)."""
    precision = None if config.matmul_precision == "default" else config.matmul_precision
    jax.config.update("jax_default_matmul_precision", precision)
