"""Collect: plays games and writes the pairs dataset. The work folder becomes the dataset."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from motif_jax.core import capacity, run_folder
from motif_jax.core import config as checks
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_json, read_json
from motif_jax.core.interruption import EXIT_CODE, Interruption
from motif_jax.core.progress import format_number
from motif_jax.envs import determinism, registry
from motif_jax.envs.nethack.random_players import has_habits
from motif_jax.envs.nethack.scripted_players import ERRANDS, PLAYERS
from motif_jax.envs.spec import EnvironmentSpec
from motif_jax.motif import look
from motif_jax.motif.collection import Collection
from motif_jax.motif.config import CollectConfig, PlayerWeights
from motif_jax.motif.pairs import layout
from motif_jax.motif.pairs.dataset import PairsDataset
from motif_jax.motif.sampling import Players, SamplingPlan
from motif_jax.rl.actors import policies
from motif_jax.schema import read_section

# Names of players; others are the random players of NetHack.
UNIFORM = "uniform"
AGENTS = "agents"
SCRIPTED = "scripted"
# Which checkpoints 'latest' and the like meant when the collection was started, in the staging
# folder.
_CHECKPOINTS = "agents.json"
# Everything that decides what the dataset holds; only the number of workers may change.
IDENTITY = (
    "seed",
    "num_pairs",
    "length",
    "start_share",
    "spread",
    "drop_equal_captions",
    "environment",
    "policy",
    "mixture",
    "agents",
    "scripted",
    "lanes",
    "screens",
    "glyphs",
)


def _spec(config: CollectConfig) -> EnvironmentSpec:
    return registry.spec(config.environment.name, **_environment_options(config))


def _environment_options(config: CollectConfig) -> dict[str, Any]:
    return registry.options_of(vars(config.environment))


def recorded_fields(config: CollectConfig, spec: EnvironmentSpec) -> tuple[str, ...]:
    """The observation fields besides the message that the dataset keeps: those that the environment
    has in the right shape.
    """
    requested = ["blstats"]
    if config.screens:
        requested += ["tty_chars", "tty_colors"]
    if config.glyphs:
        requested.append("glyphs")
    observation = {**spec.optional_fields, **spec.observation}
    return tuple(
        name
        for name in requested
        if name in observation and observation[name].shape in layout.DATA_ARRAYS[name].steps
    )


def player_weights(config: CollectConfig, spec: EnvironmentSpec) -> dict[str, float]:
    """Kind of player -> how often it plays, relative to the others; AGENTS and SCRIPTED stand for
    all of their kind.
    """
    if config.policy != "mixture":
        return {UNIFORM if config.policy == "random" else config.policy: 1.0}
    weights = {name: float(weight) for name, weight in vars(config.mixture).items() if weight > 0}
    if not has_habits(spec):
        # The other random players of the mixture press keys of NetHack.
        weights = {name: weights[name] for name in (UNIFORM, SCRIPTED, AGENTS) if name in weights}
    return weights


def _scripted(config: CollectConfig, spec: EnvironmentSpec) -> dict[str, Any]:
    """The players of `config.scripted` by name. Raises UserError: one cannot be loaded, or needs a
    device.
    """
    names = checks.listed(config.scripted)
    players = {name: policies.load_user_policy(name, spec, "scripted") for name in names}
    for name, policy in players.items():
        checks.require(
            policy.in_workers, "scripted", name, "a player that needs no device (in_workers=True)"
        )
    return players


def check(config_tree: ConfigDict, workdir: Path) -> None:
    """Raises UserError where the config, the players or the work folder cannot be used; plays
    nothing.
    """
    run_folder.check_identity(workdir, config_tree, IDENTITY)
    config = read_section(CollectConfig, config_tree)
    capacity.require_workers("workers", config.workers)
    # A game that is shorter than a sub-sequence gives none.
    steps = config.environment.max_episode_steps
    allowed = f"at most environment.max_episode_steps={steps}"
    checks.require_key(config, "length", config.length <= steps, allowed)
    registry.check(config.environment.name, _environment_options(config))
    spec = _spec(config)
    _check_fields(config, spec)
    if config.look:
        return
    _check_players(config, spec)
    if AGENTS in player_weights(config, spec):
        if config.policy == AGENTS:
            # Names the key that brings agents in, for the error.
            use = f"config.policy={config.policy}"
        else:
            use = f"config.mixture.{AGENTS}={config.mixture.agents}"
        # Agents' episodes are played again from their seeds and actions, see `sampling`.
        determinism.require(config.environment.name, _environment_options(config), use)

    is_collection = (workdir / layout.META).exists() or (workdir / layout.STAGING).exists()
    # Data without a config, or with neither dataset.json nor a staging folder, are from elsewhere.
    if (workdir / "data").exists() and not ((workdir / "config.json").exists() and is_collection):
        raise UserError(
            f"{workdir} holds a dataset that was not collected here: choose another --workdir"
        )
    # A complete collection plays no more: it needs neither room nor its agents.
    if not (workdir / layout.META).exists():
        require_disk_space(config, workdir, spec)
        _agents(config, workdir / layout.STAGING / _CHECKPOINTS)


def _check_fields(config: CollectConfig, spec: EnvironmentSpec) -> None:
    """Raises UserError unless the environment has a text that fits a dataset, and the pictures that
    the config wants.
    """
    name = config.environment.name
    limit = layout.MESSAGE_BYTES
    text = registry.require_text(name, spec.text_field)
    fits = spec.observation[text].shape[-1] <= limit
    checks.require(fits, "environment.name", name, f"one whose texts have at most {limit} bytes")
    has_glyphs = not config.glyphs or "glyphs" in recorded_fields(config, spec)
    checks.require(has_glyphs, "glyphs", True, f"False: {name} shows none")


def _check_players(config: CollectConfig, spec: EnvironmentSpec) -> None:
    """Raises UserError unless the players are named where they play, and can play this
    environment.
    """
    weights = player_weights(config, spec)
    for key in (AGENTS, SCRIPTED):
        allowed = f"left empty, or given with config.policy={key} or config.mixture.{key} above 0"
        checks.require_key(config, key, key in weights or not getattr(config, key), allowed)

    errands = [
        name for name in ERRANDS if config.policy == "mixture" and getattr(config.mixture, name) > 0
    ]
    for name in errands:
        allowed = f"0: {name} plays NetHack, not {config.environment.name}"
        checks.require_key(config, f"mixture.{name}", has_habits(spec), allowed)
    _check_habits(config, spec)
    can_read_screen = not errands or "tty_chars" in recorded_fields(config, spec)
    checks.require(can_read_screen, "screens", False, f"True: {', '.join(errands)} read the screen")
    if SCRIPTED in weights:
        _scripted(config, spec)


def _check_habits(config: CollectConfig, spec: EnvironmentSpec) -> None:
    """Raises UserError where a mixture outside NetHack has a weight of a player with habits of
    NetHack that is not the default, which nothing would read.
    """
    if config.policy != "mixture" or has_habits(spec):
        return
    defaults = PlayerWeights()
    for name in PLAYERS:
        if name in (UNIFORM, *ERRANDS):
            continue
        default = getattr(defaults, name)
        is_neutral = getattr(config.mixture, name) in (0, default)
        allowed = f"left at {default}, or 0: {name} plays NetHack, not {config.environment.name}"
        checks.require_key(config, f"mixture.{name}", is_neutral, allowed)


def require_disk_space(config: CollectConfig, workdir: Path, spec: EnvironmentSpec) -> None:
    """Raises UserError where the disk has no room for a collection that is about to start."""
    # Resumed: a part of what it needs lies on the disk already.
    if (workdir / layout.STAGING).exists():
        return
    # The nearest folder that exists, since the work folder may not yet.
    folder = next(
        path for path in (workdir.absolute(), *workdir.absolute().parents) if path.exists()
    )
    # Messages and rewards are recorded in any case, see `_plan` and `sampling.chunk_arrays`.
    fields = ("message", "rewards", *recorded_fields(config, spec))
    step_bytes = sum(layout.DATA_ARRAYS[name].step_bytes() for name in fields)
    dataset_bytes = step_bytes * config.length * 2 * config.num_pairs
    # Once as chunks and once as the dataset; the rest is for info/, which is small.
    needed = int(2 * 1.05 * dataset_bytes)
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise UserError(
            f"config.num_pairs={config.num_pairs} needs about {format_number(needed / 1e9)} GB while it is collected, "
            f"{folder} has {format_number(free / 1e9)} GB: choose another --workdir, fewer pairs, or --config.screens=False"
        )


def run(config_tree: ConfigDict, workdir: Path) -> int | None:
    """Collects the pairs, or resumes where an earlier command was stopped; returns the exit
    status.
    """
    config = read_section(CollectConfig, config_tree)
    staging = workdir / layout.STAGING
    if config.look:
        look.write(_plan_of_look(config), config.num_pairs, workdir)
        return None
    with run_folder.opened(workdir, config_tree, IDENTITY):
        if (workdir / layout.META).exists():
            # Left where a kill came between dataset.json and the end of the collection.
            shutil.rmtree(staging, ignore_errors=True)
            print(f"{workdir} is complete: {PairsDataset.open(workdir).num_pairs:,} pairs")
            return None

        spec = _spec(config)
        agents = _agents(config, staging / _CHECKPOINTS)
        # Pinned before the first game: a resumed collection plays these checkpoints, whatever
        # 'latest' means by then.
        checkpoints = [{**vars(agent), "identity": agent.identity()} for agent in agents.values()]
        atomic_write_json(staging / _CHECKPOINTS, checkpoints)

        with Interruption() as stop:
            collection = Collection(
                config,
                _plan(config, spec, staging / "chunks"),
                _players(config, spec, agents),
                agents,
                workdir,
                stop,
            )
            return None if collection.run(_meta(config_tree)) else EXIT_CODE


def _plan(config: CollectConfig, spec: EnvironmentSpec, chunks: Path) -> SamplingPlan:
    fields = recorded_fields(config, spec)
    options = _environment_options(config)
    # Fields that the environment shows only on request.
    added = tuple(field for field in fields if field not in spec.observation)
    if added:
        options |= {"fields": added}
    return SamplingPlan(
        environment=config.environment.name,
        options=options,
        fields=("message", *fields),
        seed=config.seed,
        length=config.length,
        share=_start_share(config),
        folder=str(chunks),
        even=config.spread == "messages",
        text=spec.text_field or "message",
    )


def _plan_of_look(config: CollectConfig) -> SamplingPlan:
    """As `_plan`, of the observations that an agent gets and of captions alone."""
    plan = _plan(config, _spec(config), Path())
    options = _environment_options(config)
    return dataclasses.replace(plan, options=options, fields=("message",))


def _start_share(config: CollectConfig) -> float:
    if config.start_share is not None:
        return config.start_share
    return 0.1 if config.spread == "messages" else 1.0


def _players(config: CollectConfig, spec: EnvironmentSpec, agents: Mapping[str, Any]) -> Players:
    """All players by name; the weight of AGENTS and that of SCRIPTED is shared among those of the
    kind.
    """
    weights = player_weights(config, spec)
    scripted = _scripted(config, spec)
    for kind, names in ((AGENTS, agents), (SCRIPTED, scripted)):
        share = weights.pop(kind, 0.0) / max(1, len(names))
        if share:
            weights |= dict.fromkeys(names, share)
    random_players = PLAYERS if has_habits(spec) else {UNIFORM: policies.RandomPolicy()}
    return Players(weights, config.seed, {**random_players, **scripted})


def _meta(config_tree: ConfigDict) -> dict[str, Any]:
    """The origin of the dataset, for dataset.json."""
    plain = run_folder.as_plain(config_tree)
    versions = run_folder.versions()
    return {
        "origin": "motif_jax collect",
        "config": {key: plain[key] for key in IDENTITY},
        # Other versions play other games from the same seeds.
        "engine": {name: versions[name] for name in ("nle", "numpy") if name in versions},
    }


def _agents(config: CollectConfig, checkpoints: Path) -> dict[str, Any]:
    """The agents that play, by name: those of the file `checkpoints`, else those that
    `config.agents` means now.

    Raises UserError: one is missing, or was trained again since the file was written.
    """
    if AGENTS not in player_weights(config, _spec(config)):
        return {}
    # Imports jax, which a collection without agents does not need.
    from motif_jax.play import agents

    # Not started yet: the names mean what is there now.
    if not checkpoints.exists():
        resolved = agents.resolve(config.agents)
        for agent in resolved:
            agents.require_fit(agent, config.environment.name, _environment_options(config))
        return {agent.name: agent for agent in resolved}

    # Started: the checkpoints that played first, if they are still the same.
    remedy = f"remove {checkpoints.parent} and collect again"
    entries = read_json(checkpoints, remedy, kind=list)
    stored = [agents.CollectingAgent(str(entry["folder"]), int(entry["step"])) for entry in entries]
    for entry, agent in zip(entries, stored, strict=True):
        if entry.get("identity") != agent.identity():
            raise UserError(
                f"config.agents={agent.name}: was trained again since the run started: restore "
                f"the previous one, or {remedy}"
            )
    return {agent.name: agent for agent in stored}
