"""The one entry point: `python -m motif_jax.launch --config=configs/STAGE.py --workdir=DIR`.

Reads a config file, checks every value before any work starts, and runs the stage that
`config.stage` names. A problem that the user can solve, such as a full disk, ends the program with
one line and exit code 2; of any other exception the last line is printed, and the run folder keeps
the traceback. A long stage that is asked to stop (SIGTERM,
SIGUSR1, Ctrl-C) saves and ends with exit code 75: the same command continues it. A second Ctrl-C,
or one during any other work, ends the program with one line and exit code 130.

Spawned worker processes import this module again, so it imports nothing heavy at the top.
"""

from __future__ import annotations

from motif_jax.core.interruption import (
    INTERRUPTED,
    INTERRUPTED_CODE,
    leave_at_interrupt,
    outlive_readers,
)

if __name__ == "__main__":
    leave_at_interrupt()  # before the imports that take time

import ast
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from absl import app, flags, logging
from ml_collections import ConfigDict, config_flags

from motif_jax import command_line, running, schema, stages
from motif_jax.core import entry_points
from motif_jax.core.config import flat
from motif_jax.core.devices import jax_options
from motif_jax.core.errors import UserError, printable

# Of the run folder: what ended its last command, where that was no mistake in the command.
ERROR_FILE = "error.txt"
HELP_FLAGS = ("--help", "-h", "-help", "--helpfull")

USAGE = """motif_jax: reinforcement learning from a language model's preferences.

  python -m motif_jax.launch --config=configs/STAGE.py[:VARIANT] --workdir=DIR [--config.KEY=VALUE ...]

Stages:   {stages}
Variants: smoke (seconds), quickstart (minutes), faithful (the published settings), where a stage has them.
Values:   every key of a config file can be given as a flag: --config.seed=7 --config.reward.quantile=0.5
          --config.KEY=None takes the value away, where the key says what None means.
          --config=FILE --help tells of every key its value, its type, what it may be, and what it means.
          --print_config shows the config with your flags applied, and does nothing else.
          --config.trust=module:Class,... allows classes of yours that a run, a recording or an agent names.
Endings:  0 done; 1 an error whose traceback is in error.txt of the run folder; 2 something to put right, said in one line; 75 stopped on request, the same command continues;
          130 interrupted (Ctrl-C in a stage that saves nothing on the way, while one starts, or a second time), said in one line.
"""

if __name__ == "__main__":
    # before a config flag is defined, which reads them
    sys.argv = command_line.with_flag_files(sys.argv)

_CONFIG = config_flags.DEFINE_config_file(
    "config",
    None,
    "Config file of the stage, with an optional variant: configs/train_agent.py:smoke.",
    lock_config=True,
)
_WORKDIR = flags.DEFINE_string(
    "workdir", None, "Folder of this run; the same folder continues the run."
)
_PRINT_CONFIG = flags.DEFINE_bool(
    "print_config", False, "Print the config with all flags applied, and stop."
)


def parse_flags(arguments: Sequence[str]) -> list[str]:
    """Parses flags with absl, and reports every mistake in one line."""
    wants_help = not set(HELP_FLAGS).isdisjoint(arguments)
    # A run folder's versions.json has the command, which must name the config file that was read.
    arguments = command_line.with_values(
        argument for argument in arguments if argument not in HELP_FLAGS
    )
    arguments = [command_line.with_paths(argument) for argument in arguments]
    command = command_line.read(arguments)
    if not command.config:
        if not wants_help:
            command_line.fail("--config is missing: --config=configs/STAGE.py, see --help")
        print(USAGE.format(stages=", ".join(stages.names())))
        raise SystemExit(0)
    try:
        command_line.check_keys(command, command_line.read_config_file(command.config))
        # absl reads the config's flags from sys.argv, not from the arguments that it is given.
        sys.argv = command.arguments
        entry_points.trust(command.trusted)
        rest = flags.FLAGS(command.arguments)
        config = _CONFIG.value
        command_line.set_none(config, command.cleared)
        # What the command's own config names needs no --config.trust.
        entry_points.trust(entry_points.named(config.to_dict()))
        if wants_help:
            _print_help(command.config, config)
        command_line.check_read(command, config)
    except (flags.Error, UserError, LookupError, ValueError, TypeError) as error:
        command_line.fail(command_line.readable(error))
    # From here on argv is the whole command again, for a run's versions.json.
    sys.argv = arguments
    if len(rest) > 1:
        command_line.fail(f"not a flag: {rest[1]} (flags look like --config.seed=7)")
    return rest


def _print_help(file: str, config: ConfigDict) -> NoReturn:
    path = file.partition(":")[0]
    tree = ast.parse(Path(path).read_text(encoding="utf-8-sig"))
    print(ast.get_docstring(tree) or path, "", "Keys:", *schema.describe(config), sep="\n")
    raise SystemExit(0)


def _main(_: Sequence[str]) -> int:
    logging.set_verbosity(logging.WARNING)  # libraries log every backend that they look for
    config = _CONFIG.value
    if _PRINT_CONFIG.value:
        for name, value in sorted(flat(config.to_dict()).items()):
            print(f"--config.{name}={value}")
        return 0

    try:
        return running.start(config, Path(_WORKDIR.value) if _WORKDIR.value else None)
    except UserError as error:
        command_line.fail(str(error))
    except KeyboardInterrupt:  # a second Ctrl-C in a stage that saves
        print(INTERRUPTED, file=sys.stderr, flush=True)
        return INTERRUPTED_CODE
    except Exception as error:
        if not _WORKDIR.value or not Path(_WORKDIR.value).is_dir():
            raise
        path = Path(_WORKDIR.value) / ERROR_FILE
        path.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
        [*_, last_line] = traceback.format_exception_only(error)
        print(
            f"error: {printable(last_line.strip())} (traceback: {path})",
            file=sys.stderr,
            flush=True,
        )
        return 1


def main() -> None:
    """Parses the flags of the command line and runs the stage."""
    # Else XLA warns, in the middle of the progress line, of each program that takes long to
    # compile; failures are exceptions.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    jax_options.take_defaults()
    outlive_readers()
    app.run(_main, flags_parser=parse_flags)


if __name__ == "__main__":
    main()
