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
from motif_jax.core.errors import UserError

PREFIX = "gym:"
_NAME = "environment.name"
_MODULES = "environment.modules"
_KWARGS = "environment.kwargs"
_WRAPPERS = "environment.wrappers"
_GYMNASIUM_WRAPPERS = "gymnasium.wrappers"
# Arguments of `gymnasium.make` that are not the environment's -> what to do instead.
_OTHERS = {
    "id": "the environment is named by --config.environment.name",
    "max_episode_steps": "the limit is --config.environment.max_episode_steps",
    "render_mode": "pictures are drawn where a film or a dataset needs them",
    "disable_env_checker": "the environment is checked here, before the run",
}


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

        Raises UserError: it cannot be made or wrapped, or a module is not there or not trusted.
        """
        for module in checks.listed(self.modules):
            is_module = not entry_points.is_entry_point(module)
            checks.require(
                is_module, _MODULES, module, "modules, such as a.b, with commas between: no classes"
            )
            entry_points.load_module(_MODULES, module)
        # A misspelt wrapper is refused before anything is made.
        wrappers = [(name, _load_wrapper(name)) for name in checks.listed(self.wrappers)]
        environment = self._make_bare(pictures)
        try:
            for name, wrapper in wrappers:
                environment = self._wrap(environment, name, wrapper)
        except UserError:
            environment.close()
            raise
        return environment

    def _make_bare(self, pictures: bool) -> gymnasium.Env:
        kwargs = json.loads(self.kwargs)
        registered = self.name.removeprefix(PREFIX)
        module, colon, _ = registered.rpartition(":")
        if colon:  # gymnasium would import it
            entry_points.load_module(_NAME, module)
        drawing: dict[str, Any] = {"render_mode": "rgb_array"} if pictures else {}
        try:
            return gymnasium.make(registered, disable_env_checker=True, **drawing, **kwargs)
        except Exception as error:
            message = _in_one_line(error)
            # With arguments of the user's they are the likely fault, unless the name is unknown.
            if kwargs and not isinstance(error, gymnasium.error.UnregisteredEnv):
                raise UserError(
                    f"config.{_KWARGS}={self.kwargs}: gymnasium cannot make {self.name} with these arguments "
                    f"({type(error).__name__}: {message}); give others"
                ) from error
            remedy = ""
            if isinstance(error, gymnasium.error.UnregisteredEnv) and not self.modules:
                remedy = "; --config.environment.modules=MODULE names what registers it"
            raise UserError(
                f"config.{_NAME}={self.name}: gymnasium cannot make it ({message}){remedy}"
            ) from error

    def _wrap(
        self, environment: gymnasium.Env, name: str, wrapper: Callable[[gymnasium.Env], Any]
    ) -> gymnasium.Env:
        try:
            wrapped = wrapper(environment)
        except Exception as error:
            raise UserError(
                f"config.{_WRAPPERS}={name}: cannot wrap {self.name} ({type(error).__name__}: {_in_one_line(error)}); it is called "
                "with the environment alone, so call a wrapper with further arguments in a function of your own"
            ) from error
        if not isinstance(wrapped, gymnasium.Env):
            raise UserError(
                f"config.{_WRAPPERS}={name}: must return a gymnasium.Env, it returned a {type(wrapped).__name__}"
            )
        return wrapped


def maker(name: str, modules: str, kwargs: Mapping[str, Any] | None, wrappers: str) -> GymMaker:
    """The `GymMaker` of an environment's options. Raises UserError: `kwargs` has what is not an
    argument of an environment.
    """
    kwargs = dict(kwargs or {})
    try:
        text = json.dumps(kwargs, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise UserError(f"config.{_KWARGS}={kwargs}: must be a JSON object ({error})") from None
    for argument, remedy in _OTHERS.items():
        if argument in kwargs:
            raise UserError(f"config.{_KWARGS}={text}: must be without {argument}: {remedy}")
    return GymMaker(name, modules, text, wrappers)


def _load_wrapper(name: str) -> Callable[[gymnasium.Env], Any]:
    allowed = "module:Class or module:function, several with commas between"
    checks.require(entry_points.is_entry_point(name), _WRAPPERS, name, allowed)
    if name.partition(":")[0] == _GYMNASIUM_WRAPPERS:
        # They are part of a package that this one needs, so data may name them as well.
        wrapper = entry_points.load_packaged(name)
    else:
        wrapper = entry_points.load(_WRAPPERS, name)
    checks.require(callable(wrapper), _WRAPPERS, name, "a class or a function")
    return wrapper


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
