"""Data of a language model's training: a tokenizer, and tokens for training and evaluation."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from ml_collections import ConfigDict

from motif_jax.datasets.tokens import layout
from motif_jax.datasets.tokens.dataset import TokensDataset
from motif_jax.datasets.tokens.writer import TokensWriter
from motif_jax.language import byte_pairs, corpus
from motif_jax.language.corpus import Item
from motif_jax.language.tokens import FILE, Tokenizer
from motif_jax.support import digests
from motif_jax.support.errors import UserError
from motif_jax.support.progress import Progress
from motif_jax.trainers import text_batches
from motif_jax.trainers.held_out import HeldOut

TOKENS, TRAIN, HELD_OUT = "tokens", "train", "held_out"
# Texts that are read and tokenised at a time, and after how many of them they are safe.
_TOGETHER, _SAVED_EVERY = 256, 64
# Texts of a file that are looked at before any is tokenised.
_LOOKED_AT = 64


class TextData(NamedTuple):
    """Training data of texts.

    Attributes:
      tokenizer: of the texts.
      folder: where it lies.
      train, held_out: tokens; every item ends with the end token, and the column `prompt` says how many of it are its prompt.
    """

    tokenizer: Tokenizer
    folder: Path
    train: TokensDataset
    held_out: TokensDataset


def look(config: ConfigDict) -> None:
    """Looks at the first texts of each file of objects; UserError where one is none, or `config.packing` has no place for its prompt."""
    for names, key in ((config.texts, "texts"), (config.held_out.texts, "held_out.texts")):
        if names:
            paths = [path for path in corpus.find(names, key) if path.suffix in corpus.WITH_PROMPTS]
            for path in paths:
                for _ in itertools.islice(_items(config, [path]), _LOOKED_AT):
                    pass


def _items(config: ConfigDict, paths: list[Path]) -> Iterator[Item]:
    for path in paths:
        for item in corpus.read([path], config.text_item):
            if item.prompt:
                text_batches.refuse_prompts(config.packing, path)
            yield item


def make_tokenizer(config: ConfigDict, architecture: str, folder: Path) -> Path:
    """Makes the tokenizer of a run's texts, unless a start before has; returns its folder."""
    if not (folder / FILE).is_file():
        paths, settings = corpus.find(config.texts), config.tokenizer
        items = _items(config, paths)
        texts = (part for item in items for part in (item.prompt, *(item.parts or (item.text,))) if part)
        print(f"making a tokenizer of at most {settings.vocab_size:,} tokens", flush=True)
        some = itertools.islice(texts, settings.most_texts)
        phrases = (settings.phrase or byte_pairs.SENTENCES) if settings.phrases else ""
        byte_pairs.save(
            folder, byte_pairs.train(some, architecture, settings.vocab_size, phrases), architecture
        )
    return folder


def open_tokens(folder: str | Path, tokenizer: Path, key: str) -> tuple[TokensDataset, TokensDataset]:
    """The two datasets below a folder, made by the tokenizer in the folder `tokenizer`.

    Raises:
      UserError: one is missing, or made by another tokenizer; `key` is that of the config.
    """
    found = TokensDataset(Path(folder) / TRAIN), TokensDataset(Path(folder) / HELD_OUT)
    for dataset in found:
        if dataset.manifest["tokenizer"] != digests.of_file(tokenizer / FILE):
            raise UserError(
                f"config.{key}={folder}: {dataset.folder} is made by another tokenizer than {tokenizer / FILE}"
            )
    return found


def prepare(
    config: ConfigDict,
    workdir: Path,
    tokenizer_folder: Path,
    end: int,
    longest: int | None,
    stopped: Callable[[], bool],
    whole_prompts: bool = False,
) -> TextData | None:
    """Tokenises the texts into `workdir`/tokens, or continues where a start before has come to.

    Args:
      config: of the run.
      workdir: its folder.
      tokenizer_folder: with tokenizer.json.
      end: the token behind every item.
      longest: tokens of an item, its end included; longer ones are cut. None: any.
      stopped: whether to stop.
      whole_prompts: a prompt is a text of its own, which an encoder reads: with what the tokenizer puts round a text.

    Returns:
      The tokens; None where it was asked to stop.

    Raises:
      UserError: a text cannot be read or has a prompt for which `config.packing` has no place, or there are too few.
    """
    tokenizer = Tokenizer.read(tokenizer_folder)
    folder = Path(config.tokens or workdir / TOKENS)
    there = all((folder / part / layout.MANIFEST).is_file() for part in (TRAIN, HELD_OUT))
    if not (
        there
        or config.tokens
        or _write(config, folder, tokenizer, tokenizer_folder, end, longest, stopped, whole_prompts)
    ):
        return None
    found = open_tokens(folder, tokenizer_folder, "tokens")
    for dataset in found:
        dataset.check_digests()
    return TextData(tokenizer, tokenizer_folder, *found)


