"""Collect: plays games and writes the pairs dataset. The work folder becomes the dataset."""

from __future__ import annotations

import shutil
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
from motif_jax.motif.collection import Collection
from motif_jax.motif.pairs import layout
from motif_jax.motif.pairs.dataset import PairsDataset
from motif_jax.motif.sampling import Players, SamplingPlan
from motif_jax.play import policies
from motif_jax.play.config import CollectedPairs
from motif_jax.schema import read_section

UNIFORM, AGENTS, SCRIPTED = "uniform", "agents", "scripted"
# Which checkpoints 'latest' and the like meant when the collection was started.
_SETTLED = "agents.json"
# Everything that decides what the dataset holds; only the number of workers may change.
IDENTITY = (
    "seed num_pairs length start_share spread drop_equal_captions environment policy mixture agents scripted lanes screens glyphs"
).split()


def _spec(config: ConfigDict) -> EnvironmentSpec:
    return registry.spec(config.environment.name, **registry.options_of(config.environment))


def _fields(config: ConfigDict, spec: EnvironmentSpec) -> tuple[str, ...]:
    asked = ("blstats", *(("tty_chars", "tty_colors") * config.screens), *(("glyphs",) * config.glyphs))
    shown, known = {**spec.optional_fields, **spec.observation}, layout.DATA_ARRAYS
    return tuple(name for name in asked if name in shown and shown[name].shape in known[name].steps)


def _weights(config: ConfigDict, spec: EnvironmentSpec) -> dict[str, float]:
    if config.policy != "mixture":
        return {UNIFORM if config.policy == "random" else config.policy: 1.0}
    weights = {name: float(weight) for name, weight in config.mixture.items() if weight > 0}
    if not has_habits(spec):
        weights = {name: weights[name] for name in (UNIFORM, SCRIPTED, AGENTS) if name in weights}
    return weights


def _scripted(config: ConfigDict, spec: EnvironmentSpec) -> dict[str, Any]:
    found = {name: policies.from_outside(name, spec, "scripted") for name in checks.listed(config.scripted)}
    for name, policy in found.items():
        checks.require(policy.in_workers, "scripted", name, "a player that needs no device (in_workers=True)")
    return found


def check(config: ConfigDict, workdir: Path) -> None:
    run_folder.check_identity(workdir, config, IDENTITY)
    capacity.require_workers("workers", config.workers)
    steps = config.environment.max_episode_steps
    allowed = f"at most environment.max_episode_steps={steps}"
    checks.require_key(config, "length", config.length <= steps, allowed)
    registry.check(config.environment.name, registry.options_of(config.environment))
    spec = _spec(config)
    _check_fields(config, spec)
    _check_players(config, spec)
    if AGENTS in _weights(config, spec):
        key = "policy" if config.policy == AGENTS else f"mixture.{AGENTS}"
        use = f"config.{key}={config.policy if config.policy == AGENTS else config.mixture[AGENTS]}"
        determinism.require(config.environment.name, registry.options_of(config.environment), use)
    ours = (workdir / layout.META).exists() or (workdir / layout.STAGING).exists()
    if (workdir / "data").exists() and not ((workdir / "config.json").exists() and ours):
        raise UserError(f"{workdir} holds a dataset that was not collected here: choose another --workdir")
    if not (workdir / layout.META).exists():
        _check_disk(config, workdir, spec)
        _agents(config, workdir / layout.STAGING / _SETTLED)


def _check_fields(config: ConfigDict, spec: EnvironmentSpec) -> None:
    name, most = config.environment.name, layout.MESSAGE_BYTES
    text = registry.require_text(name, spec.text_field)
    fits = spec.observation[text].shape[-1] <= most
    checks.require(fits, "environment.name", name, f"one whose texts have at most {most} bytes")
    shown = not config.glyphs or "glyphs" in _fields(config, spec)
    checks.require(shown, "glyphs", True, f"False: {name} shows none")


