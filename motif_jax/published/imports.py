"""Imports of a pairs dataset, of dialogues and of a reward, and the frame of all imports.

A folder holds one import, of the files in import.json. The same command again finds it done, another one is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from ml_collections import ConfigDict

from motif_jax.core import config as checks
from motif_jax.core import digests, import_origin, run_folder
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_json
from motif_jax.core.locks import FolderLock
from motif_jax.core.progress import Progress
from motif_jax.ilql.dialogues import json_lines
from motif_jax.ilql.dialogues import parquet as dialogues_parquet
from motif_jax.ilql.dialogues.collected import DIALOGUES, META, DialogueTotals
from motif_jax.ilql.dialogues.dialogue import Dialogues
from motif_jax.ilql.tasks.wordle.words import read_words
from motif_jax.motif.pairs import layout, writer
from motif_jax.motif.pairs import parquet as pairs_parquet
from motif_jax.motif.pairs.dataset import PairsDataset
from motif_jax.published import wordle_games

KINDS = {".jsonl": "json_lines", ".json": "json_lines", ".pkl": "wordle_games", ".pickle": "wordle_games"}
Begin = Callable[[], None]
_FILES = ("file", "quantiles", "words")  # keys that may name a file


class ImportStage(NamedTuple):
    """The frame of an import of a `file` (in words); `write` calls `Begin` when it has seen that the file can be read."""

    file: str
    is_whole: Callable[[ConfigDict, Path], bool]
    check_values: Callable[[ConfigDict, Path], object]
    write: Callable[[ConfigDict, Path, Begin], None]

    def check(self, config: ConfigDict, workdir: Path) -> None:
        is_there = bool(config.file) and Path(config.file).is_file()
        checks.require_key(config, "file", is_there, f"an existing file, {self.file}")
        if not self._is_done(config, workdir):
            self.check_values(config, workdir)

    def run(self, config: ConfigDict, workdir: Path) -> None:
        with FolderLock(workdir):
            if self._is_done(config, workdir):
                print(f"{workdir} holds this import of {config.file} already")
                return
            named = _named_files(config)
            self.write(config, workdir, lambda: import_origin.write(workdir, config, named))

    def _is_done(self, config: ConfigDict, workdir: Path) -> bool:
        return import_origin.check(workdir, config, _named_files(config), self.is_whole(config, workdir))


def _named_files(config: ConfigDict) -> list[str]:
    """The keys that name a file here: a list of words may also be one of the package."""
    return [key for key in _FILES if key in config and config[key] and Path(config[key]).is_file()]


def has_checkpoints(config: ConfigDict, workdir: Path) -> bool:
    """`ImportStage.is_whole` of a network."""
    del config
    return import_origin.has_checkpoints(workdir)


def _check_pairs(config: ConfigDict, workdir: Path) -> None:
    writer.check_folder(workdir)
    pairs_parquet.contents(config.file)


def _write_pairs(config: ConfigDict, workdir: Path, begin: Begin) -> None:
    begin()
    run_folder.prepare(workdir, config)
    with Progress(pairs_parquet.contents(config.file).num_pairs, "pairs", "import") as progress:
        for done in pairs_parquet.read(config.file, workdir):
            progress.update(done)
    dataset = PairsDataset.open(workdir)
    print(f"{workdir}: {dataset.num_pairs:,} pairs, content {dataset.content_hash()}")


def _check_dialogues(config: ConfigDict, workdir: Path) -> None:
    allowed = f"a file that ends with {', '.join(KINDS)}"
    checks.require_key(config, "file", Path(config.file).suffix in KINDS, allowed)
    if config.words:
        read_words("words", config.words)
    if (workdir / DIALOGUES).exists() and not (workdir / "config.json").exists():
        raise UserError(f"{workdir} holds dialogues that were not imported here: choose another --workdir")


def _read_dialogues(config: ConfigDict) -> Iterator[Dialogues]:
    if KINDS[Path(config.file).suffix] == "json_lines":
        yield from json_lines.read(config.file)
    else:
        words = read_words("words", config.words) if config.words else None
        yield wordle_games.read_games(config.file, words)


def _write_dialogues(config: ConfigDict, workdir: Path, begin: Begin) -> None:
    begin()
    run_folder.prepare(workdir, config)
    about = {"origin": f"motif_jax import_dialogues, {Path(config.file).name}", "facts": {}}
    if KINDS[Path(config.file).suffix] == "wordle_games":
        words = config.words or wordle_games.word_list(config.file)
        if Path(words).is_file():
            words = str(Path(words).resolve())
        # Training and evaluation play with the words that the games were played with.
        about["config"] = {"task": "wordle", "wordle": {"words": words}, "compat": {}}
    totals = DialogueTotals()
    dialogues_parquet.write(workdir / DIALOGUES, totals.counted(_read_dialogues(config)), about)
    if not totals.count:
        (workdir / DIALOGUES).unlink()
        raise UserError(f"config.file={config.file}: holds no dialogues")
    meta = {**about, **totals.summary(), "digest": digests.of_file(workdir / DIALOGUES)}
    atomic_write_json(workdir / META, meta)
    counts = f"{meta['dialogues']:,} dialogues, {meta['actions']:,} actions"
    print(f"{workdir}: {counts}, mean return {meta['mean_return']:.3f}")


def _write_reward(config: ConfigDict, workdir: Path, begin: Begin) -> None:
    from motif_jax.motif.reward import safetensors_file
    from motif_jax.oni.online_model import OnlineRewardModel

    reward = safetensors_file.read_safetensors(config.file)
    allowed = (
        "a reward of train_reward; one that was learned online is used as the file: --config.reward.dir=FILE"
    )
    checks.require_key(config, "file", not isinstance(reward, OnlineRewardModel), allowed)
    begin()
    safetensors_file.write_run_folder(reward, workdir)
    print(f"{config.file}: evaluation {reward.step}, written to {workdir}")


_STAGES = {
    "import_dataset": ImportStage(
        "of export_dataset: --config.file=pairs.parquet",
        lambda _, workdir: (workdir / layout.META).exists(),
        _check_pairs,
        _write_pairs,
    ),
    "import_dialogues": ImportStage(
        f"that ends with {', '.join(KINDS)}",
        lambda _, workdir: (workdir / META).exists(),
        _check_dialogues,
        _write_dialogues,
    ),
    "import_reward": ImportStage(
        "of export_reward: --config.file=reward.safetensors", has_checkpoints, lambda *_: None, _write_reward
    ),
}


def check(config: ConfigDict, workdir: Path) -> None:
    _STAGES[config.stage].check(config, workdir)


def run(config: ConfigDict, workdir: Path) -> None:
    _STAGES[config.stage].run(config, workdir)
