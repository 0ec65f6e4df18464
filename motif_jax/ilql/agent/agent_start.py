"""Initial parameters of an agent, fresh, from a language model or from another run, divided into trained and frozen ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.ilql.agent import agent_folder
from motif_jax.ilql.agent.agent_folder import TOKENIZER, SavedAgent
from motif_jax.ilql.agent.text_agent import POLICY, TARGET, VALUES, Design
from motif_jax.ilql.config import InitialParameters, TextConfig
from motif_jax.ilql.dialogues.items import Vocabulary
from motif_jax.ilql.methods.text_objective import Objective, joined
from motif_jax.lm import config as configs
from motif_jax.lm import init_model, lora, vocabulary, weights
from motif_jax.lm.config import ModelConfig
from motif_jax.lm.init_model import Sizes
from motif_jax.lm.text import fetch
from motif_jax.lm.tokens import Tokenizer

# In these sizes a checkpoint and the initial runs must agree.
_SIZES = ("architecture", "width", "layers", "heads", "max_length", "vocab_size", "feed_forward")


class Start(NamedTuple):
    """Initial parameters, host arrays; see `Objective.measured`."""

    learned: dict[str, Any]
    target: dict[str, Any]  # copies that follow `learned`
    frozen: dict[str, Any]
    digests: dict[str, str]  # of the files that the parameters were read from


def _folders(initial: InitialParameters) -> dict[str, str]:
    return {key: run for key, run in dataclasses.asdict(initial).items() if run}


def model_config(config: TextConfig, tokens: Vocabulary, design: Design) -> ModelConfig:
    """The trunks' config, see `text_run.model_config`; reads no weights."""
    found: dict[str, ModelConfig] = {}
    for key, run in _folders(config.initial).items():
        about = agent_folder.describe(run, f"initial.{key}")
        if about["vocabulary"] != tokens.digest:
            raise UserError(
                f"config.initial.{key}={run}: was trained with other tokens than the task {config.task} has"
            )
        _require_parts(run, key, about, design)
        # Their dropout rates may differ.
        found[key] = init_model.with_dropout(agent_folder.network_of(about).model.config, config.dropout)
    if len(set(found.values())) > 1:
        raise UserError(
            f"config.initial.value={config.initial.value}: has trunks of other sizes than config.initial.policy={config.initial.policy}"
        )
    there = next(iter(found.values()), None)
    if config.network.checkpoint:
        if tokens.digest is None:
            raise UserError(
                f"config.network.checkpoint={config.network.checkpoint}: must be None while the task learns its own tokens; name those "
                'of the model with --config.options=\'{"tokenizer": "FOLDER"}\''
            )
        made = _of_checkpoint(config.network.checkpoint, tokens)
        if there is not None and any(getattr(made, size) != getattr(there, size) for size in _SIZES):
            raise UserError(
                f"config.network.checkpoint={config.network.checkpoint}: has trunks of other sizes than config.initial names"
            )
        return there or made
    if there is not None:
        return there
    network, marks = config.network, tokens.delimiters
    sizes = Sizes(network.width, network.layers, network.heads, max_length=network.max_length)
    special = {"start": marks.state_start, "pad": marks.pad, "end": marks.action_end}
    return init_model.make("gpt2", sizes, tokens.size, special, "network")


def _require_parts(run: str, key: str, about: Mapping[str, Any], design: Design) -> None:
    theirs = Design(**about["design"])
    said = f"config.initial.{key}={run}: was trained by {about['method']}"
    if theirs.prefix and (key != POLICY or not design.prefix):
        raise UserError(f"{said}, whose policy is conditioned on a return: must be a run of another method")
    mine = (design.q, design.double_q, design.residual)
    if key != POLICY and theirs.qs and mine != (theirs.q, theirs.double_q, theirs.residual):
        raise UserError(f"{said}, and has heads of another kind than config.method asks for")


def _of_checkpoint(checkpoint: str, tokens: Vocabulary) -> ModelConfig:
    folder = fetch(checkpoint, "network.checkpoint")
    settings = weights.read_config(folder)
    configs.require_decoder(settings, "says")
    if settings.encoder_layers:
        raise UserError(
            f"config.network.checkpoint={checkpoint}: must be a decoder, it is {settings.architecture}"
        )
    _kept(checkpoint, folder, settings, tokens)
    return dataclasses.replace(settings, vocab_size=tokens.size)


def _kept(checkpoint: str, folder: Path, settings: ModelConfig, tokens: Vocabulary) -> int:
    """How many of a checkpoint's embedding rows to keep; UserError if its tokens are not the task's first ones."""
    if settings.vocab_size <= tokens.size:
        return settings.vocab_size
    if (folder / TOKENIZER).is_file():
        own = Tokenizer.read(folder, settings.vocab_size)
        if tuple(own.pieces(range(own.size))) == tokens.texts[: own.size]:
            return own.size
    raise UserError(
        f"config.network.checkpoint={checkpoint}: has {settings.vocab_size} rows of tokens, the task's tokenizer {tokens.size} "
        f"tokens: must be a model with the same {TOKENIZER}, but for the delimiters"
    )


