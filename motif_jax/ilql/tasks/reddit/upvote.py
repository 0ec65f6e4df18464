"""A training of an upvote model: its comments, tokenizer, network and exported folder, and the task
of the offline trainer.
"""

from __future__ import annotations

import dataclasses
import functools
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from motif_jax.core import digests, seeds
from motif_jax.core.devices.parallel import DataParallel
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_json, replaced_folder
from motif_jax.core.training import run_files
from motif_jax.core.training.gradient_sums import Sums, TrainState
from motif_jax.core.training.task import Evaluation, TrainingPosition, key_of
from motif_jax.core.training.trainer import OfflineRun, numbers_in
from motif_jax.ilql.config import CommentFiles, UpvoteConfig
from motif_jax.ilql.tasks.reddit import text_scorer
from motif_jax.ilql.tasks.reddit.data import Comment
from motif_jax.ilql.tasks.reddit.task import RECORDED, Reddit
from motif_jax.ilql.tasks.reddit.text_scorer import ScorerNetwork
from motif_jax.lm import byte_pairs, folder, init_model, weights
from motif_jax.lm import config as configs
from motif_jax.lm.config import ModelConfig
from motif_jax.lm.init_model import Sizes
from motif_jax.lm.model import LanguageModel
from motif_jax.lm.sums_task import SumsTask, TrainingData
from motif_jax.lm.text import fetch
from motif_jax.lm.token_batches import BucketBatches, gather
from motif_jax.lm.token_data import (
    HELD_OUT,
    TOKENS,
    TRAIN,
    Tokenisation,
    TokensDataset,
    TokensWriter,
)
from motif_jax.lm.tokens import FILE, Tokenizer

MODEL, TOKENIZER = "model", "tokenizer"
_ARCHITECTURE = "roberta"
# Of the distinct texts. A share of them is drawn, not a number, so that a text is in the same part
# of a larger file.
HELD_OUT_SHARE = 0.1
COLUMN = "liked"


def task_of(comments: CommentFiles) -> Reddit:
    """The task with the comments; UserError for an invalid value."""
    return Reddit({**dataclasses.asdict(comments), "reward": "upvote"})


def settings_of(config: UpvoteConfig, tokenizer: Tokenizer | None) -> ModelConfig:
    """The network's config, from the initial folder, which must hold a RoBERTa, or from its sizes
    and tokenizer (None: not made yet).
    """
    network = config.network
    if network.checkpoint:
        settings = configs.read(fetch(network.checkpoint, "network.checkpoint"))
        if settings.architecture != _ARCHITECTURE:
            raise UserError(
                f"config.network.checkpoint={network.checkpoint}: must be a RoBERTa, it is {settings.architecture}"
            )
    else:
        tokens = byte_pairs.specials(_ARCHITECTURE).numbers
        sizes = Sizes(network.width, network.layers, network.heads, max_length=network.max_length)
        size = tokenizer.size if tokenizer else config.vocab_size
        settings = init_model.make(_ARCHITECTURE, sizes, size, tokens, "network")
    if settings.max_length is not None and config.max_len > settings.max_length:
        raise UserError(
            f"config.max_len={config.max_len}: must be at most {settings.max_length}, the positions that the model has"
        )
    return init_model.with_dropout(settings, config.dropout)


def check_checkpoint(config: UpvoteConfig, tokenizer: Tokenizer, settings: ModelConfig) -> None:
    """Raises UserError where the checkpoint's weights or tokens do not fit its config; reads no
    tensor.
    """
    checkpoint = config.network.checkpoint
    if tokenizer.size > settings.vocab_size:
        raise UserError(
            f"config.network.checkpoint={checkpoint}: has {tokenizer.size:,} tokens, and rows for {settings.vocab_size:,}"
        )
    weights.check(fetch(checkpoint or "", "network.checkpoint"), settings)


