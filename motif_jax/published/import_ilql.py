"""Reads the published ILQL code's model.pkl, of an agent or of the upvote model, into a run folder
that opens like one of train_text or train_upvote.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from motif_jax.core import config as checks
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
from motif_jax.published.config import ImportIlqlConfig, ImportUpvoteConfig

# By what Q is of; without Q the prefix decides.
METHODS = {"token": "ilql", "utterance": "ilql_utterance", "mean": "chai"}


def check(config: ImportIlqlConfig, workdir: Path) -> None:
    """Raises UserError for a method or a task that there is not."""
    del workdir
    checks.require_key(
        config, "method", config.method in ("", *RULES), f"one of {', '.join(RULES)}, or empty"
    )
    _task(config)


def _task(config: ImportIlqlConfig) -> tuple[Any, dict[str, Any]]:
    options = registry.json_options(config.options)
    task = registry.make(config.task, options)
    task.tokenizer()
    return task, options


def write(config: ImportIlqlConfig, workdir: Path, begin: Callable[[], None]) -> None:
    """Writes agent/ of a run of train_text. Raises UserError: the file holds no agent, or one of
    another task.
    """
    task, options = _task(config)
    tokenizer = task.tokenizer()
    imported = ilql_checkpoint.read(config.path, config.heads)
    if imported.config.vocab_size != tokenizer.size:
        raise UserError(
            f"config.file={config.file}: has {imported.config.vocab_size:,} tokens, the task {config.task} has {tokenizer.size:,}: name the "
            "file's task, and its tokenizer in config.options"
        )
    agent = TextAgentNetwork(LanguageModel(imported.config), imported.design)
    method = method_of(config, imported.design)
    _require_fit(config, agent, imported.params)
    begin()
    settings = {
        **dataclasses.asdict(ImplicitQSettings()),
        "discount": config.discount,
        "max_len": None,
    }
    agent_folder.write(
        workdir / agent_folder.AGENT, agent, imported.params, method, settings, config.task, options, tokenizer,
        {"imported": str(config.file)},
    )  # fmt: skip
    count = sum(jnp.size(leaf) for leaf in jax.tree.leaves(imported.params))
    print(f"{workdir}: {method}, trunks {', '.join(imported.params['trunks'])}, {count:,} numbers")
    if imported.left_over:
        print(printable(f"not used: {', '.join(imported.left_over)}"))


def method_of(config: ImportIlqlConfig, design: Any) -> str:
    """The method that a file's parts belong to. Raises UserError: `config.method` names one of
    other parts.
    """
    method = METHODS.get(design.q) or ("dt" if design.prefix else "bc")
    if not config.method:
        return method
    rule = RULES[config.method]
    if (rule.q, rule.prefix) != (design.q, design.prefix):
        raise UserError(f"config.method={config.method}: {config.file} has the parts of {method}")
    return config.method


def _require_fit(config: ImportIlqlConfig, agent: Any, params: Any) -> None:
    # Of shapes alone: nothing of the file's size is drawn.
    fresh = jax.eval_shape(agent.init, jax.random.key(0))
    expected = jax.tree.map(lambda leaf: leaf.shape, fresh)
    actual = jax.tree.map(lambda leaf: leaf.shape, params)
    if expected != actual:
        raise UserError(
            f"config.file={config.file}: its heads do not fit its trunks: its method may be another one"
        )


def _tokenizer_folder(config: ImportUpvoteConfig) -> Path:
    allowed = "a folder with RoBERTa's tokenizer.json, or its name on the hub: roberta-base"
    checks.require_key(config, "tokenizer", bool(config.tokenizer), allowed)
    folder = fetch(config.tokenizer or "", "tokenizer")
    Tokenizer.read(folder)
    return folder


def check_upvote(config: ImportUpvoteConfig, workdir: Path) -> None:
    """Raises UserError without a tokenizer."""
    del workdir
    _tokenizer_folder(config)


def write_upvote(config: ImportUpvoteConfig, workdir: Path, begin: Callable[[], None]) -> None:
    """Writes model/ of a run of train_upvote. Raises UserError: the file is none, or has too few
    tokens.
    """
    tokenizer_folder = _tokenizer_folder(config)
    imported = upvote_model.read(config.path, config.heads)
    if Tokenizer.read(tokenizer_folder).size > imported.config.vocab_size:
        raise UserError(f"config.tokenizer={config.tokenizer}: has more tokens than {config.file}")
    begin()
    upvote_run.write(
        workdir / upvote_run.MODEL,
        imported.config,
        imported.params,
        imported.heads,
        tokenizer_folder,
    )
    print(
        f"{workdir}: an upvote model of {imported.config.layers} layers and width {imported.config.width}"
    )
