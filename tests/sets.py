"""The sets of tests that cases belong to (tests/README.md)."""

from __future__ import annotations

from typing import Any

import pytest


def extra(*values: object) -> Any:
    """A case that `--all` runs alone: one more architecture, or form, of a behaviour that the
    default set tests on another.
    """
    return pytest.param(*values, marks=pytest.mark.extra)
