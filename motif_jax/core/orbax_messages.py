"""Keeps Orbax from printing errors that are raised anyway."""

from __future__ import annotations

import logging
import sys
from typing import Any


def silence() -> None:
    """Drops Orbax's lines about failed saves from now on: a failing save raises."""
    logging.getLogger("absl").addFilter(
        lambda record: (
            "orbax" not in record.pathname
            or (
                record.levelno == logging.WARNING
                and "Skipping merge of OCDBT" not in str(record.msg)
            )
        )
    )
    # Orbax stops at the first array that fails; errors of others are never retrieved.
    logging.getLogger("asyncio").addFilter(
        lambda line: (
            "orbax-checkpoint-tmp" not in line.getMessage() and "/orbax/" not in line.getMessage()
        )
    )
    hook = sys.unraisablehook

    def quiet(unraisable: Any) -> None:
        """Drops the complaints of TensorStore's threads that Orbax, after a failure, has closed
        their event loop.
        """
        if str(unraisable.exc_value) != "Event loop is closed":
            hook(unraisable)

    sys.unraisablehook = quiet
