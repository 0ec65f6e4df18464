"""The one entry point: `python -m motif_jax.launch --config=configs/STAGE.py --workdir=DIR`.

Reads a config file, checks every value before any work starts, and runs the stage that `config.stage` names.
A problem that the user can solve, a full disk and too little memory among them, ends the program with one line and exit code 2. A stage that takes long and
was asked to stop (SIGTERM, SIGUSR1, Ctrl-C) saves and ends with exit code 75: the same command continues it. Any other
work that Ctrl-C interrupts, or a second one, ends with one line and exit code 130.

Spawned worker processes import this module again, so it imports nothing heavy at the top.
"""

from __future__ import annotations

from motif_jax.support.interruption import (
    INTERRUPTED,
    INTERRUPTED_CODE,
    leave_at_interrupt,
)

if __name__ == "__main__":
    leave_at_interrupt()  # before the imports that take time

import ast
import contextlib
import dataclasses
import difflib
import faulthandler
import importlib
import os
import pkgutil
import re
import runpy
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from absl import logging
from ml_collections import ConfigDict

from motif_jax import schema
from motif_jax.support import cluster, entry_points, memory_limit, resources
from motif_jax.support.config import flat
from motif_jax.support.errors import UserError, printable

USAGE = """motif_jax: reinforcement learning from a language model's preferences.

  python -m motif_jax.launch --config=configs/STAGE.py[:VARIANT] --workdir=DIR [--config.KEY=VALUE ...]

Stages:   {stages}
Variants: smoke (seconds), quickstart (minutes), faithful (the published settings), where a stage has them.
Values:   every key of a config file can be given as a flag: --config.seed=7 --config.reward.quantile=0.5
          --config.KEY=None takes the value away, where the key says what None means.
          --config=FILE --help tells of every key its value, its type, what it may be, and what it means.
          --print_config shows the config with your flags applied, and does nothing else.
          --config.trust=module:Class,... allows classes of yours that a run, a recording or an agent names.
Endings:  0 done; 2 something to put right, said in one line; 75 stopped on request, the same command continues;
          130 interrupted (Ctrl-C in a stage that saves nothing on the way, while one starts, or a second time), said in one line.
"""

_HELP = ("help", "h", "helpfull")
_SWITCHES = ("print_config", *_HELP)
_NEGATIVE_NUMBER = re.compile(r"-[\d.]")


@dataclasses.dataclass(frozen=True)
class Command:
    """What a command line asks for.

    Attributes:
      file: the config file that was read.
      config: with all flags applied; None where only help is asked for.
    """

    file: str
    config: ConfigDict
    workdir: Path | None
    print_config: bool
    help: bool


def stage_names() -> list[str]:
    """The stages that there are, by the names of their modules."""
    package = importlib.import_module("motif_jax.stages")
    return sorted(module.name for module in pkgutil.iter_modules(package.__path__))


def _fail(message: str) -> NoReturn:
    print(f"error: {printable(' '.join(message.split()))}", file=sys.stderr, flush=True)
    raise SystemExit(2)


def parse(arguments: Sequence[str]) -> Command | None:
    """Reads a command line; None: help without a config file.

    Raises:
      UserError: it cannot be understood.
    """
    given = _split(arguments)
    options = {name: value for name, value in given if not name.startswith("config.")}
    if unknown := options.keys() - {"config", "workdir", *_SWITCHES}:
        raise UserError(f"--{min(unknown)} is not a flag or a key of this config; --help shows the keys")
    asks_help = any(options.get(name) for name in _HELP)
    if not (named := options.get("config")):
        if asks_help:
            return None
        raise UserError("--config is missing: --config=configs/STAGE.py, see --help")
    values = {name.removeprefix("config."): value for name, value in given if name.startswith("config.")}
    trusted = [value for name, value in given if name == "config.trust"]
    entry_points.trust(filter(None, ",".join(trusted).split(",")))
    values.pop("trust", None)
    file, config = _read_config_file(named)
    stage = config.get("stage")
    for key, text in values.items():
        _set(config, key, text, file)
    if (other := config.get("stage")) != stage:
        raise UserError(
            f"--config.stage={other}: this config file is of the stage {stage}, another stage has its own"
        )
    _check_lora(values, config)
    entry_points.trust(entry_points.named(config.to_dict()))
    workdir = Path(options["workdir"]) if options.get("workdir") else None
    return Command(file, config.lock(), workdir, bool(options.get("print_config")), asks_help)


