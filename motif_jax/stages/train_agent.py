"""Trains an agent in a run folder, on one host or on several."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from ml_collections import ConfigDict

from motif_jax.support import run_folder
from motif_jax.support.interruption import EXIT_CODE, Interruption

# What makes a run the run it is; everything else may change when it is continued.
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
    # Of configs/oni.py: what is asked, not who is asked where.
    "annotator.goal",
    "annotator.prompt",
    "annotator.answer",
)


def check(config: ConfigDict, workdir: Path) -> None:
    """Raises UserError for a value that is not allowed, or a folder that holds another run."""
    from motif_jax.algorithms.registry import algorithm_of
    from motif_jax.rl import agent_checkpoints, agent_networks, reward_choice, settings

    run_folder.check_identity(workdir, config, IDENTITY)
    settings.configure_jax(config)
    config = reward_choice.apply(config, workdir)
    agent_networks.check(config)
    algorithm_of(config).check(settings.check(config))
    if config.get("probes") is not None:
        from motif_jax.rl import probing

        probing.make(config, settings.make_network(config))
    if config.get("tests") is not None and not (workdir / agent_checkpoints.FOLDER).exists():
        from motif_jax.rollouts import eval_agents

        base = eval_agents.PlayedLevel(config.environment.name, settings.environment_options(config))
        reads = agent_networks.reads_prompts(config)
        abilities = eval_agents.abilities_of(reads, agent_networks.takes_any_actions(config))
        room, make = (
            agent_networks.prompt_room(config) if reads else None,
            partial(agent_networks.make, config),
        )
        left_out = eval_agents.refused_after(config.tests, config.seed, base, make, abilities, room)
        for name, reason in left_out.items():
            print(f"after this training the test {name} will be left out: {reason}", file=sys.stderr)


def run(config: ConfigDict, workdir: Path) -> int | None:
    """Trains; returns 75 after a request to stop."""
    from motif_jax.devices.hosts import Hosts
    from motif_jax.rl import settings
    from motif_jax.rl.training import AgentTraining

    resolved, everyone = settings.resolved(config), Hosts()
    if everyone.count > 1:
        everyone.require_alike(config)
        settings.check_devices(resolved)  # how many there are was not known before

    def prepare() -> None:
        run_folder.prepare(workdir, config, IDENTITY)

    with Interruption() as stop, everyone.locked(workdir):
        everyone.on_first(prepare)
        everyone.require_shared(workdir)
        finished = AgentTraining(resolved, workdir).run(stop)
    return None if finished else EXIT_CODE
