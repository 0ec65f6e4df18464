"""Precision of float32 matrix products."""

from __future__ import annotations

import jax


def set_matmul_precision(precision: str) -> None:
    """Sets 'default', which lets recent GPUs round factors to TF32 (10 bits), or 'highest' for this
    process.
    """
    jax.config.update("jax_default_matmul_precision", None if precision == "default" else precision)
