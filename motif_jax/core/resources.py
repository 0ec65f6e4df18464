"""Files that come with the package (config files, prompts, tiles), and the folder of caches.

In a clone they lie beside the package; the build copies them into it (setup.py).
"""

from __future__ import annotations

import os
import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ml_collections import ConfigDict

_PACKAGE = Path(__file__).resolve().parents[1]
# What has to be on Python's path for the package to be found; in a clone, the repository.
ROOT = _PACKAGE.parent


def path(name: str) -> Path:
    """The path of the file or folder `name`, such as 'configs/prompts'; it need not exist."""
    copy = _PACKAGE / "_copies" / name
    return copy if os.path.exists(copy) else ROOT / name  # False for a name that is too long, too


def cache_folder(name: str) -> Path:
    """The folder for what can be made again, in the user's cache folder; it need not exist.

    Raises RuntimeError: neither XDG_CACHE_HOME nor a home names one.
    """
    caches = os.environ.get("XDG_CACHE_HOME")
    return (Path(caches) if caches else Path.home() / ".cache") / "motif_jax" / name


def config_file(stage: str) -> dict[str, Any]:
    """The names that `configs/STAGE.py` defines, such as its KEYS and VARIANTS."""
    return runpy.run_path(str(path(f"configs/{stage}.py")))


def config(stage: str, variant: str = "") -> ConfigDict:
    """The config of `configs/STAGE.py:VARIANT`."""
    return config_file(stage)["get_config"](variant)
