"""The command line before absl reads it: which config file it names, which keys its flags set, and
what is refused in one line.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
import runpy
import sys
from collections.abc import Iterable, Sequence
from typing import NoReturn

from absl import flags
from ml_collections import ConfigDict, FieldReference

from motif_jax import schema
from motif_jax.core import resources
from motif_jax.core.config import dotted, flat, has
from motif_jax.core.entry_points import is_entry_point
from motif_jax.core.errors import UserError, printable
from motif_jax.rl import choices

# The flags that the package defines, without a value.
_FLAG = r"--?(workdir|config(\.[^=]+)?)"


@dataclasses.dataclass(frozen=True)
class Command:
    """What a command line says of the config.

    Attributes:
      arguments: those for absl.
      config: the config file, with its variant; '' where none is named.
      keys: the keys that flags set.
      cleared: the keys that `--config.KEY=None` sets, which absl does not accept for numbers.
      trusted: the names in `--config.trust=NAME,...`, which is not a key of any config.
    """

    arguments: list[str]
    config: str
    keys: list[str]
    cleared: list[str]
    trusted: list[str]


def fail(message: str) -> NoReturn:
    """Ends the program with exit code 2 and one line on stderr."""
    print(f"error: {printable(' '.join(message.split()))}", file=sys.stderr, flush=True)
    raise SystemExit(2)


def with_flag_files(arguments: Sequence[str]) -> list[str]:
    """Puts the flags of each `--flagfile=FILE` in its place, where they are checked as if they
    stood on the command line.
    """
    try:
        flags_of_files = flags.FLAGS.read_flags_from_files(list(arguments[1:]), force_gnu=False)
    except (flags.Error, UnicodeError) as error:
        fail(f"--flagfile: {readable(error)}")
    return [arguments[0], *flags_of_files]


def with_values(arguments: Iterable[str]) -> list[str]:
    """Puts `=` in place of the blank in `--config FILE`, `--workdir DIR` and `--config.KEY VALUE`;
    a value may be a negative number.
    """
    joined: list[str] = []
    for argument in arguments:
        flag = joined[-1] if joined else ""
        if re.fullmatch(_FLAG, flag) and not re.match(r"-+[^\d.]", argument):
            joined[-1] = f"{flag}={argument}"
        else:
            joined.append(argument)
    return joined


def with_paths(argument: str) -> str:
    """An argument whose value is `located`."""
    flag, equals, value = argument.partition("=")
    if not equals or not re.fullmatch(_FLAG, flag):
        return argument
    return f"{flag}={located(value, may_be_packaged=flag.lstrip('-') != 'workdir')}"


def located(value: str, may_be_packaged: bool = True) -> str:
    """A value with paths that open: `~/` is the user's folder, since shells leave it as it is after
    `=`, and a missing file of configs/ is the package's own.
    """
    parts = value.split(",")
    value = ",".join(os.path.expanduser(p) if p.startswith("~/") else p for p in parts)
    path, colon, variant = value.partition(":")
    packaged = resources.path(path)
    is_missing = path.startswith("configs/") and not os.path.isfile(path)
    if may_be_packaged and is_missing and os.path.isfile(packaged):
        value = f"{packaged}{colon}{variant}"
    return value


def read(arguments: Iterable[str]) -> Command:
    """What arguments of the form `--FLAG=VALUE` say; of several flags of one key the last one
    decides.
    """
    rest: list[str] = []
    config = ""
    keys: dict[str, bool] = {}  # key -> whether it is cleared
    trusted: list[str] = []
    for argument in arguments:
        flag, _, value = argument.partition("=")
        name = re.sub("^--?", "", flag)
        if name == "config":
            config = value
        elif name == "config.trust":
            trusted += filter(None, value.split(","))
            continue
        elif name.startswith("config."):
            is_cleared = value == "None"
            keys[name.removeprefix("config.")] = is_cleared
            if is_cleared:
                continue
        rest.append(argument)
    cleared = [key for key, is_cleared in keys.items() if is_cleared]
    return Command(rest, config, list(keys), cleared, trusted)


def read_config_file(value: str) -> ConfigDict:
    """The config of `value`, FILE.py or FILE.py:VARIANT. Raises UserError: there is none."""
    path, _, variant = value.partition(":")
    if not os.path.isfile(path):
        raise UserError(f"--config={value}: there is no file {path}")
    try:
        config = runpy.run_path(path)["get_config"](variant or None)
    except Exception as error:
        raise UserError(f"--config={value}: {readable(error)}") from error
    if not isinstance(config, ConfigDict):
        raise UserError(
            f"--config={value}: get_config gives {type(config).__name__}, must give a ConfigDict"
        )
    return config


def check_keys(command: Command, config: ConfigDict) -> None:
    """Raises UserError for flags of what is no key of the config file.

    A section is none: given as a literal it would take the place of all its keys, unknown ones and
    wrong types included. Nor is `stage`, which is that of the file.

    Args:
      config: without flags.
    """
    names = list(flat(config.to_dict()))
    for key in command.keys:
        if key in names and key != "stage":
            continue
        # What is only spelled alike comes after the keys of a section, and a key of one.
        inside = [name for name in names if f".{key}." in f".{name}."]
        similar = sorted(inside, key=len) or difflib.get_close_matches(key, names, n=1)
        hint = f"did you mean --config.{similar[0]}?" if similar else "--help shows them"
        raise UserError(
            f"--config.{key} is not a key of {command.config.partition(':')[0]}; {hint}"
        )


def set_none(config: ConfigDict, keys: Sequence[str]) -> None:
    """Sets `keys` to None; UserError names one that is not a placeholder."""
    for key in keys:
        path, _, name = key.rpartition(".")
        holder = dotted(config, path) if path else config
        # The field, not its value: its `Key` says whether None is allowed.
        field = dict(holder.items(preserve_field_references=True))[name]
        needs_value = isinstance(field, schema.Field) and not field.key.optional
        if needs_value or not isinstance(field, FieldReference):
            raise UserError(
                f"--config.{key}=None: this key needs a value; only keys whose help explains None may have it"
            )
        holder[name] = None


def check_read(command: Command, config: ConfigDict) -> None:
    """Raises UserError for flags that nothing reads beside the values of other keys: a sweep over
    them would train equal agents. What is cleared is not read anyway.

    Args:
      config: with the flags.
    """
    keys = {name: key for name, _, key in schema.items(config)}
    for name in command.keys:
        if name in command.cleared:
            continue
        assignment = f"--config.{name}={dotted(config, name)}"
        _check_condition(assignment, name, keys[name], config)
        section, _, inner = name.partition(".")
        if not inner or section not in choices.SECTIONS:
            continue
        choice, known = choices.SECTIONS[section]
        part = config[section].get(choice)
        # Parts from outside the package may read any key.
        is_ours = part in known.parts
        if is_ours and inner.partition(".")[0] not in schema.section_keys(known.section(part)):
            raise UserError(
                f"{assignment}: has no effect with {section}.{choice}={part}, which has no such key"
            )


def _check_condition(
    assignment: str, name: str, key: schema.Key | None, config: ConfigDict
) -> None:
    """Raises UserError for the flag `assignment` of the key `name` where its `read_when` does not
    hold.
    """
    if key is None or key.read_when is None:
        return
    condition_key, values = schema.condition(name, key)
    # A section may stand in a config without the other key.
    if not has(config, condition_key):
        return
    value = dotted(config, condition_key)
    if not values and not value:
        raise UserError(f"{assignment}: has no effect without --config.{condition_key}")
    # A class of the user's may read any key.
    if values and value not in values and not is_entry_point(value):
        allowed = " or ".join(map(str, values))
        raise UserError(
            f"{assignment}: has no effect with {condition_key}={value}, only with {allowed}"
        )


def readable(error: Exception) -> str:
    """The first line of an error of absl, ml_collections or a config file, in this program's
    words.
    """
    # str() puts the message of a KeyError into quotes.
    text = str(error.args[0] if isinstance(error, KeyError) and error.args else error)
    # Some of absl's errors have a second line of advice, or this prefix in front.
    text = text.split("\n")[0].removeprefix("ERROR:: ")
    unknown = re.search(r"[Uu]nknown command line flag '([^']*)'", text)
    if unknown:
        return f"--{unknown.group(1)} is not a flag or a key of this config; --help shows the keys"
    return text
