"""What calls give, or say in their errors: lines of a recording."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any


def said(act: Callable[..., Any], *given: Any, folder: Any = None, **named: Any) -> str:
    """The result or the error as a text, in which `folder` is called FOLDER."""
    try:
        found = str(act(*given, **named))
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
    found = re.sub(r"maximum recursion depth exceeded[\w ]*", "too deep", found)
    return found if folder is None else found.replace(str(folder), "FOLDER")
