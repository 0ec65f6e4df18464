"""The networks that `config.network.kind` names: for games, language models, and DRRN, which reads prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from motif_jax.core import digests
from motif_jax.core.devices.parallel import DataParallel
from motif_jax.core.devices.sharding import Sharded
from motif_jax.core.errors import UserError
from motif_jax.core.sections import LoraOnBase
from motif_jax.envs import registry
from motif_jax.envs.spec import EnvironmentSpec
from motif_jax.glam import agent as language_agent
from motif_jax.glam import drrn
from motif_jax.lm import config as language_config
from motif_jax.lm import weights
from motif_jax.lm.text import fetch
from motif_jax.lm.tokens import FILE
from motif_jax.nets import agent, film
from motif_jax.nets.policy import PolicyNetwork
from motif_jax.rl.config import AgentConfig
from motif_jax.rl.policy_config import DrrnPolicy, GameNetwork, LanguagePolicy

KINDS = GAME, LANGUAGE, DRRN = "game", "language", "drrn"
# Switches of published quirks that make rows of a batch depend on each other.
BATCH_STATISTICS, UNTRAINED_DROPOUT = "symbolic_train_mode_batchnorm", "glam_untrained_dropout"
_ACTION_TOKENS = 32  # tokens, room for the longest action behind a prompt


def kind_of(config: AgentConfig) -> str:
    """What reads the environment's observations: one of `KINDS`."""
    return GAME if isinstance(config.network, GameNetwork) else config.network.kind


def check(config: AgentConfig) -> None:
    """Raises UserError for a value of `config.network` that is not allowed."""
    network = config.network
    if isinstance(network, DrrnPolicy):
        drrn.check(network, config.algorithm.name)
    elif isinstance(network, LanguagePolicy):
        language_agent.check(network, config.lora or LoraOnBase(), config.compat)


def environment_options(config: AgentConfig) -> dict[str, Any]:
    """Options that the network needs from the environment, JSON-able: extra fields, a tokenizer."""
    network = config.network
    if isinstance(network, GameNetwork):
        options = registry.options_of(vars(config.environment))
        shown = registry.spec(config.environment.name, **options).optional_fields
        wanted = network.encoder == agent.FILM and film.INSTRUCTION in shown
        return {"fields": [film.INSTRUCTION]} if wanted else {}
    if isinstance(network, DrrnPolicy):
        file, special = drrn.tokenizer_file(network.tokenizer), False
    else:
        file = (_model(network) / FILE).resolve()
        special = network.special_tokens == language_agent.PROMPT or config.compat.glam_end_token
    return {"tokenizer": str(file), "prompt_tokens": network.prompt_tokens, "special_tokens": special}


def _model(network: LanguagePolicy) -> Path:
    return fetch(network.model, "network.model")


def read_anew(config: AgentConfig) -> dict[str, str]:
    """Name -> digest of the files that every start reads and no checkpoint holds; {} for a game's network."""
    network = config.network
    if isinstance(network, GameNetwork):
        return {}
    found = {"tokenizer": digests.of_input(environment_options(config)["tokenizer"])}
    if isinstance(network, LanguagePolicy) and config.lora is not None and config.lora.patterns:
        found["base model"] = weights.digest(_model(network))
    return found


def refuse_changed(config: AgentConfig, learned_with: Mapping[str, str], where: str) -> None:
    """Raises UserError for files that changed since `read_anew` returned `learned_with`; `where` names the record."""
    now = read_anew(config) if learned_with else {}
    changed = [name for name, digest in learned_with.items() if now.get(name) != digest]
    if changed:
        named = "tokenizer" if kind_of(config) == DRRN else "model"
        raise UserError(
            f"{where} was trained with another {' and another '.join(changed)} than config.network.{named}={getattr(config.network, named)} "
            "has now: restore the previous one"
        )


def mesh_sizes(config: AgentConfig, devices: int) -> dict[str, int] | None:
    """Devices along each axis of the mesh, for a network split over `devices` of them; None where each holds all of it."""
    split = config.sharding
    if split is None or split.fsdp * split.tensor == 1:
        return None
    return {"data": devices // (split.fsdp * split.tensor), "fsdp": split.fsdp, "tensor": split.tensor}


def make_parallel(config: AgentConfig, devices: Sequence[jax.Device]) -> DataParallel | Sharded:
    """The learner's parallelism over its devices. Raises UserError: the network cannot be split."""
    sizes = mesh_sizes(config, len(devices))
    if sizes is None:
        return DataParallel(devices)
    if kind_of(config) != LANGUAGE:
        raise UserError("config.sharding: only language models can be split over devices: leave it out")
    return Sharded(sizes, devices)


def takes_any_actions(config: AgentConfig) -> bool:
    """Whether the network scores any words as actions, not only the actions it was trained with."""
    network = config.network
    scores = isinstance(network, LanguagePolicy) and network.policy == "score"
    return scores or isinstance(network, DrrnPolicy)


def prompt_room(config: AgentConfig) -> int | None:
    """The longest prompt in tokens of a network that reads prompts; None: no limit."""
    if not isinstance(config.network, LanguagePolicy):
        return None
    settings = language_config.read(_model(config.network))
    if settings.max_length is None or settings.encoder_layers:
        return settings.max_length
    return settings.max_length - _ACTION_TOKENS


def make(config: AgentConfig, spec: EnvironmentSpec) -> PolicyNetwork:
    """The network of `config.network` for an environment. Raises UserError: it does not show what the network reads."""
    network = config.network
    if isinstance(network, GameNetwork):
        return agent.make_agent_network(network, spec, config.compat.symbolic_train_mode_batchnorm)
    if isinstance(network, DrrnPolicy):
        return drrn.make(network, spec)
    return language_agent.make(network, config.lora or LoraOnBase(), config.compat, spec)
