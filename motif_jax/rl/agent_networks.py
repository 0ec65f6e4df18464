"""The networks that `config.network.kind` names: for games, language models, and DRRN, which reads prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from ml_collections import ConfigDict

from motif_jax.devices.parallel import DataParallel
from motif_jax.devices.sharding import Sharded
from motif_jax.envs import registry
from motif_jax.envs.spec import EnvironmentSpec
from motif_jax.language import agent as language_agent
from motif_jax.language import config as language_config
from motif_jax.language import drrn, weights
from motif_jax.language.text import fetch
from motif_jax.language.tokens import FILE
from motif_jax.networks import agent, film
from motif_jax.networks.policy import PolicyNetwork
from motif_jax.support import digests
from motif_jax.support.errors import UserError

KINDS = GAME, LANGUAGE, DRRN = "game", "language", "drrn"
# Switches of published quirks that make rows of a batch depend on each other.
BATCH_STATISTICS, UNTRAINED_DROPOUT = "symbolic_train_mode_batchnorm", "glam_untrained_dropout"
_ACTION_TOKENS = 32  # tokens, room for the longest action behind a prompt


def kind_of(config: ConfigDict) -> str:
    """`config.network.kind`; 'game' in runs older than the key."""
    return config.network.get("kind", GAME)


def check(config: ConfigDict) -> None:
    """Raises UserError for a value of `config.network` that is not allowed."""
    if kind_of(config) != GAME:
        (drrn if kind_of(config) == DRRN else language_agent).check(config)


def environment_options(config: ConfigDict) -> dict[str, Any]:
    """Options that the network needs from the environment, JSON-able: extra fields, a tokenizer."""
    if kind_of(config) == GAME:
        options = registry.options_of(vars(config.environment))
        shown = registry.spec(config.environment.name, **options).optional_fields
        wanted = config.network.encoder == agent.FILM and film.INSTRUCTION in shown
        return {"fields": [film.INSTRUCTION]} if wanted else {}
    if kind_of(config) == DRRN:
        file, special = drrn.tokenizer_file(config), False
    else:
        file = (_model(config) / FILE).resolve()
        special = config.network.special_tokens == language_agent.PROMPT
        special |= bool(config.compat.get("glam_end_token"))
    return {"tokenizer": str(file), "prompt_tokens": config.network.prompt_tokens, "special_tokens": special}


def _model(config: ConfigDict) -> Path:
    return fetch(config.network.model, "network.model")


def read_anew(config: ConfigDict) -> dict[str, str]:
    """Name -> digest of the files that every start reads and no checkpoint holds; {} for a game's network."""
    if kind_of(config) == GAME:
        return {}
    found = {"tokenizer": digests.of_input(environment_options(config)["tokenizer"])}
    if kind_of(config) == LANGUAGE and config.lora.patterns:
        found["base model"] = weights.digest(_model(config))
    return found


def refuse_changed(config: ConfigDict, learned_with: Mapping[str, str], where: str) -> None:
    """Raises UserError for files that changed since `read_anew` returned `learned_with`; `where` names the record."""
    now = read_anew(config) if learned_with else {}
    changed = [name for name, digest in learned_with.items() if now.get(name) != digest]
    if changed:
        named = "tokenizer" if kind_of(config) == DRRN else "model"
        raise UserError(
            f"{where} was trained with another {' and another '.join(changed)} than config.network.{named}={config.network[named]} "
            "has now: restore the previous one"
        )


def mesh_sizes(config: ConfigDict, devices: int) -> dict[str, int] | None:
    """Devices along each axis of the mesh, for a network split over `devices` of them; None where each holds all of it."""
    split = config.get("sharding")
    if split is None or split.fsdp * split.tensor == 1:
        return None
    return {"data": devices // (split.fsdp * split.tensor), "fsdp": split.fsdp, "tensor": split.tensor}


def make_parallel(config: ConfigDict, devices: Sequence[jax.Device]) -> DataParallel | Sharded:
    """The learner's parallelism over its devices. Raises UserError: the network cannot be split."""
    sizes = mesh_sizes(config, len(devices))
    if sizes is None:
        return DataParallel(devices)
    if kind_of(config) != LANGUAGE:
        raise UserError("config.sharding: only language models can be split over devices: leave it out")
    return Sharded(sizes, devices)


def takes_any_actions(config: ConfigDict) -> bool:
    """Whether the network scores any words as actions, not only the actions it was trained with."""
    return kind_of(config) == DRRN or (kind_of(config) == LANGUAGE and config.network.policy == "score")


def prompt_room(config: ConfigDict) -> int | None:
    """The longest prompt in tokens of a network that reads prompts; None: no limit."""
    if kind_of(config) == DRRN:
        return None
    settings = language_config.read(_model(config))
    if settings.max_length is None or settings.encoder_layers:
        return settings.max_length
    return settings.max_length - _ACTION_TOKENS


def make(config: ConfigDict, spec: EnvironmentSpec) -> PolicyNetwork:
    """The network of `config.network` for an environment. Raises UserError: it does not show what the network reads."""
    if kind_of(config) == GAME:
        return agent.make_agent_network(config.network, spec, bool(config.compat.get(BATCH_STATISTICS)))
    return (drrn if kind_of(config) == DRRN else language_agent).make(config, spec)
