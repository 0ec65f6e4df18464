"""Precision of float32 matrix products."""

from __future__ import annotations

import jax
from ml_collections import ConfigDict


def set_matmul_precision(config: ConfigDict) -> None:
    """Sets `config.matmul_precision` of matrix products and convolutions for this process.

    'default' lets recent GPUs round the factors to TF32 (10 bits), 'highest' computes in float32.

    Raises:
      UserError: an unknown precision.
    """
    precision = None if config.matmul_precision == "default" else config.matmul_precision
    jax.config.update("jax_default_matmul_precision", precision)
