"""Imports the user's own 'module:Class'.

Importing a module runs its code. So a name is imported only if the user's command gives it: in its
config, in `--config.trust`, or in `trust=[...]` of a Python call. A name that only data give, such
as a run's `config.json`, is refused.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any

from motif_jax.core.errors import UserError

# In a text, 'module:Class' may not be the end of a path with a colon, such as 'runs/a.b:c'.
_FORM = re.compile(r"(?<![\w./])[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_MODULE = re.compile(r"[A-Za-z_][\w.]*")
# The trusted names, with commas between them; in the environment, so that child processes have
# them.
_VARIABLE = "MOTIF_JAX_TRUST"
# Name -> the folder or file that gave it, for the error.
_SOURCES: dict[str, str] = {}


def is_entry_point(name: Any) -> bool:
    """Whether `name` has the form 'module:Class'."""
    return isinstance(name, str) and _FORM.fullmatch(name) is not None


def named(values: Any, key: str = "") -> set[str]:
    """Every 'module:Class' in nested mappings, lists and texts (with JSON), and the modules of a
    key `modules`.
    """
    names: set[str] = set()
    pending = [(key, values)]  # a stack, not recursion: data from outside may be nested deeply
    while pending:
        key, value = pending.pop()
        if isinstance(value, Mapping):
            pending.extend(value.items())
        elif isinstance(value, list | tuple):
            pending.extend((key, item) for item in value)
        elif isinstance(value, str):
            # in 'gym:module:ID' the module is named
            names.update(_FORM.findall(value.removeprefix("gym:")))
            # These are modules without a class, which register environments when they are imported.
            if key == "modules":
                names.update(_MODULE.findall(value))
    return names


def trust(names: Iterable[str]) -> None:
    """Allows this process and its future children to import each 'module:Class', or 'module' for
    all that is in it; a text may have several with commas between them.
    """
    texts = [names] if isinstance(names, str) else names
    names = [name.strip() for text in texts for name in text.split(",")]
    os.environ[_VARIABLE] = ",".join(sorted(_trusted().union(names)))


def note_source(by: str | os.PathLike[str], values: Any) -> None:
    """Notes, for errors, that the folder or file `by` gave the names in `values`."""
    _SOURCES.update(dict.fromkeys(named(values), str(by)))


def load(key: str, name: str) -> Any:
    """Imports the trusted 'module:Class' that a config's `key` or data give. Raises UserError: it
    is not trusted; ImportError, AttributeError: it is not there.
    """
    # A trusted module stands for all its classes.
    _require(key, name, not _trusted().isdisjoint((name, name.partition(":")[0])))
    return load_packaged(name)


def load_module(key: str, name: str) -> ModuleType:
    """Imports a trusted module, or that of a trusted class, for what it registers; raises as
    `load`.
    """
    # To trust a class is to run its whole module, so the module alone may be imported, too.
    _require(key, name, name in {trusted.partition(":")[0] for trusted in _trusted()})
    return importlib.import_module(name)


def load_packaged(name: str) -> Any:
    """Imports a 'module:Class' that the package's code names, which needs no trust."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _trusted() -> set[str]:
    return set(filter(None, os.environ.get(_VARIABLE, "").split(",")))


def _require(key: str, name: str, trusted: bool) -> None:
    if not trusted:
        raise UserError(
            f"config.{key}={name}: {_SOURCES.get(name, 'a file of data')} asks for this code from outside the package, and this "
            f"command does not name it: if you trust it, give --config.trust={name} (in Python trust=[{name!r}])"
        )


@dataclasses.dataclass(frozen=True)
class Registry:
    """The parts of one sort that `config.KEY` may name: the package's by short names, anybody's own
    by module:Class.

    A part's module is imported when its name is used, and not before: what one method needs costs
    the others nothing, and shared code names the parts of methods that it may not import.

    Attributes:
      key: the config's key, for errors.
      parts: short name -> 'module:Class' of the package.
      base: 'module:Class' of the class whose subclasses fit; '' for any.
      custom: how an error names what a user may give besides the short names; '' for nothing.
    """

    key: str
    parts: Mapping[str, str]
    base: str = ""
    custom: str = "module:Class"

    def check(self, name: Any) -> None:
        """Raises UserError where `name` is neither a part of the package nor of the form
        module:Class; imports nothing.
        """
        if name not in self.parts and not (self.custom and is_entry_point(name)):
            allowed = ", ".join(self.parts) + (f", or {self.custom}" if self.custom else "")
            raise UserError(f"config.{self.key}={name}: must be one of {allowed}")

    def load(self, name: str) -> Any:
        """Imports the part that `name` names. Raises UserError: it has neither form, is not
        trusted, or does not fit; else as `load`.
        """
        self.check(name)
        if name in self.parts:
            return load_packaged(self.parts[name])
        # The user's own: it has to be trusted before it is imported, and to fit after that.
        part = load(self.key, name)
        if self.base:
            base = load_packaged(self.base)
            if not (isinstance(part, type) and issubclass(part, base)):
                raise UserError(
                    f"config.{self.key}={name}: must be a subclass of {self.base.replace(':', '.')}"
                )
        return part


def require_signature(
    key: str, name: str, function: Callable[..., Any], *arguments: Any, **options: Any
) -> None:
    """Raises UserError, for the value `name` of the config's `key`, where `function` takes other
    arguments than these.
    """
    try:
        inspect.signature(function).bind(*arguments, **options)
    except (
        TypeError,
        ValueError,
    ) as error:  # ValueError: a built-in that does not say what it takes
        raise UserError(
            f"config.{key}={name}: does not fit here ({error}): choose another"
        ) from None
