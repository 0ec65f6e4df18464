"""What stages refuse before any work, by the flags of a command line, without a process for each of
them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from absl import flags
from ml_collections import ConfigDict, config_flags

from motif_jax import command_line, schema, stages
from motif_jax.core import entry_points
from motif_jax.core.errors import UserError

CONFIGS = Path(__file__).parents[1] / "configs"


def config_of(config: str, *arguments: str) -> ConfigDict:
    """The config that `--config=configs/CONFIG ARGUMENTS...` means."""
    rest, trusted = command_line.split_trusted(
        ["launch", f"--config={CONFIGS / config}", *arguments]
    )
    entry_points.trust(trusted)
    valued, cleared = command_line.split_none(rest)
    values = flags.FlagValues()
    holder = config_flags.DEFINE_config_file(
        "config", flag_values=values, sys_argv=valued, lock_config=True
    )
    values(valued)
    command_line.set_none(holder.value, cleared)
    entry_points.trust(entry_points.named(holder.value.to_dict()))
    return holder.value


def refusal_line(config: ConfigDict, workdir: Path) -> str | None:
    """The launcher's refusal of a config before any work; None where it would begin."""
    try:
        schema.validate(config)
        stages.module(config.stage).check(config, workdir)
    except UserError as error:
        return str(error)
    finally:
        assert not workdir.exists(), "something was written before the check"
    return None


def refusal(config: str, workdir: Path, *flags: str) -> str:
    """The line that `--config=configs/CONFIG --workdir=WORKDIR ARGUMENTS...` ends with."""
    line = refusal_line(config_of(config, *flags), workdir)
    assert line is not None
    return line


def refuses(words: str) -> Any:
    """Expects a UserError of one line that holds these words."""
    return pytest.raises(UserError, match=rf"(?s)\A[^\n]*{re.escape(words)}[^\n]*\Z")
