"""Defines the keys of configs: a `Key` holds its default, type, range, choices and meaning.

A config file lists its keys and sets its variants:

    KEYS = {"stage": "evaluate", "episodes": positive(100, "played in all"), "agent": {"dir": Key(None, "its run folder", str)}}
    get_config = configs(KEYS, {"smoke": {"episodes": 4}})

A key of a config keeps its `Key` wherever its section is put, so that `validate` and `describe` need only the config.
What functions below the stages read is a class (`settings`), which holds the keys of its section and, as an instance, their values:

    @settings
    class Surrogate:
        clip_ratio: float = positive(0.1, "of the surrogate")

    KEYS = {"algorithm": keys(Surrogate, clip_ratio=0.2)}
    surrogate = values(Surrogate, config.algorithm)

These classes are in `motif_jax/core/sections.py`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
import textwrap
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from ml_collections import ConfigDict, FieldReference

from motif_jax.core.config import dotted, is_finite, require, unknown_variant

# Upper limits of sizes of networks, lengths of sequences and sizes of batches: a larger number is a mistake, and would take all
# memory before it fails.
SIZE, LENGTH, BATCH = 1 << 16, 1 << 20, 1 << 24
_TOO_LARGE = 1 << 63
T = TypeVar("T")
_TYPES = {int: "whole number", float: "number", str: "text", bool: "True or False"}
DTYPES = ("float32", "bfloat16")


@dataclasses.dataclass(frozen=True)
class Key:
    """The default, meaning and allowed values of a config's key.

    Attributes:
      default: needs `type` where it is None.
      help: the meaning, for `--help`.
      type: None for that of the default, or in `settings`, where the default is None, for that of the annotation.
      above, least, below, most: limits of the value, or of each element of a tuple.
      multiple: the value is a multiple of it.
      choices: the allowed values; empty for any.
      none: whether None is allowed; always True where the default is None.
    """

    default: Any
    help: str
    type: Any = None
    above: float | None = None
    least: float | None = None
    below: float | None = None
    most: float | None = None
    multiple: int = 1
    choices: Sequence[Any] = ()
    none: bool = False

    @property
    def optional(self) -> bool:
        """Whether None is allowed."""
        return self.none or self.default is None

    @property
    def allowed(self) -> str:
        """The allowed values in words; '' for any of the type."""
        if self.choices:
            return "one of " + ", ".join(map(str, self.choices))
        if self.least == 0 and self.most == 1:
            return "a number between 0 and 1"
        if self.above == 0 and self.below == 1:
            return "a number between 0 and 1, neither of them"
        ends = {"above": self.above, "of at least": self.least, "below": self.below, "of at most": self.most}
        ranges = [f"{word} {end:,}" for word, end in ends.items() if end is not None]
        found = f"a number {' and '.join(ranges)}" if ranges else ""
        return found if self.multiple == 1 else f"{found}, a multiple of {self.multiple}"

    def require(self, name: str, value: Any) -> None:
        """Raises UserError unless `value` is allowed; `name` is the key's, for the error."""
        if value is None:
            return require(self.optional, name, value, self.allowed or "given")
        kind = self.type or type(self.default)
        fits = isinstance(value, (int, float) if kind is float else kind)
        fits = fits and (kind is bool or not isinstance(value, bool))
        require(fits, name, value, f"a {_TYPES.get(kind, kind.__name__)}")
        if isinstance(value, float):
            require(math.isfinite(value), name, value, "a finite number")
        if kind is tuple and self.allowed:
            good = all(type(each) is int and self._inside(each) for each in value)
            return require(good, name, value, f"whole numbers {self.allowed.removeprefix('a number ')}")
        if self.most is not None and self.least != 0 and is_finite(value):
            require(value <= self.most, name, value, f"at most {self.most:,}")
        return require(self._inside(value), name, value, self.allowed)

    def _inside(self, value: Any) -> bool:
        if self.choices:
            return value in self.choices
        return not self.allowed or (
            is_finite(value)
            and (self.above is None or value > self.above)
            and (self.least is None or value >= self.least)
            and (self.below is None or value < self.below)
            and (self.most is None or value <= self.most)
            and (self.multiple == 1 or value % self.multiple == 0)
        )


