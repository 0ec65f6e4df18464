"""Reads a published ILQL checkpoint, model.pkl, into a run folder that opens like one of train_text."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from motif_jax.support import config as checks
from motif_jax.support import import_origin, run_folder
from motif_jax.support.errors import UserError, printable
from motif_jax.support.locks import FolderLock

FILES, UPVOTE = ("file",), "upvote"
# By what Q is of; without Q the prefix decides.
METHODS = {"token": "ilql", "utterance": "ilql_utterance", "mean": "chai"}


def check(config: ConfigDict, workdir: Path) -> None:
    """Raises UserError if there is no such file or task, or the folder holds something else."""
    there = bool(config.file) and Path(config.file).is_file()
    checks.require(there, "file", config.file, "an existing file, the published model.pkl")
    if config.method == UPVOTE:
        _spoken(config)
    else:
        from motif_jax.trainers.text_methods import RULES

        known = ", ".join((*RULES, UPVOTE))
        checks.require(config.method in ("", *RULES), "method", config.method, f"one of {known}")
        _task(config)
    _is_done(config, workdir)


def _task(config: ConfigDict) -> tuple[Any, dict[str, Any]]:
    from motif_jax.envs.text import registry

    options = registry.json_options(config.options)
    task = registry.make(config.task, options)
    task.tokenizer()
    return task, options


def _spoken(config: ConfigDict) -> Path:
    """The folder of RoBERTa's tokenizer."""
    from motif_jax.language.text import fetch
    from motif_jax.language.tokens import Tokenizer

    allowed = "a folder with RoBERTa's tokenizer.json, or its name on the hub: roberta-base"
    checks.require(bool(config.tokenizer), "tokenizer", config.tokenizer, allowed)
    folder = fetch(config.tokenizer, "tokenizer")
    Tokenizer.read(folder)
    return folder


def _is_done(config: ConfigDict, workdir: Path) -> bool:
    done = workdir / ("model/config.json" if config.method == UPVOTE else "agent/agent.json")
    return import_origin.check(workdir, config, FILES, done.exists())


def _import_upvote(config: ConfigDict, workdir: Path) -> None:
    from motif_jax.language.tokens import Tokenizer
    from motif_jax.published import upvote_model
    from motif_jax.trainers import upvote_run

    spoken, found = _spoken(config), upvote_model.read(config.file, config.heads)
    if Tokenizer.read(spoken).size > found.config.vocab_size:
        raise UserError(f"config.tokenizer={config.tokenizer}: has more tokens than {config.file}")
    import_origin.write(workdir, config, FILES)
    run_folder.prepare(workdir, config)
    upvote_run.write(workdir / upvote_run.MODEL, found.config, found.params, found.heads, spoken)
    print(f"{workdir}: an upvote model of {found.config.layers} layers and width {found.config.width}")


def run(config: ConfigDict, workdir: Path) -> None:
    """Reads, says what was left out, and writes, unless that has been done."""
    import jax
    import jax.numpy as jnp

    from motif_jax.algorithms.implicit_q import ImplicitQSettings
    from motif_jax.language.model import LanguageModel
    from motif_jax.language.text_agent import TextAgentNetwork
    from motif_jax.published import ilql_checkpoint
    from motif_jax.trainers import agent_folder

    with FolderLock(workdir):
        if _is_done(config, workdir):
            print(f"{workdir} holds this import of {config.file} already")
            return
        if config.method == UPVOTE:
            _import_upvote(config, workdir)
            return
        task, options = _task(config)
        tokenizer = task.tokenizer()
        found = ilql_checkpoint.read(config.file, config.heads)
        if found.config.vocab_size != tokenizer.size:
            raise UserError(
                f"config.file={config.file}: has {found.config.vocab_size:,} tokens, {config.task} {tokenizer.size:,}: name its task, and in "
                "config.options its tokenizer"
            )
        agent, method = (
            TextAgentNetwork(LanguageModel(found.config), found.design),
            _method(config, found.design),
        )
        _require_fit(config, agent, found.params)
        import_origin.write(workdir, config, FILES)
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
    """The method that a file's parts are of; raises UserError where `config.method` is another one."""
    from motif_jax.trainers.text_methods import RULES

    found = METHODS.get(design.q) or ("dt" if design.prefix else "bc")
    if not config.method:
        return found
    rule = RULES[config.method]
    if (rule.q, rule.prefix) != (design.q, design.prefix):
        raise UserError(f"config.method={config.method}: {config.file} has the parts of {found}")
    return str(config.method)


def _require_fit(config: ConfigDict, agent: Any, params: Any) -> None:
    """Raises UserError where the parts' shapes are not those of such an agent."""
    import jax

    wanted = jax.tree.map(lambda leaf: leaf.shape, jax.eval_shape(agent.init, jax.random.key(0)))
    there = jax.tree.map(lambda leaf: leaf.shape, params)
    if wanted != there:
        raise UserError(
            f"config.file={config.file}: its heads do not fit its trunks, as those of another method may not"
        )
