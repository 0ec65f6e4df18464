"""Registers the environments with gymnasium once a process has imported both packages.

`import motif_jax` does not import gymnasium, which would cost each actor process 12 MB and 50 ms.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType

NAMESPACE = "motif_jax"
_ENTRY_POINT = "motif_jax.envs.gymnasium_env:RegisteredEnv"
_STEP_LIMIT = "motif_jax.envs.gymnasium_env:StepLimit"
_GYMNASIUM = "gymnasium"


def register() -> None:
    """Registers `registry.names()` and minigrid's levels with gymnasium; a second call changes nothing."""
    import gymnasium
    from gymnasium.envs.registration import WrapperSpec

    from motif_jax.envs import registry
    from motif_jax.envs.babyai_text import catalogue

    limit = WrapperSpec("StepLimit", _STEP_LIMIT, kwargs={})
    for task in (*registry.names(), *catalogue.minigrid_names()):
        name = f"{NAMESPACE}/{task}"
        if name not in gymnasium.registry:
            gymnasium.register(
                name,
                entry_point=_ENTRY_POINT,
                kwargs={"name": task},
                order_enforce=False,
                additional_wrappers=(limit,),
            )


def register_with_gymnasium() -> None:
    """Calls `register` now if gymnasium is imported, else at the end of its import."""
    if _GYMNASIUM in sys.modules:
        register()
    else:
        sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder):
    """Finds gymnasium once, through the other finders, with a loader that registers after loading."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != _GYMNASIUM:
            return None
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        found = importlib.util.find_spec(name)
        if found is not None and found.loader is not None:
            found.loader = _Loader(found.loader)
        return found


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        register()
