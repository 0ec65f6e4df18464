"""Clones a player of BabyAI-Text into a language model that acts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from motif_jax.core import config as checks
from motif_jax.core import resources, run_folder
from motif_jax.core.config import flat
from motif_jax.core.devices.parallel import DataParallel
from motif_jax.core.devices.sharding import training_devices
from motif_jax.core.training import run_files, trainer
from motif_jax.core.training.trainer import OfflineRun
from motif_jax.envs import registry
from motif_jax.envs.babyai_text import catalogue
from motif_jax.envs.babyai_text.environment import FRENCH_GOAL, NO_FIRST_OBSERVATION
from motif_jax.glam import cloning_data, cloning_task
from motif_jax.glam.agent import LanguageAgent, template_of
from motif_jax.glam.cloning_data import CloningData
from motif_jax.glam.cloning_task import CloningTask
from motif_jax.glam.config import CloningConfig
from motif_jax.lm import chat_template, weights
from motif_jax.lm import config as language_config
from motif_jax.lm.config import ModelConfig
from motif_jax.lm.text import fetch
from motif_jax.lm.tokens import Tokenizer
from motif_jax.rl import agent_networks, settings
from motif_jax.rl.config import AgentConfig, agent_config
from motif_jax.schema import read_section

IDENTITY = (
    "stage", "seed", "trajectories", "published", "train_pairs", "loss", "batch_size",
    "accumulate", "epochs", "evaluate_every", "evaluation_batches", "chunk_steps", "num_devices", "optimizer",
    "network", "lora", "environment", "early_stopping", "compat",
)  # fmt: skip


def check(config_tree: ConfigDict, workdir: Path) -> None:
    run_folder.check_identity(workdir, config_tree)
    config = read_section(CloningConfig, config_tree)
    scored = config.network.policy == "score" or config.loss == cloning_task.CANDIDATES
    allowed = "'candidates' with network.policy='actions': a head says no words"
    checks.require_key(config, "loss", scored, allowed)
    trainer.check(config, None)
    # The keys that the trajectories decide are compared as they will be recorded.
    resolved_config = resolved(config_tree)
    run_folder.check_identity(workdir, resolved_config, IDENTITY)
    agent = agent_config(resolved_config)
    _open(read_section(CloningConfig, resolved_config), agent)
    folder = fetch(config.network.model, "network.model")
    end_token(agent, folder, language_config.read(folder))


def resolved(config_tree: ConfigDict) -> dict[str, Any]:
    """The config with the environment and wording of the trajectories.

    Raises UserError where the config has values that are neither the defaults nor theirs.
    """
    config: dict[str, Any] = config_tree.to_dict()
    section = config["environment"]
    description = cloning_data.about(read_section(CloningConfig, config_tree))
    # Published arrays say nothing of their origin: environment and options are the config's.
    if not description:
        return config

    options = description["options"]
    # Before they are replaced: what a user set otherwise than the trajectories is an error, not
    # ignored.
    user_options = flat(run_folder.as_plain(section))
    section["name"] = description["environment"]
    section["max_episode_steps"] = options.get("max_episode_steps")
    section["babyai_text"] = {
        key: options.get(key, value) for key, value in section["babyai_text"].items()
    }
    _refuse_other_options(user_options, flat(run_folder.as_plain(section)))
    _take_wording(config, options.get("compat", {}))
    return config


def _refuse_other_options(user_options: Mapping[str, Any], used: Mapping[str, Any]) -> None:
    """Refuses options of the environment that differ from the defaults and from those of the
    trajectories.
    """
    defaults = flat(run_folder.as_plain(resources.config("clone_behaviour").environment))
    for key, value in user_options.items():
        allowed = f"left at {defaults[key]!r}, or {used[key]!r} as the trajectories were played"
        checks.require(value in (defaults[key], used[key]), f"environment.{key}", value, allowed)


def _take_wording(config: dict[str, Any], switches: Mapping[str, bool]) -> None:
    """Takes the wording of the trajectories; of their `switches` those that are off need not be
    named.
    """
    section = config["environment"]
    level = catalogue.find(section["name"])
    level_language = level.language if level is not None else ""
    language = section["babyai_text"]["language"] or level_language
    if language == catalogue.FRENCH:
        config["compat"][FRENCH_GOAL] = bool(switches.get(FRENCH_GOAL))
    if switches.get(NO_FIRST_OBSERVATION):
        config["compat"][NO_FIRST_OBSERVATION] = True


def _open(config: CloningConfig, agent: AgentConfig) -> tuple[LanguageAgent, CloningData]:
    """The network, without weights, and the data."""
    registry.check(agent.environment.name)
    kind = agent_networks.class_of(agent)
    kind.check(agent)
    # The environment is described, not played: it gives the fields that the network reads, and the
    # actions.
    spec = registry.spec(agent.environment.name, **settings.environment_options(agent))
    network: Any = kind.make(agent, spec)
    options = kind.environment_options(agent)
    special = bool(options.get("special_tokens", True))
    joint_actions = network.spec.action_names if options.get("joint_actions") else ()
    turn = options.get("prompt_turn", ())
    # The tokens are those that the level would show: special tokens, joint actions and turns as in
    # acting.
    pairs = cloning_data.read(config)
    data = cloning_data.load(config, pairs, network.spec.num_actions, special, joint_actions, turn)
    return network, data


def run(config_tree: ConfigDict, workdir: Path) -> int:
    resolved_config = resolved(config_tree)
    config = read_section(CloningConfig, resolved_config)
    agent = agent_config(resolved_config)
    parallel = DataParallel(training_devices(config.num_devices))

    def build(stopped: Callable[[], bool]) -> OfflineRun:
        del stopped
        network, data = _open(config, agent)
        folder = fetch(config.network.model, "network.model")
        model = language_config.read(folder)
        # A resumed run must have the same; the model is read again at each start.
        digests = {"trajectories": data.digest, "model": weights.digest(folder)}
        # With these it plays, too: `agent_checkpoints.learned_with`.
        for name, digest in agent_networks.class_of(agent).file_digests(agent).items():
            digests[run_files.FILE_OF + name] = digest
        special = (end_token(agent, folder, model), model.pad_id)
        task = CloningTask(config, network, data, parallel, special, digests)
        remark = agent_networks.class_of(agent).remark(agent)
        about = (
            f"{len(data.train):,} steps to learn from, {len(data.held_out):,} held out; {remark}"
        )
        # No export: the checkpoints are those of an agent, which plays with them.
        return OfflineRun(task, about)

    return trainer.run(config, resolved_config, workdir, IDENTITY, build)


def end_token(agent: AgentConfig, folder: Path, model: ModelConfig) -> int:
    """The token that ends an action: of a chat model that reads turns the end of the assistant's
    turn, else the end of a text.
    """
    template = template_of(agent.network, agent.compat, folder)
    if template is None:
        return model.end_ids[0]
    # A model may have several end tokens, and the first of them need not end a turn.
    tokenizer = Tokenizer.read(folder, model.vocab_size)
    # What the template writes behind an answer may be several tokens, such as <|im_end|> and a line
    # break.
    (closing,) = tokenizer.encode([chat_template.after_answer(template)], special=False)
    ends = [token for token in closing if token in model.end_ids]
    return ends[0] if ends else model.end_ids[0]