def _write(
    config: ConfigDict,
    folder: Path,
    tokenizer: Tokenizer,
    tokenizer_folder: Path,
    end: int,
    longest: int | None,
    stopped: Callable[[], bool],
    whole_prompts: bool,
) -> bool:
    paths = corpus.find(config.texts)
    held_paths = corpus.find(config.held_out.texts, "held_out.texts") if config.held_out.texts else []
    source = {
        "files": {str(path): digests.of_file(path) for path in [*paths, *held_paths]},
        "item": config.text_item,
    }
    held = HeldOut.of(config.held_out.share, config.seed)
    # Older versions split otherwise where the share is not 1 of n: what they have left is not a part of this one.
    share = config.held_out.share if held_paths or held.share.numerator == 1 else str(held.share)
    source |= {"held_out": share, "longest": longest or 0, "parts": "apart"}
    total = sum(path.stat().st_size for path in [*paths, *held_paths])
    with ExitStack() as stack:
        writers = {}
        for part in (TRAIN, HELD_OUT):
            whole = {**source, "part": part}
            if (folder / part / layout.MANIFEST).is_file():
                if TokensDataset(folder / part).manifest["source"] == whole:
                    continue
                shutil.rmtree(folder / part)  # its other part is missing, and would be of another split
            writer = TokensWriter(
                folder / part,
                tokenizer.size,
                digests.of_file(tokenizer_folder / FILE),
                item_columns={"prompt": "int32"},
                source=whole,
            )
            writers[part] = _Part(stack.enter_context(writer), tokenizer, end, longest, whole_prompts)
        progress = stack.enter_context(Progress(total, "bytes", "tokenise"))
        items: Iterator[tuple[str, Item]] = (
            (HELD_OUT if not held_paths and held.holds(place) else TRAIN, item)
            for place, item in enumerate(_items(config, paths))
        )
        items = itertools.chain(items, ((HELD_OUT, item) for item in _items(config, held_paths)))
        done = 0
        for number, group in enumerate(iter(lambda: list(itertools.islice(items, _TOGETHER)), [])):
            for part, writing in writers.items():
                writing.add([item for where, item in group if where == part])
            done += sum(item.place for _, item in group)
            progress.update(min(done, total))
            if number % _SAVED_EVERY == _SAVED_EVERY - 1 or stopped():
                for writing in writers.values():
                    writing.writer.save()
            if stopped():
                return False
        for part, writing in writers.items():
            if not writing.count:
                raise UserError(
                    f"config.texts={config.texts}: too few texts, there is none {'to learn from' if part == TRAIN else 'to hold out'}; a "
                    f"larger config.held_out.share or smaller config.text_item than {config.text_item}, or config.held_out.texts, helps"
                )
            writing.writer.commit()
    return True


class _Part:
    """Items on their way into one of the datasets; those that a start before has written are left out."""

    def __init__(
        self, writer: TokensWriter, tokenizer: Tokenizer, end: int, longest: int | None, whole_prompts: bool
    ) -> None:
        self.writer, self._tokenizer, self._end, self._longest = writer, tokenizer, end, longest
        self._whole_prompts = whole_prompts
        self.count = 0

    def add(self, items: Sequence[Item]) -> None:
        skipped = max(0, min(len(items), self.writer.items - self.count))
        self.count += len(items)
        items = items[skipped:]
        encoded = self._tokenizer.encode([item.prompt for item in items], special=self._whole_prompts)
        # What has no prompt has no tokens of one.
        prompts = [tokens if item.prompt else [] for item, tokens in zip(items, encoded, strict=True)]
        parts = [item.parts or (item.text,) for item in items]
        pieces = iter(self._tokenizer.encode([piece for of in parts for piece in of], special=False))
        for item, prompt, of in zip(items, prompts, parts, strict=True):
            text = itertools.chain.from_iterable(itertools.islice(pieces, len(of)))
            tokens = [*prompt, *text, self._end][: self._longest]
            if len(prompt) >= len(tokens):
                raise UserError(
                    f"the prompt {item.prompt[:40]!r}... has {len(prompt)} tokens: with config.length={self._longest} nothing is left to learn"
                )
            self.writer.add(tokens, item_columns={"prompt": len(prompt)})
