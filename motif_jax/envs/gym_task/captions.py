"""Extracts a text from each step of a gymnasium environment, as `config.environment.text` says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from motif_jax.core import entry_points
from motif_jax.core.errors import UserError

KEY = "environment.text"
INFO, OBSERVATION = "info:", "obs:"
# (observation, info, environment, last action or None after a reset) -> text
Caption = Callable[[Any, Mapping[str, Any], Any, int | None], Any]


def make(text: str) -> Caption:
    """Parses 'info:KEY', 'obs:KEY' (dots for nested keys) or 'module:function'; an object is made of a class. Raises UserError."""
    if text.startswith((INFO, OBSERVATION)):
        of_info, keys = text.startswith(INFO), text.partition(":")[2].split(".")
        return lambda observation, info, *_: _found(info if of_info else observation, keys)
    if not entry_points.is_entry_point(text):
        raise UserError(f"config.{KEY}={text}: must be module:function, info:KEY or obs:KEY")
    made = entry_points.load(KEY, text)
    if not callable(made):
        raise UserError(
            f"config.{KEY}={text}: must be a function of (observation, info, environment, action)"
        )
    if isinstance(made, type):
        entry_points.require_signature(KEY, text, made)
        return made()
    return made


def _found(values: Any, keys: list[str]) -> Any:
    for key in keys:
        if not isinstance(values, Mapping) or key not in values:
            return None
        values = values[key]
    return values


def text_bytes_of(text: Any) -> bytes:
    """A text in latin-1 without zeros, '?' for other letters; bytes and arrays up to their first zero; b"" for None.

    Raises TypeError: `text` is no text.
    """
    if text is None:
        return b""
    if isinstance(text, str):
        return text.replace("\0", " ").encode("latin-1", "replace")
    if isinstance(text, np.ndarray) and text.dtype == np.uint8:
        text = text.tobytes()
    if isinstance(text, bytes):
        return text.split(b"\0", 1)[0]
    raise TypeError(f"a {type(text).__name__}, not a text")
