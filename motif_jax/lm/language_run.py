"""Builds a training of a language model: the model, its texts, the task, and the exported folder."""

from __future__ import annotations

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
from motif_jax.core.training import offline_run, records
from motif_jax.core.training.offline_run import OfflineRun
from motif_jax.core.training.task import key_of
from motif_jax.lm import (
    byte_pairs,
    finetune_params,
    folder,
    footprint,
    init_model,
    lora,
    masked_head,
    objectives,
    quantised,
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
from motif_jax.lm.tokenised import HELD_OUT, TOKENS, TRAIN
from motif_jax.lm.tokens import Tokenizer
from motif_jax.lm.training_config import FreshModel, LanguageModelConfig

MODEL, TOKENIZER = "model", "tokenizer"
COMPARING = "comparing"
# Files of a run folder before the first step.
MADE = (TOKENS, TOKENIZER)
_DESCRIPTION = "training.json"


def architecture_of(given: FreshModel) -> str:
    """The architecture of the fine-tuned folder, or of the config."""
    return (
        configs.read(fetch(given.folder, "model.folder")).architecture if given.folder else given.architecture
    )


def objective_of(wanted: str | None, model: FreshModel) -> str:
    """The objective, see `objectives`; UserError where it does not fit the architecture."""
    architecture = architecture_of(model)
    allowed = objectives.OF.get(architecture, ())
    found = wanted or (allowed[0] if allowed else "")
    checks.require(found in allowed, "objective", found, f"one of {', '.join(allowed)} for {architecture}")
    return found


def settings_of(config: LanguageModelConfig, tokenizer_folder: Path | None) -> ModelConfig:
    """The model's config; a fresh one has the special tokens of its tokenizer, or those that it will have (None)."""
    if config.model.folder:
        settings = weights.read_config(fetch(config.model.folder, "model.folder"))
    else:
        named = byte_pairs.specials(config.model.architecture)
        size, tokens = config.tokenizer.vocab_size, named.numbers
        if tokenizer_folder is not None:
            tokenizer = Tokenizer.read(tokenizer_folder)
            size = tokenizer.size
            tokens = {name: tokenizer.token(getattr(named, name)) for name in ("start", "pad", "end")}
        model, most = config.model, config.model.max_length or config.length
        sizes = Sizes(model.width, model.layers, model.heads, model.key_value_heads, model.feed_forward, most)
        settings = init_model.make(model.architecture, sizes, size, tokens)
        comparing = model.attention == COMPARING
        fits = settings.architecture == "t5" and settings.heads >= 4
        allowed = "'random' but for a T5 of at least 4 heads"
        checks.require(fits or not comparing, "model.attention", model.attention, allowed)
    return init_model.with_dropout(settings, config.dropout)


def check_shapes(lora: LoraOnBase, length: int, settings: ModelConfig) -> None:
    """Raises UserError for patterns without a match, a base that cannot be quantised, or rows longer than the model's positions."""
    finetune_params.check(lora, param_shapes(settings))
    most = settings.max_length
    fits = most is None or length <= most
    checks.require(fits, "length", length, f"at most the {most} positions of the model")


def special_tokens(settings: ModelConfig, tokenizer: Tokenizer, objective: str) -> objectives.Tokens:
    """Numbers of the special tokens that an objective needs; UserError if the tokenizer has none for masks or spans."""
    mask = tokenizer.token("<mask>") if objective == "masked" else -1
    numbers = range(byte_pairs.SENTINELS if objective == "spans" else 0)
    sentinels = tuple(tokenizer.token(f"<extra_id_{number}>") for number in numbers)
    return objectives.Tokens(
        settings.start_id, settings.end_ids[0], settings.pad_id, mask, sentinels, settings.vocab_size
    )


def longest_item(packing: str, length: int, objective: str) -> int | None:
    """Most tokens of an item, its end included; None where windows run over items."""
    # The masked objective adds a start token.
    return None if packing == "windows" else length - (objective == "masked")


def check_memory(config: LanguageModelConfig, settings: ModelConfig) -> None:
    """Raises UserError where a step needs more memory than a device reports; quantised bases are not counted."""
    available, spec = footprint.device_memory(), finetune_params.spec_of(config.lora)
    if available is None or config.lora.base in quantised.KINDS:
        return
    model = LanguageModel(settings, jnp.dtype(config.dtype), config.remat)
    dtype, trained = jnp.dtype(jnp.float32), None
    if spec is not None:
        dtype, shapes = jnp.dtype(config.lora.base), param_shapes(model.config)
        trained = jax.eval_shape(lambda: lora.init(jax.random.key(0), shapes, spec))
    rows, length = config.batch_size // config.accumulate, config.length
    how = {"chunk": config.logits_chunk, "sizes": offline_run.mesh_sizes(config), "params_dtype": dtype}
    need = footprint.of_training(model, rows, length, written=length, trained=trained, **how)
    remedy = "raise config.accumulate or config.sharding.fsdp, set config.remat=True, config.logits_chunk, or a smaller config.model"
    need.require(available, remedy)


def build(
    config: LanguageModelConfig, workdir: Path, parallel: DataParallel, stopped: Callable[[], bool] = never
) -> OfflineRun | None:
    """Makes missing tokenizer and tokens in `workdir`, and the run; None after a request to stop."""
    objective = objective_of(config.objective, config.model)
    source = fetch(config.model.folder, "model.folder") if config.model.folder else None
    tokenizer_folder = Path(source or config.tokenizer.folder or workdir / TOKENIZER)
    if not source and not config.tokenizer.folder:
        text_data.make_tokenizer(config, config.model.architecture, tokenizer_folder)
    settings = settings_of(config, tokenizer_folder)
    tokenizer = Tokenizer.read(tokenizer_folder, settings.vocab_size)
    longest = longest_item(config.packing, config.length, objective)
    # Such a model always reads prompts with special tokens: T5's end with its end token.
    whole = objective == "prefix"
    data = text_data.prepare(config, workdir, tokenizer_folder, settings.end_ids[0], longest, stopped, whole)
    if data is None:
        return None
    tokens = special_tokens(settings, tokenizer, objective)
    rows = TextRows(objective, config.packing, config.length, tokens)

    def batches(part: str) -> WindowBatches | ItemBatches:
        dataset, seed = data[part], seeds.derive(config.seed, part)
        if config.packing == "windows":
            return WindowBatches(dataset, rows, config.batch_size, seed)
        return ItemBatches(dataset, rows, config.batch_size, seed, config.chunk_steps if part == TRAIN else 1)

    model = LanguageModel(settings, jnp.dtype(config.dtype), config.remat)
    adaptation = Adaptation(
        model, finetune_params.spec_of(config.lora), config.lora.base, config.logits_chunk, config.dropout > 0
    )
    learned, frozen = adaptation.arrange(
        *_parameters(config, model, source), key_of(config.seed, "additions")
    )
    found = {part: dataset.manifest["content"] for part, dataset in data.items()}
    found["tokenizer"] = data[TRAIN].manifest["tokenizer"]
    found["base model"] = weights.digest(source) if source else "none"
    read = TrainingData(batches(TRAIN), batches(HELD_OUT), found, str(config.tokens or config.texts))
    task = LanguageTask(config, adaptation.sums, (learned, frozen), read, parallel, config.steps)
    about = (
        f"{settings.architecture} with {offline_run.numbers_in(task.learned):,} numbers to learn, {settings.vocab_size:,} tokens in its "
        f"vocabulary; {data[TRAIN].num_tokens:,} tokens of {data[TRAIN].num_items:,} texts to learn from, {data[HELD_OUT].num_tokens:,} held out"
    )
    return OfflineRun(task, about, lambda: _export(task, adaptation, tokenizer_folder, workdir))


def _parameters(config: LanguageModelConfig, model: LanguageModel, source: Path | None) -> tuple[Any, Any]:
    head = None
    if source:
        params = weights.load(source, model.config)
        head = masked_head.load(source) if not model.config.has_decoder else None
    else:
        params = jax.device_get(model.init(key_of(config.seed, "parameters")))
        if config.model.attention == COMPARING:
            params = init_model.with_comparing_heads(params, model.config)
    if not model.config.has_decoder and head is None:
        head = jax.device_get(masked_head.init(key_of(config.seed, "masked head"), model.config))
    return params, head


def _export(task: LanguageTask, adaptation: Adaptation, tokenizer: Path, workdir: Path) -> Path:
    """Writes the model of the evaluation chosen in summary.json, as transformers opens it; returns its folder."""
    target = workdir / MODEL

    def write(items: dict[str, Any], trained: dict[str, Any]) -> None:
        params, head = adaptation.whole(items["params"], task.shared() or {})
        with replaced_folder(target) as part:
            folder.write(part, adaptation.model.config, params, tokenizer=tokenizer)
            if head is not None:
                masked_head.add(part, head)
            atomic_write_json(part / _DESCRIPTION, trained)

    return records.export(workdir, target / _DESCRIPTION, {"params": task.learned}, write)
