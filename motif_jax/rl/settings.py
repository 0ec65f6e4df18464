"""What follows from a `train_agent` config: environment, actors, devices and dependent values; and
its checks.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from typing import Any

import jax

from motif_jax.core import capacity, metrics, seeds
from motif_jax.core import config as checks
from motif_jax.core.devices import jax_options, memory
from motif_jax.core.devices.parallel import cpu_device
from motif_jax.core.training import schedules
from motif_jax.envs import determinism, registry
from motif_jax.nets.policy import PolicyNetwork
from motif_jax.rl import agent_networks, choices, intrinsic
from motif_jax.rl.actors.rollouts import ActorsConfig
from motif_jax.rl.actors.slots import require_memory
from motif_jax.rl.algorithms.algorithm import Algorithm
from motif_jax.rl.config import Actors, AgentConfig, AgentReward, Devices

SCORE_TASKS = ("NetHackScore-v1", "NetHackScoreExtendedActions-v1")
TEXT_FIELD = "message"  # the field that rewards of texts read
# Groups of a worker. With four it has games to step while calls of inference wait for an update of
# a GPU.
_GROUPS = 2
_GPU_GROUPS = 4


def environment_options(config: AgentConfig) -> dict[str, Any]:
    """Options of `registry.make` for `config.environment` and `config.compat`, JSON-able; they
    suffice to play.
    """
    options = registry.options_of(vars(config.environment))
    spec = registry.spec(config.environment.name, **options)
    if spec.quirks:
        switches = {name: getattr(config.compat, name, False) for name in spec.quirks}
        # Published: messages are counted only where an intrinsic reward is trained on.
        if "message_count_off" in switches:
            switches["message_count_off"] &= config.reward.intrinsic_coefficient == 0
        options["compat"] = switches
    if spec.section is not None:
        allowed = f"a task of this config, which has no section environment.{spec.section}"
        section = getattr(config.environment, spec.section, None)
        checks.require(section is not None, "environment.name", config.environment.name, allowed)
        options |= section or {}
    return options | agent_networks.class_of(config).environment_options(config)


def training_options(config: AgentConfig) -> dict[str, Any]:
    """`environment_options`, and the observation fields that the intrinsic reward reads besides the
    text.
    """
    options = environment_options(config)
    return options | fields_option(config.environment.name, options, config.reward)


def fields_option(name: str, options: Mapping[str, Any], reward: AgentReward) -> dict[str, Any]:
    """{'fields': ...} with the fields that `reward` reads and the environment does not show by
    itself, {} for none.
    """
    spec = registry.spec(name, **options)
    fields = intrinsic.kind_of(reward).required_fields(reward)
    if fields == (TEXT_FIELD,) and registry.require_text(name, spec.text_field):
        return {}  # a reward of the text alone needs no more fields
    missing = [field for field in fields if field not in spec.observation]
    allowed = f"a reward that reads what {name} shows, not {', '.join(missing)}"
    checks.require(set(missing) <= set(spec.optional_fields), "reward.dir", reward.dir, allowed)
    return {"fields": [*options.get("fields", ()), *missing]} if missing else {}


def extrinsic_coefficient(config: AgentConfig) -> float:
    """The weight of the task's reward; as published 0.1 on score tasks, 10 on sparse ones."""
    coefficient = config.reward.extrinsic_coefficient
    if coefficient is not None:
        return coefficient
    return 0.1 if config.environment.name in SCORE_TASKS else 10.0


def resolved(config: AgentConfig) -> AgentConfig:
    """A copy in which values that depend on others or on this machine are set: the host's position,
    coefficients, sizes.
    """
    # The number of hosts first: groups and slots follow from it.
    hosts = dataclasses.replace(config.hosts, **dataclasses.asdict(config.hosts.position()))
    reward = dataclasses.replace(config.reward, extrinsic_coefficient=extrinsic_coefficient(config))
    config = dataclasses.replace(config, hosts=hosts, reward=reward)
    actors = dataclasses.replace(config.actors, groups_per_worker=groups_per_worker(config))
    return dataclasses.replace(config, actors=actors)


def groups_per_worker(config: AgentConfig) -> int:
    """`actors.groups_per_worker`; where it is None the number that suits this machine and divides a
    worker's environments.
    """
    actors = config.actors
    if actors.groups_per_worker is not None:
        return actors.groups_per_worker
    # Several hosts are not connected yet, and jax must not look at devices before they are.
    is_alone = (config.hosts.count or 1) == 1
    divides = actors.envs_per_worker % _GPU_GROUPS == 0
    if is_alone and divides and acts_beside_a_gpu(config):
        return _GPU_GROUPS
    return _GROUPS


def acts_beside_a_gpu(config: AgentConfig) -> bool:
    """Whether games are played on the CPU while a GPU learns."""
    return not takes_turns(config) and learner_devices(config.devices)[0].platform == "gpu"


