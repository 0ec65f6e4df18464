"""A training of an upvote model: its comments, tokenizer, network and output folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from motif_jax.datasets.tokens import layout
from motif_jax.datasets.tokens.dataset import TokensDataset
from motif_jax.datasets.tokens.writer import TokensWriter
from motif_jax.devices.parallel import DataParallel
from motif_jax.envs.reddit.data import Comment
from motif_jax.envs.reddit.task import FOLDER, RECORDED, Reddit
from motif_jax.language import byte_pairs, folder, making, text_scorer, weights
from motif_jax.language import config as configs
from motif_jax.language.config import ModelConfig
from motif_jax.language.making import Sizes
from motif_jax.language.model import LanguageModel
from motif_jax.language.text import fetch
from motif_jax.language.text_scorer import ScorerNetwork
from motif_jax.language.tokens import FILE, Tokenizer
from motif_jax.support import digests, seeds
from motif_jax.support.checkpoints import Checkpoints
from motif_jax.support.errors import UserError
from motif_jax.support.files import atomic_write_json, read_json, replaced_folder
from motif_jax.support.progress import Progress
from motif_jax.trainers.upvote_task import COLUMN, CommentBatches, UpvoteTask

MODEL, TOKENIZER, TOKENS, TRAIN, HELD_OUT = "model", "tokenizer", "tokens", "train", "held_out"
_ARCHITECTURE = "roberta"
_TOGETHER, _SAVED_EVERY = 256, 64


def task_of(config: ConfigDict) -> Reddit:
    """The comments' task; UserError for a value that does not fit."""
    return Reddit({**config.reddit.to_dict(), "reward": "upvote"})


def settings_of(config: ConfigDict, tokenizer: Tokenizer | None) -> ModelConfig:
    """The network's config: that of the folder it begins as, or of its sizes, with the tokens of its tokenizer (None: yet to be made).

    Raises:
      UserError: no RoBERTa, or sizes that do not fit together.
    """
    network = config.network
    if network.checkpoint:
        settings = configs.read(fetch(network.checkpoint, "network.checkpoint"))
        if settings.architecture != _ARCHITECTURE:
            raise UserError(
                f"config.network.checkpoint={network.checkpoint}: must be a RoBERTa, it is {settings.architecture}"
            )
    else:
        named = byte_pairs.specials(_ARCHITECTURE)
        numbers = dict(zip(named.all, range(len(named.all)), strict=True))
        tokens = {"start": numbers[named.start], "pad": numbers[named.pad], "end": numbers[named.end]}
        sizes = Sizes(network.width, network.layers, network.heads, max_length=network.max_length)
        size = tokenizer.size if tokenizer else config.vocab_size
        settings = making.make(_ARCHITECTURE, sizes, size, tokens, "network")
    if settings.max_length is not None and config.max_len > settings.max_length:
        raise UserError(
            f"config.max_len={config.max_len}: must be at most {settings.max_length}, the positions that the model has"
        )
    return making.with_dropout(settings, config.dropout)


def tokenizer_folder(config: ConfigDict, workdir: Path, comments: list[Comment]) -> Path:
    """The checkpoint's tokenizer, or one learned from the comments at the first start."""
    if config.network.checkpoint:
        return fetch(config.network.checkpoint, "network.checkpoint")
    path = workdir / TOKENIZER
    if not (path / FILE).is_file():
        texts = (comment.text for comment in comments)
        byte_pairs.save(path, byte_pairs.train(texts, _ARCHITECTURE, config.vocab_size), _ARCHITECTURE)
    return path


def made_files(config: ConfigDict) -> tuple[str, ...]:
    """The files of a run folder before training."""
    return (TOKENS, TOKENIZER, *(() if config.reddit.folder else (FOLDER,)))


def build(
    config: ConfigDict, workdir: Path, parallel: DataParallel, stopped: Callable[[], bool]
) -> tuple[UpvoteTask, Path, ModelConfig] | None:
    """The task, the folder of its tokenizer, and the network's config; None where it was asked to stop.

    Raises:
      UserError: files that cannot be read, or do not fit together.
    """
    task = task_of(config)
    comments = Reddit(task.prepare(RECORDED, "recorded", workdir)).comments
    spoken = tokenizer_folder(config, workdir, comments)
    tokenizer = Tokenizer.read(spoken)
    settings = settings_of(config, tokenizer)
    if tokenizer.size > settings.vocab_size:
        raise UserError(f"{spoken}: has {tokenizer.size} tokens, the model {settings.vocab_size}")
    data = _data(config, workdir / TOKENS, comments, tokenizer, digests.of_file(spoken / FILE), stopped)
    if data is None:
        return None
    network = ScorerNetwork(LanguageModel(settings, jnp.dtype(config.dtype)))
    params, heads = jax.device_get(network.init(jax.random.key(seeds.derive(config.seed, "parameters") % 2**32)))  # fmt: skip
    found = {part: each.manifest["content"] for part, each in data.items()} | {"base model": "none"}
    if config.network.checkpoint:
        params, heads = weights.load(spoken, settings), text_scorer.with_pooler(heads, spoken)
        found["base model"] = weights.digest(spoken)
    learned, frozen = {"model": params, "heads": heads}, {}
    if config.freeze:
        learned, frozen = {"heads": heads}, {"model": params}

    def batches(part: str) -> CommentBatches:
        group = config.chunk_steps if part == TRAIN else 1
        return CommentBatches(
            data[part], config.batch_size, settings.pad_id, seeds.derive(config.seed, part), group
        )

    parts = (batches(TRAIN), batches(HELD_OUT))
    return UpvoteTask(config, network, (learned, frozen), parts, parallel, found), spoken, settings


