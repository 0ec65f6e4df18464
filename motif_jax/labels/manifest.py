"""Manifests of an annotation's shards; refuses shards of another origin."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from motif_jax.support.config import flat
from motif_jax.support.errors import UserError
from motif_jax.support.files import parse_json

FORMAT = 1
# Sections that must be equal in all shards of one annotation.
BINDING = ("format", "name", "annotator", "dataset", "questions")
_SHOWN = 60


def _show(value: Any) -> str:
    text = json.dumps(value) if not isinstance(value, str) else value
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Differences of the binding sections: 'annotator.model: a there, b now'."""
    there = flat({key: old.get(key) for key in BINDING})
    now = flat({key: new.get(key) for key in BINDING})
    found = []
    for key in sorted({*there, *now}):
        before, after = there.get(key, "absent"), now.get(key, "absent")
        if before == after:
            continue
        shown_before, shown_after = _show(before), _show(after)
        if shown_before == shown_after:  # long texts that begin alike
            found.append(f"{key} differs")
        else:
            found.append(f"{key}: {shown_before} there, {shown_after} now")
    return found


def read(path: Path) -> dict[str, Any] | None:
    """Reads a manifest; None if missing.

    Raises:
      UserError: the file is not a manifest.
    """
    try:
        manifest = parse_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is not a manifest of annotation shards ({error})") from None
    if not isinstance(manifest, dict):
        raise UserError(f"{path} is not a manifest of annotation shards")
    return manifest


def check_same(path: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Raises UserError if the shard of manifest `old`, at `path`, does not belong to annotation `new`."""
    found = differences(old, new)
    if found:
        raise UserError(
            f"{path} belongs to another annotation ({'; '.join(found)}): "
            "choose another --config.name, or discard its labels with --config.restart=True"
        )
