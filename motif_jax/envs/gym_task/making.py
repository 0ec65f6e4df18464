"""Makes a gymnasium environment from what `config.environment` says of it: modules, arguments and
wrappers.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium

from motif_jax.core import config as checks
from motif_jax.core import entry_points

PREFIX = "gym:"
_NAME = "environment.name"
_MODULES = "environment.modules"
_WRAPPERS = "environment.wrappers"
_GYMNASIUM_WRAPPERS = "gymnasium.wrappers"


@dataclasses.dataclass(frozen=True)
class GymMaker:
    """How a gymnasium environment is made.

    Attributes:
        name: 'gym:ID'.
        modules: modules that register environments, separated by commas.
        kwargs: the environment's arguments, as a JSON object.
        wrappers: each 'module:Class' or 'module:function', separated by commas; the first is the
            innermost.
    """

    name: str
    modules: str = ""
    kwargs: str = "{}"
    wrappers: str = ""

    def make(self, pictures: bool = False) -> gymnasium.Env:
        """Makes the environment, with its wrappers around it; `pictures`: `render` draws them.

        Raises UserError: a module or wrapper is not there or not trusted.
        """
        for module in checks.listed(self.modules):
            entry_points.load_module(_MODULES, module)
        # A misspelt wrapper is refused before anything is made.
        wrappers = [_load_wrapper(name) for name in checks.listed(self.wrappers)]
        environment = self._make_bare(pictures)
        for wrapper in wrappers:
            environment = wrapper(environment)
        return environment

    def _make_bare(self, pictures: bool) -> gymnasium.Env:
        kwargs = json.loads(self.kwargs)
        registered = self.name.removeprefix(PREFIX)
        module, colon, _ = registered.rpartition(":")
        if colon:  # gymnasium would import it
            entry_points.load_module(_NAME, module)
        drawing: dict[str, Any] = {"render_mode": "rgb_array"} if pictures else {}
        return gymnasium.make(registered, disable_env_checker=True, **drawing, **kwargs)


def maker(name: str, modules: str, kwargs: Mapping[str, Any] | None, wrappers: str) -> GymMaker:
    """The `GymMaker` of an environment's options."""
    text = json.dumps(dict(kwargs or {}), sort_keys=True)
    return GymMaker(name, modules, text, wrappers)


def _load_wrapper(name: str) -> Callable[[gymnasium.Env], Any]:
    if name.partition(":")[0] == _GYMNASIUM_WRAPPERS:
        # They are part of a package that this one needs, so data may name them as well.
        return entry_points.load_packaged(name)
    return entry_points.load(_WRAPPERS, name)
