"""The command line before absl reads it: which config file it names, which keys its flags set, and
what is refused in one line.
"""

from __future__ import annotations

import difflib
import os
import re
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from absl import flags
from ml_collections import ConfigDict, FieldReference
from ml_collections.config_flags import config_path

from motif_jax import schema
from motif_jax.core import resources
from motif_jax.core.config import dotted, flat, has
from motif_jax.core.entry_points import is_entry_point
from motif_jax.core.errors import UserError, printable
from motif_jax.rl import choices

# Sections whose keys depend on one of them: section -> that key, and the keys of each part that it
# may name.
_CHOICES = {
    "algorithm": ("name", choices.ALGORITHM_SECTIONS),
    "network": ("kind", choices.NETWORK_SECTIONS),
    "reward": ("kind", choices.REWARD_SECTIONS),
}


# Key or section -> the key that decides whether anything reads it, and the values with which it is
# read.
_DECIDING = {
    "algorithm.rho_clip": ("algorithm.advantage", ("vtrace",)),
    "algorithm.c_clip": ("algorithm.advantage", ("vtrace",)),
    "algorithm.gae_lambda": ("algorithm.advantage", ("gae",)),
    "algorithm.exploration_coefficient": ("algorithm.exploration", ("entropy", "symmetric_kl")),
    "algorithm.value_statistics_rate": ("algorithm.value_normalisation", ("running", "popart")),
    "network.core_layers": ("network.core", ("gru", "lstm")),
    "nonfinite.most_skips": ("nonfinite.policy", ("skip",)),
    "optimizer.final_fraction": ("optimizer.schedule", ("linear", "cosine")),
    "network.crop_dim": ("network.crop", (True,)),
    "probe_pairs": ("probe", (True,)),
    "dry_run_pairs": ("dry_run", (True,)),
    "measured_rate": ("dry_run", (True,)),
    "mixture": ("policy", ("mixture",)),
    "reward.table": ("reward.kind", ("table",)),
    "reward.vectors": ("reward.kind", ("bag_of_words",)),
    "reward.goal": ("reward.kind", ("bag_of_words",)),
    "reward.similarity": ("reward.kind", ("bag_of_words",)),
}


def fail(message: str) -> NoReturn:
    """Ends the program with exit code 2 and one line on stderr."""
    print(f"error: {printable(' '.join(message.split()))}", file=sys.stderr, flush=True)
    raise SystemExit(2)


def with_flag_files(arguments: Sequence[str]) -> list[str]:
    """Puts the flags of each `--flagfile=FILE` in its place, where they are checked as if they
    stood on the command line.
    """
    try:
        return [
            arguments[0],
            *flags.FLAGS.read_flags_from_files(list(arguments[1:]), force_gnu=False),
        ]
    except (flags.Error, UnicodeError) as error:
        fail(f"--flagfile: {readable(error)}")


def config_files(arguments: Sequence[str]) -> dict[int, str]:
    """Index of an argument -> the config file, with its variant, that it names."""
    files: dict[int, str] = {}
    for index, argument in enumerate(arguments[1:], start=1):
        # Both forms that absl takes, `--config=FILE` and `--config FILE`; FILE may hold a "=".
        flag, equals, value = argument.partition("=")
        if equals and re.fullmatch(r"--?config", flag):
            files[index] = value
        elif re.fullmatch(r"--?config", arguments[index - 1]):
            files[index] = argument
    return files


def with_installed_configs(arguments: Sequence[str]) -> list[str]:
    """Replaces missing files of configs/ in `arguments` by the package's own of that name, with
    their paths.

    They are config files, and files that a flag names, such as prompts and probes.
    """
    replaced = list(arguments)
    for index, value in config_files(arguments).items():
        path, colon, variant = value.partition(":")
        if _is_installed_alone(path):
            replaced[index] = (
                arguments[index].removesuffix(value) + f"{resources.path(path)}{colon}{variant}"
            )
    for index, argument in enumerate(replaced):
        flag, _, path = argument.partition("=")
        if re.fullmatch(r"--?config\..+", flag) and _is_installed_alone(path):
            replaced[index] = f"{flag}={resources.path(path)}"
    return replaced


