"""Data of a language model's training: texts are read from files of any length, an item at a time,
and become a tokenizer, and tokens to learn from and to measure with.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from motif_jax.core import digests
from motif_jax.core.errors import UserError
from motif_jax.lm import byte_pairs, text_batches
from motif_jax.lm.token_data import (
    HELD_OUT,
    TOKENS,
    TRAIN,
    HeldOut,
    Tokenisation,
    TokensDataset,
    TokensWriter,
)
from motif_jax.lm.tokens import FILE, Tokenizer
from motif_jax.lm.training_config import LanguageModelConfig

WITH_PROMPTS = (".jsonl", ".parquet")
SUFFIXES = (".txt", ".md", *WITH_PROMPTS)
# Columns of dialogues, as `collect_text` writes them.
_DIALOGUES = ("texts", "rewards")
# Rows of a parquet file that are read at once.
_ROWS = 1024
# Texts of a file that are checked before it is tokenised.
_CHECKED = 64
# Texts that a tokenizer is made from, the first ones: more change few merges, and take memory.
_MOST_TEXTS = 1_000_000


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


def find_files(names: str, key: str = "texts") -> list[Path]:
    """The files, and the files below the folders, that `names` has, separated by commas.

    Raises:
      UserError: a file is of another kind, or a folder has none; it names `key` of the config.
    """
    files: list[Path] = []
    for name in filter(None, map(str.strip, names.split(","))):
        path = Path(name)
        named_files = [path]
        # Sorted, so that the order of the items is the same on every file system.
        if path.is_dir():
            named_files = sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES)
        if not named_files or named_files[0].suffix not in SUFFIXES:
            raise UserError(
                f"config.{key}={name}: must be a file or folder of {', '.join(SUFFIXES)} files"
            )
        files += named_files
    return files


def read_items(paths: list[Path]) -> Iterator[Item]:
    """The items of files in their order, without blank texts; UserError where a line of .jsonl is
    no text.

    Files are .jsonl of objects with `text` and optionally `prompt`; .parquet with such columns, or
    with dialogues, see `_read_dialogues`; .txt and .md, of paragraphs with empty lines between.
    """
    readers = {".parquet": _read_parquet, ".jsonl": _read_json_lines}
    for path in paths:
        items = readers.get(path.suffix, _read_text)(path)
        yield from (item for item in items if item.text.strip())


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
            # The line, which no error would name among millions.
            try:
                item = _item_of(json.loads(line), len(line))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise UserError(f"{path} line {number} cannot be read: {error!r}") from None
            yield item


def _read_parquet(path: Path) -> Iterator[Item]:
    # Importing pyarrow takes time that other files do not need.
    import pyarrow.parquet as pq

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
                yield _item_of(row, row_size)


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


def _item_of(row: Mapping[str, Any], size: int) -> Item:
    item = Item(row["text"], row.get("prompt") or "", size)
    # JSON may hold half of a surrogate pair, which tokenizers do not take.
    (item.prompt + item.text).encode()
    return item


def check_first_texts(config: LanguageModelConfig) -> None:
    """Checks the first texts of each file; UserError for an invalid one, or for a prompt that
    `config.packing` does not allow.
    """
    paths = []
    if config.texts:
        paths += find_files(config.texts, "texts")
    if config.held_out.texts:
        paths += find_files(config.held_out.texts, "held_out.texts")
    for path in paths:
        if path.suffix in WITH_PROMPTS:
            # Reading checks each text.
            for _ in itertools.islice(_read_items(config, [path]), _CHECKED):
                pass


def _read_items(config: LanguageModelConfig, paths: list[Path]) -> Iterator[Item]:
    """The items of files; UserError for a prompt that `config.packing` does not allow."""
    for path in paths:
        for item in read_items([path]):
            if item.prompt:
                text_batches.refuse_prompts(config.packing, path)
            yield item


def make_tokenizer(config: LanguageModelConfig, architecture: str, folder: Path) -> Path:
    """Makes the tokenizer of a run's texts, unless it exists; returns its folder."""
    # A resumed run keeps its tokenizer, by which its tokens were made.
    if not (folder / FILE).is_file():
        settings = config.tokenizer
        print(f"making a tokenizer of at most {settings.vocab_size:,} tokens", flush=True)
        paths = find_files(config.texts or "")
        # Lazily: merges are learned from the first texts, and the rest is not read.
        texts = itertools.islice(_read_pieces(config, paths), _MOST_TEXTS)
        phrase = ""
        if settings.phrases:
            phrase = settings.phrase or byte_pairs.SENTENCES
        tokenizer = byte_pairs.train(texts, architecture, settings.vocab_size, phrase)
        byte_pairs.save(folder, tokenizer, architecture)
    return folder


def _read_pieces(config: LanguageModelConfig, paths: list[Path]) -> Iterator[str]:
    """The texts of files as they are tokenised: prompts, and pieces of texts."""
    for item in _read_items(config, paths):
        for piece in (item.prompt, *_pieces(item)):
            if piece:
                yield piece


def _pieces(item: Item) -> Sequence[str]:
    return item.parts or (item.text,)


