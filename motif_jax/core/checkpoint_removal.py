"""Removes checkpoints in two steps, a rename first, so that a kill leaves no part that looks
whole.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterable
from pathlib import Path

from motif_jax.core.checkpoint_messages import warn_once

# Prefix of the name of a checkpoint that is being removed.
_PREFIX = ".removed-"


def set_aside(checkpoint: Path) -> None:
    """Renames a checkpoint's folder; `remove_leftovers` removes it."""
    os.rename(checkpoint, checkpoint.with_name(_set_aside_name(checkpoint)))


def remove_leftovers(folder: Path, others: Iterable[Path] = ()) -> None:
    """Removes what was set aside in `folder`, also by a process that was killed, and `others`.

    What cannot be removed stays set aside until the next call, and a line says so: NFS keeps a
    folder while somebody has one of its files open.
    """
    for path in others:
        # Out of the way of a save of the same step, where it cannot be removed.
        os.rename(path, folder / _set_aside_name(path))
    for path in folder.glob(f"{_PREFIX}*"):
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            warn_once(
                f"{path} cannot be removed yet ({error.strerror or error}): a later save or start tries it again"
            )


def _set_aside_name(checkpoint: Path) -> str:
    # An earlier checkpoint of this number may still lie there.
    return f"{_PREFIX}{checkpoint.name}-{secrets.token_hex(4)}"
