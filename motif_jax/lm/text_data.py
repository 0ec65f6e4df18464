"""Data of a language model's training: a tokenizer, and tokens for training and evaluation."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from motif_jax.core import digests
from motif_jax.core.errors import UserError
from motif_jax.lm import byte_pairs, corpus, text_batches
from motif_jax.lm.corpus import Item
from motif_jax.lm.held_out import HeldOut
from motif_jax.lm.token_data.dataset import TokensDataset
from motif_jax.lm.token_data.writer import TokensWriter
from motif_jax.lm.tokenised import HELD_OUT, PARTS, TOKENS, TRAIN, Tokenisation
from motif_jax.lm.tokens import FILE, Tokenizer
from motif_jax.lm.training_config import LanguageModelConfig

# Texts of a file that are checked before it is tokenised.
_LOOKED_AT = 64


def look(config: LanguageModelConfig) -> None:
    """Checks the first texts of each file; UserError for an invalid one, or for a prompt that `config.packing` does not allow."""
    for names, key in ((config.texts, "texts"), (config.held_out.texts, "held_out.texts")):
        for path in corpus.find(names, key) if names else []:
            if path.suffix in corpus.WITH_PROMPTS:
                list(itertools.islice(_items(config, [path]), _LOOKED_AT))


def _items(config: LanguageModelConfig, paths: list[Path]) -> Iterator[Item]:
    for path in paths:
        for item in corpus.read([path], config.text_item):
            if item.prompt:
                text_batches.refuse_prompts(config.packing, path)
            yield item


def make_tokenizer(config: LanguageModelConfig, architecture: str, folder: Path) -> Path:
    """Makes the tokenizer of a run's texts, unless it exists; returns its folder."""
    if not (folder / FILE).is_file():
        paths, settings = corpus.find(config.texts or ""), config.tokenizer
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
    """The two datasets below a folder, the value of the config's `key`; UserError if another tokenizer made them."""
    found = TokensDataset(Path(folder) / TRAIN), TokensDataset(Path(folder) / HELD_OUT)
    for dataset in found:
        if dataset.manifest["tokenizer"] != digests.of_file(tokenizer / FILE):
            raise UserError(
                f"config.{key}={folder}: {dataset.folder} is made by another tokenizer than {tokenizer / FILE}"
            )
    return found


def prepare(
    config: LanguageModelConfig,
    workdir: Path,
    tokenizer_folder: Path,
    end: int,
    longest: int | None,
    stopped: Callable[[], bool],
    whole_prompts: bool = False,
) -> dict[str, TokensDataset] | None:
    """Tokenises the texts into `workdir`/tokens, or resumes: the parts `TRAIN` and `HELD_OUT`, None after a request to stop.

    Args:
      end: the token behind every item.
      longest: most tokens of an item, its end included; longer ones are cut. None: no limit.
      whole_prompts: prompts get the tokenizer's special tokens, for an encoder.
    """
    if config.tokens:
        found = open_tokens(config.tokens, tokenizer_folder, "tokens")
        for dataset in found:
            dataset.check_digests()
        return dict(zip(PARTS, found, strict=True))
    paths = corpus.find(config.texts or "")
    held_paths = corpus.find(config.held_out.texts, "held_out.texts") if config.held_out.texts else []
    tokenizer, held = Tokenizer.read(tokenizer_folder), HeldOut.of(config.held_out.share, config.seed)
    source = {
        "files": {str(path): digests.of_file(path) for path in [*paths, *held_paths]},
        "item": config.text_item,
        "held_out": str(held.share),
        "longest": longest or 0,
    }
    items: Iterator[tuple[str, Item]] = (
        (HELD_OUT if not held_paths and held.holds(place) else TRAIN, item)
        for place, item in enumerate(_items(config, paths))
    )

    def add(writer: TokensWriter, some: Sequence[Item]) -> None:
        encoded = tokenizer.encode([item.prompt for item in some], special=whole_prompts)
        # An empty prompt has no tokens, not even special ones.
        prompts = [tokens if item.prompt else [] for item, tokens in zip(some, encoded, strict=True)]
        parts = [item.parts or (item.text,) for item in some]
        pieces = iter(tokenizer.encode([piece for of in parts for piece in of], special=False))
        for item, prompt, of in zip(some, prompts, parts, strict=True):
            text = itertools.chain.from_iterable(itertools.islice(pieces, len(of)))
            tokens = [*prompt, *text, end][:longest]
            if len(prompt) >= len(tokens):
                raise UserError(
                    f"the prompt {item.prompt[:40]!r}... has {len(prompt)} tokens: with config.length={longest} nothing is left to learn"
                )
            writer.add(tokens, item_columns={"prompt": len(prompt)})

    tokenisation = Tokenisation(
        tokenizer.size,
        digests.of_file(tokenizer_folder / FILE),
        source,
        add,
        {},
        {"prompt": "int32"},
        f"config.texts={config.texts}: too few texts, there is none {{}}; a larger config.held_out.share or smaller config.text_item than "
        f"{config.text_item}, or config.held_out.texts, helps",
        "bytes",
        lambda item: item.place,
    )
    items = itertools.chain(items, ((HELD_OUT, item) for item in _items(config, held_paths)))
    total = sum(path.stat().st_size for path in [*paths, *held_paths])
    return tokenisation.split(workdir / TOKENS, items, total, stopped)
