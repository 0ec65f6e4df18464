"""Imports dialogues: JSON lines of LMRL-Gym, Wordle games of the published ILQL code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ml_collections import ConfigDict

from motif_jax.datasets.dialogues import json_lines, parquet
from motif_jax.datasets.dialogues.dialogue import Dialogues
from motif_jax.envs.wordle.words import read_words
from motif_jax.published import wordle_games
from motif_jax.rollouts.dialogues import DIALOGUES, META, DialogueTotals
from motif_jax.support import config as checks
from motif_jax.support import digests, import_origin, run_folder
from motif_jax.support.errors import UserError
from motif_jax.support.files import atomic_write_json
from motif_jax.support.locks import FolderLock

FILES = ("file",)
KINDS = {".jsonl": "json_lines", ".json": "json_lines", ".pkl": "wordle_games", ".pickle": "wordle_games"}


def check(config: ConfigDict, workdir: Path) -> None:
    """Raises UserError if there is no such file, or the folder holds something else."""
    allowed = f"a file that ends with {', '.join(KINDS)}"
    checks.require(bool(config.file) and Path(config.file).is_file(), "file", config.file, allowed)
    checks.require(Path(config.file).suffix in KINDS, "file", config.file, allowed)
    if config.words:
        read_words("words", config.words)
    done = _is_done(config, workdir)
    if not done and (workdir / DIALOGUES).exists() and not (workdir / "config.json").exists():
        raise UserError(f"{workdir} holds dialogues that were not imported here: choose another --workdir")


def _is_done(config: ConfigDict, workdir: Path) -> bool:
    return import_origin.check(workdir, config, FILES, (workdir / META).exists())


def _read(config: ConfigDict) -> Iterator[Dialogues]:
    if KINDS[Path(config.file).suffix] == "json_lines":
        yield from json_lines.read(config.file)
    else:
        words = read_words("words", config.words) if config.words else None
        yield wordle_games.read_games(config.file, words)


def run(config: ConfigDict, workdir: Path) -> None:
    """Writes the dialogues, unless that has been done."""
    with FolderLock(workdir):
        if _is_done(config, workdir):
            print(f"{workdir} holds this import of {config.file} already")
            return
        import_origin.write(workdir, config, FILES)
        run_folder.prepare(workdir, config)
        about = {"origin": f"motif_jax import_dialogues, {Path(config.file).name}", "facts": {}}
        totals = DialogueTotals()
        parquet.write(workdir / DIALOGUES, totals.counted(_read(config)), about)
        if not totals.any:
            (workdir / DIALOGUES).unlink()
            raise UserError(f"config.file={config.file}: there is no dialogue in it")
        meta = {**about, **totals.summary(), "digest": digests.of_file(workdir / DIALOGUES)}
        atomic_write_json(workdir / META, meta)
        print(
            f"{workdir}: {meta['dialogues']:,} dialogues, {meta['actions']:,} actions, mean return {meta['mean_return']:.3f}"
        )
