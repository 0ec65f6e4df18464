"""Trains a language model on texts: a fresh one of any architecture or an existing one, whole or by
low-rank additions.

`check` is what is said before any work, `build` makes the model, its data and the task, and
`LanguageTask` is what the offline trainer trains, evaluates and exports.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from motif_jax.core import config as checks
from motif_jax.core import run_folder, seeds
from motif_jax.core.devices.parallel import DataParallel
from motif_jax.core.files import atomic_write_json, replaced_folder
from motif_jax.core.interruption import never
from motif_jax.core.sections import LoraOnBase
from motif_jax.core.training import run_files, trainer
from motif_jax.core.training.gradient_sums import TrainState
from motif_jax.core.training.task import Evaluation, TrainingPosition, key_of
from motif_jax.core.training.trainer import OfflineRun
from motif_jax.lm import (
    byte_pairs,
    finetune_params,
    folder,
    init_model,
    masked_head,
    text_batches,
    text_data,
    weights,
)
from motif_jax.lm import config as configs
from motif_jax.lm.config import ModelConfig
from motif_jax.lm.finetune_params import Adaptation
from motif_jax.lm.init_model import Sizes
from motif_jax.lm.model import LanguageModel, param_shapes
from motif_jax.lm.sums_task import SumsTask, TrainingData
from motif_jax.lm.text import fetch
from motif_jax.lm.text_batches import ItemBatches, TextRows, WindowBatches
from motif_jax.lm.token_data import HELD_OUT, TRAIN
from motif_jax.lm.tokens import Tokenizer
from motif_jax.lm.training_config import FreshModel, LanguageModelConfig
from motif_jax.schema import read_section

# Folders in a run's folder.
MODEL = "model"
TOKENIZER = "tokenizer"
# Value of config.model.attention.
COMPARING = "comparing"
_DESCRIPTION = "training.json"
# Keys that a resumed run may not change.
IDENTITY = (
    "stage",
    "seed",
    "texts",
    "tokens",
    "held_out",
    "model",
    "tokenizer",
    "objective",
    "packing",
    "length",
    "batch_size",
    "accumulate",
    "steps",
    "evaluate_every",
    "evaluation_batches",
    "chunk_steps",
    "optimizer",
    "dropout",
    "lora",
    "dtype",
    "early_stopping",
    "num_devices",
    "sharding",
)


def check(config_tree: ConfigDict, workdir: Path) -> None:
    run_folder.check_identity(workdir, config_tree, IDENTITY)
    config = read_section(LanguageModelConfig, config_tree)
    trainer.check(config, config.steps)
    allowed = "files or folders of texts, with commas between: --config.texts=FILE; or None with --config.tokens=FOLDER"
    checks.require_key(config, "texts", bool(config.texts) != bool(config.tokens), allowed)
    allowed = "None: config.model.folder has a tokenizer"
    both = config.model.folder and config.tokenizer.folder
    checks.require_key(config, "tokenizer.folder", not both, allowed)
    _check_model(config)
    # The tokens are those of a dataset that exists: its texts were checked when it was made.
    if not config.tokens:
        # Not after hours of tokenising.
        text_data.check_first_texts(config)


def _check_model(config: LanguageModelConfig) -> None:
    # None where the run makes a tokenizer.
    tokenizer_folder = Path(config.tokenizer.folder) if config.tokenizer.folder else None
    if config.model.folder:
        tokenizer_folder = fetch(config.model.folder, "model.folder")

    # What follows reads configs, the names and shapes of tensors, and the tokenizer, but no whole
    # model.
    objective = objective_of(config.objective, config.model)
    span_items = objective == "spans" and config.packing == "items"
    allowed = "'windows' for spans; items are learned with config.objective=prefix"
    checks.require_key(config, "packing", not span_items, allowed)
    trains_base = finetune_params.spec_of(config.lora) is None
    allowed = "'float32' without config.lora.patterns: what is learned is not frozen"
    checks.require_key(
        config, "lora.base", config.lora.base == "float32" or not trains_base, allowed
    )

    model = settings_of(config, tokenizer_folder)
    if objective == "spans":
        text_batches.check_spans(config.length, byte_pairs.SENTINELS)
    if tokenizer_folder is not None:
        if config.model.folder:
            weights.check(tokenizer_folder, model)
            if not model.has_decoder:
                masked_head.has_head(tokenizer_folder)
        tokenizer = Tokenizer.read(tokenizer_folder, model.vocab_size)
        special_tokens(model, tokenizer, objective)
    check_shapes(config.lora, config.length, model)


def run(config_tree: ConfigDict, workdir: Path) -> int:
    config = read_section(LanguageModelConfig, config_tree)
    parallel = trainer.devices_of(config)
    build_run = functools.partial(build, config, workdir, parallel)
    return trainer.run(config, config_tree.to_dict(), workdir, IDENTITY, build_run)


def objective_of(objective: str | None, model: FreshModel) -> str:
    """The objective, by default the architecture's first, see `OBJECTIVES`; UserError where it does
    not fit the architecture.
    """
    architecture = model.architecture
    if model.folder:
        architecture = configs.read(fetch(model.folder, "model.folder")).architecture
    allowed = text_batches.OBJECTIVES.get(architecture, ())
    if not objective:
        objective = allowed[0] if allowed else ""
    fits = objective in allowed
    checks.require(fits, "objective", objective, f"one of {', '.join(allowed)} for {architecture}")
    return objective


def settings_of(config: LanguageModelConfig, tokenizer_folder: Path | None) -> ModelConfig:
    """The model's config; a fresh one has the special tokens of its tokenizer, or those that it
    will have (None).
    """
    if config.model.folder:
        settings = weights.read_config(fetch(config.model.folder, "model.folder"))
    else:
        # A fresh model has as many rows as its tokenizer has tokens: `check` guesses them where the
        # run makes the tokenizer.
        settings = _fresh_settings(config, tokenizer_folder)
    return init_model.with_dropout(settings, config.dropout)


def _fresh_settings(config: LanguageModelConfig, tokenizer_folder: Path | None) -> ModelConfig:
    model = config.model
    specials = byte_pairs.specials(model.architecture)
    vocab_size = config.tokenizer.vocab_size
    tokens = specials.numbers
    if tokenizer_folder is not None:
        tokenizer = Tokenizer.read(tokenizer_folder)
        vocab_size = tokenizer.size
        tokens = {
            "start": tokenizer.token(specials.start),
            "pad": tokenizer.token(specials.pad),
            "end": tokenizer.token(specials.end),
        }

    sizes = Sizes(
        model.width,
        model.layers,
        model.heads,
        model.key_value_heads,
        model.feed_forward,
        max_length=model.max_length or config.length,
    )
    settings = init_model.make(model.architecture, sizes, vocab_size, tokens)
    can_compare = settings.architecture == "t5" and settings.heads >= 4
    allowed = "'random' but for a T5 of at least 4 heads"
    checks.require(
        can_compare or model.attention != COMPARING, "model.attention", model.attention, allowed
    )
    return settings


def check_shapes(lora: LoraOnBase, length: int, settings: ModelConfig) -> None:
    """Raises UserError for patterns without a match, a base that cannot be quantised, or rows
    longer than the model's positions.
    """
    finetune_params.check(lora, param_shapes(settings))
    positions = settings.max_length
    fits = positions is None or length <= positions
    checks.require(fits, "length", length, f"at most the {positions} positions of the model")


def special_tokens(
    settings: ModelConfig, tokenizer: Tokenizer, objective: str
) -> text_batches.Tokens:
    """Numbers of the special tokens that an objective needs; UserError if the tokenizer has none
    for masks or spans.
    """
    # -1 is no token, so that an objective without masks never meets it.
    mask = tokenizer.token("<mask>") if objective == "masked" else -1
    sentinels: tuple[int, ...] = ()
    if objective == "spans":
        numbers = range(byte_pairs.SENTINELS)
        sentinels = tuple(tokenizer.token(f"<extra_id_{number}>") for number in numbers)
    return text_batches.Tokens(
        start=settings.start_id,
        end=settings.end_ids[0],
        pad=settings.pad_id,
        mask=mask,
        sentinels=sentinels,
        size=settings.vocab_size,
    )


def longest_item(packing: str, length: int, objective: str) -> int | None:
    """Most tokens of an item, its end included; None where windows run over items."""
    if packing == "windows":
        return None
    # The masked objective adds a start token.
    return length - 1 if objective == "masked" else length


def build(
    config: LanguageModelConfig,
    workdir: Path,
    parallel: DataParallel,
    stopped: Callable[[], bool] = never,
) -> OfflineRun | None:
    """Makes missing tokenizer and tokens in `workdir`, and the run; None after a request to
    stop.
    """
    objective = objective_of(config.objective, config.model)
    source = fetch(config.model.folder, "model.folder") if config.model.folder else None
    # The tokenizer comes first: a fresh model's vocabulary is that of its tokens.
    tokenizer_folder = Path(source or config.tokenizer.folder or workdir / TOKENIZER)
    if not source and not config.tokenizer.folder:
        text_data.make_tokenizer(config, config.model.architecture, tokenizer_folder)
    settings = settings_of(config, tokenizer_folder)
    tokenizer = Tokenizer.read(tokenizer_folder, settings.vocab_size)
    longest = longest_item(config.packing, config.length, objective)
    data = text_data.prepare(
        config,
        workdir,
        tokenizer_folder,
        settings.end_ids[0],
        longest,
        stopped,
        # Such a model always reads prompts with special tokens: T5's end with its end token.
        whole_prompts=objective == "prefix",
        begins=objective == "causal",
    )
    # Stopped while texts were tokenised: what is written stays, and the next start goes on.
    if data is None:
        return None

    tokens = special_tokens(settings, tokenizer, objective)
    rows = TextRows(objective, config.packing, config.length, tokens)

    def batches(part: str) -> WindowBatches | ItemBatches:
        dataset = data[part]
        seed = seeds.derive(config.seed, part)
        if config.packing == "windows":
            return WindowBatches(dataset, rows, config.batch_size, seed)
        # Held-out batches are taken one by one.
        group = config.chunk_steps if part == TRAIN else 1
        return ItemBatches(dataset, rows, config.batch_size, seed, group)

    model = LanguageModel(settings, jnp.dtype(config.dtype), config.remat)
    adaptation = Adaptation(
        model,
        finetune_params.spec_of(config.lora),
        config.lora.base,
        chunk=config.logits_chunk,
        dropout=config.dropout > 0,
    )
    params, head = _initial_parameters(config, model, source)
    # Each kind of draw has a key of its own: additions do not change a fresh model's parameters.
    learned, frozen = adaptation.arrange(params, head, key_of(config.seed, "additions"))
    # Names as the error of a run on other data shows them.
    data_digests = {part: dataset.manifest["content"] for part, dataset in data.items()}
    data_digests["tokenizer"] = data[TRAIN].manifest["tokenizer"]
    # A resumed run must have the same base, of which its checkpoints hold nothing where it is
    # frozen.
    data_digests["base model"] = weights.digest(source) if source else "none"
    training_data = TrainingData(
        batches(TRAIN), batches(HELD_OUT), data_digests, str(config.tokens or config.texts)
    )
    task = LanguageTask(
        config, adaptation.sums, (learned, frozen), training_data, parallel, config.steps
    )
    description = (
        f"{settings.architecture} with {trainer.numbers_in(task.learned):,} numbers to learn, {settings.vocab_size:,} tokens in its "
        f"vocabulary; {data[TRAIN].num_tokens:,} tokens of {data[TRAIN].num_items:,} texts to learn from, {data[HELD_OUT].num_tokens:,} held out"
    )
    exported = settings
    if source:
        # The training's rates of dropout are no property of the model.
        exported = dataclasses.replace(settings, dropout=weights.read_config(source).dropout)
    return OfflineRun(
        task, description, lambda: _export(task, adaptation, exported, tokenizer_folder, workdir)
    )


def _initial_parameters(
    config: LanguageModelConfig, model: LanguageModel, source: Path | None
) -> tuple[Any, Any]:
    """The model's parameters and its head for masked tokens or None, numpy arrays, from folder
    `source` or fresh.
    """
    head = None
    if source:
        params = weights.load(source, model.config)
        head = masked_head.load(source) if not model.config.has_decoder else None
        if not model.config.has_decoder and head is None:
            print(
                f"note: {source} has no head for masked tokens, a fresh one is learned",
                file=sys.stderr,
                flush=True,
            )
    else:
        params = jax.device_get(model.init(key_of(config.seed, "parameters")))
        # On the host, after the draws: all other parameters are those of attention that begins at
        # random.
        if config.model.attention == COMPARING:
            params = init_model.with_comparing_heads(params, model.config)
    if not model.config.has_decoder and head is None:
        head = jax.device_get(masked_head.init(key_of(config.seed, "masked head"), model.config))
    return params, head


def _export(
    task: LanguageTask,
    adaptation: Adaptation,
    settings: ModelConfig,
    tokenizer_folder: Path,
    workdir: Path,
) -> Path:
    """Writes the model of the evaluation chosen in summary.json, with the config `settings`, as
    transformers opens it; returns its folder.
    """
    target = workdir / MODEL

    def write(items: dict[str, Any], trained: dict[str, Any]) -> None:
        params, head = adaptation.merged_params(items["params"], task.shared() or {})
        # The folder appears whole: a kill leaves the previous one, or none.
        with replaced_folder(target) as staging:
            folder.write(staging, settings, params, tokenizer=tokenizer_folder)
            if head is not None:
                # After the weights, to whose file it adds its tensors.
                masked_head.add(staging, head)
            atomic_write_json(staging / _DESCRIPTION, trained)

    return run_files.export(workdir, target / _DESCRIPTION, {"params": task.learned}, write)


class LanguageTask(SumsTask):
    """A training of a language model."""

    config: LanguageModelConfig
    title = "train language model"
    unit = "tokens"
    _train: WindowBatches | ItemBatches

    def units(self, step: int) -> int:
        # Places for tokens, padding included; the tokens that were learned are in `tally`.
        return step * self.config.batch_size * self.config.length

    def tally(self, metrics: Mapping[str, np.ndarray]) -> dict[str, Any]:
        tokens = metrics["tokens"].astype(np.float64)
        # A step's loss and accuracy are means over its tokens: weighted by them, sums of steps give
        # means over all tokens.
        return {
            "steps": tokens.size,
            "tokens": tokens.sum(),
            "loss": (metrics["loss"] * tokens).sum(),
            "accuracy": (metrics["accuracy"] * tokens).sum(),
            "gradient_norm": metrics["gradient_norm"].sum(dtype=np.float64),
        }

    def shown(self, sums: Mapping[str, float]) -> dict[str, float]:
        if not sums.get("tokens"):
            return {}
        loss = sums["loss"] / sums["tokens"]
        return {"loss": loss, "perplexity": perplexity(loss)}

    def evaluate(self, state: TrainState, shared: Any, position: TrainingPosition) -> Evaluation:
        held_out = self.held_out(state, shared, position)
        train_loss = position.mean("loss", "tokens")
        row = {
            "validation/loss": held_out.loss,
            "validation/perplexity": perplexity(held_out.loss),
            "validation/accuracy": held_out.accuracy,
            "validation/tokens": round(held_out.counted),
            "train/loss": train_loss,
            "train/perplexity": perplexity(train_loss),
            "train/accuracy": position.mean("accuracy", "tokens"),
            "train/tokens": self.units(position.step),
            "train/passes": position.step / self._train.steps_per_pass,
        }
        text = f"perplexity {perplexity(held_out.loss):.2f} on {round(held_out.counted):,} held-out tokens"
        return self.evaluation(row, text, position)


def perplexity(loss: float) -> float:
    """exp of the loss (nats a token); infinity on overflow."""
    return math.inf if loss > 700 else math.exp(loss)
