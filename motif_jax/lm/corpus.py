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
# Rows of a parquet file that are read at once.
_ROWS = 1024


class Item(NamedTuple):
    """A text to learn.

    Attributes:
      prompt: precedes the text; the model reads it but is not trained to predict it.
      size: bytes that the item takes in its file, approximately.
      parts: pieces of the text that are tokenised one by one; empty: the text is tokenised as a
          whole.
    """

    text: str
    prompt: str = ""
    size: int = 0
    parts: Sequence[str] = ()


def find(names: str, key: str = "texts") -> list[Path]:
    """The files, and the files below the folders, that `names` has, separated by commas; errors
    name `key` of the config.

    Raises:
      UserError: a file is missing or of another kind, or all are empty.
    """
    files: list[Path] = []
    for name in names.split(","):
        name = name.strip()
        if not name:
            continue
        path = Path(name)
        if not path.exists():
            raise UserError(
                f"config.{key}={name}: there is no such file or folder; give one that exists"
            )
        named_files = [path]
        # Sorted, so that the order of the items is the same on every file system.
        if path.is_dir():
            named_files = sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES)
        if not named_files or named_files[0].suffix not in SUFFIXES:
            raise UserError(
                f"config.{key}={name}: must be a file or folder of {', '.join(SUFFIXES)} files"
            )
        files += named_files
    if not any(file.stat().st_size for file in files):
        raise UserError(f"config.{key}={names}: holds no text")
    return files


def read(paths: list[Path]) -> Iterator[Item]:
    """The items of files in their order, without blank texts; UserError where a file or line cannot
    be read.

    Files are .jsonl of objects with `text` and optionally `prompt`; .parquet with such columns, or
    with dialogues, see `_read_dialogues`; .txt and .md, of paragraphs with empty lines between.
    """
    for path in paths:
        try:
            if path.suffix == ".parquet":
                items = _read_parquet(path)
            elif path.suffix == ".jsonl":
                items = _read_json_lines(path)
            else:
                items = _read_text(path)
            yield from (item for item in items if item.text.strip())
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{path} cannot be read: {error}") from None


def _read_text(path: Path) -> Iterator[Item]:
    # A byte order mark is no letter of a text. Line ends stay as they are, also inside a paragraph.
    with open(path, encoding="utf-8-sig", newline="") as file:
        for is_paragraph, lines in itertools.groupby(file, lambda line: bool(line.strip())):
            if is_paragraph:
                text = "".join(lines)
                # With the empty line after it.
                yield Item(text.rstrip("\r\n"), size=len(text) + 1)


def _read_json_lines(path: Path) -> Iterator[Item]:
    with open(path, encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            try:
                row = parse_json(line)
            except ValueError as error:
                raise UserError(f"{path} line {number} cannot be read: {error}") from None
            yield _item(row, f"{path} line {number}", len(line))


def _read_parquet(path: Path) -> Iterator[Item]:
    # Importing pyarrow takes time that other files do not need.
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # pyarrow reads a relative path with a colon as an address.
        with pq.ParquetFile(path.absolute()) as file:
            columns = file.schema_arrow.names
            # A row's share of the file, since its compressed size is not known.
            row_size = path.stat().st_size // max(1, file.metadata.num_rows)
            if set(_DIALOGUES) <= set(columns):
                batches = file.iter_batches(_ROWS, columns=list(_DIALOGUES))
                yield from _read_dialogues(batches, row_size)
                return
            names = [name for name in ("text", "prompt") if name in columns]
            for batch in file.iter_batches(_ROWS, columns=names):
                for row in batch.to_pylist():
                    yield _item(row, str(path), row_size)
    except pa.ArrowException as error:
        raise UserError(f"{path} cannot be read: {error}") from None


def _read_dialogues(batches: Iterable[Any], row_size: int) -> Iterator[Item]:
    """One item for each action of a dialogue: text is the action and the replies up to the next,
    prompt is all before it.
    """
    for batch in batches:
        for row in batch.to_pylist():
            texts = row["texts"]
            actions = [index for index, reward in enumerate(row["rewards"]) if reward is not None]
            ends = [*actions[1:], len(texts)]
            # Not strict: a dialogue without actions has an end, and gives no item.
            for action, end in zip(actions, ends):
                # No token may run over an action's end, since an agent scores and writes actions
                # alone.
                pieces = texts[action:end]
                prompt = "".join(texts[:action])
                yield Item("".join(pieces), prompt, row_size // len(actions), pieces)


def _item(row: object, where: str, size: int) -> Item:
    if not isinstance(row, dict) or not isinstance(row.get("text"), str):
        raise UserError(f'{where}: must be an object with a text under "text"')
    prompt = row.get("prompt") or ""
    if not isinstance(prompt, str):
        raise UserError(f'{where}: "prompt" must be a text')
    require_whole_characters(prompt + row["text"], where)
    return Item(row["text"], prompt, size)
