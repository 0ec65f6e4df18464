"""Reads pickles as data, without importing names of the file or running its code.

Containers, numbers, strings and numeric numpy arrays are built. Calls are looked up by name in the
reader's table; an unknown one is an error, or becomes an inert `Unread`, which keeps what the
pickle fills it with. A few bytes can describe a tree of 2^60 parts: therefore only text, whole
numbers and bytes are hashed or printed, and the file's size bounds the total size of results of
calls.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import pickletools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.core.files import regular_file


@dataclasses.dataclass
class Unread:
    """In place of what is not plain data: a class or function, or an object of one.

    Attributes:
      name: that of the class or function.
      arguments: with which it is called; None for the class or function itself.
      state: what the object is filled with: its attributes, as a rule.
      values: the entries of a subclass of a list or a set.
      items: the pairs (key, value) of a subclass of a dictionary.
    """

    name: str
    arguments: Any = None
    state: Any = None
    values: list[Any] = dataclasses.field(default_factory=list)
    items: list[tuple[Any, Any]] = dataclasses.field(default_factory=list)


class UnusualArrayError(ValueError):
    """An array or a number of numpy that is not plain: of objects, of a subclass, or of an unusual
    dtype.
    """


class Filled:
    """In place of an object that a pickle makes empty and fills afterwards."""

    def take(self, state: Any) -> None:
        raise NotImplementedError


class _DType(Filled):
    """A numpy dtype in a pickle: first its code, then its byte order."""

    def __init__(self, code: Any, *_: Any) -> None:
        self._code = code
        self._plain = isinstance(code, str) and len(code) <= 8
        self._order: Any = "="

    def take(self, state: Any) -> None:
        """Takes the second part of a pickled dtype: (version, byte order, fields of unusual dtypes,
        ...).
        """
        self._order = state[1] if state[1] in ("<", ">") else "="
        self._plain &= all(part is None for part in state[2:5])

    def real(self) -> np.dtype:
        dtype = np.dtype(self._code) if self._plain else np.dtype(object)
        if dtype.hasobject or not dtype.itemsize:
            raise UnusualArrayError("an array of objects, or of an unusual dtype")
        return dtype.newbyteorder(self._order)


# Greatest number of bytes of results per byte of the file: copies, tensors that share a storage,
# and widened numbers.
_AMPLIFIED = 8
# Bytes that a small file may describe in addition, and bytes that count for an entry of a
# container.
_SMALL = 1 << 16
_ENTRY = 16
_MARK = object()
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "EMPTY_SET": set}
_LITERALS = frozenset(
    {
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *(
            "STRING",
            "BINSTRING",
            "SHORT_BINSTRING",
            "BINBYTES",
            "SHORT_BINBYTES",
            "BINBYTES8",
            "BYTEARRAY8",
        ),
        *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    }
)


def _bytes(text: str, encoding: str = "latin1") -> bytes:
    if encoding not in ("latin1", "latin-1"):
        raise ValueError("bytes in an unusual encoding")
    return text.encode("latin-1")


def _empty_array(kind: Unread, *_: Any) -> np.ndarray:
    if kind.name != "numpy.ndarray":
        raise UnusualArrayError("an array of a class that is not numpy's")
    return np.empty(0, np.uint8)


def _from_buffer(data: Any, dtype: _DType, shape: Any, order: Any, *axes: Any) -> np.ndarray:
    """An array from its bytes, as in pickles of protocol 5."""
    if order not in ("C", "F") or any(axis is not None for axis in axes):
        raise UnusualArrayError("an unusual array")
    return np.frombuffer(_raw(data), dtype.real()).reshape(tuple(shape), order=order)


def _scalar(dtype: _DType, data: Any) -> Any:
    return np.frombuffer(data, dtype.real(), 1)[0]


def _raw(data: Any) -> bytes:
    if not isinstance(data, bytes | bytearray):
        raise UnusualArrayError("an array of what is not bytes")
    return bytes(data)


def _refused(*_: Any) -> None:
    raise UnusualArrayError("an unusual array")


_CALLS: dict[str, Callable[..., Any]] = {
    "numpy.dtype": _DType,
    "_codecs.encode": _bytes,
    # What protocols below 3 make of b"".
    "__builtin__.bytes": lambda: b"",
    "builtins.bytes": lambda: b"",
    "collections.OrderedDict": lambda pairs=(): _dict(pairs),
    # The factory of a defaultdict and the length of a deque are left out.
    "collections.defaultdict": lambda *_: {},
    "collections.deque": lambda values=(), _=None: list(values),
}
# Calls that make arrays, for readers that allow them.
ARRAYS: dict[str, Callable[..., Any]] = {"numpy.ndarray": _refused}
for _inside in ("numpy.core", "numpy._core"):
    _CALLS[f"{_inside}.multiarray.scalar"] = _scalar
    ARRAYS[f"{_inside}.multiarray._reconstruct"] = _empty_array
    ARRAYS[f"{_inside}.numeric._frombuffer"] = _from_buffer


class PickleReader:
    """Interprets the opcodes of one pickle with a stack and a memo.

    Args:
      calls: name of a function or class -> its replacement, in addition to those of numbers, bytes
          and dictionaries.
      persistent: reads objects outside the pickle by their references.
      unread: whether an unknown name becomes an `Unread`, and so an unusual array, which may stay
          empty instead; else it is an error.
      size: bytes of the whole file, by default of the pickle.
    """

    def __init__(
        self,
        calls: Mapping[str, Callable[..., Any]] | None = None,
        persistent: Callable[[Any], Any] | None = None,
        unread: bool = False,
        size: int | None = None,
    ) -> None:
        self._calls = {**_CALLS, **(calls or {})}
        self._persistent = persistent
        self._unread = unread
        self._size = size
        self._stack: list[Any] = []
        self._memo: dict[Any, Any] = {}

    def read(self, data: bytes) -> Any:
        """Returns the object in `data`.

        Raises:
          ValueError, LookupError, TypeError, AttributeError, ...: the pickle is damaged or has more
              than plain data.
        """
        stack = self._stack
        self._left = _AMPLIFIED * (_SMALL + (len(data) if self._size is None else self._size))
        # `genops` divides the bytes into opcodes with their arguments, and runs none.
        for opcode, argument, _ in pickletools.genops(io.BytesIO(data)):
            name = opcode.name
            if name == "STOP":
                return stack.pop()
            if name in _CONSTANTS:
                stack.append(_CONSTANTS[name])
            elif name in _LITERALS:
                stack.append(argument)
            elif name in _EMPTY:
                stack.append(_EMPTY[name]())
            elif name == "MARK":
                stack.append(_MARK)
            elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
                self._memo[argument] = stack[-1]
            elif name == "MEMOIZE":
                self._memo[len(self._memo)] = stack[-1]
            elif name in ("GET", "BINGET", "LONG_BINGET"):
                stack.append(self._memo[argument])
            elif name not in ("PROTO", "FRAME"):
                self._make(name, argument)
        raise ValueError("the pickle has no end")

    def _make(self, name: str, argument: Any) -> None:
        stack = self._stack
        if name == "TUPLE":
            stack.append(tuple(self._since_mark()))
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            size = int(name[-1])
            stack[-size:] = [tuple(stack[-size:])]
        elif name == "LIST":
            stack.append(list(self._since_mark()))
        elif name == "DICT":
            stack.append(_dict(_pairs(self._since_mark())))
        elif name == "APPEND":
            value = stack.pop()
            _append(stack[-1], [value])
        elif name in ("APPENDS", "ADDITEMS"):
            values = self._since_mark()
            _append(stack[-1], values)
        elif name == "SETITEM":
            value = stack.pop()
            key = stack.pop()
            _set(stack[-1], [(key, value)])
        elif name == "SETITEMS":
            pairs = list(_pairs(self._since_mark()))
            _set(stack[-1], pairs)
        elif name == "GLOBAL":
            stack.append(self._global(argument.replace(" ", ".")))
        elif name == "STACK_GLOBAL":
            attribute = stack.pop()
            module = stack.pop()
            stack.append(self._global(f"{_key(module)}.{_key(attribute)}"))
        elif name in ("REDUCE", "NEWOBJ"):
            arguments = stack.pop()
            function = stack.pop()
            stack.append(self._call(name_of(function), arguments))
        elif name == "NEWOBJ_EX":
            keyword_arguments = stack.pop()
            arguments = stack.pop()
            function = stack.pop()
            stack.append(Unread(name_of(function), (arguments, keyword_arguments)))
        elif name == "BUILD":
            self._build(stack.pop())
        elif name == "BINPERSID" and self._persistent is not None:
            stack.append(self._within(self._persistent(stack.pop())))
        else:
            raise ValueError(f"opcode {name} is not read, plain data needs none")

    def _call(self, name: str, arguments: Any) -> Any:
        replacement = self._calls.get(name)
        if replacement is None:
            return Unread(name, arguments)
        try:
            result = replacement(*arguments)
        except UnusualArrayError:
            if not self._unread:
                raise
            result = Unread(name, arguments)
        return self._within(result)

    def _global(self, name: str) -> Unread:
        if not self._unread and name not in self._calls:
            raise ValueError(f"it names {name}")
        return Unread(name)

    def _build(self, state: Any) -> None:
        target: Any = self._stack[-1]
        if isinstance(target, Unread):
            # The memo has the same object, and may have given it to others already.
            target.state = state
        elif isinstance(target, Filled):
            target.take(state)
        elif isinstance(target, np.ndarray):
            try:
                _fill(target, state)
            except UnusualArrayError:
                if not self._unread:
                    raise
            self._within(target)

    def _within(self, result: Any) -> Any:
        """Returns a call's result and counts its size. A call of six bytes can copy the largest
        part of a file.
        """
        if isinstance(result, np.ndarray):
            size = result.nbytes
        elif isinstance(result, bytes | str):
            size = len(result)
        elif hasattr(result, "__len__"):
            size = _ENTRY * len(result)
        else:
            size = 0
        self._left -= size
        if self._left < 0:
            raise ValueError(f"it describes more than {_AMPLIFIED} times the bytes that it has")
        return result

    def _since_mark(self) -> list[Any]:
        """Takes the values above the newest mark off the stack, and the mark."""
        values: list[Any] = []
        value = self._stack.pop()
        while value is not _MARK:
            values.append(value)
            value = self._stack.pop()
        return values[::-1]


def _append(target: Any, values: list[Any]) -> None:
    """Adds entries to a list, a set, or an object in place of one."""
    if isinstance(target, Unread):
        target.values += values
    elif isinstance(target, set):
        target.update(map(_key, values))
    elif isinstance(target, list):
        target += values
    else:
        raise ValueError(f"entries of a {type(target).__name__}")


def _set(target: Any, pairs: list[tuple[Any, Any]]) -> None:
    """Adds pairs (key, value) to a dictionary, or to an object in place of one."""
    if isinstance(target, Unread):
        target.items += pairs
    elif isinstance(target, dict):
        target.update(_dict(pairs))
    else:
        raise ValueError(f"keys of a {type(target).__name__}")


def _fill(array: np.ndarray, state: Any) -> None:
    """Gives an array, which is empty until then, its shape, dtype and numbers."""
    version, shape, dtype, fortran, data = state
    plain: Any = (int(version), tuple(shape), dtype.real(), bool(fortran), _raw(data))
    array.__setstate__(plain)


def name_of(function: Any) -> str:
    """The name of a pickle's function or class."""
    return function.name if isinstance(function, Unread) else f"<{type(function).__name__}>"