def _split(arguments: Sequence[str]) -> list[tuple[str, str]]:
    """(name, value) of each flag: `--name=value`, `--name value`, or `--name`, which is 'True'."""
    found: list[tuple[str, str]] = []
    waiting = list(reversed(arguments))
    while waiting:
        argument = waiting.pop()
        flag = re.fullmatch(r"--?([^=]+)(?:=(.*))?", argument, re.DOTALL)
        if flag is None:
            raise UserError(f"not a flag: {argument} (flags look like --config.seed=7)")
        name, value = flag.groups()
        if value is None:
            follows = waiting and (not waiting[-1].startswith("-") or _NEGATIVE_NUMBER.match(waiting[-1]))
            value = waiting.pop() if follows and name not in _SWITCHES else "True"
        found.append((name, "" if name in _SWITCHES and value.lower() == "false" else value))
    return found


def _located(argument: str) -> str:
    """`argument`, in which a config file that comes with the package, and is not here, has its whole path."""
    flag, path, rest = re.findall(r"(?s)((?:--?config=)?)([^:]*)(.*)", argument)[0]
    installed = resources.path(path)
    absent = path.startswith("configs/") and path.endswith(".py") and not os.path.isfile(path)
    return f"{flag}{installed}{rest}" if absent and os.path.isfile(installed) else argument


def _set(config: ConfigDict, key: str, text: str, file: str) -> None:
    """Sets a key of the config of `file` to the value that `text` stands for."""
    keys = [*flat(config.to_dict())]
    if below := next((name for name in keys if name.startswith(f"{key}.")), None):
        raise UserError(
            f"--config.{key}={text}: {key} is a section: give its keys, such as --config.{below}; --print_config shows them"
        )
    if key not in keys:
        near = difflib.get_close_matches(key, keys, n=1, cutoff=0.4)
        hint = f"did you mean --config.{near[0]}?" if near else "--help shows them"
        raise UserError(f"--config.{key} is not a key of {file}; {hint}")
    schema.set_text(config, key, text)


def _check_lora(keys: Mapping[str, str], config: ConfigDict) -> None:
    """Refuses a size of low-rank additions where no layer has any."""
    given = [f"--config.{key}={text}" for key, text in keys.items() if key in ("lora.rank", "lora.alpha")]
    if given and not config.lora.patterns:
        raise UserError(
            f"{given[0]}: has no effect without --config.lora.patterns, the layers with low-rank additions"
        )


def _read_config_file(value: str) -> tuple[str, ConfigDict]:
    """Path and config of `value`, FILE.py or FILE.py:VARIANT."""
    path, _, variant = value.partition(":")
    if not os.path.isfile(path):  # False for a path that is too long, too
        similar = f"configs/{Path(path).stem[:99]}.py"
        hint = f"; did you mean --config={similar}?" if os.path.isfile(resources.path(similar)) else ""
        raise UserError(f"--config={value}: there is no file {path}{hint}")
    wanted = "a Python file with a function get_config, such as configs/collect.py"
    if Path(path).suffix != ".py":
        raise UserError(f"--config={value}: must be {wanted}")
    try:
        get_config = runpy.run_path(path).get("get_config")
        if not callable(get_config):
            raise UserError(f"{path} has no function get_config; must be {wanted}")
        config = get_config(variant or None)
    except (SyntaxError, ImportError, LookupError, TypeError, ValueError, OSError, UserError) as error:
        reason = str(error.args[0] if isinstance(error, KeyError) and error.args else error)
        raise UserError(
            f"--config={value}: {reason.splitlines()[0] if reason else type(error).__name__}"
        ) from None
    if not isinstance(config, ConfigDict):
        raise UserError(f"--config={value}: get_config gives {type(config).__name__}, must give a ConfigDict")
    return path, config


