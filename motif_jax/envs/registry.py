"""Environments by name. Modules are imported when they are asked for: looking up a name starts no engine."""

from __future__ import annotations

import importlib
from typing import Any

from motif_jax.envs.sequential import SingleEnvironments
from motif_jax.envs.spec import Environment, EnvironmentGroup, EnvironmentSpec
from motif_jax.support.errors import UserError

NETHACK_TASKS = (
    "NetHackScore-v1",
    "NetHackStaircase-v1",
    "NetHackStaircaseLvl3-v1",
    "NetHackStaircaseLvl4-v1",
    "NetHackStaircaseContinual-v1",
    "NetHackStaircaseLvl3Continual-v1",
    "NetHackStaircaseLvl4Continual-v1",
    "NetHackOracle-v1",
    "NetHackOracleSober-v1",
)

# name -> "module:class". A class is made with (name, **options) and has a static `make_spec(name, **options)`.
_ENTRY_POINTS: dict[str, str] = {
    **dict.fromkeys(NETHACK_TASKS, "motif_jax.envs.nethack.environment:NetHackEnvironment"),
    "Recall-v0": "motif_jax.envs.recall:Recall",
}


def names() -> tuple[str, ...]:
    """Every name `make` knows."""
    return tuple(_ENTRY_POINTS)


def check(name: str) -> None:
    """Raises UserError when there is no environment of that name."""
    if name not in _ENTRY_POINTS:
        raise UserError(
            f"config.environment.name: there is no environment {name!r}; choose one of {', '.join(_ENTRY_POINTS)}"
        )


def _load(name: str) -> Any:
    check(name)
    module, attribute = _ENTRY_POINTS[name].split(":")
    return getattr(importlib.import_module(module), attribute)


def make(name: str, **options: Any) -> Environment:
    """Makes the environment. `options` are those of its class; unknown ones raise TypeError."""
    return _load(name)(name, **options)


def make_group(name: str, count: int, **options: Any) -> EnvironmentGroup:
    """`count` environments that are played in step; options as for `make`."""
    if name in NETHACK_TASKS:
        group = importlib.import_module("motif_jax.envs.nethack.group").NetHackGroup
        return group(name, count, **options)
    return SingleEnvironments([make(name, **options) for _ in range(count)])


def spec(name: str, **options: Any) -> EnvironmentSpec:
    """The spec that `make(name, **options).spec` would be, without starting an engine."""
    return _load(name).make_spec(name, **options)