def _key(value: Any) -> Any:
    """Checks a dictionary's key or a set's entry: hashing or printing other values can take
    forever.
    """
    if not isinstance(value, str | int | bytes):
        raise ValueError(
            f"a {type(value).__name__} as a key: keys are text, whole numbers or bytes"
        )
    return value


def _dict(pairs: Any) -> dict[Any, Any]:
    return {_key(key): value for key, value in pairs}


def _pairs(values: list[Any]) -> Iterator[tuple[Any, Any]]:
    return zip(values[::2], values[1::2], strict=True)


@contextlib.contextmanager
def reading(path: Path, description: str, hint: str = "") -> Iterator[None]:
    """Turns errors of the block into UserError: "PATH is not DESCRIPTION (error)", and `hint`."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error}") from None
    except UserError:
        raise
    except Exception as error:  # a damaged pickle can raise anything
        raise UserError(
            f"{path} is not {description} ({type(error).__name__}: {error}){hint}"
        ) from None


def read_file(path: Path, max_bytes: int, reader: PickleReader) -> Any:
    """The data of a file. Raises the errors of `PickleReader.read`, and UserError for more than
    `max_bytes`.
    """
    with open(path, "rb", opener=regular_file) as file:
        if os.fstat(file.fileno()).st_size > max_bytes:
            raise UserError(
                f"{path} is larger than {max_bytes >> 30} GiB, the most that is read of such a file"
            )
        return reader.read(file.read())
