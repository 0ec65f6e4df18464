"""Trains a language model on texts: a fresh one of any architecture or an existing one, whole or by low-rank additions."""

from __future__ import annotations

import functools
from pathlib import Path

from ml_collections import ConfigDict

from motif_jax.core import config as checks
from motif_jax.core import run_folder
from motif_jax.core.training import offline_run
from motif_jax.lm import byte_pairs, corpus, finetune_params, language_run, text_batches, text_data
from motif_jax.lm.text import fetch
from motif_jax.lm.tokens import Tokenizer
from motif_jax.lm.training_config import LanguageModelConfig
from motif_jax.schema import read_section

IDENTITY = (
    "stage seed texts text_item tokens held_out model tokenizer objective packing length batch_size accumulate steps "
    "evaluate_every evaluation_batches chunk_steps optimizer dropout lora dtype early_stopping num_devices sharding"
).split()


def check(given: ConfigDict, workdir: Path) -> None:
    run_folder.check_identity(workdir, given, IDENTITY)
    config = read_section(LanguageModelConfig, given)
    offline_run.check(config, config.steps)
    _check_model(config)
    _check_texts(config)


def _check_model(config: LanguageModelConfig) -> None:
    folder, settings = None, config.tokenizer
    if config.model.folder:
        allowed = "None: config.model.folder has a tokenizer"
        checks.require_key(config, "tokenizer.folder", not settings.folder, allowed)
        folder = fetch(config.model.folder, "model.folder")
    elif settings.folder:
        folder = checks.existing_folder(config, "tokenizer.folder")
    else:
        allowed = f"None where no tokenizer is given: tokens are those of a tokenizer, name it with config.tokenizer.folder={settings.folder}"
        checks.require_key(config, "tokens", not config.tokens, allowed)
        byte_pairs.check_phrase(settings.phrase)
        least = byte_pairs.smallest(config.model.architecture)
        allowed = f"at least {least}: all bytes and special tokens"
        checks.require_key(config, "tokenizer.vocab_size", settings.vocab_size >= least, allowed)
    objective = language_run.objective_of(config.objective, config.model)
    spans = objective == "spans" and config.packing == "items"
    allowed = "'windows' for spans; items are learned with config.objective=prefix"
    checks.require_key(config, "packing", not spans, allowed)
    quantised = config.lora.base != "float32" and finetune_params.spec_of(config.lora) is None
    allowed = "'float32' without config.lora.patterns: what is learned is not frozen"
    checks.require_key(config, "lora.base", not quantised, allowed)
    model = language_run.settings_of(config, folder)
    if folder is not None:
        tokenizer = Tokenizer.read(folder, model.vocab_size)
        if config.tokens:
            parts = text_data.open_tokens(config.tokens, folder, "tokens")
            for part in parts:
                text_batches.check_prompts(config.packing, part)
            longest = language_run.longest_item(config.packing, config.length, objective)
            most = max(int(part.lengths.max(initial=0)) for part in parts)
            if longest is not None and most > longest:
                least = config.length + most - longest
                allowed = f"at least {least}: items of config.tokens={config.tokens} have up to {most} tokens"
                checks.require_key(config, "length", False, allowed)
        language_run.special_tokens(model, tokenizer, objective)
    language_run.check_shapes(config.lora, config.length, model)
    language_run.check_memory(config, model)


def _check_texts(config: LanguageModelConfig) -> None:
    allowed = "files or folders of texts, with commas between: --config.texts=FILE; or None with --config.tokens=FOLDER"
    checks.require_key(config, "texts", bool(config.texts) != bool(config.tokens), allowed)
    if config.tokens:
        return
    paths = corpus.find(config.texts or "")
    size = sum(path.stat().st_size for path in paths)
    # No token has less than a byte, but for those of a table, whose bytes are compressed.
    packed = any(path.suffix == ".parquet" for path in paths)
    enough = config.packing == "items" or packed or size > config.length
    allowed = f"longer: {size} bytes are fewer than the {config.length} tokens of a window"
    checks.require_key(config, "texts", enough, allowed)
    if config.held_out.texts:
        corpus.find(config.held_out.texts, "held_out.texts")
    text_data.look(config)


def run(given: ConfigDict, workdir: Path) -> int:
    config = read_section(LanguageModelConfig, given)
    parallel = offline_run.devices_of(config)
    build = functools.partial(language_run.build, config, workdir, parallel)
    return offline_run.run(config, given.to_dict(), workdir, IDENTITY, language_run.MADE, build)
