"""Defines the keys of configs: a `Key` holds its default, type, range, choices and meaning.

A `section_class` declares the keys of a command, and of each section of its config:

    @section_class
    class PlayedAgent:
        dir: str | None = plain_key(None, "run folder of the agent")

    @section_class
    class EvaluateConfig:
        episodes: int = positive(100, "number of episodes to play")
        agent: PlayedAgent = subsection(PlayedAgent)

A config file names the class and sets its variants:

    KEYS = {"stage": "evaluate", **section_keys(EvaluateConfig)}
    get_config = configs(KEYS, {"smoke": {"episodes": 4}})

Each value of a config carries its `Key`, also when its section becomes part of another config. So
`validate` and `describe` need nothing but the config. The command reads the values as an instance
of the class, a frozen dataclass:

    config = read_section(EvaluateConfig, config_tree)

Sections that several commands share are in `motif_jax/core/sections.py`; the others are in the
`config.py` of their folder.
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

# Upper limits of sizes of networks, lengths of sequences and sizes of batches. A larger number is a
# mistake, and would take all memory before it fails.
SIZE = 1 << 16
LENGTH = 1 << 20
BATCH = 1 << 24
# Whole numbers in a config must fit into 64 bits: numpy, jax and Parquet store no larger ones.
_TOO_LARGE = 1 << 63

DTYPES = ("float32", "bfloat16")

_TYPE_NAMES = {int: "whole number", float: "number", str: "text", bool: "True or False"}

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Key:
    """The default, meaning and allowed values of a key of a config.

    Attributes:
      default: value of the key until a variant or a flag sets another.
      help: the meaning, which `--help` prints.
      type: type of the value. None: the type of `default`; where `default` is None too,
        `section_class` takes the type from the annotation of the field, and a config file must name
        it.
      above, minimum, below, maximum: limits of the value, or of each element of a tuple.
      multiple_of: the value must be a multiple of this number.
      choices: the allowed values; empty for any.
      allow_none: whether None is allowed where `default` is not None.
      read_when: another key and its values with which this one is read, none for any that is not
          empty; a flag is refused beside other values. The other key is named from the config's
          root on, or with a dot in front in the section of this one: (".schedule", ("linear",)).
    """

    default: Any
    help: str
    type: Any = None
    above: float | None = None
    minimum: float | None = None
    below: float | None = None
    maximum: float | None = None
    multiple_of: int = 1
    choices: Sequence[Any] = ()
    allow_none: bool = False
    read_when: tuple[str, Sequence[Any]] | None = None

    @property
    def value_type(self) -> type:
        """The type of the value; the type of `default` unless `type` is set."""
        return self.type or type(self.default)

    @property
    def optional(self) -> bool:
        """Whether None is allowed; always True where the default is None."""
        return self.allow_none or self.default is None

    @property
    def allowed(self) -> str:
        """The allowed values in words; '' for any of the type."""
        if self.choices:
            return "one of " + ", ".join(map(str, self.choices))
        if self.minimum == 0 and self.maximum == 1:
            return "a number between 0 and 1"
        if self.above == 0 and self.below == 1:
            return "a number strictly between 0 and 1"
        limits = {
            "above": self.above,
            "of at least": self.minimum,
            "below": self.below,
            "of at most": self.maximum,
        }
        phrases = [f"{words} {limit:,}" for words, limit in limits.items() if limit is not None]
        text = f"a number {' and '.join(phrases)}" if phrases else ""
        if self.multiple_of != 1:
            text += f", a multiple of {self.multiple_of}"
        return text

    def require(self, name: str, value: Any) -> None:
        """Raises UserError unless `value` is allowed; `name` is the dotted name of the key, for the
        error.
        """
        if value is None:
            return require(self.optional, name, value, self.allowed or "given")
        self._require_type(name, value)
        if isinstance(value, float):
            require(math.isfinite(value), name, value, "a finite number")
        if self.value_type is tuple and self.allowed:
            is_valid = all(type(element) is int and self._in_range(element) for element in value)
            return require(
                is_valid, name, value, f"whole numbers {self.allowed.removeprefix('a number ')}"
            )
        # A number that is only too large is told its limit alone: "at most 65,536", not "above 0
        # and of at most 65,536".
        if self.maximum is not None and self.minimum != 0 and is_finite(value):
            require(value <= self.maximum, name, value, f"at most {self.maximum:,}")
        return require(self._in_range(value), name, value, self.allowed)

    def _require_type(self, name: str, value: Any) -> None:
        expected = self.value_type
        is_valid = isinstance(value, (int, float) if expected is float else expected)
        if expected is not bool and isinstance(value, bool):  # True is an int for Python
            is_valid = False
        require(is_valid, name, value, f"a {_TYPE_NAMES.get(expected, expected.__name__)}")

    def _in_range(self, value: Any) -> bool:
        if self.choices:
            return value in self.choices
        if not self.allowed:
            return True
        return (
            is_finite(value)
            and (self.above is None or value > self.above)
            and (self.minimum is None or value >= self.minimum)
            and (self.below is None or value < self.below)
            and (self.maximum is None or value <= self.maximum)
            and (self.multiple_of == 1 or value % self.multiple_of == 0)
        )


def condition(name: str, key: Key) -> tuple[str, Sequence[Any]]:
    """The `read_when` of the key with the dotted name `name`, with the other key's dotted name in
    full.
    """
    assert key.read_when is not None
    other, values = key.read_when
    if other.startswith("."):
        other = f"{name.rpartition('.')[0]}{other}".removeprefix(".")
    return other, values


class Field(FieldReference):
    """A value in a config, with its `Key`."""

    def __init__(self, key: Key) -> None:
        super().__init__(key.default, field_type=key.type)
        self.key = key


# Constructors of keys. Their arguments are those of `Key`. They return Any for the type checker, so
# that `clip_ratio: float = positive(...)` can stand in a `section_class`.
plain_key: Callable[..., Any] = Key
positive: Callable[..., Any] = functools.partial(Key, above=0)
non_negative: Callable[..., Any] = functools.partial(Key, minimum=0)
fraction: Callable[..., Any] = functools.partial(Key, minimum=0, maximum=1)
layer_size_key: Callable[..., Any] = functools.partial(Key, above=0, maximum=SIZE)
length_key: Callable[..., Any] = functools.partial(Key, above=0, maximum=LENGTH)
batch_size_key: Callable[..., Any] = functools.partial(Key, above=0, maximum=BATCH)

# A section inside a section, as the value of a field of a `section_class`:
# `subsection(CLASS, key=default, ...)`, with other defaults for some keys of CLASS.
subsection: Callable[..., Any] = functools.partial


def one_of(choices: Sequence[Any], help: str, **options: Any) -> Any:
    """A key whose value is one of `choices`; the first is the default. `options` are further
    arguments of `Key`.
    """
    return Key(choices[0], help, choices=choices, **options)


def section(keys: Mapping[str, Any]) -> ConfigDict:
    """The section of a config with these keys; mappings among them become sections inside it."""
    fields: dict[str, Any] = {}
    for name, key in keys.items():
        if isinstance(key, Key):
            fields[name] = Field(key)
        elif isinstance(key, Mapping):
            fields[name] = section(key)
        else:
            fields[name] = key
    return ConfigDict(fields)


@typing.dataclass_transform(frozen_default=True, kw_only_default=True)
def section_class(declared: type[T]) -> type[T]:
    """Decorator: a frozen dataclass of the values of a section of a config.

    A field that is set to a `Key`, or to a `subsection`, is a key of the section; its default
    becomes that of the field. Other fields are plain fields of the dataclass, which no config sets.
    Subclasses inherit the keys.
    """
    keys = dict(getattr(declared, "_keys", {}))
    annotations = typing.get_type_hints(declared)
    # The class's own fields: `get_type_hints` has inherited ones, too.
    for name in vars(declared).get("__annotations__", {}):
        value = vars(declared).get(name)
        if isinstance(value, Key):
            if value.default is None and value.type is None:
                # `int | None`: the first of the two is the type of a value.
                value = dataclasses.replace(value, type=typing.get_args(annotations[name])[0])
            keys[name] = value
            setattr(declared, name, value.default)
        elif isinstance(value, functools.partial):
            keys[name] = section_keys(value.func, **value.keywords)
            setattr(declared, name, value())
    declared._keys = keys  # type: ignore[attr-defined]
    return dataclasses.dataclass(frozen=True, kw_only=True)(declared)


def section_keys(cls: Any, /, **defaults: Any) -> dict[str, Any]:
    """The keys of a `section_class`, with other defaults for some of them. Raises KeyError for a
    name that is not a key.
    """
    keys: dict[str, Any] = dict(cls._keys)
    for name, default in defaults.items():
        key = keys[name]
        # The type and whether None is allowed may follow from the old default, and stay.
        keys[name] = dataclasses.replace(
            key, default=default, type=key.value_type, allow_none=key.optional
        )
    return keys


def read_section(cls: type[T], config: ConfigDict | Mapping[str, Any], /, **overrides: Any) -> T:
    """An instance of `cls`, a `section_class`, with the values of a config or of one of its
    sections.

    A key that the section lacks has its default. Keys that are not
    fields of `cls` are ignored.

    Args:
      overrides: values of fields that take precedence over `config`.
    """
    fields: dict[str, Any] = {}
    annotations = typing.get_type_hints(cls)
    for name in annotations.keys() & set(config) - overrides.keys():
        value = config[name]
        if isinstance(value, ConfigDict):
            value = value.to_dict()
        nested = _section_class_of(annotations[name])
        if nested is not None and isinstance(value, Mapping):
            value = read_section(nested, value)
        # JSON has lists where configs have tuples.
        fields[name] = tuple(value) if isinstance(value, list) else value
    return cls(**fields, **overrides)


def _section_class_of(annotation: Any) -> Any:
    """The `section_class` in a field's annotation, `Section` or `Section | None`; None where there
    is no such class.
    """
    for candidate in (annotation, *typing.get_args(annotation)):
        if hasattr(candidate, "_keys"):
            return candidate
    return None


def read_open_section(cls: type[T], config: ConfigDict | Mapping[str, Any], /) -> T:
    """As `read_section`, with a field for each further key of the section, too.

    Parts from outside the package read keys of their own this way.
    """
    declared = {field.name for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    extra = {name: _untyped(config[name]) for name in config if name not in declared}
    extended = dataclasses.make_dataclass(
        cls.__name__, [(name, Any) for name in extra], bases=(cls,), frozen=True, kw_only=True
    )
    return read_section(extended, config, **extra)


def _untyped(value: Any) -> Any:
    """A section without a class of its own as a dataclass of its keys; any other value
    unchanged.
    """
    if not isinstance(value, ConfigDict | Mapping):
        return value
    cls = dataclasses.make_dataclass("Section", [(name, Any) for name in value], frozen=True)
    return cls(**{name: _untyped(value[name]) for name in value})


def update(config: ConfigDict, changes: Mapping[str, Any]) -> ConfigDict:
    """Sets existing keys of `config` in place, by dotted names or by mappings of sections, and
    returns `config`.

    Raises KeyError for a name that is not a key of `config`.
    """
    for dotted_name, value in changes.items():
        path, _, name = dotted_name.rpartition(".")
        parent = dotted(config, path) if path else config
        if name not in parent:
            raise KeyError(f"not a key of this config: {dotted_name}")
        if isinstance(value, Mapping):
            update(parent[name], value)
        else:
            parent[name] = value
    return config


Changes = Mapping[str, Any] | Sequence[Mapping[str, Any]]


def configs(
    keys: Mapping[str, Any], variants: Mapping[str, Changes] = {}
) -> Callable[..., ConfigDict]:
    """The function `get_config` of a config file.

    Args:
      keys: the keys of the config, as `section` takes them.
      variants: name of a variant -> its changes, as `update` takes them; a sequence of changes is
          applied in order.
    """

    def get_config(variant: str | None = None) -> ConfigDict:
        if variant and variant not in variants:
            raise unknown_variant(variant, dict.fromkeys(("", *variants)))
        config = section(keys)
        changes = variants.get(variant or "", {})
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
    """Raises UserError for the first value that is not allowed; names the key, the value and what
    is allowed.

    Args:
      keys: dotted name -> `Key`, for values that carry none: a user's config may be a plain
          ConfigDict.
    """
    for name, value, key in items(config):
        key = key or keys.get(name)
        for element in value if isinstance(value, list | tuple) else (value,):
            _require_storable(name, element)
        if key is not None:
            key.require(name, value)


def _require_storable(name: str, value: Any) -> None:
    """Refuses values that no key may have: NaN, integers beyond 64 bits, text that a file cannot
    hold.
    """
    if isinstance(value, float):
        require(math.isfinite(value), name, value, "a finite number")
    elif isinstance(value, int):
        require(abs(value) < _TOO_LARGE, name, value, "below 2^63")
    elif isinstance(value, str):
        # Python reads bytes of the command line that are not UTF-8 as surrogates.
        is_storable = not re.search("[\0\ud800-\udfff]", value)
        require(is_storable, name, ascii(value), "valid UTF-8 without NUL characters")


def describe(config: ConfigDict) -> Iterator[str]:
    """Yields lines with every key's value in `config`, type, allowed values and meaning."""
    for name, value, allowed, meaning in described(config):
        yield f"--config.{name}={value}" + (f"  ({allowed})" if allowed else "")
        yield from textwrap.wrap(meaning, 110, initial_indent="    ", subsequent_indent="    ")


def described(config: ConfigDict) -> Iterator[tuple[str, Any, str, str]]:
    """Yields every key's name, its value in `config`, what it may be, and its meaning; these two
    are empty for a value without a declared key.
    """
    for name, value, key in items(config):
        if key is None:
            yield name, value, "", ""
            continue
        allowed = _TYPE_NAMES.get(key.value_type, key.value_type.__name__)
        if key.choices:
            allowed = key.allowed
        elif key.allowed:
            allowed += f" {key.allowed.removeprefix('a number ')}"
        or_none = ", or None" if key.optional else ""
        yield name, value, f"{allowed}{or_none}", key.help