class Field(FieldReference):
    """A value in a config, with its `Key`."""

    def __init__(self, key: Key) -> None:
        super().__init__(key.default, field_type=key.type)
        self.key = key


# Keys of any value, and of numbers: above 0; of at least 0; between 0 and 1; a network's size; a length; a batch's size.
# Arguments are those of `Key`; they are of no type, so that they can stand in `settings`.
key: Callable[..., Any] = Key
positive: Callable[..., Any] = functools.partial(Key, above=0)
natural: Callable[..., Any] = functools.partial(Key, least=0)
fraction: Callable[..., Any] = functools.partial(Key, least=0, most=1)
size: Callable[..., Any] = functools.partial(Key, above=0, most=SIZE)
count: Callable[..., Any] = functools.partial(Key, above=0, most=LENGTH)
batch: Callable[..., Any] = functools.partial(Key, above=0, most=BATCH)
# A section in a section, as the value of a field of `settings`: its class, and other defaults for some of its keys.
part: Callable[..., Any] = functools.partial


def one_of(choices: Sequence[Any], help: str, **more: Any) -> Any:
    """One of `choices`, of which the first is the default."""
    return Key(choices[0], help, choices=choices, **more)


def section(keys: Mapping[str, Any]) -> ConfigDict:
    """The section of a config with these keys; mappings among them become sections in it."""
    made = {name: Field(key) if isinstance(key, Key) else key for name, key in keys.items()}
    return ConfigDict({k: section(v) if isinstance(v, Mapping) else v for k, v in made.items()})


@typing.dataclass_transform(frozen_default=True, kw_only_default=True)
def settings(kind: type[T]) -> type[T]:
    """A frozen dataclass of the values of a section; a field that is set to a `Key`, or to `part`, is a key of its configs."""
    found, kinds = dict(getattr(kind, "_keys", {})), typing.get_type_hints(kind)
    for name in vars(kind).get("__annotations__", {}):
        given = vars(kind).get(name)
        if isinstance(given, Key):
            if given.default is None and given.type is None:
                given = dataclasses.replace(given, type=typing.get_args(kinds[name])[0])
            found[name] = given
            setattr(kind, name, given.default)
        elif isinstance(given, functools.partial):
            found[name] = keys(given.func, **given.keywords)
            setattr(kind, name, given())
    kind._keys = found  # type: ignore[attr-defined]
    return dataclasses.dataclass(frozen=True, kw_only=True)(kind)


def keys(kind: Any, /, **defaults: Any) -> dict[str, Any]:
    """The keys of `settings`, with other defaults for some of them. Raises KeyError for a key that is not among them."""
    found: dict[str, Any] = dict(kind._keys)
    for name, default in defaults.items():
        key = found[name]
        type_ = key.type or type(key.default)
        found[name] = dataclasses.replace(key, default=default, type=type_, none=key.optional)
    return found


def values(kind: type[T], config: ConfigDict | Mapping[str, Any], /, **more: Any) -> T:
    """`kind`, a class of `settings`, with the values of a config or of its section, and `more` in place of some.

    A key that is not in the section, as in older runs, has its default; keys that are no fields are left out.
    """
    found, kinds = {}, typing.get_type_hints(kind)
    for name in kinds.keys() & set(config) - more.keys():
        value, inner = config[name], kinds[name]
        if isinstance(value, ConfigDict):
            value = value.to_dict()
        own = [each for each in (inner, *typing.get_args(inner)) if hasattr(each, "_keys")]
        if own and isinstance(value, Mapping):
            value = values(own[0], value)
        found[name] = tuple(value) if isinstance(value, list) else value
    return kind(**found, **more)


