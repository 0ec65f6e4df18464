"""Data of a language model's training: a tokenizer, and tokens for training and evaluation."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from motif_jax.core import digests
from motif_jax.core.errors import UserError
from motif_jax.lm import byte_pairs, corpus, text_batches
from motif_jax.lm.corpus import Item
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

# Texts of a file that are checked before it is tokenised.
_CHECKED = 64
# Texts that a tokenizer is made from, the first ones: more change few merges, and take memory.
_MOST_TEXTS = 1_000_000


def check_first_texts(config: LanguageModelConfig) -> None:
    """Checks the first texts of each file; UserError for an invalid one, or for a prompt that
    `config.packing` does not allow.
    """
    paths = []
    if config.texts:
        paths += corpus.find(config.texts, "texts")
    if config.held_out.texts:
        paths += corpus.find(config.held_out.texts, "held_out.texts")
    for path in paths:
        if path.suffix in corpus.WITH_PROMPTS:
            # Reading checks each text.
            for _ in itertools.islice(_read_items(config, [path]), _CHECKED):
                pass


def _read_items(config: LanguageModelConfig, paths: list[Path]) -> Iterator[Item]:
    """The items of files; UserError for a prompt that `config.packing` does not allow."""
    for path in paths:
        for item in corpus.read([path]):
            if item.prompt:
                text_batches.refuse_prompts(config.packing, path)
            yield item


def make_tokenizer(config: LanguageModelConfig, architecture: str, folder: Path) -> Path:
    """Makes the tokenizer of a run's texts, unless it exists; returns its folder."""
    # A resumed run keeps its tokenizer, by which its tokens were made.
    if not (folder / FILE).is_file():
        settings = config.tokenizer
        print(f"making a tokenizer of at most {settings.vocab_size:,} tokens", flush=True)
        paths = corpus.find(config.texts or "")
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

    paths = corpus.find(config.texts or "")
    held_out_paths = []
    if config.held_out.texts:
        held_out_paths = corpus.find(config.held_out.texts, "held_out.texts")
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