def _data(
    config: ConfigDict,
    target: Path,
    comments: list[Comment],
    tokenizer: Tokenizer,
    vocabulary: str,
    stopped: Callable[[], bool],
) -> dict[str, TokensDataset] | None:
    """Tokens of the comments, those of equal texts on one side; continues where a start before has come to, with the same comments alone."""
    share, seed = config.held_out_share, config.seed
    sides = {TRAIN: [], HELD_OUT: []}  # type: dict[str, list[Comment]]
    for comment in comments:
        drawn = seeds.derive(seed, "held out", comment.text) % 10_000 < share * 10_000
        sides[HELD_OUT if drawn else TRAIN].append(comment)
    for part, found in sides.items():
        if not found:
            raise UserError(
                f"config.held_out_share={share}: leaves none of {len(comments):,} comments {'to learn from' if part == TRAIN else 'to hold out'}"
            )
    content = digests.of_bytes(repr(comments).encode())
    whole = all((target / part / layout.MANIFEST).is_file() for part in sides)
    with Progress(len(comments), "comments", "tokenise") as progress:
        done = 0
        for part, found in sides.items():
            about = {
                "comments": content,
                "part": part,
                "share": share,
                "seed": seed,
                "longest": config.max_len,
                "cutoff": config.cutoff,
            }
            if (target / part / layout.MANIFEST).is_file():
                if whole or TokensDataset(target / part).manifest["source"] == about:
                    done += len(found)
                    continue
                shutil.rmtree(target / part)  # its other part is missing, and would be of other comments
            with ExitStack() as stack:
                columns = {COLUMN: "bool"}
                writer = stack.enter_context(
                    TokensWriter(target / part, tokenizer.size, vocabulary, None, columns, about)
                )
                safe = writer.items
                for number, some in enumerate(_groups(found)):
                    start = number * _TOGETHER
                    rows = text_scorer.encoded(tokenizer, [each.text for each in some], config.max_len)
                    for place, (row, comment) in enumerate(zip(rows, some, strict=True)):
                        if start + place >= safe:
                            writer.add(row, item_columns={COLUMN: comment.score > config.cutoff})
                    done += len(some)
                    progress.update(done)
                    if number % _SAVED_EVERY == _SAVED_EVERY - 1 or stopped():
                        writer.save()
                    if stopped():
                        return None
                writer.commit()
    made = {part: TokensDataset(target / part) for part in sides}
    for dataset in made.values():
        if dataset.manifest["tokenizer"] != vocabulary:
            raise UserError(f"{dataset.folder} was tokenised by another tokenizer: choose another --workdir")
    return made


def _groups(comments: list[Comment]) -> Iterator[list[Comment]]:
    for start in range(0, len(comments), _TOGETHER):
        yield comments[start : start + _TOGETHER]


def export(task: UpvoteTask, spoken: Path, settings: ModelConfig, workdir: Path) -> Path:
    """Writes the scorer of the evaluation that summary.json means, as `text_scorer` reads it; returns its folder."""
    summary = read_json(workdir / "summary.json", "give the command again", keys=("used_evaluation", "used"))
    described = {"evaluation": summary["used_evaluation"], **summary["used"]}
    target = workdir / MODEL
    name, longest = text_scorer.DESCRIPTION, {text_scorer.LONGEST: task.config.max_len}
    # A model from before its longest text was written down stays as it is.
    if (target / name).exists() and {**read_json(target / name, f"remove {target}"), **longest} == {
        **described,
        **longest,
    }:
        return target
    with Checkpoints(workdir / "checkpoints", keep=None, read_only=True) as checkpoints:
        learned = checkpoints.restore(summary["used_evaluation"], {"params": task.learned})["params"]
    parts = jax.device_get({**(task.shared() or {}), **learned})
    with replaced_folder(target) as part:
        write(part, settings, parts["model"], parts["heads"], spoken)
        atomic_write_json(part / name, {**described, **longest})
    return target


def write(target: Path, settings: ModelConfig, params: Any, heads: Any, spoken: Path) -> None:
    """A folder that `text_scorer.TextScorer` opens.

    Args:
      target: the folder.
      settings, params: of the RoBERTa.
      heads: of the scorer.
      spoken: folder of its tokenizer.
    """
    shutil.rmtree(target, ignore_errors=True)
    plain = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), (params, heads))
    folder.write(target, settings, plain[0], text_scorer.heads_of(settings), plain[1], spoken)
