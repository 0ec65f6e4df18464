"""The stage `import`: its kinds of files, and the frame of all of them.

A folder holds one import, whose config import.json has, with digests of the files that it names.
The same command again finds it done, another one is refused. The config.json beside it describes
the model or dataset, as in a folder that a stage made.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from motif_jax.core import config as checks
from motif_jax.core import digests, run_folder
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_json, read_json, remove_temporaries
from motif_jax.core.locks import FolderLock
from motif_jax.ilql.agent import agent_folder
from motif_jax.ilql.dialogues.dialogue_files import META
from motif_jax.ilql.tasks.reddit import upvote
from motif_jax.motif.reward import safetensors_file
from motif_jax.oni.online_model import OnlineRewardModel
from motif_jax.published import (
    import_dialogues,
    import_glam,
    import_ilql,
    import_motif,
    import_oni,
)
from motif_jax.published.config import IMPORTS, ImportedFile, ImportRewardConfig
from motif_jax.schema import read_section

ORIGIN = "import.json"
# Keys that may name a file.
_FILES = ("file", "quantiles", "words")


def has_checkpoints(workdir: Path) -> bool:
    """Whether a checkpoint in `workdir` is complete: Orbax gives one its number when it is
    whole.
    """
    return any(path.name.isdigit() for path in (workdir / "checkpoints").glob("*"))


@dataclasses.dataclass(frozen=True)
class Kind:
    """How a kind of file is imported.

    Attributes:
      write: imports; calls its last argument before it writes anything. What a network needs of the
          file has been read by then; dialogues are read part by part after it.
      is_complete: whether the work folder holds a complete import.
      keeps_config: whether config.json of the work folder is that of the import; else `write`
          writes that of a training.
    """

    write: Callable[[Any, Path, Callable[[], None]], None]
    is_complete: Callable[[Path], bool] = has_checkpoints
    keeps_config: bool = False


def check(config_tree: ConfigDict, workdir: Path) -> None:
    config, kind = _read(config_tree)
    # A training's section that is not there would be taken for one of default values.
    keys = {field.name for field in dataclasses.fields(config)}
    is_variants = keys <= set(config_tree)
    checks.require_key(config_tree, "kind", is_variants, "that of the config's variant")
    _is_done(config_tree, kind, workdir)


def run(config_tree: ConfigDict, workdir: Path) -> None:
    config, kind = _read(config_tree)
    with FolderLock(workdir):
        # Again, under the lock: another process may have made the same import since `check`.
        if _is_done(config_tree, kind, workdir):
            print(f"{workdir} holds this import of {config.file} already")
            return

        def begin() -> None:
            """Marks the folder as this import's, and removes a killed writer's files."""
            remove_temporaries(workdir)
            atomic_write_json(workdir / ORIGIN, _origin(config_tree))
            if kind.keeps_config:
                run_folder.prepare(workdir, config_tree)

        kind.write(config, workdir, begin)


def _read(config_tree: ConfigDict) -> tuple[ImportedFile, Kind]:
    return read_section(IMPORTS[config_tree.kind], config_tree), KINDS[config_tree.kind]


def _origin(config_tree: ConfigDict) -> dict[str, Any]:
    """The config without its seed, and a digest in place of each file that a key names."""
    origin = run_folder.as_plain(config_tree)
    origin.pop("seed", None)
    for key in _FILES:
        # A list of words may also be one of the package.
        if origin.get(key) and Path(origin[key]).is_file():
            origin[key] = digests.of_file(origin[key])
    return origin


def _is_done(config_tree: ConfigDict, kind: Kind, workdir: Path) -> bool:
    """Whether this import has been made in `workdir`. Raises UserError: the folder holds a run or
    dataset of another origin, or another import that has ended.
    """
    is_complete = kind.is_complete(workdir)
    if not (workdir / ORIGIN).exists():
        has_config = (workdir / "config.json").exists()
        # It was not imported here: a run of another stage, or a dataset from elsewhere, which has
        # no config.json.
        if is_complete or has_config:
            stage = run_folder.read_config(workdir).get("stage") if has_config else "unknown origin"
            raise UserError(f"--workdir={workdir} holds a run of {stage}: choose another --workdir")
        return False
    recorded = read_json(
        workdir / ORIGIN, "choose another --workdir, or remove the folder and import again"
    )
    if recorded.get("kind") != config_tree.kind:
        raise UserError(
            f"--workdir={workdir} belongs to import:{recorded.get('kind')}, this is import:{config_tree.kind}: choose another --workdir"
        )
    # What a killed import has left is made again, and may then be of another origin.
    if not is_complete:
        return False
    origin = _origin(config_tree)
    changes = run_folder.differences(recorded, origin, {**recorded, **origin})
    if changes:
        raise UserError(
            f"--workdir={workdir} holds another import ({'; '.join(changes)}): choose another --workdir"
        )
    return True


def _write_reward(config: ImportRewardConfig, workdir: Path, begin: Callable[[], None]) -> None:
    reward = safetensors_file.read_safetensors(config.path)
    allowed = "a reward of train_reward; one that was learned online is used as the file: --config.reward.dir=FILE"
    checks.require_key(config, "file", not isinstance(reward, OnlineRewardModel), allowed)
    begin()
    safetensors_file.write_run_folder(reward, workdir)
    print(f"{config.file}: evaluation {reward.step}, written to {workdir}")


KINDS: Mapping[str, Kind] = {
    "reward": Kind(_write_reward),
    "motif_reward": Kind(import_motif.write_reward),
    "motif_agent": Kind(import_motif.write_agent),
    "oni": Kind(import_oni.write_agent),
    "glam": Kind(import_glam.write_agent),
    "ilql": Kind(
        import_ilql.write,
        is_complete=lambda workdir: (workdir / agent_folder.AGENT / "agent.json").exists(),
        keeps_config=True,
    ),
    "upvote": Kind(
        import_ilql.write_upvote,
        is_complete=lambda workdir: (workdir / upvote.MODEL / "config.json").exists(),
        keeps_config=True,
    ),
    "dialogues": Kind(
        import_dialogues.write,
        is_complete=lambda workdir: (workdir / META).exists(),
        keeps_config=True,
    ),
}
