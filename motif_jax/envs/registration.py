"""Registers the environments with gymnasium once a process has imported both packages.

`import motif_jax` does not import gymnasium, which would cost each actor process 12 MB and 50 ms.
gymnasium's entry points serve installed packages only; this serves a checkout as well.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

NAMESPACE = "motif_jax"
_CLASSES = "motif_jax.envs.gymnasium_env"


def register() -> None:
    """Registers `registry.names()` and minigrid's levels with gymnasium; a second call changes
    nothing.
    """
    import gymnasium
    from gymnasium.envs.registration import WrapperSpec

    from motif_jax.envs import registry
    from motif_jax.envs.babyai_text import catalogue

    limit = WrapperSpec("StepLimit", f"{_CLASSES}:StepLimit", kwargs={})
    for task in (*registry.names(), *catalogue.minigrid_names()):
        name = f"{NAMESPACE}/{task}"
        if name not in gymnasium.registry:
            gymnasium.register(
                name,
                entry_point=f"{_CLASSES}:RegisteredEnv",
                kwargs={"name": task},
                order_enforce=False,
                additional_wrappers=(limit,),
            )


def register_with_gymnasium() -> None:
    """Calls `register` now if gymnasium is imported, else at the end of its import."""
    if "gymnasium" in sys.modules:
        register()
    else:
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """A finder of `sys.meta_path` that finds gymnasium once, through the others, and registers
    after its code has run.
    """

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != "gymnasium":
            return None
        # Before the search below, which would come back here.
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                register()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
