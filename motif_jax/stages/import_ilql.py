"""Reads a published ILQL checkpoint, model.pkl, into a run folder that opens like one of train_text."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from motif_jax.support import config as checks
from motif_jax.support import import_origin, run_folder
from motif_jax.support.errors import UserError
from motif_jax.support.files import FolderLock

FILES = ("file",)


def check(config: ConfigDict, workdir: Path) -> None:
    """Raises UserError if there is no such file or task, or the folder holds something else."""
    there = bool(config.file) and Path(config.file).is_file()
    checks.require(there, "file", config.file, "an existing file, the published model.pkl")
    checks.positive(config, "heads", allow_zero=True)
    checks.fraction(config, "discount")
    _task(config)
    _is_done(config, workdir)


def _task(config: ConfigDict) -> tuple[Any, dict[str, Any]]:
    from motif_jax.envs.text import registry

    try:
        options = json.loads(config.options or "{}")
    except ValueError:
        options = None
    checks.require(
        isinstance(options, dict), "options", config.options, 'a JSON object such as {"num_words": 100}'
    )
    task = registry.make(config.task, options)
    task.tokenizer()
    return task, options


def _is_done(config: ConfigDict, workdir: Path) -> bool:
    return import_origin.check(workdir, config, FILES, (workdir / "agent" / "agent.json").exists())


def run(config: ConfigDict, workdir: Path) -> None:
    """Reads, says what was left out, and writes, unless that has been done."""
    import jax
    import jax.numpy as jnp

    from motif_jax.algorithms.implicit_q import Settings
    from motif_jax.language.model import LanguageModel
    from motif_jax.language.text_agent import TextAgent
    from motif_jax.offline import agent_folder
    from motif_jax.published import ilql_checkpoint

    with FolderLock(workdir):
        if _is_done(config, workdir):
            print(f"{workdir} holds this import of {config.file} already")
            return
        task, options = _task(config)
        tokenizer = task.tokenizer()
        found = ilql_checkpoint.read(config.file, config.heads)
        if found.config.vocab_size != tokenizer.size:
            raise UserError(
                f"config.file={config.file}: has {found.config.vocab_size:,} tokens, {config.task} {tokenizer.size:,}: name its task, and in "
                "config.options its tokenizer"
            )
        agent = TextAgent(LanguageModel(found.config), found.design)
        _require_fit(config, agent, found.params)
        import_origin.write(workdir, config, FILES)
        run_folder.prepare(workdir, config)
        q = found.design.q
        method = config.method or (
            ("dt" if found.design.prefix else "bc")
            if q == "none"
            else "ilql"
            if q == "token"
            else "ilql_utterance"
        )
        settings = {**dataclasses.asdict(Settings()), "discount": config.discount, "max_len": None}
        agent_folder.write(
            workdir / agent_folder.AGENT, agent, found.params, method, settings, config.task, options, tokenizer,
            {"imported": str(config.file)},
        )  # fmt: skip
        count = sum(jnp.size(leaf) for leaf in jax.tree.leaves(found.params))
        print(f"{workdir}: {method}, trunks {', '.join(found.params['trunks'])}, {count:,} numbers")
        if found.left_over:
            print(f"not used: {', '.join(found.left_over)}")


def _require_fit(config: ConfigDict, agent: Any, params: Any) -> None:
    """Raises UserError where the parts' shapes are not those of such an agent."""
    import jax

    wanted = jax.tree.map(lambda leaf: leaf.shape, jax.eval_shape(agent.init, jax.random.key(0)))
    there = jax.tree.map(lambda leaf: leaf.shape, params)
    if wanted != there:
        raise UserError(
            f"config.file={config.file}: its heads do not fit its trunks, as those of another method may not"
        )
