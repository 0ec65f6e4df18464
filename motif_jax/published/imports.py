"""Imports of dialogues and of a reward, and the frame of all imports.

A folder holds one import, of the files in import.json. The same command again finds it done,
another one is refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

from ml_collections import ConfigDict

from motif_jax.core import config as checks
from motif_jax.core import digests, import_origin, run_folder
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_json
from motif_jax.core.locks import FolderLock
from motif_jax.ilql.dialogues import json_lines
from motif_jax.ilql.dialogues import parquet as dialogues_parquet
from motif_jax.ilql.dialogues.collected import DIALOGUES, META, DialogueTotals
from motif_jax.ilql.dialogues.dialogue import Dialogues
from motif_jax.ilql.tasks.wordle.words import read_words
from motif_jax.published import wordle_games
from motif_jax.published.config import (
    ImportDialoguesConfig,
    ImportedFile,
    ImportRewardConfig,
)
from motif_jax.schema import read_section

KINDS = {
    ".jsonl": "json_lines",
    ".json": "json_lines",
    ".pkl": "wordle_games",
    ".pickle": "wordle_games",
}
Begin = Callable[[], None]
_FILES = ("file", "quantiles", "words")  # keys that may name a file


C = TypeVar("C", bound=ImportedFile)


@dataclasses.dataclass(frozen=True)
class ImportStage(Generic[C]):
    """The frame of an import.

    Attributes:
      section: the class of the command's config.
      file: what the file is, in words.
      is_complete: whether the work folder holds a complete import.
      check_values: raises UserError for values that cannot work; writes nothing.
      write: imports; calls `Begin` before it writes anything. What a network needs of the file has
          been read by then; dialogues are read part by part after it.
      keeps_config: whether config.json of the work folder is that of the import; else `write`
          writes that of a training.
    """

    section: type[C]
    file: str
    is_complete: Callable[[C, Path], bool]
    check_values: Callable[[C, Path], object]
    write: Callable[[C, Path, Begin], None]
    keeps_config: bool

    def check(self, config_tree: ConfigDict, workdir: Path) -> None:
        config = read_section(self.section, config_tree)
        is_there = bool(config.file) and Path(config.path).is_file()
        checks.require_key(config, "file", is_there, f"an existing file, {self.file}")
        if not self._is_done(config_tree, workdir):
            self.check_values(config, workdir)

    def run(self, config_tree: ConfigDict, workdir: Path) -> None:
        config = read_section(self.section, config_tree)
        with FolderLock(workdir):
            # Again, under the lock: another process may have made the same import since `check`.
            if self._is_done(config_tree, workdir):
                print(f"{workdir} holds this import of {config.file} already")
                return
            keys_of_files = _named_files(config_tree)

            def begin() -> None:
                import_origin.write(workdir, config_tree, keys_of_files)
                if self.keeps_config:
                    run_folder.prepare(workdir, config_tree)

            self.write(config, workdir, begin)

    def _is_done(self, config_tree: ConfigDict, workdir: Path) -> bool:
        is_complete = self.is_complete(read_section(self.section, config_tree), workdir)
        return import_origin.check(workdir, config_tree, _named_files(config_tree), is_complete)


def _named_files(config_tree: ConfigDict) -> list[str]:
    """The keys that name a file here: a list of words may also be one of the package."""
    values = {key: config_tree.get(key) for key in _FILES}
    return [key for key, value in values.items() if value and Path(value).is_file()]


def has_checkpoints(config: ImportedFile, workdir: Path) -> bool:
    """`ImportStage.is_complete` of a network."""
    del config
    return import_origin.has_checkpoints(workdir)


def require_default(config: ImportedFile, keys: Iterable[str], reason: str) -> None:
    """Raises UserError where a key that this import does not read is not at its default."""
    defaults = type(config)()
    for key in keys:
        default = getattr(defaults, key)
        is_default = getattr(config, key) == default
        checks.require_key(config, key, is_default, f"left at {default!r}: {reason}")


def _check_dialogues(config: ImportDialoguesConfig, workdir: Path) -> None:
    allowed = f"a file that ends with {', '.join(KINDS)}"
    checks.require_key(config, "file", Path(config.path).suffix in KINDS, allowed)
    if KINDS[Path(config.path).suffix] != "wordle_games":
        require_default(config, ("words",), "only Wordle games are played with a list of words")
    if config.words:
        read_words("words", config.words)
    if (workdir / DIALOGUES).exists() and not (workdir / "config.json").exists():
        raise UserError(
            f"{workdir} holds dialogues that were not imported here: choose another --workdir"
        )


def _read_dialogues(config: ImportDialoguesConfig) -> Iterator[Dialogues]:
    if KINDS[Path(config.path).suffix] == "json_lines":
        yield from json_lines.read(config.path)
    else:
        words = read_words("words", config.words) if config.words else None
        yield wordle_games.read_games(config.path, words)


def _write_dialogues(config: ImportDialoguesConfig, workdir: Path, begin: Begin) -> None:
    begin()
    about: dict[str, Any] = {
        "origin": f"motif_jax import_dialogues, {Path(config.path).name}",
        "facts": {},
    }
    if KINDS[Path(config.path).suffix] == "wordle_games":
        words = config.words or wordle_games.word_list(config.path)
        if Path(words).is_file():
            # Absolute: trainings read it from other folders.
            words = str(Path(words).resolve())
        # Training and evaluation play with the words that the games were played with.
        about["config"] = {"task": "wordle", "wordle": {"words": words}, "compat": {}}
    totals = DialogueTotals()
    dialogues_parquet.write(workdir / DIALOGUES, totals.counted(_read_dialogues(config)), about)
    if not totals.count:
        (workdir / DIALOGUES).unlink()
        raise UserError(f"config.file={config.file}: holds no dialogues")
    meta = {**about, **totals.summary(), "digest": digests.of_file(workdir / DIALOGUES)}
    # Last: `is_complete` takes this file for the end of the import.
    atomic_write_json(workdir / META, meta)
    counts = f"{meta['dialogues']:,} dialogues, {meta['actions']:,} actions"
    print(f"{workdir}: {counts}, mean return {meta['mean_return']:.3f}")


def _write_reward(config: ImportRewardConfig, workdir: Path, begin: Begin) -> None:
    from motif_jax.motif.reward import safetensors_file
    from motif_jax.oni.online_model import OnlineRewardModel

    reward = safetensors_file.read_safetensors(config.path)
    allowed = "a reward of train_reward; one that was learned online is used as the file: --config.reward.dir=FILE"
    checks.require_key(config, "file", not isinstance(reward, OnlineRewardModel), allowed)
    begin()
    safetensors_file.write_run_folder(reward, workdir)
    print(f"{config.file}: evaluation {reward.step}, written to {workdir}")


_STAGES: dict[str, ImportStage[Any]] = {
    "import_dialogues": ImportStage(
        section=ImportDialoguesConfig,
        file=f"that ends with {', '.join(KINDS)}",
        is_complete=lambda _, workdir: (workdir / META).exists(),
        check_values=_check_dialogues,
        write=_write_dialogues,
        keeps_config=True,
    ),
    "import_reward": ImportStage(
        section=ImportRewardConfig,
        file="of export_reward: --config.file=reward.safetensors",
        is_complete=has_checkpoints,
        check_values=lambda *_: None,
        write=_write_reward,
        keeps_config=False,
    ),
}


def check(config_tree: ConfigDict, workdir: Path) -> None:
    _STAGES[config_tree.stage].check(config_tree, workdir)


def run(config_tree: ConfigDict, workdir: Path) -> None:
    _STAGES[config_tree.stage].run(config_tree, workdir)
