"""Reads texts from files of any length, an item at a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from motif_jax.core.errors import UserError
from motif_jax.core.files import parse_json, require_whole_characters

WITH_PROMPTS = (".jsonl", ".parquet")
SUFFIXES = (".txt", ".md", *WITH_PROMPTS)
# Columns of dialogues, as `collect_text` writes them.
_DIALOGUES = ("texts", "rewards")


class Item(NamedTuple):
    """A text to learn.

    Attributes:
      prompt: precedes the text; the model reads it but is not trained to predict it.
      place: bytes that the item takes in its file, approximately.
      parts: pieces of the text that are tokenised one by one; empty: the text is tokenised as a whole.
    """

    text: str
    prompt: str = ""
    place: int = 0
    parts: Sequence[str] = ()


def find(names: str, key: str = "texts") -> list[Path]:
    """The files, and the files below the folders, that `names` has, separated by commas; errors name `key` of the config.

    Raises:
      UserError: a file is missing or of another kind, or all are empty.
    """
    found: list[Path] = []
    for name in filter(None, (part.strip() for part in names.split(","))):
        path = Path(name)
        if not path.exists():
            raise UserError(f"config.{key}={name}: there is no such file or folder")
        below = sorted(p for p in path.rglob("*") if p.suffix in SUFFIXES) if path.is_dir() else [path]
        if not below or below[0].suffix not in SUFFIXES:
            raise UserError(f"config.{key}={name}: must be a file or folder of {', '.join(SUFFIXES)} files")
        found += below
    if not any(path.stat().st_size for path in found):
        raise UserError(f"config.{key}={names}: holds no text")
    return found


def read(paths: list[Path], split: str) -> Iterator[Item]:
    """The items of files in their order, without blank texts; UserError where a file or line cannot be read.

    Files are .jsonl of objects with `text` and optionally `prompt`; .parquet with such columns, or with dialogues, see `_dialogues`;
    .txt and .md, with a `split` into items: 'paragraph' (separated by empty lines), 'line' or 'file'.
    """
    for path in paths:
        try:
            readers = {".parquet": _parquet, ".jsonl": _lines}
            items = readers[path.suffix](path) if path.suffix in readers else _texts(path, split)
            yield from (item for item in items if item.text.strip())
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{path} cannot be read: {error}") from None


def _texts(path: Path, split: str) -> Iterator[Item]:
    with open(path, encoding="utf-8-sig", newline="") as file:
        if split == "file":
            text = file.read()
            yield Item(text, place=len(text))
        elif split == "line":
            yield from (Item(line.rstrip("\r\n"), place=len(line)) for line in file)
        else:
            for written, lines in itertools.groupby(file, lambda line: bool(line.strip())):
                if written:
                    text = "".join(lines)
                    yield Item(text.rstrip("\r\n"), place=len(text) + 1)


def _lines(path: Path) -> Iterator[Item]:
    with open(path, encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            try:
                row = parse_json(line)
            except ValueError as error:
                raise UserError(f"{path} line {number} cannot be read: {error}") from None
            yield _item(row, f"{path} line {number}", len(line))


def _parquet(path: Path) -> Iterator[Item]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from motif_jax.core import bounded_parquet

    try:
        with pq.ParquetFile(path) as file:
            there, share = file.schema_arrow.names, path.stat().st_size // max(1, file.metadata.num_rows)
        if set(_DIALOGUES) <= set(there):
            yield from _dialogues(bounded_parquet.batches(path, _DIALOGUES), share)
            return
        names = [name for name in ("text", "prompt") if name in there]
        for batch in bounded_parquet.batches(path, names):
            yield from (_item(row, str(path), share) for row in batch.to_pylist())
    except pa.ArrowException as error:
        raise UserError(f"{path} cannot be read: {error}") from None


def _dialogues(batches: Iterable[Any], share: int) -> Iterator[Item]:
    """One item for each action of a dialogue: text is the action and the replies up to the next, prompt is all before it."""
    for batch in batches:
        for row in batch.to_pylist():
            texts = row["texts"]
            turns = [place for place, reward in enumerate(row["rewards"]) if reward is not None]
            for place, after in zip(turns, [*turns[1:], len(texts)]):  # of a dialogue without actions nothing
                # No token may run over an action's end, since an agent scores and writes actions alone.
                said = texts[place:after]
                yield Item("".join(said), "".join(texts[:place]), share // len(turns), said)


def _item(row: object, where: str, size: int) -> Item:
    if not isinstance(row, dict) or not isinstance(row.get("text"), str):
        raise UserError(f'{where}: must be an object with a text under "text"')
    prompt = row.get("prompt") or ""
    if not isinstance(prompt, str):
        raise UserError(f'{where}: "prompt" must be a text')
    require_whole_characters(prompt + row["text"], where)
    return Item(row["text"], prompt, size)
