"""Environment, actors, devices and coefficients of a `train_agent` config."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import jax

from motif_jax.core import capacity, metrics, seeds
from motif_jax.core import config as checks
from motif_jax.core.devices import memory, precision
from motif_jax.core.devices.cpu import cpu_device
from motif_jax.core.training import schedules
from motif_jax.envs import determinism, registry
from motif_jax.nets.policy import PolicyNetwork
from motif_jax.rl import agent_networks, reward_kinds
from motif_jax.rl.actors.rollouts import ActorsConfig
from motif_jax.rl.actors.slots import require_memory
from motif_jax.rl.config import Actors, AgentConfig, AgentReward, Devices
from motif_jax.rl.update_plan import algorithm_of, plan_of

SCORE_TASKS = ("NetHackScore-v1", "NetHackScoreExtendedActions-v1")
TEXT_FIELD = "message"  # that rewards read
# 1,200 environments x 32 steps and batches of 4,096, nine at once, had a lag of 5 updates.
_MOST_BATCHES = 2
# With four groups a worker has games to step while calls of inference wait behind an update of a GPU.
_GROUPS, _GPU_GROUPS = 2, 4


def environment_options(config: AgentConfig) -> dict[str, Any]:
    """Options of `registry.make` for `config.environment` and `config.compat`, JSON-able: all that playing needs."""
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
    return options | agent_networks.environment_options(config)


def training_options(config: AgentConfig) -> dict[str, Any]:
    """`environment_options`, and the observation fields that the intrinsic reward reads besides the text."""
    options = environment_options(config)
    return options | fields_option(config.environment.name, options, config.reward)


def fields_option(name: str, options: Mapping[str, Any], reward: AgentReward) -> dict[str, Any]:
    """{'fields': ...} with the fields that `reward` reads and the environment does not show by itself, {} for none."""
    spec, fields = registry.spec(name, **options), reward_kinds.kind_of(reward).required_fields(reward)
    if fields == (TEXT_FIELD,) and registry.require_text(name, spec.text_field):
        return {}  # a reward of the text alone needs no more fields
    more = [field for field in fields if field not in spec.observation]
    allowed = f"a reward that reads what {name} shows, not {', '.join(more)}"
    checks.require(set(more) <= set(spec.optional_fields), "reward.dir", reward.dir, allowed)
    return {"fields": [*options.get("fields", ()), *more]} if more else {}


def extrinsic_coefficient(config: AgentConfig) -> float:
    """The weight of the task's reward; as published 0.1 on score tasks, 10 on sparse ones."""
    usual = 0.1 if config.environment.name in SCORE_TASKS else 10.0
    given = config.reward.extrinsic_coefficient
    return usual if given is None else given


def resolved(config: AgentConfig) -> AgentConfig:
    """A copy with dependent values set."""
    hosts = dataclasses.replace(config.hosts, **dataclasses.asdict(config.hosts.position()))
    reward = dataclasses.replace(config.reward, extrinsic_coefficient=extrinsic_coefficient(config))
    config = dataclasses.replace(config, hosts=hosts, reward=reward)
    actors = dataclasses.replace(config.actors, groups_per_worker=groups_per_worker(config))
    config = dataclasses.replace(config, actors=actors)
    if actors.slots_per_group is not None:
        return config
    actors = dataclasses.replace(actors, slots_per_group=slots_per_group(config))
    return dataclasses.replace(config, actors=actors)


def groups_per_worker(config: AgentConfig) -> int:
    """`actors.groups_per_worker`, or where it is None the number that suits this machine and divides a worker's environments."""
    actors = config.actors
    if actors.groups_per_worker is not None:
        return actors.groups_per_worker
    # Several hosts are not connected yet, and jax must not look at devices before.
    alone = (config.hosts.count or 1) == 1
    several = actors.envs_per_worker % _GPU_GROUPS == 0
    return _GPU_GROUPS if alone and several and acts_beside_a_gpu(config) else _GROUPS


def remark_on_lag(config: AgentConfig) -> str | None:
    """A line for a resolved config whose environments fill several batches at once, which are learned from one by one."""
    environments = config.actors.workers * config.actors.envs_per_worker * (config.hosts.count or 1)
    batches = environments * config.rollout / config.batch_size
    if batches <= _MOST_BATCHES:
        return None
    return (
        f"{environments:,} environments x config.rollout={config.rollout} fill {batches:.1f} batches at once, so that the last of "
        f"them is some {batches / 2:.0f} updates or more behind the policy that learns from it: raise config.batch_size="
        f"{config.batch_size}, or lower config.actors.envs_per_worker"
    )


def acts_beside_a_gpu(config: AgentConfig) -> bool:
    """Whether games are played on the CPU while a GPU learns."""
    return not takes_turns(config) and learner_devices(config.devices)[0].platform == "gpu"