def start(
    checkpoint: str | None,
    initial: InitialParameters,
    objective: Objective,
    tokens: Vocabulary,
    key: jax.Array,
) -> Start:
    """The initial parameters of a training; UserError if a file is damaged, or a low-rank pattern matches no layer."""
    params = jax.device_get(objective.agent.init(key))
    said: dict[str, str] = {}
    if checkpoint:
        folder = fetch(checkpoint, "network.checkpoint")
        settings = weights.read_config(folder)
        kept = _kept(checkpoint, folder, settings, tokens)
        cut = vocabulary.cut(settings, weights.load(folder, settings), kept)
        grown = jax.device_get(vocabulary.extend(*cut, tokens.size, jax.random.fold_in(key, 1))[1])
        params["trunks"] = dict.fromkeys(params["trunks"], grown)
        said["network"] = weights.digest(folder, below=True)
    for name, run in _folders(initial).items():
        saved = agent_folder.load(run, f"initial.{name}")
        params = _taken(params, saved, name, objective)
        said[f"initial {name}"] = weights.digest(saved.folder, below=True)
    learned, target, frozen = _arranged(params, objective, jax.random.fold_in(key, 2))
    return Start(learned, target, frozen, said)


def _taken(params: dict[str, Any], saved: SavedAgent, name: str, objective: Objective) -> dict[str, Any]:
    """Replaces the policy in `params` by that of a saved agent, or the trunk and heads of the values."""
    design, theirs = objective.agent.design, saved.network.design
    trunks = dict(params["trunks"])
    if name == POLICY:
        place = design.roles.trunk_of[POLICY]
        trunks[place] = saved.params["trunks"][theirs.roles.trunk_of[POLICY]]
        if place == VALUES and TARGET in trunks:  # the target starts as a copy
            trunks[TARGET] = trunks[VALUES]
        return {**params, "trunks": trunks, **({"prefix": saved.params["prefix"]} if theirs.prefix else {})}
    part = VALUES if theirs.qs else POLICY
    trunks[VALUES] = saved.params["trunks"][theirs.roles.trunk_of[part]]
    if TARGET in trunks:
        trunks[TARGET] = saved.params["trunks"][theirs.roles.trunk_of[TARGET if theirs.qs else POLICY]]
    found = {**params, "trunks": trunks}
    if theirs.qs:
        found |= {"heads": saved.params["heads"], "target_heads": saved.params["target_heads"]}
    return found


def _arranged(
    params: dict[str, Any], objective: Objective, key: jax.Array
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    roles, weights_ = objective.agent.design.roles, objective.weights
    names = [roles.trunk_of[POLICY]] if objective.learns_policy else []
    if objective.agent.design.qs and weights_.of_values and not objective.rule.proposes:
        names.append(VALUES)
    learned: dict[str, Any] = {}
    target: dict[str, Any] = {}
    trunks = params["trunks"]
    if objective.spec is None:
        learned["trunks"] = {name: trunks[name] for name in dict.fromkeys(names)}
        if TARGET in trunks:
            target["trunks"] = {TARGET: trunks[TARGET]}
    else:
        keys = dict(zip(trunks, jax.random.split(key, len(trunks)), strict=True))
        keys[TARGET] = keys.get(VALUES, key)  # the target starts as a copy
        made = {name: lora.init(keys[name], trunk, objective.spec) for name, trunk in trunks.items()}
        fresh = jax.device_get(made)
        learned["additions"] = {name: fresh[name] for name in dict.fromkeys(names)}
        if TARGET in trunks:
            target["additions"] = {TARGET: fresh[TARGET]}
    if "heads" in params:
        learned["heads"], target["heads"] = params["heads"], params["target_heads"]
    if "prefix" in params:
        learned["prefix"] = params["prefix"]
    held = {*learned.get("trunks", {}), *target.get("trunks", {})}
    frozen = {name: trunk for name, trunk in trunks.items() if name not in held}
    return jax.tree.map(np.asarray, (learned, target, {"trunks": frozen} if frozen else {}))


def whole(objective: Objective, learned: Any, target: Any, frozen: Any) -> dict[str, Any]:
    """The agent's parameters with additions merged: host arrays, float32."""
    learned, target, frozen = jax.device_get((learned, target, frozen))
    params, additions = joined(learned, {**frozen, "target": target})
    trunks = params["trunks"]
    if objective.spec is not None:
        trunks |= {name: lora.merged(trunks[name], each, objective.spec) for name, each in additions.items()}
    params["trunks"] = {name: trunks[name] for name in objective.agent.design.roles.trunks}
    if "heads" in learned:
        params |= {"heads": learned["heads"], "target_heads": target["heads"]}
    return jax.tree.map(lambda leaf: np.asarray(leaf, jnp.float32), params)
