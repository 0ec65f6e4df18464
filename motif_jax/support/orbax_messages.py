"""Keeps Orbax from printing errors that are raised anyway."""

from __future__ import annotations

import logging
import sys
from typing import Any


def silence() -> None:
    """Drops such lines from now on; a failing save raises."""
    logging.getLogger("absl").addFilter(
        lambda record: (
            "orbax" not in record.pathname
            or (record.levelno == logging.WARNING and "Skipping merge of OCDBT" not in str(record.msg))
        )
    )
    # Orbax stops at the first array that fails; errors of others are never retrieved.
    logging.getLogger("asyncio").addFilter(
        lambda record: (
            "orbax-checkpoint-tmp" not in record.getMessage() and "/orbax/" not in record.getMessage()
        )
    )
    hook = sys.unraisablehook

    def quiet(unraisable: Any) -> None:
        """TensorStore's threads complain that Orbax has closed their event loop, as it does after a failure."""
        if str(unraisable.exc_value) != "Event loop is closed":
            hook(unraisable)

    sys.unraisablehook = quiet
