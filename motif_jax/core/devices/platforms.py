"""The platform that programs are traced for, by which some of them choose their form."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator

import jax

CPU = "cpu"
GPU = "gpu"
_PLANNED: contextvars.ContextVar[str | None] = contextvars.ContextVar(
    "planned_platform", default=None
)


def traced() -> str:
    """The platform of the programs that are traced now: that of jax's default backend, or of
    `planned`.
    """
    return _PLANNED.get() or jax.default_backend()


@contextlib.contextmanager
def planned(platform: str) -> Iterator[None]:
    """Programs are traced for `platform`, to be measured or lowered; to be run, it must be this
    machine's.
    """
    token = _PLANNED.set(platform)
    try:
        yield
    finally:
        _PLANNED.reset(token)