def columns(config: AgentConfig) -> int:
    """Rollouts in this host's part of a batch."""
    return config.batch_size // config.rollout // (config.hosts.count or 1)


def slots_per_group(config: AgentConfig) -> int:
    """The fewest slots with which actors and batcher never wait for each other.

    They hold a batch, also when all columns but one of a slot went into the last one. More would let actors play far ahead.
    """
    envs = config.actors.workers * config.actors.envs_per_worker
    per_group = config.actors.envs_per_worker // groups_per_worker(config)
    return max(2, -(-(columns(config) + per_group - 1) // envs))


def actors_configs(config: AgentConfig, count: int) -> list[ActorsConfig]:
    """This host's actors, divided over `count` acting devices; no two environments of all hosts play the same games."""
    actors = config.actors
    first_env = (config.hosts.index or 0) * actors.workers * actors.envs_per_worker
    workers, cores = actors.workers // count, actor_cores(actors)
    # Games without seeds cannot be replayed.
    remembers = (config.serial or actors.rebuild) and not config.compat.seed_noop
    same = {
        name: getattr(actors, name)
        for name in (
            "slots_per_group", "warmup_steps", "warmup_seconds", "timeout_seconds",
            "start_timeout_seconds", "max_failures", "start_method",
        )
    }  # fmt: skip
    whole = ActorsConfig(
        env=config.environment.name,
        options=training_options(config),
        seed=config.seed,
        workers=workers,
        groups_per_worker=groups_per_worker(config),
        envs_per_group=actors.envs_per_worker // groups_per_worker(config),
        rollout=config.rollout,
        same_step_autoreset=config.compat.timeout_as_terminal,
        remembered=config.environment.max_episode_steps if remembers else 0,
        **same,
    )
    return [
        dataclasses.replace(
            whole,
            first_env=first_env + number * workers * actors.envs_per_worker,
            cores=cores and cores[number * workers : (number + 1) * workers],
        )
        for number in range(count)
    ]


def actor_cores(actors: Actors) -> list[int] | None:
    """The cores in `actors.cores`, one for each worker; [] for any, None for 'auto'."""
    value, workers = actors.cores, actors.workers
    if value in ("auto", ""):
        return None if value else []
    numbers = [part.strip() for part in value.split(",")]
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    good = all(checks.is_natural(part) and int(part) in usable for part in numbers)
    allowed = (
        f"'auto', '', or {workers} different cores, one for each of config.actors.workers, of those that this process may "
        f"use ({', '.join(map(str, sorted(usable)))})"
    )
    checks.require(good and len(set(numbers)) == len(numbers) == workers, "actors.cores", value, allowed)
    return [int(part) for part in numbers]


def make_network(config: AgentConfig) -> PolicyNetwork:
    """The network of a config's agent."""
    return agent_networks.make(config, registry.spec(config.environment.name, **training_options(config)))


def takes_turns(config: AgentConfig) -> bool:
    """Whether nobody acts while an update runs: in one thread, or on policy."""
    return config.serial or config.on_policy


def optimizer_steps(config: AgentConfig) -> int:
    """A lower bound of the run's optimiser steps: batches with ends of episodes hold fewer environment steps."""
    updates = -(-config.train_for_env_steps // config.batch_size)
    return updates * algorithm_of(config).optimizer_steps(plan_of(config))


def configure_jax(config: AgentConfig) -> None:
    """Sets up jax and the heap, which keeps freed memory where only the CPU computes, before the first computation."""
    if config.devices.cpu_count is not None:
        jax.config.update("jax_num_cpu_devices", config.devices.cpu_count)
    if not memory.accelerator_possible(jax.config.values["jax_platforms"]):
        memory.keep_freed_memory()
    precision.set_matmul_precision(config.matmul_precision)


def all_learner_devices(devices: Devices) -> list[jax.Device]:
    """The devices of `devices.learner` on all hosts, the same places on each."""
    here = jax.local_devices()
    places = [here.index(device) for device in learner_devices(devices)]
    of_host = [jax.local_devices(process_index=index) for index in range(jax.process_count())]
    return [each[place] for each in of_host for place in places]


def learner_devices(devices: Devices) -> list[jax.Device]:
    """This host's devices of `devices.learner`."""
    return _devices(devices.learner, "devices.learner")


def actor_devices(devices: Devices) -> list[jax.Device]:
    """This host's devices of `devices.actor`."""
    if devices.actor == "first":
        return learner_devices(devices)[:1]
    return _devices(devices.actor, "devices.actor")


def lookup_device(devices: Devices) -> jax.Device:
    """Where rewards of texts are computed: the CPU, or without one (JAX_PLATFORMS) a device that acts and does not learn."""
    acting, learning = actor_devices(devices), learner_devices(devices)
    beside = None if acting[0].platform == "cpu" else cpu_device()
    return beside or next((device for device in acting if device not in learning), acting[0])


def _devices(value: str, key: str) -> list[jax.Device]:
    devices = jax.local_devices()
    if value == "all":
        return list(devices)
    numbers = [part.strip() for part in str(value).split(",")]
    good = all(checks.is_natural(part) and int(part) < len(devices) for part in numbers)
    distinct = good and len({int(part) for part in numbers}) == len(numbers)
    allowed = f"'all' or different numbers below {len(devices)}, the devices here, with commas between"
    checks.require(distinct, key, value, allowed)
    return [devices[int(part)] for part in numbers]


def check(config: AgentConfig) -> AgentConfig:
    """Checks a config without starting anything; returns it resolved. Several hosts call `check_devices` once connected."""
    registry.check(config.environment.name, registry.options_of(vars(config.environment)))
    for switch, reason in (
        ("seed_noop", "games without seeds cannot be played again"),
        ("glam_fixed_kind_per_env", "what kind an environment has kept is not in a recording"),
    ):
        good = not (config.record_every and getattr(config.compat, switch))
        checks.require(good, "record_every", config.record_every, f"0 with compat.{switch}: {reason}")
    if config.record_every:
        game = config.environment.name, environment_options(config)
        determinism.require(*game, f"config.record_every={config.record_every}")
    if not config.serial:
        capacity.require_workers("actors.workers", config.actors.workers, config.actors.envs_per_worker)
    actor_cores(config.actors)
    batch, rollout = config.batch_size, config.rollout
    checks.require(batch % rollout == 0, "batch_size", batch, f"a multiple of config.rollout={rollout}")
    envs, groups = config.actors.envs_per_worker, config.actors.groups_per_worker or _GROUPS
    allowed = f"a multiple of config.actors.groups_per_worker={groups}"
    checks.require(envs % groups == 0, "actors.envs_per_worker", envs, allowed)
    config = resolved(config)
    if config.on_policy:
        whole = rollout * config.actors.workers * config.actors.envs_per_worker * (config.hosts.count or 1)
        allowed = f"{whole} with config.on_policy: a rollout of every environment"
        checks.require(batch == whole, "batch_size", batch, allowed)
    slots, needed = config.actors.slots_per_group or 0, slots_per_group(config)
    checks.require(slots >= needed, "actors.slots_per_group", slots, f"at least {needed} for this batch_size")
    reward_kinds.check(config.reward)
    if config.hosts.count == 1:
        check_devices(config)
    schedules.check_warmup(config.optimizer, optimizer_steps(config))
    reward_kinds.kind_of(config.reward).check_run(config, make_network(config).spec)
    if config.wandb.enabled:
        metrics.import_wandb()
    return config


def check_devices(config: AgentConfig) -> None:
    """Raises UserError where a resolved config does not fit the devices; the same on every host."""
    learners, actors = len(learner_devices(config.devices)), len(actor_devices(config.devices))
    _check_sharding(config, learners)
    count = config.hosts.count or 1
    algorithm, plan = algorithm_of(config), plan_of(config)
    # The devices of a split network count as one.
    devices = 1 if agent_networks.mesh_sizes(config, learners) else learners * count
    algorithm.check_devices(plan, devices)
    minibatches = algorithm.minibatches(plan)
    rollouts = config.batch_size // config.rollout
    over = f"{count} hosts of {learners}" if count > 1 else str(learners)
    allowed = (
        f"rollouts that divide over {over} learner devices and {minibatches} minibatches; it is {rollouts} rollouts of "
        f"{config.rollout} steps"
    )
    good = rollouts % (count * learners * minibatches) == 0
    checks.require(good, "batch_size", config.batch_size, allowed)
    workers, allowed = config.actors.workers, f"a multiple of the {actors} devices of config.devices.actor"
    checks.require(workers % actors == 0, "actors.workers", workers, allowed)
    require_memory(sum(part.layout().size for part in actors_configs(config, actors)))


def _check_sharding(config: AgentConfig, learners: int) -> None:
    if config.sharding is None or agent_networks.mesh_sizes(config, learners) is None:
        return
    split = dataclasses.asdict(config.sharding)
    allowed = f"sizes whose product divides the {learners} devices of config.devices.learner (a host has whole networks)"
    checks.require(learners % (split["fsdp"] * split["tensor"]) == 0, "sharding", split, allowed)
    allowed = "'first' or as config.devices.learner where the network is split over devices"
    good = config.devices.actor in ("first", config.devices.learner)
    checks.require(good, "devices.actor", config.devices.actor, allowed)


def random_key(seed: int, *path: int | str) -> jax.Array:
    """The random key of a training's part `path`; ('learner') is that of the first parameters and of the updates."""
    return jax.random.PRNGKey(seeds.derive(seed, *path) % (1 << 31))
