"""Programs are traced for this machine's platform, or for the one that is planned for."""

from __future__ import annotations

import jax
import pytest

from motif_jax.core.devices import platforms
from motif_jax.core.training import block_stack


def test_a_plan_for_another_platform_ends_with_its_block() -> None:
    here = jax.default_backend()
    with platforms.planned(platforms.GPU):
        assert platforms.traced() == platforms.GPU
        assert block_stack.looped()
        with platforms.planned(platforms.CPU):
            assert platforms.traced() == platforms.CPU
        assert platforms.traced() == platforms.GPU
    with pytest.raises(ZeroDivisionError), platforms.planned(platforms.GPU):
        raise ZeroDivisionError
    assert platforms.traced() == here