def open_tokens(
    folder: str | Path, tokenizer: Path, key: str
) -> tuple[TokensDataset, TokensDataset]:
    """The two datasets below a folder, the value of the config's `key`; UserError if another
    tokenizer made them.
    """
    datasets = (TokensDataset(Path(folder) / TRAIN), TokensDataset(Path(folder) / HELD_OUT))
    for dataset in datasets:
        if dataset.manifest["tokenizer"] != digests.of_file(tokenizer / FILE):
            raise UserError(
                f"config.{key}={folder}: {dataset.folder} is made by another tokenizer than {tokenizer / FILE}"
            )
    return datasets


def prepare(
    config: LanguageModelConfig,
    workdir: Path,
    tokenizer_folder: Path,
    end: int,
    longest: int | None,
    stopped: Callable[[], bool],
    whole_prompts: bool = False,
    begins: bool = False,
) -> dict[str, TokensDataset] | None:
    """Tokenises the texts into `workdir`/tokens, or resumes: the parts `TRAIN` and `HELD_OUT`, None
    after a request to stop.

    Args:
      end: the token after every item.
      longest: most tokens of an item, its end included; longer ones are cut. None: no limit.
      whole_prompts: prompts get the tokenizer's special tokens, for an encoder.
      begins: items begin with the special tokens that the tokenizer puts in front of a text, as
          prompts of a decoder do.
    """
    if config.tokens:
        train, held_out = open_tokens(config.tokens, tokenizer_folder, "tokens")
        # Nothing is tokenised: another run's dataset is read where it lies.
        train.check_digests()
        held_out.check_digests()
        return {TRAIN: train, HELD_OUT: held_out}

    paths = find_files(config.texts or "")
    held_out_paths = []
    if config.held_out.texts:
        held_out_paths = find_files(config.held_out.texts, "held_out.texts")
    all_paths = [*paths, *held_out_paths]
    share = HeldOut.of(config.held_out.share, config.seed)
    tokenizer = Tokenizer.read(tokenizer_folder)
    beginning = tokenizer.beginning() if begins else []

    item_writer = _ItemWriter(tokenizer, beginning, end, longest, whole_prompts)
    tokenisation = Tokenisation(
        vocab_size=tokenizer.size,
        tokenizer=digests.of_file(tokenizer_folder / FILE),
        source={
            "files": {str(path): digests.of_file(path) for path in all_paths},
            "held_out": str(share.share),
            "longest": longest or 0,
            "begins": beginning,
        },
        add=item_writer.add,
        token_columns={},
        item_columns={"prompt": "int32"},
        too_few=(
            f"config.texts={config.texts}: too few texts, there is none {{}}; a larger config.held_out.share, or "
            "config.held_out.texts, helps"
        ),
        unit="bytes",
        amount=lambda item: item.size,
    )
    items = _items_by_part(config, paths, held_out_paths, share)
    total = sum(path.stat().st_size for path in all_paths)
    return tokenisation.split(workdir / TOKENS, items, total, stopped)


def _items_by_part(
    config: LanguageModelConfig, paths: list[Path], held_out_paths: list[Path], share: HeldOut
) -> Iterator[tuple[str, Item]]:
    """The items of all files, each with `TRAIN` or `HELD_OUT`; `share` is held out where no files
    are.
    """
    # The index runs over all files, so that the share is held out evenly, also of many small files.
    for index, item in enumerate(_read_items(config, paths)):
        is_held_out = not held_out_paths and share.holds(index)
        yield HELD_OUT if is_held_out else TRAIN, item
    for item in _read_items(config, held_out_paths):
        yield HELD_OUT, item


@dataclasses.dataclass(frozen=True)
class _ItemWriter:
    """Writes items as tokens; `beginning` is what stands before each, the other attributes are
    arguments of `prepare`.
    """

    tokenizer: Tokenizer
    beginning: list[int]
    end: int
    longest: int | None
    whole_prompts: bool

    def add(self, writer: TokensWriter, items: Sequence[Item]) -> None:
        """Writes items; UserError for a prompt that leaves no token to learn."""
        for item, item_prompt, text in _tokenise(self.tokenizer, items, self.whole_prompts):
            # Items of their own begin after it. In a window of several items it is learned as every
            # token: it says that a text begins.
            prompt = [*self.beginning, *item_prompt]
            # A text that is cut loses its end token: the model does not learn to stop where it was
            # cut.
            tokens = [*prompt, *text, self.end][: self.longest]
            if len(prompt) >= len(tokens):
                raise UserError(
                    f"the prompt {item.prompt[:40]!r}... has {len(prompt)} tokens: with config.length={self.longest} nothing is left to learn"
                )
            writer.add(tokens, item_columns={"prompt": len(prompt) if item_prompt else 0})


def _tokenise(
    tokenizer: Tokenizer, items: Sequence[Item], whole_prompts: bool
) -> Iterator[tuple[Item, list[int], list[int]]]:
    """Items with the tokens of their prompts and of their texts."""
    # All in two calls: the tokenizer splits each call over the processor's cores.
    prompts = tokenizer.encode([item.prompt for item in items], special=whole_prompts)
    pieces = iter(
        tokenizer.encode([piece for item in items for piece in _pieces(item)], special=False)
    )
    for item, prompt in zip(items, prompts, strict=True):
        text: list[int] = []
        for piece in itertools.islice(pieces, len(_pieces(item))):
            text += piece
        # An empty prompt has no tokens, not even special ones.
        yield item, list(prompt) if item.prompt else [], text
