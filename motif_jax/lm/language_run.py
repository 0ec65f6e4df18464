"""Builds a training of a language model: the model, its texts, the task, and the exported
folder.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from motif_jax.core import config as checks
from motif_jax.core import seeds
from motif_jax.core.devices.parallel import DataParallel
from motif_jax.core.files import atomic_write_json, replaced_folder
from motif_jax.core.interruption import never
from motif_jax.core.sections import LoraOnBase
from motif_jax.core.training import run_files, trainer
from motif_jax.core.training.task import key_of
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
from motif_jax.lm.language_task import LanguageTask
from motif_jax.lm.model import LanguageModel, param_shapes
from motif_jax.lm.sums_task import TrainingData
from motif_jax.lm.text import fetch
from motif_jax.lm.text_batches import ItemBatches, TextRows, WindowBatches
from motif_jax.lm.token_data import HELD_OUT, TRAIN
from motif_jax.lm.tokens import Tokenizer
from motif_jax.lm.training_config import FreshModel, LanguageModelConfig

# Folders in a run's folder.
MODEL = "model"
TOKENIZER = "tokenizer"
# Value of config.model.attention.
COMPARING = "comparing"
_DESCRIPTION = "training.json"


def architecture_of(model: FreshModel) -> str:
    """The architecture of the fine-tuned folder, or of the config."""
    if model.folder:
        return configs.read(fetch(model.folder, "model.folder")).architecture
    return model.architecture


def objective_of(objective: str | None, model: FreshModel) -> str:
    """The objective, by default the architecture's first, see `OBJECTIVES`; UserError where it does
    not fit the architecture.
    """
    architecture = architecture_of(model)
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


def check_weights(source: Path, settings: ModelConfig) -> None:
    """Raises UserError where the weights in a folder do not fit its model; reads the
    embedding alone, and that where a head for masked tokens has a copy of it.
    """
    weights.check(source, settings)
    if not settings.has_decoder:
        masked_head.has_head(source)


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