def _is_installed_alone(path: str) -> bool:
    """Whether the package has the file `path` of configs/, and the folder of the command does
    not.
    """
    is_config = path.startswith("configs/")
    return is_config and not os.path.isfile(path) and os.path.isfile(resources.path(path))


def split_trusted(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Splits off the names in `--config.trust=NAME,...`, which is not a key of any config: (other
    arguments, names).
    """
    rest: list[str] = []
    trusted: list[str] = []
    remaining = iter(arguments)
    for argument in remaining:
        flag = re.fullmatch(r"--?config\.trust(?:=(.*))?", argument)
        if flag is None:
            rest.append(argument)
            continue
        names = flag.group(1)
        if names is None:  # `--config.trust NAME`: the value is the next argument
            names = next(remaining, "")
        trusted += filter(None, names.split(","))
    return rest, trusted


def with_home(arguments: Sequence[str]) -> list[str]:
    """Arguments whose values begin at `~/` with the user's folder in its place: shells leave a `~`
    after `=` as it is.
    """
    expanded = []
    for argument in arguments:
        flag, equals, value = argument.partition("=")
        if "~/" in value and re.fullmatch(r"--?(workdir|config\..*|config)", flag):
            parts = [
                os.path.expanduser(part) if part.startswith("~/") else part
                for part in value.split(",")
            ]
            value = ",".join(parts)
        expanded.append(f"{flag}{equals}{value}")
    return expanded


def split_none(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Splits arguments into those for absl and the keys set to None, which absl does not accept for
    numbers.

    The last of several flags of one key decides, as always.
    """
    joined: list[str] = []  # `--config.KEY None` as `--config.KEY=None`
    for argument in arguments:
        if argument == "None" and joined and re.fullmatch(r"--?config\.[^=]+", joined[-1]):
            joined[-1] += "=None"
        else:
            joined.append(argument)

    valued: list[str] = []
    cleared: dict[str, None] = {}  # a dict as a set that keeps its order
    for argument in joined:
        key = re.match(r"--?config\.([^=\[]+)", argument)
        if key and argument == f"{key.group()}=None":
            cleared[key.group(1)] = None
            continue
        if key:
            cleared.pop(key.group(1), None)
        valued.append(argument)
    return valued, list(cleared)


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


def check_config_file(arguments: Sequence[str]) -> str | None:
    """Refuses a missing config file, an unknown variant, and flags of unknown keys, by name;
    returns the config's stage.
    """
    stage = None
    for value in config_files(arguments).values():
        path = value.partition(":")[0]
        # The config without flags: what it has is what a flag may set.
        config = read_config_file(value)
        stage = config.get("stage")
        keys = list(flat(config.to_dict()))
        sections = {
            name.rsplit(".", depth)[0] for name in keys for depth in range(1, name.count(".") + 1)
        }
        for argument in arguments:
            flag = re.match(r"--?config\.([^=\[]+)", argument)
            if flag is None:
                continue
            key = flag.group(1)
            if key not in {*keys, *sections}:
                similar = difflib.get_close_matches(key, keys, n=1, cutoff=0.4)
                hint = (
                    f"; did you mean --config.{similar[0]}?" if similar else "; --help shows them"
                )
                fail(f"--config.{key} is not a key of {path}{hint}")
            _check_extent(argument, key, config)
    return stage


def check_chosen(arguments: Sequence[str], config: ConfigDict) -> None:
    """Refuses flags of algorithms, networks and rewards that are not the chosen ones, since nothing
    would read their values.
    """
    for argument in arguments:
        flag = re.match(r"--?config\.(algorithm|network|reward)\.(\w+)", argument)
        if flag is None:
            continue
        section, key = flag.groups()
        choice, sections = _CHOICES[section]
        name = config[section].get(choice)
        # Parts from outside the package may read any key.
        if name in sections.parts and key not in schema.section_keys(sections.load(name)):
            fail(f"{argument}: has no effect with {section}.{choice}={name}, which has no such key")


def check_deciding(arguments: Sequence[str], config: ConfigDict) -> None:
    """Refuses flags that another key leaves unread: a sweep over them would train equal agents."""
    for argument in arguments:
        flag = re.match(r"--?config\.([\w.]+)", argument)
        if flag is None:
            continue
        name = flag[1] if flag[1] in _DECIDING else flag[1].rpartition(".")[0]
        if name not in _DECIDING:
            continue
        key, readers = _DECIDING[name]
        # PPO has a `gae_lambda` and no choice of advantages.
        if not has(config, key):
            continue
        value = dotted(config, key)
        # A class of the user's may read any key.
        if value not in readers and not is_entry_point(value):
            readers_in_words = " or ".join(map(str, readers))
            fail(f"{argument}: has no effect with {key}={value}, only with {readers_in_words}")


def check_lora(arguments: Sequence[str], config: ConfigDict) -> None:
    """Refuses `lora.rank` or `lora.alpha` where no layer has low-rank additions."""
    lora_flags = [
        argument for argument in arguments if re.match(r"--?config\.lora\.(rank|alpha)\b", argument)
    ]
    if lora_flags and not config.lora.patterns:
        fail(
            f"{lora_flags[0]}: has no effect without --config.lora.patterns, the layers with low-rank additions"
        )


def _check_extent(argument: str, key: str, config: ConfigDict) -> None:
    """Refuses a flag of a whole section, which would remove the section's other keys, and one of a
    part of a value.

    Args:
      key: the key that the flag `argument` names, without an index in brackets.
      config: without flags.
    """
    name = re.sub("^--?config[.]", "", argument.partition("=")[0])
    try:
        value = config_path.get_value(name, config)
    except (AttributeError, LookupError, TypeError, ValueError):
        fail(
            f"{argument}: there is no {name[len(key) :]} in {key}; --print_config shows what there is"
        )
    # A section given as a literal would take the place of all its keys, unknown ones and wrong
    # types included.
    if isinstance(value, ConfigDict):
        example = f"--config.{name}.{next(iter(flat(value.to_dict())), 'KEY')}"
        fail(
            f"{argument}: {name} is a section: give its keys, such as {example}; --print_config shows them"
        )
    key_value = dotted(config, key)
    # A part of a tuple or a dictionary, as in `key[0]`, which only a list takes.
    if name != key and not isinstance(key_value, ConfigDict | list):
        fail(
            f"{argument}: a part of a value cannot be given: give all of it, as --config.{key}={key_value}"
        )


def read_config_file(value: str) -> ConfigDict:
    """The config of `value`, FILE.py or FILE.py:VARIANT; one line ends the program where there is
    none.
    """
    path, _, variant = value.partition(":")
    if not os.path.isfile(path):  # False for a path that is too long, too
        packaged = f"configs/{Path(path).stem[:99]}.py"
        hint = (
            f"; did you mean --config={packaged}?"
            if os.path.isfile(resources.path(packaged))
            else ""
        )
        fail(f"--config={value}: there is no file {path}{hint}")
    allowed = "a Python file with a function get_config, such as configs/collect.py"
    if Path(path).suffix != ".py":
        fail(f"--config={value}: must be {allowed}")
    try:
        get_config = runpy.run_path(path).get("get_config")
        if not callable(get_config):
            fail(f"--config={value}: {path} has no function get_config; must be {allowed}")
        config = get_config(variant or None)
    except (
        SyntaxError,
        ImportError,
        LookupError,
        TypeError,
        ValueError,
        OSError,
        UserError,
    ) as error:
        fail(f"--config={value}: {readable(error)}")
    if not isinstance(config, ConfigDict):
        fail(f"--config={value}: get_config gives {type(config).__name__}, must give a ConfigDict")
    return config


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