def _check_players(config: ConfigDict, spec: EnvironmentSpec) -> None:
    weights = _weights(config, spec)
    checks.require(bool(weights), "mixture", "all 0", "at least one weight above 0")
    for key in (AGENTS, SCRIPTED):
        allowed = f"left empty, or given with config.policy={key} or config.mixture.{key} above 0"
        checks.require(key in weights or not config[key], key, config[key], allowed)
    errands = [name for name in ERRANDS if config.policy == "mixture" and config.mixture[name] > 0]
    for name in errands:
        allowed = f"0: {name} plays NetHack, not {config.environment.name}"
        checks.require(has_habits(spec), f"mixture.{name}", config.mixture[name], allowed)
    screens = not errands or "tty_chars" in _fields(config, spec)
    checks.require(screens, "screens", False, f"True: {', '.join(errands)} read the screen")
    allowed = "module:Class of scripted players, with commas between"
    checks.require_key(config, "scripted", SCRIPTED not in weights or bool(_scripted(config, spec)), allowed)


def _check_disk(config: ConfigDict, workdir: Path, spec: EnvironmentSpec) -> None:
    if (workdir / layout.STAGING).exists():
        return
    there = next(folder for folder in (workdir.absolute(), *workdir.absolute().parents) if folder.exists())
    fields = ("message", "rewards", *_fields(config, spec))
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
    staging = workdir / layout.STAGING
    with run_folder.opened(workdir, config, IDENTITY):
        if (workdir / layout.META).exists():
            shutil.rmtree(staging, ignore_errors=True)
            print(f"{workdir} is complete: {PairsDataset.open(workdir).num_pairs:,} pairs")
            return None
        spec = _spec(config)
        weights, scripted = _weights(config, spec), _scripted(config, spec)
        agents = _agents(config, staging / _SETTLED)
        begun = [{**vars(agent), "digest": agent.digest()} for agent in agents.values()]
        atomic_write_json(staging / _SETTLED, begun)
        fields = _fields(config, spec)
        added = tuple(field for field in fields if field not in spec.observation)
        for key, several in ((AGENTS, agents), (SCRIPTED, scripted)):
            share = weights.pop(key, 0.0) / max(1, len(several))
            weights |= dict.fromkeys(several, share) if share else {}
        options = registry.options_of(config.environment) | ({"fields": added} if added else {})
        game, drawn = (config.environment.name, options), (config.seed, config.length, config.start_share)
        even, text = config.spread == "messages", spec.text_field or "message"
        plan = SamplingPlan(*game, ("message", *fields), *drawn, str(staging / "chunks"), even, text)
        habits = PLAYERS if has_habits(spec) else {UNIFORM: policies.RandomPolicy()}
        players = Players(weights, config.seed, {**habits, **scripted})
        with Interruption() as stop:
            collection = Collection(
                read_section(CollectedPairs, config), plan, players, agents, workdir, stop
            )
            plain, versions = run_folder.as_plain(config), run_folder.versions()
            engine = {name: versions[name] for name in ("nle", "numpy") if name in versions}
            settings = {key: plain[key] for key in IDENTITY}
            meta = {"origin": "motif_jax collect", "config": settings, "engine": engine}
            return None if collection.run(meta) else EXIT_CODE


def _agents(config: ConfigDict, settled: Path) -> dict[str, Any]:
    """The agents that play, by name; UserError if one is missing or differs from the one in the file `settled`."""
    if AGENTS not in _weights(config, _spec(config)):
        return {}
    from motif_jax.play import agents

    if settled.exists():
        remedy = f"remove {settled.parent} and collect again"
        entries = read_json(settled, remedy, kind=list)
        try:
            chosen = [agents.CollectingAgent(str(entry["folder"]), int(entry["step"])) for entry in entries]
        except (KeyError, TypeError, ValueError):
            raise UserError(f"{settled} is damaged: {remedy}") from None
        for entry, agent in zip(entries, chosen, strict=True):
            if entry.get("digest") not in (None, agent.digest()):
                raise UserError(
                    f"config.agents={agent.name}: was trained again since the run started: restore "
                    f"the previous one, or {remedy}"
                )
    else:
        chosen = agents.resolve(config.agents)
    return {agent.name: agent for agent in chosen}