def _print_config(config: Any) -> None:
    for name, value in sorted(flat(config.to_dict()).items()):
        print(f"--config.{name}={value}")


def _print_help(command: Command) -> None:
    """The description of the config file, and the meaning of every key."""
    tree = ast.parse(Path(command.file).read_text(encoding="utf-8"))
    print(ast.get_docstring(tree) or command.file, "", "Keys:", *schema.describe(command.config), sep="\n")


def _keys_of_stage(config: ConfigDict) -> dict[str, schema.Key]:
    """The keys of the stage's own config file, of several that with the most names of `config`, for a user's plain one."""
    names = {name for name, _, key in schema.items(config) if key is None}
    files = (
        ("train_agent", "oni", "train_language_agent") if config.stage == "train_agent" else (config.stage,)
    )
    found: dict[str, schema.Key] = {}
    for file in files:
        if resources.path(f"configs/{file}.py").is_file():
            own = {name: key for name, _, key in schema.items(resources.config(file)) if key is not None}
            found = max(found, own, key=lambda keys: len(keys.keys() & names))
    return found


def _hosts(config: ConfigDict) -> contextlib.AbstractContextManager[None]:
    """Joins the other hosts of a run of several; jax is imported then."""
    if "hosts" not in config or cluster.place(config).count == 1:
        return contextlib.nullcontext()
    from motif_jax.devices import hosts

    return hosts.connected(config)


def _run(command: Command) -> int:
    """Runs the stage; returns the exit code."""
    from motif_jax.support import hub

    config, workdir = command.config, command.workdir
    try:
        stage_name = config.get("stage")
        if stage_name not in stage_names():
            raise UserError(f"config.stage={stage_name}: must be one of {', '.join(stage_names())}")
        stage = importlib.import_module(f"motif_jax.stages.{stage_name}")
        if getattr(stage, "NEEDS_WORKDIR", True) and workdir is None:
            raise UserError("--workdir is missing: the folder where this run lies, e.g. --workdir=runs/a")
        schema.validate(config, _keys_of_stage(config))
        hub.localise(config, workdir)
        with _hosts(config):
            stage.check(config, workdir)
            _remove_abandoned_games()
            return stage.run(config, workdir) or 0
    except UserError as error:
        # Under `ulimit -v` an allocation failure looks like a damaged file.
        if memory_limit.limit() is not None and memory_limit.ran_out(error):
            _fail_for_memory(str(error), config)
        _fail(str(error))
    except KeyboardInterrupt:  # a second Ctrl-C in a stage that saves
        print(INTERRUPTED, file=sys.stderr, flush=True)
        return INTERRUPTED_CODE
    except Exception as error:
        from motif_jax.support.files import system_error

        if line := system_error(error, workdir or "."):
            _fail(line)
        if what := memory_limit.ran_out(error):
            _fail_for_memory(what, config)
        raise


def _remove_abandoned_games() -> None:
    """Removes game folders left by killed commands; a command whose work is done starts no game that would."""
    from motif_jax.support import tempdirs

    tempdirs.remove_abandoned(Path(tempfile.gettempdir()))


def _fail_for_memory(what: str, config: ConfigDict) -> NoReturn:
    sys.stdout.flush()
    memory_limit.leave(f"error: {memory_limit.explained(what, config)}", 2)


def main() -> NoReturn:
    """Parses the command line, runs the stage, and ends the process with its exit code."""
    faulthandler.enable()
    # XLA warns of each program that takes long to compile; failures are exceptions.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    logging.set_verbosity(logging.WARNING)  # libraries log every backend that they look for
    # versions.json keeps the command, with the config file that was read.
    sys.argv[1:] = map(_located, sys.argv[1:])
    try:
        command = parse(sys.argv[1:])
    except UserError as error:
        _fail(str(error))
    if command is None:
        print(USAGE.format(stages=", ".join(stage_names())))
    elif command.help:
        _print_help(command)
    elif command.print_config:
        _print_config(command.config)
    else:
        raise SystemExit(_run(command))
    raise SystemExit(0)


if __name__ == "__main__":
    main()
