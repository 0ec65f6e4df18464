"""The fields of an environment that its renderer draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from motif_jax.envs import registry


def with_screen(
    task: str, options: Mapping[str, Any], fields: Sequence[str] = ()
) -> dict[str, Any]:
    """Returns `options` of the environment `task` with `fields` and the fields that its renderer
    draws.
    """
    spec = registry.spec(task, **options)
    renderer = registry.renderer(spec)
    # What the environment shows anyway need not be asked for.
    drawn = (
        []
        if renderer is None
        else [name for name in renderer.fields if name in spec.optional_fields]
    )
    shown = tuple(dict.fromkeys((*options.get("fields", ()), *fields, *drawn)))
    return {**options, "fields": shown} if shown else dict(options)
