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
    before, now = (flat({key: manifest.get(key) for key in BINDING}) for manifest in (old, new))
    lines = []
    for key in sorted({*before, *now}):
        values = before.get(key, "absent"), now.get(key, "absent")
        if values[0] != values[1]:
            shown = _show(values[0]), _show(values[1])
            # Long texts may begin alike.
            same = shown[0] == shown[1]
            lines.append(f"{key} differs" if same else f"{key}: {shown[0]} there, {shown[1]} now")
    return lines


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