def tokenizer_folder(
    checkpoint: str | None, vocab_size: int, workdir: Path, comments: list[Comment]
) -> Path:
    """The checkpoint's tokenizer, or one trained on the comments at the first start."""
    if checkpoint:
        return fetch(checkpoint, "network.checkpoint")
    path = workdir / TOKENIZER
    if not (path / FILE).is_file():
        texts = (comment.text for comment in comments)
        byte_pairs.save(path, byte_pairs.train(texts, _ARCHITECTURE, vocab_size), _ARCHITECTURE)
    return path


def build(
    config: UpvoteConfig, workdir: Path, parallel: DataParallel, stopped: Callable[[], bool]
) -> OfflineRun | None:
    """Makes missing tokenizer and tokens in `workdir`, and the run; None after a request to
    stop.
    """
    comments = Reddit(task_of(config.reddit).prepare(RECORDED, "recorded", workdir)).comments
    base = tokenizer_folder(config.network.checkpoint, config.vocab_size, workdir, comments)
    tokenizer = Tokenizer.read(base)
    settings = settings_of(config, tokenizer)
    datasets = _tokenise(
        config, workdir / TOKENS, comments, tokenizer, digests.of_file(base / FILE), stopped
    )
    if datasets is None:
        return None

    network = ScorerNetwork(LanguageModel(settings, jnp.dtype(config.dtype)))
    params, heads = jax.device_get(network.init(key_of(config.seed, "parameters")))
    inputs = {part: dataset.manifest["content"] for part, dataset in datasets.items()}
    inputs["base model"] = "none"
    exported = settings
    if config.network.checkpoint:
        # The training's rates of dropout are no property of the model.
        exported = dataclasses.replace(settings, dropout=configs.read(base).dropout)
        # The head stays fresh, but for the checkpoint's pooler.
        params = weights.load(base, settings)
        heads = text_scorer.with_pooler(heads, base)
        inputs["base model"] = weights.digest(base)
    learned = {"heads": heads}
    frozen = {}
    if config.freeze:
        frozen["model"] = params
    else:
        learned["model"] = params

    def batches(part: str) -> CommentBatches:
        group = config.chunk_steps if part == TRAIN else 1
        return CommentBatches(
            datasets[part],
            config.batch_size,
            settings.pad_id,
            seeds.derive(config.seed, part),
            group,
        )

    source = config.reddit.folder or "made-up comments"
    data = TrainingData(batches(TRAIN), batches(HELD_OUT), inputs, source)
    loss = functools.partial(sums, network)
    task = UpvoteTask(config, loss, (learned, frozen), data, parallel, config.max_steps)
    about = f"{numbers_in(task.learned):,} numbers to learn"
    return OfflineRun(task, about, lambda: _export(task, base, exported, workdir))


def _tokenise(
    config: UpvoteConfig,
    target: Path,
    comments: list[Comment],
    tokenizer: Tokenizer,
    vocabulary: str,
    stopped: Callable[[], bool],
) -> dict[str, TokensDataset] | None:
    """The comments as tokens below `target`, by part; None after a request to stop. Equal texts are
    in one part.
    """

    def is_held_out(comment: Comment) -> bool:
        # By the text, so that a held-out one is not among those that are learned.
        return (
            seeds.derive(config.seed, "held out", comment.text) % 10_000 < HELD_OUT_SHARE * 10_000
        )

    def add(writer: TokensWriter, items: Sequence[Comment]) -> None:
        rows = text_scorer.encoded(tokenizer, [comment.text for comment in items], config.max_len)
        for row, comment in zip(rows, items, strict=True):
            writer.add(row, item_columns={COLUMN: comment.score > config.cutoff})

    tokenisation = Tokenisation(
        vocab_size=tokenizer.size,
        tokenizer=vocabulary,
        source={
            "share": HELD_OUT_SHARE,
            "seed": config.seed,
            "longest": config.max_len,
            "cutoff": config.cutoff,
            "comments": digests.of_bytes(repr(comments).encode()),
        },
        add=add,
        token_columns={},
        item_columns={COLUMN: "bool"},
        too_few=f"config.reddit: too few comments, {len(comments):,}: there is none {{}}",
        unit="comments",
    )
    # The training part first, so that no batch of items has both parts.
    parts = ((HELD_OUT if is_held_out(comment) else TRAIN, comment) for comment in comments)
    items = sorted(parts, key=lambda item: item[0] == HELD_OUT)
    return tokenisation.split(target, items, len(items), stopped)


