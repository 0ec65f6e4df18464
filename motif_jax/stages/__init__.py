"""The stages of the pipeline; each connects parts and computes nothing itself.

A stage is a module of its name, or shares one with its like. `check(config, workdir)` raises UserError, before anything is
written, for values that cannot work, missing inputs, or a folder of another run; IDENTITY names the keys with which a run
continues. `run(config, workdir)` does what is missing, and returns the exit code: 75 after a request to stop, None or 0 else.
"""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

_SHARED = {
    "export_dataset": "exports",
    "export_language_agent": "exports",
    "export_reward": "exports",
    "export_text_agent": "exports",
    "generate_text": "prompted_texts",
    "import_dataset": "imports",
    "import_dialogues": "imports",
    "import_reward": "imports",
    "score_text": "prompted_texts",
}


def names() -> list[str]:
    modules = {module.name for module in pkgutil.iter_modules(__path__)}
    return sorted(modules - {*_SHARED.values()} | _SHARED.keys())


def module(stage: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{_SHARED.get(stage, stage)}")
