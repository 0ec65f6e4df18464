"""Trains a language model on texts: a fresh one of any architecture or an existing one, whole or by
low-rank additions.
"""

from __future__ import annotations

import functools
from pathlib import Path

from ml_collections import ConfigDict

from motif_jax.core import config as checks
from motif_jax.core import run_folder
from motif_jax.core.training import trainer
from motif_jax.lm import byte_pairs, finetune_params, language_run, text_batches, text_data
from motif_jax.lm.text import fetch
from motif_jax.lm.tokens import Tokenizer
from motif_jax.lm.training_config import LanguageModelConfig
from motif_jax.schema import read_section

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
    _check_model(config)
    _check_texts(config)


def _check_model(config: LanguageModelConfig) -> None:
    tokenizer_folder = _check_tokenizer(config)

    # What follows reads configs, the names and shapes of tensors, and the tokenizer, but no whole
    # model.
    objective = language_run.objective_of(config.objective, config.model)
    span_items = objective == "spans" and config.packing == "items"
    allowed = "'windows' for spans; items are learned with config.objective=prefix"
    checks.require_key(config, "packing", not span_items, allowed)
    trains_base = finetune_params.spec_of(config.lora) is None
    allowed = "'float32' without config.lora.patterns: what is learned is not frozen"
    checks.require_key(
        config, "lora.base", config.lora.base == "float32" or not trains_base, allowed
    )

    model = language_run.settings_of(config, tokenizer_folder)
    if objective == "spans":
        text_batches.check_spans(config.length, byte_pairs.SENTINELS)
    if tokenizer_folder is not None:
        if config.model.folder:
            language_run.check_weights(tokenizer_folder, model)
        tokenizer = Tokenizer.read(tokenizer_folder, model.vocab_size)
        if config.tokens:
            _check_tokens(config, tokenizer_folder, objective)
        language_run.special_tokens(model, tokenizer, objective)
    language_run.check_shapes(config.lora, config.length, model)


def _check_tokenizer(config: LanguageModelConfig) -> Path | None:
    """The folder of the tokenizer; None where the run makes one."""
    settings = config.tokenizer
    if config.model.folder:
        allowed = "None: config.model.folder has a tokenizer"
        checks.require_key(config, "tokenizer.folder", not settings.folder, allowed)
        return fetch(config.model.folder, "model.folder")
    if settings.folder:
        return checks.existing_folder(config, "tokenizer.folder")

    allowed = "None where no tokenizer is given: tokens are those of a tokenizer, name it with --config.tokenizer.folder=FOLDER"
    checks.require_key(config, "tokens", not config.tokens, allowed)
    byte_pairs.check_phrase(settings.phrase)
    smallest = byte_pairs.smallest(config.model.architecture)
    allowed = f"at least {smallest}: all bytes and special tokens"
    checks.require_key(config, "tokenizer.vocab_size", settings.vocab_size >= smallest, allowed)
    return None


def _check_tokens(config: LanguageModelConfig, tokenizer_folder: Path, objective: str) -> None:
    """Checks the datasets of config.tokens."""
    datasets = text_data.open_tokens(str(config.tokens), tokenizer_folder, "tokens")
    for dataset in datasets:
        text_batches.check_prompts(config.packing, dataset)
    limit = language_run.longest_item(config.packing, config.length, objective)
    longest = max(int(dataset.lengths.max(initial=0)) for dataset in datasets)
    if limit is not None and longest > limit:
        needed = config.length + longest - limit
        allowed = (
            f"at least {needed}: items of config.tokens={config.tokens} have up to {longest} tokens"
        )
        checks.require_key(config, "length", False, allowed)


def _check_texts(config: LanguageModelConfig) -> None:
    allowed = "files or folders of texts, with commas between: --config.texts=FILE; or None with --config.tokens=FOLDER"
    checks.require_key(config, "texts", bool(config.texts) != bool(config.tokens), allowed)
    # The tokens are those of a dataset that exists: its texts were checked when it was made.
    if config.tokens:
        return
    paths = text_data.find_files(config.texts or "")
    size = sum(path.stat().st_size for path in paths)
    # No token has less than a byte, but for those of a table, whose bytes are compressed.
    compressed = any(path.suffix == ".parquet" for path in paths)
    enough = config.packing == "items" or compressed or size > config.length
    allowed = f"longer: {size} bytes are fewer than the {config.length} tokens of a window"
    checks.require_key(config, "texts", enough, allowed)
    if config.held_out.texts:
        text_data.find_files(config.held_out.texts, "held_out.texts")
    # Last, since it reads: an invalid line is named here, and not after hours of tokenising.
    text_data.check_first_texts(config)


def run(config_tree: ConfigDict, workdir: Path) -> int:
    config = read_section(LanguageModelConfig, config_tree)
    parallel = trainer.devices_of(config)
    build = functools.partial(language_run.build, config, workdir, parallel)
    return trainer.run(config, config_tree.to_dict(), workdir, IDENTITY, build)