def _export(task: UpvoteTask, base: Path, settings: ModelConfig, workdir: Path) -> Path:
    """Writes the scorer of the evaluation chosen in summary.json, as `text_scorer` reads it;
    returns its folder.
    """
    target = workdir / MODEL

    def save(items: dict[str, Any], trained: dict[str, Any]) -> None:
        parts = jax.device_get({**(task.shared() or {}), **items["params"]})
        with replaced_folder(target) as part:
            write(part, settings, parts["model"], parts["heads"], base)
            longest = {text_scorer.LONGEST: task.config.max_len}
            atomic_write_json(part / text_scorer.DESCRIPTION, {**trained, **longest})

    return run_files.export(
        workdir, target / text_scorer.DESCRIPTION, {"params": task.learned}, save
    )


def write(target: Path, settings: ModelConfig, params: Any, heads: Any, tokenizer: Path) -> None:
    """Writes a folder that `text_scorer.TextScorer` opens; `tokenizer` is the folder of the
    tokenizer's file.
    """
    # Files of other names that are there would stay.
    shutil.rmtree(target, ignore_errors=True)
    params, heads = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), (params, heads))
    folder.write(target, settings, params, text_scorer.heads_of(settings), heads, tokenizer)


class Comments(NamedTuple):
    """A batch of comments: `tokens` int32 and `valid` bool [..., B, T], `liked` bool [..., B],
    `exists` bool [..., B], False in empty rows.
    """

    tokens: Any
    valid: Any
    liked: Any
    exists: Any


class CommentBatches(BucketBatches):
    """Batches of `Comments`, of a dataset of tokens with the column `liked`; `pad` is the token of
    the padding.
    """

    def __init__(
        self, dataset: TokensDataset, batch_size: int, pad: int, seed: int, group: int
    ) -> None:
        super().__init__(
            dataset, dataset.lengths, int(dataset.lengths.max()), batch_size, seed, group
        )
        self._pad = pad
        self._liked = np.asarray(dataset.item_columns[COLUMN])

    def batch(self, items: np.ndarray, width: int) -> Comments:
        exists = items >= 0
        tokens, valid = gather(self.dataset, items, width, self._pad)
        # An empty row has the index -1, which reads the last comment.
        return Comments(tokens, valid, self._liked[items] & exists, exists)


def sums(network: ScorerNetwork, learned: Any, frozen: Any, batch: Any, key: Any) -> Sums:
    """Binary cross-entropy in nats of `Comments`, their number, and the number classified
    correctly; a `gradient_sums.SumsOf`.
    """
    parts = {**(frozen or {}), **learned}
    logits = network.logits(parts["model"], parts["heads"], batch.tokens, batch.valid, key)
    losses = optax.sigmoid_binary_cross_entropy(logits, batch.liked.astype(jnp.float32))
    weights = batch.exists.astype(jnp.float32)
    # A logit of 0 is a probability of one half.
    is_right = ((logits >= 0) == batch.liked).astype(jnp.float32)
    return Sums(
        jnp.sum(jnp.where(batch.exists, losses, 0.0)), weights.sum(), (is_right * weights).sum()
    )


class UpvoteTask(SumsTask):
    """A training whose loss is `sums`."""

    config: UpvoteConfig
    title, unit = "train upvote model", "comments"

    def evaluate(self, state: TrainState, shared: Any, position: TrainingPosition) -> Evaluation:
        means = self.held_out(state, shared, position)
        row = {
            "validation/loss": means.loss,
            "validation/accuracy": means.accuracy,
            "train/loss": position.mean("loss"),
            "train/accuracy": position.mean("accuracy"),
        }
        text = f"loss {means.loss:.4f}, {means.accuracy:.1%} right (held-out comments)"
        return self.evaluation(row, text, position)
