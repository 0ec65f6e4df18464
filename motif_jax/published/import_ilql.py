"""Reads a published ILQL checkpoint, model.pkl, into a run folder that opens like one of train_text."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from motif_jax.core import config as checks
from motif_jax.core import run_folder
from motif_jax.core.errors import UserError, printable
from motif_jax.ilql.agent import agent_folder
from motif_jax.ilql.agent.text_agent import TextAgentNetwork
from motif_jax.ilql.methods.implicit_q import ImplicitQSettings
from motif_jax.ilql.methods.text_methods import RULES
from motif_jax.ilql.tasks import registry
from motif_jax.ilql.tasks.reddit import upvote_run
from motif_jax.lm.model import LanguageModel
from motif_jax.lm.text import fetch
from motif_jax.lm.tokens import Tokenizer
from motif_jax.published import ilql_checkpoint, upvote_model
from motif_jax.published.imports import Begin, ImportStage

UPVOTE = "upvote"
# By what Q is of; without Q the prefix decides.
METHODS = {"token": "ilql", "utterance": "ilql_utterance", "mean": "chai"}


def _check_values(config: ConfigDict, workdir: Path) -> None:
    del workdir
    if config.method == UPVOTE:
        _spoken(config)
    else:
        known = ", ".join((*RULES, UPVOTE))
        checks.require_key(config, "method", config.method in ("", *RULES), f"one of {known}")
        _task(config)


def _task(config: ConfigDict) -> tuple[Any, dict[str, Any]]:
    options = registry.json_options(config.options)
    task = registry.make(config.task, options)
    task.tokenizer()
    return task, options


def _spoken(config: ConfigDict) -> Path:
    allowed = "a folder with RoBERTa's tokenizer.json, or its name on the hub: roberta-base"
    checks.require_key(config, "tokenizer", bool(config.tokenizer), allowed)
    folder = fetch(config.tokenizer, "tokenizer")
    Tokenizer.read(folder)
    return folder


def _import_upvote(config: ConfigDict, workdir: Path, begin: Begin) -> None:
    spoken, found = _spoken(config), upvote_model.read(config.file, config.heads)
    if Tokenizer.read(spoken).size > found.config.vocab_size:
        raise UserError(f"config.tokenizer={config.tokenizer}: has more tokens than {config.file}")
    begin()
    run_folder.prepare(workdir, config)
    upvote_run.write(workdir / upvote_run.MODEL, found.config, found.params, found.heads, spoken)
    print(f"{workdir}: an upvote model of {found.config.layers} layers and width {found.config.width}")


def _write(config: ConfigDict, workdir: Path, begin: Begin) -> None:
    if config.method == UPVOTE:
        return _import_upvote(config, workdir, begin)
    task, options = _task(config)
    tokenizer = task.tokenizer()
    found = ilql_checkpoint.read(config.file, config.heads)
    if found.config.vocab_size != tokenizer.size:
        raise UserError(
            f"config.file={config.file}: has {found.config.vocab_size:,} tokens, the task {config.task} has {tokenizer.size:,}: name the "
            "file's task, and its tokenizer in config.options"
        )
    agent = TextAgentNetwork(LanguageModel(found.config), found.design)
    method = _method(config, found.design)
    _require_fit(config, agent, found.params)
    begin()
    run_folder.prepare(workdir, config)
    settings = {**dataclasses.asdict(ImplicitQSettings()), "discount": config.discount, "max_len": None}
    agent_folder.write(
        workdir / agent_folder.AGENT, agent, found.params, method, settings, config.task, options, tokenizer,
        {"imported": str(config.file)},
    )  # fmt: skip
    count = sum(jnp.size(leaf) for leaf in jax.tree.leaves(found.params))
    print(f"{workdir}: {method}, trunks {', '.join(found.params['trunks'])}, {count:,} numbers")
    if found.left_over:
        print(printable(f"not used: {', '.join(found.left_over)}"))


def _method(config: ConfigDict, design: Any) -> str:
    found = METHODS.get(design.q) or ("dt" if design.prefix else "bc")
    if not config.method:
        return found
    rule = RULES[config.method]
    if (rule.q, rule.prefix) != (design.q, design.prefix):
        raise UserError(f"config.method={config.method}: {config.file} has the parts of {found}")
    return str(config.method)


def _require_fit(config: ConfigDict, agent: Any, params: Any) -> None:
    trees = jax.eval_shape(agent.init, jax.random.key(0)), params
    wanted, there = (jax.tree.map(lambda leaf: leaf.shape, tree) for tree in trees)
    if wanted != there:
        raise UserError(
            f"config.file={config.file}: its heads do not fit its trunks: its method may be another one"
        )


def _is_whole(config: ConfigDict, workdir: Path) -> bool:
    return (workdir / ("model/config.json" if config.method == UPVOTE else "agent/agent.json")).exists()


_STAGE = ImportStage("the published model.pkl", _is_whole, _check_values, _write)
check, run = _STAGE.check, _STAGE.run
