from __future__ import annotations

import re
from typing import Any

import pytest

from motif_jax.core.errors import UserError


def refuses(words: str) -> Any:
    """Expects a UserError that holds these words."""
    return pytest.raises(UserError, match=re.escape(words))
