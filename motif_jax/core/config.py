"""Helpers of config files and of the checks of their values."""

from __future__ import annotations

import importlib.util
import math
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from motif_jax.core.errors import UserError

# jax's own packages for NVIDIA GPUs.
_GPU_PLUGINS = ("jax_cuda12_plugin", "jax_cuda13_plugin")


def unknown_variant(variant: str | None, allowed: Iterable[str]) -> ValueError:
    """The error of a `get_config` that does not know `variant`."""
    return ValueError(f"variant {variant!r} is not one of {', '.join(repr(v) for v in allowed)}")


def available_cores() -> int:
    """The number of CPU cores that this process may use."""
    # Slurm or a container may leave the process fewer cores than the machine has.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def has_gpu() -> bool:
    """Whether this machine has an NVIDIA GPU that jax may use; does not import jax."""
    platforms = os.environ.get("JAX_PLATFORMS", "")
    may_use = platforms == "" or "cuda" in platforms or "gpu" in platforms
    is_hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    # The plugin may be installed on a machine without a GPU, so the devices are looked for, too.
    has_plugin = any(importlib.util.find_spec(name) is not None for name in _GPU_PLUGINS)
    return may_use and not is_hidden and has_plugin and any(Path("/dev").glob("nvidia[0-9]*"))


def default_workers() -> int:
    """One worker process for each core but one; at least one."""
    return max(1, available_cores() - 1)


def training_workers() -> int:
    """`default_workers` of a training: beside a GPU one worker fewer.

    The threads that feed a GPU need two cores to keep off those of the workers, see
    `rl/actors/cores.py`.
    """
    return max(1, default_workers() - 1) if has_gpu() else default_workers()


def dotted(config: Any, key: str) -> Any:
    """The value of a dotted `key` such as 'reward.quantile', of a config, a `schema.section_class`
    or nested mappings.
    """
    value: Any = config
    for name in key.split("."):
        value = value[name] if isinstance(value, Mapping) else getattr(value, name)
    return value


def has(config: Any, key: str) -> bool:
    """Whether `config` has a dotted `key`."""
    try:
        dotted(config, key)
    except (LookupError, AttributeError):
        return False
    return True


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted name -> value of everything in nested mappings, in their order."""
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            leaves |= flat(value, f"{prefix}{key}.")
        else:
            leaves[f"{prefix}{key}"] = value
    return leaves


def listed(text: str) -> list[str]:
    """Splits comma-separated names."""
    return [name.strip() for name in text.split(",") if name.strip()]


def require(condition: bool, key: str, value: Any, allowed: str) -> None:
    """Raises UserError "config.key=value: must be allowed" unless `condition` holds."""
    if not condition:
        quoted = f"'{value}'" if isinstance(value, str) else value
        raise UserError(f"config.{key}={quoted}: must be {allowed}")


def require_key(config: Any, key: str, condition: bool, allowed: str) -> None:
    """`require` of the value that `config` has for a dotted `key`."""
    require(condition, key, dotted(config, key), allowed)


def choice(config: Any, key: str, options: Iterable[Any]) -> None:
    """Requires that the value of `key` is one of `options`."""
    options = list(options)
    value = dotted(config, key)
    require(value in options, key, value, "one of " + ", ".join(str(o) for o in options))


def positive(config: Any, key: str, allow_zero: bool = False) -> None:
    """Requires that the value of `key` is a finite number above zero."""
    value = dotted(config, key)
    is_valid = is_finite(value) and (value > 0 or (allow_zero and value == 0))
    require(is_valid, key, value, "a number of at least 0" if allow_zero else "a number above 0")


def is_natural(text: str) -> bool:
    """Whether `text` is a whole number in ASCII digits, as `int` reads it and below 10^18
    (`str.isdigit` takes '²' too).
    """
    return re.fullmatch("[0-9]{1,18}", text) is not None


def is_finite(value: Any) -> bool:
    """Whether `value` is a finite number that a float can hold; whole numbers of JSON may be too
    large.
    """
    try:
        return (
            isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        )
    except OverflowError:
        return False


def existing_folder(config: Any, key: str) -> Path:
    """Requires that the value of `key` names an existing folder, and returns it."""
    value = dotted(config, key)
    require(bool(value), key, value, f"a folder: give it with --config.{key}=DIR")
    require(os.path.isdir(value), key, value, "an existing folder")
    return Path(value)


def existing_folders(config: Any, key: str) -> list[Path]:
    """Requires that the value of `key` names existing folders with commas between, each once, and
    returns them.
    """
    value = dotted(config, key)
    folders = [Path(name) for name in listed(value or "")]
    require(bool(folders), key, value, f"a folder: give it with --config.{key}=DIR")
    for folder in folders:
        require(folder.is_dir(), key, str(folder), "an existing folder")
    is_distinct = len({folder.resolve() for folder in folders}) == len(folders)
    require(is_distinct, key, value, "different folders")
    return folders
