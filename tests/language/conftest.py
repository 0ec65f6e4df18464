"""Tiny models take longer to compile than to run: the compiler's best is left out."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="module")
def all_compiled_quickly(compiled_quickly: None) -> None:
    """Every test of this folder."""