def columns(config: AgentConfig) -> int:
    """Rollouts in this host's part of a batch."""
    return config.batch_size // config.rollout // (config.hosts.count or 1)


def slots_per_group(config: AgentConfig) -> int:
    """The smallest number of slots with which actors and batcher never wait for each other.

    They hold a batch, also when all columns but one of a slot went into the last batch. More would
    let actors play far ahead.
    """
    envs = config.actors.workers * config.actors.envs_per_worker
    envs_per_group = config.actors.envs_per_worker // groups_per_worker(config)
    needed_columns = columns(config) + envs_per_group - 1
    return max(2, math.ceil(needed_columns / envs))


def actors_configs(config: AgentConfig, count: int) -> list[ActorsConfig]:
    """This host's actors, divided over `count` acting devices; no two environments of all hosts
    play the same games.
    """
    actors = config.actors
    workers = actors.workers // count
    first = ActorsConfig(
        env=config.environment.name,
        options=training_options(config),
        seed=config.seed,
        workers=workers,
        groups_per_worker=groups_per_worker(config),
        envs_per_group=actors.envs_per_worker // groups_per_worker(config),
        slots_per_group=slots_per_group(config),
        rollout=config.rollout,
        same_step_autoreset=config.compat.timeout_as_terminal,
        warmup_steps=actors.warmup_steps,
        warmup_seconds=actors.warmup_seconds,
        timeout_seconds=actors.timeout_seconds,
        start_method=actors.start_method,
    )

    cores = actor_cores(actors)
    first_env = (config.hosts.index or 0) * actors.workers * actors.envs_per_worker
    configs = []
    for number in range(count):
        part = dataclasses.replace(
            first,
            first_env=first_env + number * workers * actors.envs_per_worker,
            # None and [] mean the same for each part.
            cores=cores and cores[number * workers : (number + 1) * workers],
        )
        configs.append(part)
    return configs


def actor_cores(actors: Actors) -> list[int] | None:
    """The cores in `actors.cores`, one for each worker; [] for any, None for 'auto'."""
    value = actors.cores
    if value == "auto":
        return None
    if value == "":
        return []
    numbers = [part.strip() for part in value.split(",")]
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    are_usable = all(checks.is_natural(part) and int(part) in usable for part in numbers)
    are_enough = len(set(numbers)) == len(numbers) == actors.workers
    allowed = (
        f"'auto', '', or {actors.workers} different cores, one for each of config.actors.workers, of those that this process may "
        f"use ({', '.join(map(str, sorted(usable)))})"
    )
    checks.require(are_usable and are_enough, "actors.cores", value, allowed)
    return [int(part) for part in numbers]


def make_network(config: AgentConfig) -> PolicyNetwork:
    """The network of a config's agent."""
    spec = registry.spec(config.environment.name, **training_options(config))
    return agent_networks.class_of(config).make(config, spec)


def algorithm_class(config: AgentConfig) -> type[Algorithm]:
    """The class that `config.algorithm.name` names."""
    return choices.ALGORITHMS.load(config.algorithm.name)


def takes_turns(config: AgentConfig) -> bool:
    """Whether nobody acts while an update runs: in one thread, or on policy."""
    return config.serial or config.on_policy


def optimizer_steps(config: AgentConfig) -> int:
    """A lower bound of the run's optimiser steps: batches with ends of episodes hold fewer
    environment steps.
    """
    updates = math.ceil(config.train_for_env_steps / config.batch_size)
    return updates * algorithm_class(config).optimizer_steps(config)


def configure_jax(config: AgentConfig) -> None:
    """Sets up jax, and where only the CPU computes the heap, which keeps freed memory; called
    before the first computation.
    """
    if not memory.accelerator_possible(jax.config.values["jax_platforms"]):
        memory.keep_freed_memory()
    jax_options.set_matmul_precision(config.matmul_precision)


def check(config: AgentConfig) -> AgentConfig:
    """Checks a config without starting anything; returns it resolved. Several hosts call
    `check_devices` once connected.
    """
    _check_environment(config)
    actor_cores(config.actors)
    config = resolved(config)
    _check_batch(config)
    _check_reward_and_algorithm(config)
    if config.wandb.enabled:
        metrics.import_wandb()
    return config


def _check_environment(config: AgentConfig) -> None:
    """Raises UserError for games that do not exist, that carry over from one episode to the
    next, that `record_every` could not replay, or that are too many for this machine.
    """
    registry.check(config.environment.name, registry.options_of(vars(config.environment)))
    determinism.require_forgetful(config.environment.name, environment_options(config))
    for switch, reason in (
        ("seed_noop", "games without seeds cannot be played again"),
        ("glam_fixed_kind_per_env", "what kind an environment has kept is not in a recording"),
    ):
        can_replay = not (config.record_every and getattr(config.compat, switch))
        checks.require(
            can_replay, "record_every", config.record_every, f"0 with compat.{switch}: {reason}"
        )
    if config.record_every:
        use = f"config.record_every={config.record_every}"
        determinism.require(config.environment.name, environment_options(config), use)
    if not config.serial:
        capacity.require_workers(
            "actors.workers", config.actors.workers, config.actors.envs_per_worker
        )


