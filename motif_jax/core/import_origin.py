"""Records the origin of an import in import.json: the same import is made once, another one is
refused.

The config.json beside it describes the model or dataset, as in a folder that a stage made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from motif_jax.core import digests
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_json, read_json, remove_temporaries
from motif_jax.core.run_folder import as_plain, differences, read_config

FILE = "import.json"


def _origin(config: Mapping[str, Any], files: Iterable[str]) -> dict[str, Any]:
    """The config without its seed, and a digest in place of each file that a key of `files`
    names.
    """
    origin = as_plain(config)
    origin.pop("seed", None)
    for key in files:
        if origin[key]:
            origin[key] = digests.of_file(origin[key])
    return origin


def has_checkpoints(workdir: Path) -> bool:
    """Whether a checkpoint in `workdir` is complete: Orbax gives one its number when it is
    whole.
    """
    return any(path.name.isdigit() for path in (workdir / "checkpoints").glob("*"))


def check(
    workdir: Path, config: Mapping[str, Any], files: Iterable[str], is_complete: bool
) -> bool:
    """Whether the import that `config` describes has been made in `workdir`.

    Args:
      files: keys of `config` that name files, which are compared by content.
      is_complete: whether `workdir` holds a complete model or dataset.

    Raises UserError: the folder holds a run or dataset of another
    origin, or another import that has ended.
    """
    path = workdir / FILE
    if not path.exists():
        has_config = (workdir / "config.json").exists()
        # It was not imported here: a run of another stage, or a dataset from elsewhere, which has
        # no config.json.
        if is_complete or has_config:
            stage = read_config(workdir).get("stage") if has_config else "unknown origin"
            raise UserError(f"--workdir={workdir} holds a run of {stage}: choose another --workdir")
        return False
    recorded = read_json(path, "choose another --workdir, or remove the folder and import again")
    if recorded.get("stage") != config["stage"]:
        raise UserError(
            f"--workdir={workdir} belongs to {recorded.get('stage')}, this is {config['stage']}: choose another --workdir"
        )
    # What a killed import has left is made again, and may then be of another origin.
    if not is_complete:
        return False
    origin = _origin(config, files)
    changes = differences(recorded, origin, {**recorded, **origin})
    if changes:
        raise UserError(
            f"--workdir={workdir} holds another import ({'; '.join(changes)}): choose another --workdir"
        )
    return True


def write(workdir: Path, config: Mapping[str, Any], files: Iterable[str]) -> None:
    """Marks `workdir` as this import's, before anything else is written, and removes a killed
    writer's files.
    """
    remove_temporaries(workdir)
    atomic_write_json(workdir / FILE, _origin(config, files))
