"""Reads pickles as data: of what a file names, only numpy's arrays and plain containers are built.

Every other class or function becomes a `Stub`: nothing of the file is imported or run.
"""

from __future__ import annotations

import contextlib
import importlib
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from motif_jax.core.errors import UserError
from motif_jax.core.files import regular_file

# What containers, bytes of old protocols and arrays of numpy (before version 2 and since) name.
_BUILT = frozenset(
    {
        "_codecs.encode",
        "builtins.bytes",
        "builtins.set",
        "collections.OrderedDict",
        "collections.defaultdict",
        "collections.deque",
        "numpy.dtype",
        "numpy.ndarray",
        *(
            f"{inside}.{name}"
            for inside in ("numpy.core", "numpy._core")
            for name in ("multiarray._reconstruct", "multiarray.scalar", "numeric._frombuffer")
        ),
    }
)


class Stub:
    """In place of an object of an unknown class, or of what an unknown function would return.

    Attributes:
      arguments: those with which the class or function is called.
      state: what the object is filled with: its attributes, as a rule.
    """

    arguments: tuple[Any, ...]
    state: Any = None

    def __new__(cls, *arguments: Any, **named: Any) -> Stub:
        # A pickle makes objects without calling `__init__`.
        stub = super().__new__(cls)
        stub.arguments = (*arguments, *named.values())
        return stub

    def __setstate__(self, state: Any) -> None:
        self.state = state

    # Objects of subclasses of containers are filled by these. Nobody reads their entries.
    def append(self, value: Any) -> None:
        del value

    extend = add = append

    def __setitem__(self, key: Any, value: Any) -> None:
        del key, value


def named(name: str) -> Any:
    """The class or function that a pickle means by MODULE.NAME; `Stub` for unknown ones."""
    # Python 2's name, which protocols below 3 write.
    name = name.replace("__builtin__.", "builtins.")
    if name not in _BUILT:
        return Stub
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


class _DataUnpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        return named(f"{module_name}.{global_name}")


def read_file(path: Path) -> Any:
    """The data of a pickle. Raises OSError, and of damaged files whatever `pickle` raises."""
    with open(path, "rb", opener=regular_file) as file:
        return _DataUnpickler(file).load()


@contextlib.contextmanager
def reading(path: Path, description: str) -> Iterator[None]:
    """Turns errors of the block into UserError: "PATH is not DESCRIPTION (error)"."""
    try:
        yield
    except (OSError, UserError):
        raise
    except Exception as error:  # a damaged pickle can raise anything
        raise UserError(f"{path} is not {description} ({type(error).__name__}: {error})") from None
