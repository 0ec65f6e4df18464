"""Clones a player of BabyAI-Text into a language model that acts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from motif_jax.devices.parallel import DataParallel
from motif_jax.devices.sharding import training_devices
from motif_jax.envs import registry
from motif_jax.envs.babyai_text import catalogue
from motif_jax.envs.babyai_text.environment import FRENCH_GOAL, NO_FIRST_OBSERVATION
from motif_jax.language import config as language_config
from motif_jax.language import weights
from motif_jax.language.agent import LanguageAgent
from motif_jax.language.text import fetch
from motif_jax.rl import agent_networks, settings
from motif_jax.schema import values
from motif_jax.sections.agents import agent_config
from motif_jax.sections.trainings import CloningConfig
from motif_jax.support import config as checks
from motif_jax.support import run_folder
from motif_jax.trainers import cloning_data, cloning_task, offline_run
from motif_jax.trainers.cloning_task import CloningTask
from motif_jax.trainers.offline_run import OfflineRun

IDENTITY = (
    "stage seed trajectories published train_pairs held_out_share loss target_tokens batch_size accumulate epochs evaluate_every "
    "evaluation_batches chunk_steps num_devices warmup_share optimizer network lora environment early_stopping compat"
).split()


def check(config: ConfigDict, workdir: Path) -> None:
    run_folder.check_identity(workdir, config)
    scored = config.network.policy == "score" or config.loss == cloning_task.CANDIDATES
    allowed = "'candidates' with network.policy='actions': a head says no words"
    checks.require_key(config, "loss", scored, allowed)
    offline_run.check(values(CloningConfig, config), None)
    config = resolved(config)
    run_folder.check_identity(workdir, config, IDENTITY)
    network = _network(config)
    cloning_data.load(config, cloning_data.read(config), network.spec.num_actions, _special(config))


def _special(config: ConfigDict) -> bool:
    return bool(agent_networks.environment_options(config).get("special_tokens", True))


def resolved(config: ConfigDict) -> ConfigDict:
    """A copy with the environment and wording of the trajectories; UserError if config and trajectories name none, or differ."""
    config = config.copy_and_resolve_references()
    said, section = cloning_data.about(config), config.environment
    allowed = "a level of BabyAI-Text: published trajectories do not say where they were played"
    checks.require_key(config, "environment.name", bool(section.name or said), allowed)
    if said:
        allowed = f"None, or {said['environment']}, where the trajectories were played"
        checks.require_key(config, "environment.name", section.name in (None, said["environment"]), allowed)
        section.name = said["environment"]
        section.max_episode_steps = said["options"].get("max_episode_steps")
        for key in section.babyai_text:
            if key in said["options"]:
                section.babyai_text[key] = said["options"][key]
        _take_wording(config, said["options"].get("compat", {}))
    return config


def _take_wording(config: ConfigDict, switches: Mapping[str, bool]) -> None:
    """Takes the wording of the trajectories; of their `switches` those that are off need not be named."""
    level = catalogue.find(config.environment.name)
    own = level.language if level is not None else ""
    if (config.environment.babyai_text.language or own) == catalogue.FRENCH:
        config.compat[FRENCH_GOAL] = bool(switches.get(FRENCH_GOAL))
    if switches.get(NO_FIRST_OBSERVATION):
        with config.unlocked():
            config.compat[NO_FIRST_OBSERVATION] = True


def _network(config: ConfigDict) -> LanguageAgent:
    registry.check(config.environment.name)
    agent_networks.check(config)
    checks.require_key(config, "network.kind", config.network.kind == "language", "'language'")
    spec = registry.spec(config.environment.name, **settings.environment_options(agent_config(config)))
    network: Any = agent_networks.make(config, spec)
    return network


def run(config: ConfigDict, workdir: Path) -> int:
    config = resolved(config)
    parallel = DataParallel(training_devices(config.num_devices))

    def build(stopped: Callable[[], bool]) -> OfflineRun:
        del stopped
        network = _network(config)
        actions = network.spec.num_actions
        data = cloning_data.load(config, cloning_data.read(config), actions, _special(config))
        folder = fetch(config.network.model, "network.model")
        model = language_config.read(folder)
        read = {"trajectories": data.digest, "model": weights.digest(folder)}
        task = CloningTask(
            values(CloningConfig, config), network, data, parallel, (model.end_ids[0], model.pad_id), read
        )
        return OfflineRun(task, f"{len(data.train):,} steps to learn from, {len(data.held_out):,} held out")

    return offline_run.run(values(CloningConfig, config), config.to_dict(), workdir, IDENTITY, (), build)
