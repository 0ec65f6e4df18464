"""Environments by name; looking up a name starts no engine.

'module:Class' names an environment from outside the package, 'gym:ID' one of gymnasium.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from motif_jax.core import config as checks
from motif_jax.core import entry_points
from motif_jax.core.errors import UserError
from motif_jax.core.files import parse_json
from motif_jax.envs.babyai_text import catalogue
from motif_jax.envs.checked import CheckedEnvironment
from motif_jax.envs.config import NO_KWARGS, GymOptions
from motif_jax.envs.crafter import catalogue as crafter
from motif_jax.envs.minigrid_events.catalogue import LEVELS as MINIGRID
from motif_jax.envs.minihack.levels import LEVELS as MINIHACK
from motif_jax.envs.nethack.tasks import TASKS
from motif_jax.envs.sequential import SingleEnvironments
from motif_jax.envs.spec import Environment, EnvironmentGroup, EnvironmentSpec, Renderer

# name -> "module:class". A class is made with (name, **options) and has a static
# `make_spec(name, **options)`. All options are optional: all classes take max_episode_steps, and
# fields, compat and others if their spec has them.
_BABYAI_TEXT = "motif_jax.envs.babyai_text.environment:BabyAIText"
_ENTRY_POINTS: dict[str, str] = {
    **dict.fromkeys(TASKS, "motif_jax.envs.nethack.environment:NetHackEnvironment"),
    **dict.fromkeys(MINIHACK, "motif_jax.envs.minihack.environment:MiniHackEnvironment"),
    "Recall-v0": "motif_jax.envs.recall:Recall",
    **dict.fromkeys(catalogue.LEVELS, _BABYAI_TEXT),
    **dict.fromkeys(MINIGRID, "motif_jax.envs.minigrid_events.environment:MiniGridEvents"),
    **dict.fromkeys(crafter.NAMES, "motif_jax.envs.crafter.environment:Crafter"),
}
_GYM_PREFIX = "gym:"
_GYM_TASK = "motif_jax.envs.gym_task.environment"
# Keys of config.environment for gymnasium environments, with their defaults.
_GYM_KEYS = vars(GymOptions()).copy()
del _GYM_KEYS["kwargs"]  # environments of the package take arguments, too
# Keys that decide which fields and actions an environment of gymnasium has. Those at their defaults
# are not options: the environment is the same without them.
SHAPING = ("kwargs", "wrappers", "action_mask")
_PLAIN_SHAPING = SHAPING[1:]  # their values need no parser
_KEY = "environment.name"
# The option of every environment that replaces `EnvironmentSpec.last_text`.
LAST_TEXT = "last_text"


def names() -> tuple[str, ...]:
    """All names for `make`, without minigrid's own BabyAI levels."""
    return tuple(_ENTRY_POINTS)


def options_of(environment: Mapping[str, Any]) -> dict[str, Any]:
    """The options of `make` from a section `config.environment`, without those that are None.

    Options that change nothing at their defaults, as empty `kwargs` and `wrappers`, are left out.

    Raises UserError: options are set that this environment does not have, or `kwargs` is not a JSON
    object.
    """
    name = environment["name"]
    keys = ["max_episode_steps", LAST_TEXT]
    if is_gym(name):
        keys += _GYM_KEYS
    else:
        # Refused elsewhere, where nothing would read them.
        for key, default in _GYM_KEYS.items():
            value = environment.get(key)
            allowed = f"left at {default!r}: {name} is not one of gymnasium's (gym:ID)"
            checks.require(value in (None, default), f"environment.{key}", value, allowed)
    options = {key: environment[key] for key in keys if environment.get(key) is not None}
    for key in _PLAIN_SHAPING:
        if options.get(key) == _GYM_KEYS[key]:
            options.pop(key)

    kwargs = _kwargs_of(environment)
    if kwargs:
        allowed = f"left at {NO_KWARGS}: {name} takes no arguments"
        checks.require(_takes_kwargs(name), "environment.kwargs", environment["kwargs"], allowed)
        options["kwargs"] = kwargs
    return options


def replace_options(options: Mapping[str, Any], environment: Mapping[str, Any]) -> dict[str, Any]:
    """`options`, but for those that a section `config.environment` sets; values that change nothing
    remove theirs.

    Raises UserError as `options_of`.
    """
    replaced = {**options, **options_of(environment)}
    for key in _PLAIN_SHAPING:
        if environment.get(key) == _GYM_KEYS[key]:
            replaced.pop(key, None)
    if _kwargs_of(environment) == {}:
        replaced.pop("kwargs", None)
    return replaced


def _kwargs_of(environment: Mapping[str, Any]) -> dict[str, Any] | None:
    """The JSON object of the key `kwargs`; None without a value."""
    text = environment.get("kwargs")
    if text is None:
        return None
    return parse_json(text or NO_KWARGS, dict)


