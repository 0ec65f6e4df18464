"""The one entry point: `python -m motif_jax.launch --config=configs/STAGE.py --workdir=DIR`.

Reads a config file, checks every value before any work starts, and runs the stage that `config.stage` names.
A problem that the user can solve ends the program with one line and exit code 2. A stage that was asked to
stop (SIGTERM, SIGUSR1, Ctrl-C) saves and ends with exit code 75: the same command continues it.

Spawned worker processes import this module again, so it imports nothing heavy at the top.
"""

from __future__ import annotations

import difflib
import importlib
import itertools
import pkgutil
import re
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from absl import app, flags, logging
from ml_collections import config_flags

from motif_jax.support.errors import UserError

USAGE = """motif_jax: reinforcement learning from a language model's preferences.

  python -m motif_jax.launch --config=configs/STAGE.py[:VARIANT] --workdir=DIR [--config.KEY=VALUE ...]

Stages:   {stages}
Variants: smoke (seconds), quickstart (minutes), faithful (the published settings), where a stage has them.
Values:   every key of a config file can be given as a flag: --config.seed=7 --config.reward.quantile=0.5
          --print_config shows the config with your flags applied, and does nothing else.
Endings:  0 done; 2 something to put right, said in one line; 75 stopped on request, the same command continues.
"""

_CONFIG = config_flags.DEFINE_config_file(
    "config",
    None,
    "Config file of the stage, with an optional variant: configs/train_agent.py:smoke.",
    lock_config=True,
)
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of this run; the same folder continues the run.")
_PRINT_CONFIG = flags.DEFINE_bool("print_config", False, "Print the config with all flags applied, and stop.")


def stage_names() -> list[str]:
    """The stages that there are, by the names of their modules."""
    package = importlib.import_module("motif_jax.stages")
    return sorted(module.name for module in pkgutil.iter_modules(package.__path__))


def _usage() -> str:
    return USAGE.format(stages=", ".join(stage_names()))


def _fail(message: str) -> NoReturn:
    print(f"error: {' '.join(message.split())}", file=sys.stderr, flush=True)
    raise SystemExit(2)


def _parse_flags(arguments: Sequence[str]) -> list[str]:
    """absl's flag parsing, with every mistake told in one line."""
    if any(argument in ("--help", "-h", "-help", "--helpfull") for argument in arguments[1:]):
        print(_usage())
        raise SystemExit(0)
    _check_config_file(arguments[1:])
    try:
        rest = flags.FLAGS(list(arguments))
        if _CONFIG.value is None:
            _fail("--config is missing: --config=configs/STAGE.py, see --help")
    except SystemExit:
        raise
    except (flags.Error, AttributeError, KeyError, ValueError, TypeError, OSError, ImportError) as error:
        _fail(_readable(error))
    if len(rest) > 1:
        _fail(f"not a flag: {rest[1]} (flags look like --config.seed=7)")
    return rest


def _check_config_file(arguments: Sequence[str]) -> None:
    """Tells a missing config file, a variant it does not have, and keys it does not have, by name."""
    values = [
        match.group(1) for argument in arguments if (match := re.fullmatch(r"--?config=(.*)", argument))
    ]
    values += [after for name, after in itertools.pairwise(arguments) if re.fullmatch(r"--?config", name)]
    for value in values:
        path, _, variant = value.partition(":")
        if not Path(path).is_file():
            _fail(f"--config={value}: there is no file {path}")
        try:
            config = runpy.run_path(path)["get_config"](variant or None)
        except (ValueError, UserError) as error:
            _fail(f"--config={value}: {error}")
        keys = [name for name, _ in _flat(config.to_dict())]
        sections = {name.rsplit(".", depth)[0] for name in keys for depth in range(1, name.count(".") + 1)}
        for argument in arguments:
            given = re.match(r"--?config\.([^=\[]+)", argument)
            if given and given.group(1) not in {*keys, *sections}:
                near = difflib.get_close_matches(given.group(1), keys, n=1, cutoff=0.4)
                hint = f"; did you mean --config.{near[0]}?" if near else "; --print_config shows them"
                _fail(f"--config.{given.group(1)} is not a key of {path}{hint}")


def _readable(error: Exception) -> str:
    text = str(error.args[0] if isinstance(error, KeyError) and error.args else error)
    text = text.split("\n")[0]
    if unknown := re.search(r"[Uu]nknown command line flag '([^']*)'", text):
        return f"--{unknown.group(1)} is not a flag or a key of this config; --print_config shows the keys"
    return text


def _print_config(config: Any) -> None:
    for name, value in sorted(_flat(config.to_dict())):
        print(f"--config.{name}={value}")


def _flat(tree: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for key, value in tree.items():
        if isinstance(value, dict):
            rows.extend(_flat(value, f"{prefix}{key}."))
        else:
            rows.append((prefix + key, value))
    return rows


def _main(arguments: Sequence[str]) -> int:
    del arguments
    logging.set_verbosity(logging.WARNING)  # libraries tell every backend that they looked for
    config = _CONFIG.value
    if _PRINT_CONFIG.value:
        _print_config(config)
        return 0
    try:
        stage_name = config.get("stage")
        if stage_name not in stage_names():
            raise UserError(f"config.stage={stage_name}: must be one of {', '.join(stage_names())}")
        stage = importlib.import_module(f"motif_jax.stages.{stage_name}")
        needs_workdir = getattr(stage, "NEEDS_WORKDIR", True)
        if needs_workdir and not _WORKDIR.value:
            raise UserError("--workdir is missing: the folder where this run lies, e.g. --workdir=runs/a")
        workdir = Path(_WORKDIR.value) if _WORKDIR.value else None
        stage.check(config, workdir)
        return stage.run(config, workdir) or 0
    except UserError as error:
        _fail(str(error))


def main() -> None:
    """Parses the flags of the command line and runs the stage."""
    app.run(_main, flags_parser=_parse_flags)


if __name__ == "__main__":
    main()
