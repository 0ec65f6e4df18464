"""Classes by 'module:Class': how a config names a part that stands outside this package."""

from __future__ import annotations

import importlib
import re
from typing import Any

from motif_jax.support.errors import UserError

_FORM = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def is_entry_point(name: Any) -> bool:
    """Whether `name` has the form 'module:Class'."""
    return isinstance(name, str) and _FORM.fullmatch(name) is not None


def load(key: str, name: str) -> Any:
    """Imports what 'module:Class' names.

    Args:
      key: of the config, for errors.
      name: 'module:Class'; the module is found as Python finds any (the folder of the command, PYTHONPATH, packages).

    Raises:
      UserError: there is no such module or class, or the module is no Python or imports what is not there.
    """
    module, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, SyntaxError, ValueError, AttributeError) as error:
        raise UserError(
            f"config.{key}={name}: no such class ({error}); must be module:Class with a module that Python finds"
        ) from error
