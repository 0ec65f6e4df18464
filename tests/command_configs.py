"""The config that a command line means, and its refusal, without a process."""

from __future__ import annotations

from pathlib import Path

from absl import flags
from ml_collections import ConfigDict, config_flags

from motif_jax import command_line, schema, stages
from motif_jax.core import entry_points
from motif_jax.core.errors import UserError

CONFIGS = Path(__file__).parents[1] / "configs"


def config_of(config: str, *arguments: str) -> ConfigDict:
    """The config that `--config=configs/CONFIG ARGUMENTS...` means."""
    command = command_line.read(["launch", f"--config={CONFIGS / config}", *arguments])
    entry_points.trust(command.trusted)
    values = flags.FlagValues()
    holder = config_flags.DEFINE_config_file(
        "config", flag_values=values, sys_argv=command.arguments, lock_config=True
    )
    values(command.arguments)
    command_line.set_none(holder.value, command.cleared)
    entry_points.trust(entry_points.named(holder.value.to_dict()))
    return holder.value


def refusal_line(config: ConfigDict, workdir: Path) -> str | None:
    """The launcher's refusal of a config before any work; None where it would begin. Files that are
    not there are named by Python itself.
    """
    try:
        schema.validate(config)
        stages.module(config.stage).check(config, workdir)
    except UserError as error:
        return str(error)
    except (OSError, LookupError) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        assert not workdir.exists(), "something was written before the check"
    return None
