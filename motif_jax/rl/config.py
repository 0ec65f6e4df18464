"""The config of an agent's training: sections, defaults, ranges and help texts of all keys."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from motif_jax import schema
from motif_jax.core import entry_points, sections
from motif_jax.core.cluster import ClusterHosts
from motif_jax.core.compat import Compat
from motif_jax.core.config import training_workers
from motif_jax.envs.config import LAST_TEXT, MAX_EPISODE_STEPS, GymOptions
from motif_jax.nets.config import GameNetwork
from motif_jax.rl import choices
from motif_jax.rl.algorithms.config import Appo
from motif_jax.rl.reward_keys import NORMALISE, QUANTILE, Scoring
from motif_jax.schema import (
    length_key,
    non_negative,
    one_of,
    plain_key,
    positive,
    section_class,
    subsection,
)


@section_class
class PlayedTask(GymOptions):
    """An environment; without a name it is the one that an agent was trained in. Options of one
    task are mappings.
    """

    name: str | None = None
    max_episode_steps: int = MAX_EPISODE_STEPS
    last_text: bool | None = LAST_TEXT
    recall: Mapping[str, Any] | None = None
    babyai_text: Mapping[str, Any] | None = None


@section_class
class TrainedTask(PlayedTask):
    """The environment of a training, which has a name."""

    name: str = plain_key(
        "NetHackScore-v1",
        "environment: a NetHack task, 'gym:ID' of gymnasium, or module:Class (docs/environments.md)",
    )


@section_class
class AgentReward(Scoring):
    """The reward that an agent learns from."""

    kind: str = plain_key(
        "motif",
        "'motif': frozen, of the run in `dir`. 'table': the numbers of a file. 'any_text': 1 for all texts. 'bag_of_words': how much a message is like the goal. Or "
        "module:Class of your own (motif_jax/rl/intrinsic.py). docs/rewards.md",
    )
    dir: str | None = plain_key(
        None, "run of train_reward, file of export:reward, or hf://OWNER/NAME; None: none"
    )
    quantile: float | None = dataclasses.replace(
        QUANTILE, read_when=(".kind", choices.FROZEN_REWARDS)
    )
    normalise: bool = dataclasses.replace(
        NORMALISE, read_when=(".kind", (*choices.FROZEN_REWARDS, "ranking"))
    )
    table: str | None = plain_key(
        None,
        "rewards of kind table: JSON {text: number}, or a run of configs/oni.py; others get 0",
        read_when=(".kind", ("table",)),
    )
    vectors: str | None = plain_key(
        None,
        "word vectors of fastText, for kind bag_of_words; None: hashed letters",
        read_when=(".kind", ("bag_of_words",)),
    )
    goal: str = plain_key(
        "defaultgoal",
        "goal of kind bag_of_words: one of the prompts' goals, or a sentence",
        read_when=(".kind", ("bag_of_words",)),
    )
    similarity: float = plain_key(
        -0.5,
        "cosine above which kind bag_of_words pays a message",
        read_when=(".kind", ("bag_of_words",)),
    )
    intrinsic_coefficient: float = non_negative(0.1, "weight of the intrinsic reward")
    extrinsic_coefficient: float | None = non_negative(
        None, "weight of the reward of the task; None: 0.1 for the score tasks, 10 for the others"
    )
    extrinsic_scale: float = positive(0.1, "factor on the reward of the task")
    extrinsic_clip: float = positive(
        10.0, "clips the task's reward, after the scale and before the coefficient"
    )


@section_class
class Actors:
    """The processes that play."""

    workers: int = positive(training_workers(), "processes that play, on every host")
    envs_per_worker: int = length_key(20, "environments of each process")
    start_method: str = one_of(
        ("auto", "exec"), "'exec': start each process by itself, more slowly"
    )
    cores: str = plain_key(
        "auto", "one a worker: 'auto' (claimed by no other run), '' for any, or '2,3,5'"
    )
    groups_per_worker: int | None = positive(
        None,
        "one is stepped while others wait for their actions; None: 4 on one host with a GPU, else 2",
    )
    warmup_steps: int = non_negative(
        32, "every environment starts with up to this many random steps"
    )
    warmup_seconds: float = non_negative(
        0.0, "every worker starts with a random delay of up to this"
    )
    timeout_seconds: float = positive(
        300.0, "a process that does not answer for this long is replaced"
    )


@section_class
class Devices:
    """Which devices learn, and which choose actions."""

    learner: str = plain_key("all", "numbers of the devices that learn ('0,1'), or 'all'")
    actor: str = plain_key(
        "first", "numbers of those that choose actions, 'all', or 'first' (of the learner's)"
    )


@section_class
class AgentConfig:
    """A training of an agent; sections that only some of its config files have are None in the
    others.
    """

    seed: int = sections.seed(777)
    train_for_env_steps: int = positive(2_000_000_000, "environment steps of the whole run")
    batch_size: int = sections.batch_size_key(4096, "steps of an update, of all hosts together")
    rollout: int = length_key(32, "steps of a trajectory; gradients run back through all of them")
    # On a GPU: docs/clusters.md, Precision.
    serial: bool = plain_key(
        False, "everything in one thread and in order: slow, and two runs are equal bit for bit"
    )
    # A batch has a rollout of every environment; actors play one group while the other's actions
    # are chosen.
    on_policy: bool = plain_key(False, "plays a batch only after the update before it")
    environment: TrainedTask = TrainedTask()
    # The classes of these two sections depend on `network.kind` and `algorithm.name`.
    network: Any = subsection(GameNetwork)
    algorithm: Any = subsection(Appo)
    optimizer: sections.Optimizer = subsection(sections.Optimizer, eps=1e-6, max_gradient_norm=4.0)
    reward: AgentReward = subsection(AgentReward)
    actors: Actors = subsection(Actors)
    devices: Devices = subsection(Devices)
    hosts: ClusterHosts = subsection(ClusterHosts)
    nonfinite: sections.Nonfinite = subsection(sections.Nonfinite)
    save_every_steps: int = positive(10_000_000, "environment steps between checkpoints")
    save_every_seconds: float = sections.SAVE_EVERY_SECONDS
    keep_checkpoints: int = positive(
        5,
        "number of newest checkpoints that stay, and of newest ones of save_every_steps, besides the best",
    )
    stats_episodes: int = positive(1000, "episodes over which statistics are means")
    record_every: int = non_negative(
        0, "every Nth game of each environment is recorded in recordings/; 0: none"
    )
    log_every_seconds: float = positive(20.0, "seconds between rows of metrics")
    matmul_precision: str = sections.MATMUL_PRECISION
    profile: sections.Profile = subsection(sections.Profile, steps=5)
    wandb: sections.Wandb = subsection(sections.Wandb)
    compat: Compat = Compat()
    # Of language agents.
    probes: Any = None
    tests: str | None = None
    published_files: bool = False
    lora: sections.LoraOnBase | None = None
    sharding: sections.Sharding | None = None
    # Of rewards that are learned while the agent plays.
    annotator: Any = None
    queue: Any = None


@section_class
class AnyAlgorithm:
    """The section `algorithm` of an algorithm from outside the package; it has all keys that the
    config gives it.

    Attributes:
      epochs, minibatches: see `Algorithm.epochs` and `Algorithm.minibatches`; 1 where the config
          has no such key.
    """

    name: str = ""
    epochs: int = 1
    minibatches: int = 1


def agent_config(config: ConfigDict | Mapping[str, Any]) -> AgentConfig:
    """The values of a training's config, with the sections of its network, algorithm and reward.

    The section of a part from outside the package (module:Class) keeps all values that the config
    gives it.
    """
    network = config.get("network", {})
    network_class = choices.NETWORKS.section(network.get("kind", choices.GAME))
    sections = {
        "network": schema.read_section(network_class, network),
        "algorithm": _algorithm(config.get("algorithm", {})),
        "reward": _reward(config.get("reward", {})),
    }
    kind = config.get("reward", {}).get("kind")
    for name, section in choices.LABEL_SECTIONS.items():
        if name in config or kind in choices.LEARNED_REWARDS or entry_points.is_entry_point(kind):
            sections[name] = _read(
                entry_points.load_packaged(section), config.get(name, {}), "kind"
            )
    if config.get("probes") is not None:
        sections["probes"] = schema.read_section(
            entry_points.load_packaged(choices.PROBES_SECTION), config["probes"]
        )
    return schema.read_section(AgentConfig, config, **sections)


def agent_reward(section: ConfigDict | Mapping[str, Any]) -> AgentReward:
    """The values of a frozen reward's section, also of one that rated episodes."""
    return _read(AgentReward, section, "kind")


def _algorithm(section: ConfigDict | Mapping[str, Any]) -> Any:
    name = section.get("name", choices.APPO)
    if entry_points.is_entry_point(name):
        return schema.read_open_section(AnyAlgorithm, section)
    return schema.read_section(choices.ALGORITHMS.section(name), section)


def _reward(section: ConfigDict | Mapping[str, Any]) -> AgentReward:
    kind = section.get("kind")
    if kind not in choices.LEARNED_REWARDS:
        return agent_reward(section)
    return _read(choices.REWARDS.section(kind), section, "kind")


def _read(cls: Any, section: ConfigDict | Mapping[str, Any], choice: str) -> Any:
    """The values of a section; with its own keys, too, where its key `choice` names a part from
    outside the package.
    """
    is_outside = entry_points.is_entry_point(section.get(choice))
    read = schema.read_open_section if is_outside else schema.read_section
    return read(cls, section)
