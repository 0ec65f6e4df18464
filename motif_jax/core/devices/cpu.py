"""The host's CPU as a device of jax."""

from __future__ import annotations

import jax


def cpu_device() -> jax.Device | None:
    """This host's CPU as a device, None where JAX_PLATFORMS leaves it out."""
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return None