def _check_batch(config: AgentConfig) -> None:
    """Raises UserError where a resolved config's environments and rollouts do not divide, or do not
    make up a batch.
    """
    batch = config.batch_size
    rollout = config.rollout
    actors = config.actors
    checks.require(
        batch % rollout == 0, "batch_size", batch, f"a multiple of config.rollout={rollout}"
    )
    envs = actors.envs_per_worker
    groups = groups_per_worker(config)
    allowed = f"a multiple of config.actors.groups_per_worker={groups}"
    checks.require(envs % groups == 0, "actors.envs_per_worker", envs, allowed)

    if config.on_policy:
        steps = rollout * actors.workers * envs * (config.hosts.count or 1)
        allowed = f"{steps} with config.on_policy: a rollout of every environment"
        checks.require(batch == steps, "batch_size", batch, allowed)


def _check_reward_and_algorithm(config: AgentConfig) -> None:
    """Raises UserError where a resolved config's reward or algorithm does not suit the environment,
    the devices or the run.
    """
    intrinsic.check(config.reward)
    intrinsic.check_threshold(config.reward)
    # Several hosts see their devices only once they are connected.
    if config.hosts.count == 1:
        check_devices(config)
    schedules.check_warmup(config.optimizer, optimizer_steps(config))
    network = make_network(config)
    intrinsic.kind_of(config.reward).check_run(config, network.spec)
    algorithm_class(config).check(config, network)


def check_devices(config: AgentConfig) -> None:
    """Raises UserError where a resolved config does not fit the devices; the same on every host."""
    learners = len(learner_devices(config.devices))
    hosts = config.hosts.count or 1
    sizes = agent_networks.mesh_sizes(config, learners)
    allowed = "'first' or as config.devices.learner where the network is split over devices"
    is_shared = sizes is None or config.devices.actor in ("first", config.devices.learner)
    checks.require(is_shared, "devices.actor", config.devices.actor, allowed)
    algorithm = algorithm_class(config)
    # The devices of a split network count as one.
    devices = 1 if sizes else learners * hosts
    algorithm.check_devices(config, devices)

    minibatches = algorithm.minibatches(config)
    rollouts = config.batch_size // config.rollout
    learners_in_words = f"{hosts} hosts of {learners}" if hosts > 1 else str(learners)
    allowed = (
        f"rollouts that divide over {learners_in_words} learner devices and {minibatches} minibatches; it is {rollouts} rollouts of "
        f"{config.rollout} steps"
    )
    divides = rollouts % (hosts * learners * minibatches) == 0
    checks.require(divides, "batch_size", config.batch_size, allowed)

    actors = len(actor_devices(config.devices))
    workers = config.actors.workers
    allowed = f"a multiple of the {actors} devices of config.devices.actor"
    checks.require(workers % actors == 0, "actors.workers", workers, allowed)
    require_memory([part.layout() for part in actors_configs(config, actors)])


def random_key(seed: int, *path: int | str) -> jax.Array:
    """The random key of a part of the training, named by `path`; 'learner' is that of the first
    parameters and of the updates.
    """
    return jax.random.PRNGKey(seeds.derive(seed, *path) % (1 << 31))


def all_learner_devices(devices: Devices) -> list[jax.Device]:
    """The devices of `devices.learner` on all hosts, with the same numbers on each."""
    local = jax.local_devices()
    numbers = [local.index(device) for device in learner_devices(devices)]
    learners = []
    for host in range(jax.process_count()):
        devices_of_host = jax.local_devices(process_index=host)
        learners += [devices_of_host[number] for number in numbers]
    return learners


def learner_devices(devices: Devices) -> list[jax.Device]:
    """This host's devices of `devices.learner`."""
    return _devices(devices.learner)


def actor_devices(devices: Devices) -> list[jax.Device]:
    """This host's devices of `devices.actor`."""
    if devices.actor == "first":
        return learner_devices(devices)[:1]
    return _devices(devices.actor)


def lookup_device(devices: Devices) -> jax.Device:
    """The device that computes rewards of texts: the CPU, or without one (JAX_PLATFORMS) a device
    that acts and does not learn.
    """
    acting = actor_devices(devices)
    learning = learner_devices(devices)
    # A device runs its programs in order: a lookup there would wait for a whole update.
    if acting[0].platform != "cpu":
        cpu = cpu_device()
        if cpu is not None:
            return cpu
    # Of several devices of the CPU, too.
    return next((device for device in acting if device not in learning), acting[0])


def _devices(value: str) -> list[jax.Device]:
    """The devices of 'all', or of numbers with commas between."""
    devices = jax.local_devices()
    if value == "all":
        return list(devices)
    return [devices[int(number)] for number in str(value).split(",")]