def _takes_kwargs(name: str) -> bool:
    """Whether the environment has the option `kwargs`, a mapping of arguments of its own."""
    if entry_points.is_entry_point(name):
        check(name)
    parameter = inspect.signature(_load(name).make_spec).parameters.get("kwargs")
    return parameter is not None and parameter.kind is not parameter.VAR_KEYWORD


def is_gym(name: str | None) -> bool:
    """Whether `name` names a gymnasium environment."""
    return name is not None and name.startswith(_GYM_PREFIX)


def check(name: str, options: Mapping[str, Any] = MappingProxyType({})) -> None:
    """Raises UserError for an unknown name; makes a gymnasium environment with `options` and plays
    it briefly.
    """
    options = {key: value for key, value in options.items() if key != LAST_TEXT}
    if is_gym(name):
        importlib.import_module(_GYM_TASK).check(name, options)
    elif entry_points.is_entry_point(name):
        _load(name)
    elif not _is_level(name) and name not in _ENTRY_POINTS:
        listed = ", ".join(known for known in _ENTRY_POINTS if known not in MINIHACK)
        allowed = f"{listed}, one of minigrid's own BabyAI levels, MiniHack-...-v0 (docs/environments.md), gym:ID, or module:Class"
        raise UserError(f"config.{_KEY}: there is no environment {name!r}; choose one of {allowed}")


def _is_level(name: str) -> bool:
    return name.startswith(catalogue.PREFIX) and catalogue.find(name) is not None


def _load(name: str) -> Any:
    """The class of the environment `name`."""
    if is_gym(name):
        return importlib.import_module(_GYM_TASK).GymTask
    if entry_points.is_entry_point(name):
        return entry_points.load(_KEY, name)
    check(name)
    return entry_points.load_packaged(_BABYAI_TEXT if _is_level(name) else _ENTRY_POINTS[name])


def require_text(name: str, text_field: str | None) -> str:
    """The `text_field` of the environment `name`. Raises UserError: it has no text."""
    if is_gym(name):
        allowed = f"module:function, info:KEY or obs:KEY, for {name} shows no text without it"
        checks.require(text_field is not None, "environment.text", "", allowed)
    checks.require(text_field is not None, _KEY, name, "an environment that shows a text")
    return text_field or ""


def make(name: str, **options: Any) -> Environment:
    """Makes the environment. Raises TypeError: its class lacks an option."""
    last_text = options.pop(LAST_TEXT, None)
    environment = _load(name)(name, **options)
    # Environments of the package are held to their contract by tests, others at every step.
    if is_gym(name) or entry_points.is_entry_point(name):
        environment = CheckedEnvironment(name, environment)
    if last_text is not None:
        environment.spec = dataclasses.replace(environment.spec, last_text=last_text)
    return environment


def make_group(
    name: str, count: int, places: Sequence[int] | None = None, **options: Any
) -> EnvironmentGroup:
    """Makes `count` environments that are stepped together; `options` as for `make`.

    `places` has a number for each environment that stays the same when the run resumes (see
    `spec.keeps_place`).
    """
    environment_spec = spec(name, **options)
    if environment_spec.group is not None:
        options.pop(LAST_TEXT, None)  # a group is stepped without a look at its texts
        return entry_points.load_packaged(environment_spec.group)(name, count, **options)
    if environment_spec.keeps_place and places is not None:
        return SingleEnvironments([make(name, **options, place=place) for place in places])
    return SingleEnvironments([make(name, **options) for _ in range(count)])


def spec(name: str, **options: Any) -> EnvironmentSpec:
    """The spec of `make(name, **options)`, without starting an engine. Raises UserError: it lacks
    an option, or has a group although it is not the package's.
    """
    last_text = options.pop(LAST_TEXT, None)
    make_spec = _load(name).make_spec
    entry_points.require_signature(_KEY, name, make_spec, name, **options)
    made_spec = make_spec(name, **options)
    if entry_points.is_entry_point(name):
        # Nothing would check the numbers that a group gives.
        allowed = "a class whose spec has no `group`: its environments are stepped one by one"
        checks.require(made_spec.group is None, _KEY, name, allowed)
    return made_spec if last_text is None else dataclasses.replace(made_spec, last_text=last_text)


def shared_modules(name: str, **options: Any) -> list[str]:
    """Modules to import before a fork, which start no threads; [] for environments from outside the
    package.
    """
    if is_gym(name) or entry_points.is_entry_point(name):
        return []
    environment_spec = spec(name, **options)
    modules = list(environment_spec.modules)
    if environment_spec.group is not None:
        module, _, _ = environment_spec.group.partition(":")
        modules.append(module)
    return modules


def renderer(environment_spec: EnvironmentSpec) -> Renderer | None:
    """The renderer of an environment with this spec, or None."""
    name = environment_spec.renderer
    return None if name is None else entry_points.load_packaged(name)(environment_spec)
