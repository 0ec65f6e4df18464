"""Trains an agent in a run folder, on one host or on several."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from motif_jax.core import entry_points, run_folder
from motif_jax.core.devices.hosts import Hosts
from motif_jax.core.interruption import EXIT_CODE, Interruption
from motif_jax.envs import determinism
from motif_jax.rl import agent_networks, choices, reward_choice, settings
from motif_jax.rl.config import agent_config
from motif_jax.rl.training import AgentTraining
from motif_jax.rl.training_hook import hooks_of
from motif_jax.rl.update_plan import algorithm_of, plan_of

# Keys that must stay the same when a run is continued; all others may change.
IDENTITY = (
    "stage",
    "seed",
    "environment",
    "network",
    "lora",
    "algorithm",
    "optimizer",
    "reward",
    "compat",
    "batch_size",
    "rollout",
    # Of the annotator of configs/oni.py the questions, not the server that answers.
    "annotator.goal",
    "annotator.prompt",
    "annotator.answer",
)


def check(config_tree: ConfigDict, workdir: Path) -> None:
    run_folder.check_identity(workdir, config_tree, IDENTITY)
    # A run that continues is checked with the reward that it has learned from.
    training = reward_choice.with_stored_step(agent_config(config_tree), workdir)
    settings.configure_jax(training)
    agent_networks.class_of(training).check(training)
    algorithm_of(training).check(plan_of(settings.check(training)))
    for hook in hooks_of(training):
        hook.check(training, workdir)


def run(config_tree: ConfigDict, workdir: Path) -> int | None:
    resolved = settings.resolved(agent_config(config_tree))
    hosts = Hosts()
    if hosts.count > 1:
        hosts.require_alike(config_tree.to_dict())
        # `check` could not: the number of devices is known only once the hosts are connected.
        settings.check_devices(resolved)

    def prepare() -> None:
        run_folder.prepare(workdir, config_tree, IDENTITY)

    environment = resolved.environment.name
    remarks = determinism.remarks(environment, settings.environment_options(resolved))
    on_algorithm = remark_on_algorithm(config_tree.algorithm)
    if on_algorithm is not None:
        remarks.append(on_algorithm)
    if hosts.is_first:
        for remark in remarks:
            print(remark, file=sys.stderr, flush=True)

    with Interruption() as stop, hosts.locked(workdir):
        hosts.on_first(prepare)
        hosts.require_shared(workdir)
        training = AgentTraining(resolved, workdir)
        finished = training.run(stop)
    if training.was_left_unsaved:
        # Python's own end would wait for the devices.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(EXIT_CODE)
    return None if finished else EXIT_CODE


def remark_on_algorithm(section: ConfigDict) -> str | None:
    """A line for another algorithm of this package in a config file that lists APPO's keys, whose
    defaults it then takes.
    """
    name = section.get("name", choices.APPO)
    appo = _defaults(choices.APPO)
    lists_appo = appo.keys() <= set(section.keys())
    if name == choices.APPO or entry_points.is_entry_point(name) or not lists_appo:
        return None
    taken = []
    for key, default in _defaults(name).items():
        is_shared = key in appo and key != "name"
        if is_shared and section[key] == appo[key] and default != appo[key]:
            taken.append(f"{key}={section[key]} ({name}'s own: {default})")
    if not taken:
        return None
    return f"config.algorithm.name={name} takes these values, which the config file has for appo, unless they are set: {', '.join(taken)}"


def _defaults(algorithm: str) -> dict[str, Any]:
    """The keys of an algorithm's section and their defaults."""
    return dataclasses.asdict(choices.ALGORITHM_SECTIONS.load(algorithm)())