def all_values(kind: type[T], config: ConfigDict | Mapping[str, Any], /) -> T:
    """As `values`, with a field for each further key, too: for parts from outside the package, which may have keys of their own."""
    own = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    more = {name: _free(config[name]) for name in config if name not in own}
    fields = [(name, Any) for name in more]
    made = dataclasses.make_dataclass(kind.__name__, fields, bases=(kind,), frozen=True, kw_only=True)
    return values(made, config, **more)


def _free(value: Any) -> Any:
    """A section without a class of its own as a dataclass of its keys; any other value unchanged."""
    if not isinstance(value, ConfigDict | Mapping):
        return value
    made = dataclasses.make_dataclass("Section", [(name, Any) for name in value], frozen=True)
    return made(**{name: _free(value[name]) for name in value})


def update(config: ConfigDict, values: Mapping[str, Any]) -> ConfigDict:
    """Sets existing keys, by dotted names or in mappings of sections; returns `config`."""
    for name, value in values.items():
        *path, last = name.split(".")
        holder = dotted(config, ".".join(path)) if path else config
        if last not in holder:
            raise KeyError(f"not a key of this config: {name}")
        if isinstance(value, Mapping):
            update(holder[last], value)
        else:
            holder[last] = value
    return config


Changes = Mapping[str, Any] | Sequence[Mapping[str, Any]]


def configs(keys: Mapping[str, Any], variants: Mapping[str, Changes] = {}) -> Callable[..., ConfigDict]:
    """The function `get_config` of a config file.

    Args:
      variants: name -> its changes, as `update` takes them; several changes are made in turn.
    """

    def get_config(variant: str | None = None) -> ConfigDict:
        if variant and variant not in variants:
            raise unknown_variant(variant, dict.fromkeys(("", *variants)))
        config, changes = section(keys), variants.get(variant or "", {})
        for change in [changes] if isinstance(changes, Mapping) else changes:
            update(config, change)
        return config

    return get_config


def items(config: ConfigDict, prefix: str = "") -> Iterator[tuple[str, Any, Key | None]]:
    """(dotted name, value, `Key` if it has one) of every key of a config, in their order."""
    for name, field in config.items(preserve_field_references=True):
        if isinstance(field, ConfigDict):
            yield from items(field, f"{prefix}{name}.")
        else:
            value = field.get() if isinstance(field, FieldReference) else field
            yield f"{prefix}{name}", value, getattr(field, "key", None)


def validate(config: ConfigDict, keys: Mapping[str, Key] = {}) -> None:
    """Raises UserError for the first value that is not allowed; names the key, the value and what is allowed.

    Args:
      keys: dotted name -> `Key`, for values without one: a user's config may be a plain ConfigDict.
    """
    for name, value, key in items(config):
        key = key or keys.get(name)
        for each in value if isinstance(value, list | tuple) else (value,):
            if isinstance(each, float):
                require(math.isfinite(each), name, value, "a finite number")
            elif isinstance(each, int):
                require(abs(each) < _TOO_LARGE, name, value, "below 2^63")
            elif isinstance(each, str):
                # Bytes that are no UTF-8 are surrogates.
                written = not re.search("[\0\ud800-\udfff]", each)
                require(written, name, ascii(value), "text in UTF-8 without zeros")
        if key is not None:
            key.require(name, value)


def describe(config: ConfigDict) -> Iterator[str]:
    """Yields lines with every key's value in `config`, type, allowed values and meaning."""
    for name, value, key in items(config):
        if key is None:
            yield f"--config.{name}={value}"
            continue
        kind = key.type or type(key.default)
        what = _TYPES.get(kind, kind.__name__)
        if key.allowed:
            what = key.allowed if key.choices else f"{what} {key.allowed.removeprefix('a number ')}"
        none = ", or None" if key.optional else ""
        yield f"--config.{name}={value}  ({what}{none})"
        yield from textwrap.wrap(key.help, 110, initial_indent="    ", subsequent_indent="    ")
