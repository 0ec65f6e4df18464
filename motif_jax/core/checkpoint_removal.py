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
    # An earlier checkpoint of this number may still lie there.
    name = f"{_PREFIX}{checkpoint.name}-{secrets.token_hex(4)}"
    os.rename(checkpoint, checkpoint.with_name(name))


def remove_leftovers(folder: Path, others: Iterable[Path] = ()) -> None:
    """Removes what was set aside in `folder`, also by a process that was killed, and `others`.

    What cannot be removed stays until the next call, and a line says so: NFS keeps a folder while
    somebody has one of its files open.
    """
    for path in [*folder.glob(f"{_PREFIX}*"), *others]:
        try:
            shutil.rmtree(path)
        except OSError as error:
            warn_once(
                f"{path} cannot be removed yet ({error.strerror}): the next save tries it again"
            )
