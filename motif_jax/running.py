"""Runs a stage: what the command line (`launch.py`) and `motif_jax.run` share."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from motif_jax import command_line, schema, stages
from motif_jax.core import entry_points, resources, tempdirs
from motif_jax.core.cluster import ClusterHosts
from motif_jax.core.config import dotted, flat
from motif_jax.core.devices import compiled_programs, jax_options
from motif_jax.core.errors import UserError
from motif_jax.core.files import parse_json, system_error


def run(
    config: str,
    workdir: str | os.PathLike[str] | None = None,
    values: Mapping[str, Any] = {},
    trust: Iterable[str] = (),
) -> int:
    """Runs a stage as `python -m motif_jax.launch` does, in this process and its main thread.

        motif_jax.run("train_agent:gym", "runs/agent", {"environment.name": "gym:CartPole-v1"})

    Stages start worker processes: a script that calls this at its top level needs
    `if __name__ == "__main__":` around it.

    Args:
      config: a config file of the package with its variant, such as 'train_agent:gym', or the path
        of one of yours, 'mine.py:smoke'.
      workdir: folder of the run; the same folder continues the run. None where the stage needs
        none.
      values: dotted name of a key -> its value, as `--config.KEY=VALUE` has it; None takes the
        value away.
      trust: as of `--config.trust`.

    Returns:
      0 when all is done, 75 after a request to stop (SIGTERM, SIGUSR1, Ctrl-C): the same call
      continues.

    Raises:
      UserError: where the command ends with exit code 2 and this line.
    """
    name, colon, variant = config.partition(":")
    if not name.endswith(".py"):
        config = f"configs/{name}.py{colon}{variant}"
    config = command_line.located(config)
    tree = command_line.read_config_file(config)
    cleared = [key for key, value in values.items() if value is None]
    command = command_line.Command([], config, list(values), cleared, list(trust))
    command_line.check_keys(command, tree)
    entry_points.trust(command.trusted)
    tree.lock()
    for key, value in values.items():
        if value is not None:
            _set(tree, key, value)
    command_line.set_none(tree, cleared)
    # What the caller names needs no `trust`.
    entry_points.trust(entry_points.named(tree.to_dict()))
    command_line.check_read(command, tree)
    if workdir is not None:
        workdir = Path(command_line.located(os.fspath(workdir), may_be_packaged=False))
    with jax_options.lent():
        return start(tree, workdir)


def _set(config: ConfigDict, key: str, value: Any) -> None:
    """Sets a key to a value from Python, which may be a path, or a list where the config has a
    tuple. Raises UserError: it has another type.
    """
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, str):
        value = command_line.located(value)
    if isinstance(value, list) and isinstance(dotted(config, key), tuple):
        value = tuple(value)
    try:
        schema.update(config, {key: value})
    except TypeError as error:
        raise UserError(f"config.{key}={value}: {command_line.readable(error)}") from error


def start(config: ConfigDict, workdir: Path | None) -> int:
    """Checks every value of `config`, and runs its stage in `workdir`; returns the exit code.

    Raises UserError: a value cannot work, or something in the system is for the user to put right,
    such as a full disk.
    """
    try:
        stage_name = config.get("stage")
        if stage_name not in stages.names():
            raise UserError(
                f"config.stage={stage_name}: must be one of {', '.join(stages.names())}"
            )
        # Before the import of the stage, which takes seconds: a typing error is answered at once.
        schema.validate(config, keys_of_stage(config))
        # jax reads the cache's settings when it is imported.
        compiled_programs.keep()
        stage = stages.module(stage_name)
        if getattr(stage, "NEEDS_WORKDIR", True) and workdir is None:
            raise UserError(
                "--workdir is missing: the folder where this run lies, e.g. --workdir=runs/a"
            )
        localise(config, workdir)
        with _hosts(config):
            reused = compiled_programs.ReusedPrograms()
            reused.watch()
            stage.check(config, workdir)
            reused.watch()  # where the check was the first to import jax
            # Here, not where games start: a command whose work is done already starts none, and
            # still tidies up.
            tempdirs.remove_abandoned()
            code = stage.run(config, workdir) or 0
            line = reused.line()
            if line is not None:
                print(line, file=sys.stderr, flush=True)
            return code
    except UserError:
        raise
    except Exception as error:
        line = system_error(error, workdir or ".")
        if line:
            raise UserError(line) from error
        raise


def keys_of_stage(config: ConfigDict) -> dict[str, schema.Key]:
    """The keys of the stage's config file, for a user's plain ConfigDict, whose values carry no
    `Key`.

    Agents have three config files: the one that shares the most names with `config` counts.
    """
    names = {name for name, _, key in schema.items(config) if key is None}
    is_agent = config.stage == "train_agent"
    files = ("train_agent", "oni", "train_language_agent") if is_agent else (config.stage,)
    best: dict[str, schema.Key] = {}
    for file in files:
        if not resources.path(f"configs/{file}.py").is_file():
            continue
        keys = {
            name: key for name, _, key in schema.items(resources.config(file)) if key is not None
        }
        if len(keys.keys() & names) > len(best.keys() & names):
            best = keys
    return best


def localise(config: ConfigDict, workdir: Path | None) -> None:
    """Replaces every value that names something on a hub by its local copy (`hub.local`); a run in
    `workdir` is resumed.
    """
    from motif_jax.core import hub

    names = {key: value for key, value in flat(config.to_dict()).items() if hub.is_named(value)}
    # The commit that a resumed run's files came from, so that it does not move with the hub's
    # branch.
    previous: dict[str, Any] = {}
    if names and workdir is not None and (workdir / "config.json").is_file():
        with contextlib.suppress(ValueError, AttributeError):  # the stage reports the damaged file
            previous = flat(parse_json((workdir / "config.json").read_bytes()))
    for key, value in names.items():
        config.update_from_flattened_dict({key: hub.local(value, key, previous.get(key))})


def _hosts(config: ConfigDict) -> contextlib.AbstractContextManager[None]:
    """Joins the other hosts of a run of several, which imports jax."""
    if (
        "hosts" not in config
        or schema.read_section(ClusterHosts, config.hosts).position().count == 1
    ):
        return contextlib.nullcontext()
    from motif_jax.core.devices import hosts

    return hosts.connected(schema.read_section(ClusterHosts, config.hosts))
