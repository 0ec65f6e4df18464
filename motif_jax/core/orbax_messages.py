"""Keeps Orbax from printing errors that are raised anyway."""

from __future__ import annotations

import logging
import sys
from typing import Any


def silence() -> None:
    """Drops Orbax's lines about failed saves from now on: a failing save raises."""

    def is_of_use(record: logging.LogRecord) -> bool:
        """Whether a line is another's, or a warning of Orbax about more than its merge."""
        if "orbax" not in record.pathname:
            return True
        is_warning = record.levelno == logging.WARNING
        return is_warning and "Skipping merge of OCDBT" not in str(record.msg)

    def is_of_others(record: logging.LogRecord) -> bool:
        """Whether a line of asyncio names no file of Orbax."""
        line = record.getMessage()
        return "orbax-checkpoint-tmp" not in line and "/orbax/" not in line

    logging.getLogger("absl").addFilter(is_of_use)
    # Orbax stops at the first array that fails; errors of others are never retrieved.
    logging.getLogger("asyncio").addFilter(is_of_others)
    hook = sys.unraisablehook

    def quiet(unraisable: Any) -> None:
        """Drops the complaints of TensorStore's threads that Orbax, after a failure, has closed
        their event loop.
        """
        if str(unraisable.exc_value) != "Event loop is closed":
            hook(unraisable)

    sys.unraisablehook = quiet
