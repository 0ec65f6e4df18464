"""Collect: plays games and writes the pairs dataset. The work folder becomes the dataset."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from motif_jax.collecting.collection import Collection, Wanted
from motif_jax.datasets.pairs import layout
from motif_jax.datasets.pairs.dataset import PairsDataset
from motif_jax.envs import registry
from motif_jax.envs.nethack.random_players import GROUPS
from motif_jax.envs.nethack.scripted_players import ERRANDS
from motif_jax.support import capacity, run_folder
from motif_jax.support import config as checks
from motif_jax.support.errors import UserError
from motif_jax.support.files import FolderLock, atomic_write_json, read_json
from motif_jax.support.interruption import EXIT_CODE, Interruption
from motif_jax.support.progress import format_number

POLICIES = ("random", "mixture", "agents")
SPREADS = ("steps", "messages")
AGENTS = "agents"
# Which checkpoints 'latest' and the like meant when the collection was started.
_SETTLED = "agents.json"
# Everything that decides what the dataset holds; only the number of workers may change.
IDENTITY = (
    "seed num_pairs length start_share spread drop_equal_captions environment policy mixture agents lanes screens glyphs"
).split()


def _fields(config: ConfigDict) -> tuple[str, ...]:
    """Observation fields besides message and status."""
    screens = ("tty_chars", "tty_colors") if config.screens else ()
    return (*screens, "glyphs") if config.glyphs else screens


def _weights(config: ConfigDict) -> dict[str, float]:
    """Player -> weight, for the players that take part; all agents together are one."""
    if config.policy == "random":
        return {"uniform": 1.0}
    if config.policy == "agents":
        return {AGENTS: 1.0}
    return {name: float(weight) for name, weight in config.mixture.items() if weight > 0}


def check(config: ConfigDict, workdir: Path) -> None:
    """Raises UserError for a bad value, or a folder that holds something else."""
    run_folder.check_identity(workdir, config, IDENTITY)
    for key in ("num_pairs", "length", "workers", "lanes", "environment.max_episode_steps", "start_share"):
        checks.positive(config, key)
    checks.fraction(config, "start_share")
    capacity.require_workers("workers", config.workers)
    checks.choice(config, "policy", POLICIES)
    checks.choice(config, "spread", SPREADS)
    checks.require(config.lanes % 2 == 0, "lanes", config.lanes, "an even number")
    steps = config.environment.max_episode_steps
    checks.require(
        config.length <= steps, "length", config.length, f"at most environment.max_episode_steps={steps}"
    )
    name = config.environment.name
    registry.check(name)
    spec = registry.spec(name)
    wanted, shown = ("message", "blstats", *_fields(config)), {*spec.observation, *spec.optional_fields}
    missing = [field for field in wanted if field not in shown]
    allowed = f"a NetHack task, or one that shows {', '.join(missing)} too: the dataset holds them"
    checks.require(not missing, "environment.name", name, allowed)
    for name in config.mixture:
        checks.positive(config, f"mixture.{name}", allow_zero=True)
    weights = _weights(config)
    checks.require(bool(weights), "mixture", "all 0", "at least one weight above 0")
    allowed = "left empty, or given with config.policy=agents or config.mixture.agents above 0"
    checks.require(AGENTS in weights or not config.agents, "agents", config.agents, allowed)
    habits = [player for player in weights if player != AGENTS]
    allowed = f"agents: {config.environment.name} has not the {' or '.join(map(str, GROUPS))} actions of the random players"
    fit = not habits or spec.num_actions in GROUPS
    checks.require(fit, "policy", config.policy, allowed)
    scripted = [player for player in weights if player in ERRANDS]
    checks.require(
        not scripted or config.screens, "screens", False, f"True: {', '.join(scripted)} read the screen"
    )
    ours = (workdir / layout.META).exists() or (workdir / layout.STAGING).exists()
    if (workdir / "data").exists() and not ((workdir / "config.json").exists() and ours):
        raise UserError(f"{workdir} holds a dataset that was not collected here: choose another --workdir")
    if not (workdir / layout.META).exists():
        _check_disk(config, workdir)
        _agents(config, workdir / layout.STAGING / _SETTLED)


def _check_disk(config: ConfigDict, workdir: Path) -> None:
    """Refuses to start a collection that the disk cannot hold; one that goes on has taken its room already."""
    if (workdir / layout.STAGING).exists():
        return
    there = next(folder for folder in (workdir.absolute(), *workdir.absolute().parents) if folder.exists())
    fields = ("message", "blstats", "rewards", *_fields(config))
    step = sum(layout.DATA_ARRAYS[name].step_bytes() for name in fields)
    # Once as chunks and once as the dataset; info/ is small beside it.
    needed = int(2 * 1.05 * step * config.length * 2 * config.num_pairs)
    free = shutil.disk_usage(there).free
    if needed > free:
        raise UserError(
            f"config.num_pairs={config.num_pairs} needs about {format_number(needed / 1e9)} GB while it is collected, "
            f"{there} has {format_number(free / 1e9)} GB: choose another --workdir, fewer pairs, or --config.screens=False"
        )


def run(config: ConfigDict, workdir: Path) -> int | None:
    """Collects what is missing; returns the exit code of an interrupted stage when it was asked to stop."""
    staging = workdir / layout.STAGING
    with FolderLock(workdir):
        run_folder.prepare(workdir, config, IDENTITY)
        if (workdir / layout.META).exists():
            shutil.rmtree(staging, ignore_errors=True)
            print(f"{workdir} is whole: {PairsDataset.open(workdir).num_pairs:,} pairs")
            return None
        agents = _agents(config, staging / _SETTLED)
        begun = [{**vars(agent), "digest": agent.digest()} for agent in agents.values()]
        atomic_write_json(staging / _SETTLED, begun)
        weights = _weights(config)
        shown = registry.spec(config.environment.name).observation
        added = tuple(field for field in _fields(config) if field not in shown)
        share = weights.pop(AGENTS, 0.0) / max(1, len(agents))
        wanted = Wanted(
            environment=config.environment.name,
            options={
                "max_episode_steps": config.environment.max_episode_steps,
                **({"fields": added} if added else {}),
            },
            fields=("message", "blstats", *_fields(config)),
            seed=config.seed,
            num_pairs=config.num_pairs,
            length=config.length,
            start_share=config.start_share,
            even=config.spread == "messages",
            drop_equal_captions=config.drop_equal_captions,
            players={**weights, **dict.fromkeys(agents, share)},
        )
        with Interruption() as stop:
            collection = Collection(
                wanted,
                workdir,
                staging,
                agents=agents,
                workers=config.workers,
                lanes=config.lanes,
                stop=stop,
            )
            return None if collection.run(_meta(config)) else EXIT_CODE


def _agents(config: ConfigDict, settled: Path) -> dict[str, Any]:
    """The agents that take part, by name; once there is the file `settled`, those in it.

    Raises:
      UserError: a folder or a checkpoint is not there, or is another than that of the start before.
    """
    if AGENTS not in _weights(config):
        return {}
    from motif_jax.collecting import agents  # imports jax

    if settled.exists():
        remedy = f"remove {settled.parent} and collect anew"
        entries = read_json(settled, remedy, kind=list)
        try:
            chosen = [agents.Agent(str(entry["folder"]), int(entry["step"])) for entry in entries]
        except (KeyError, TypeError, ValueError):
            raise UserError(f"{settled} is damaged: {remedy}") from None
        for entry, agent in zip(entries, chosen, strict=True):
            if entry.get("digest") not in (None, agent.digest()):
                raise UserError(
                    f"config.agents={agent.name}: is not the one that was begun with, it was trained anew: put back what was "
                    f"there, or {remedy}"
                )
    else:
        chosen = agents.resolve(config.agents)
    return {agent.name: agent for agent in chosen}


def _meta(config: ConfigDict) -> dict[str, Any]:
    plain, versions = run_folder.as_plain(config), run_folder.versions()
    return {
        "origin": "motif_jax collect",
        "config": {key: plain[key] for key in IDENTITY},
        "engine": {name: versions[name] for name in ("nle", "numpy") if name in versions},
    }
