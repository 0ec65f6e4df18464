"""Agents as players of a collection: the network plays in this process, and a recording process
plays its actions again.

Only that process, at the speed of the engine, reads the screens.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.core import entry_points
from motif_jax.core.config import is_natural, listed, require
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_save_npy
from motif_jax.envs import registry
from motif_jax.play import agent_policy
from motif_jax.rl.actors.episodes import PlaySettings, play_episodes

# Switches that change an agent's observations. The others change when a game ends, where the
# collection's own rules hold.
_OBSERVATION_SWITCHES = ("crop_row_offset", "message_count_off")


@dataclass(frozen=True)
class CollectingAgent:
    """One checkpoint of an agent run; `name` is RUN@STEP."""

    folder: str
    step: int

    @property
    def name(self) -> str:
        return f"{self.folder}@{self.step}"

    def identity(self) -> str | None:
        """See `agent_policy.identity`."""
        return agent_policy.identity(self.folder, self.step)


def resolve(agents: str) -> list[CollectingAgent]:
    """The checkpoints that `config.agents` names at present: RUN (its newest), RUN@STEP, RUN@best,
    RUN@all, with commas between.

    Raises UserError where a folder is not an agent run, or has no such checkpoint.
    """
    resolved: list[CollectingAgent] = []
    for entry in listed(agents):
        folder, checkpoint = _split(entry)
        agent_policy.read_config(folder)
        with agent_policy.open_checkpoints(folder) as checkpoints:
            if checkpoint == "all":
                steps = checkpoints.steps()
            else:
                step = agent_policy.choose_step(checkpoints, checkpoint, folder)
                steps = [checkpoints.require_saved(step)]
        if not steps:
            raise UserError(
                f"{folder} has no checkpoint yet: train for longer, or choose another folder"
            )
        resolved += [CollectingAgent(folder, step) for step in steps]
    require(bool(resolved), "agents", agents, "run folders of train_agent, with commas between")
    return resolved


def require_fit(agent: CollectingAgent, environment: str, options: Mapping[str, Any]) -> None:
    """Raises UserError where an environment with `options` is of another kind than the one that the
    agent was trained in.

    Of gymnasium, it must be the same. The collection's own flags decide which game is played. Left
    unset they would silently give another game than the agent knows.
    """
    trained_on, trained_options = agent_policy.environment_of(
        agent_policy.read_config(agent.folder)
    )
    if not registry.is_gym(environment):
        is_relative = not registry.is_gym(trained_on) and (
            registry.spec(environment, **options).family
            == registry.spec(trained_on, **trained_options).family
        )
        allowed = f"{trained_on}, or of its kind: {agent.folder} was trained on {trained_on}"
        require(is_relative, "environment.name", environment, allowed)
        return
    for key in registry.SHAPING:
        if environment == trained_on and key in trained_options and key not in options:
            value = trained_options[key]
            shown = json.dumps(value) if isinstance(value, Mapping) else value
            raise UserError(
                f"config.environment.{key}: must be set, since {agent.folder} was trained with it: --config.environment.{key}='{shown}'"
            )
    if entry_points.is_entry_point(trained_options.get("text") or ""):
        # A function takes no field out of the observation, and need not be trusted again.
        trained_options = {**trained_options, "text": ""}
    fits = registry.spec(environment, **options).fits(registry.spec(trained_on, **trained_options))
    allowed = f"{trained_on} with the fields and actions with which {agent.folder} was trained"
    require(fits, "environment.name", environment, allowed)


def _split(entry: str) -> tuple[str, str]:
    """(folder, checkpoint) of RUN or RUN@CHECKPOINT; the folder's own name may have an @ too."""
    folder, separator, checkpoint = entry.rpartition("@")
    if separator and (checkpoint in ("", "latest", "best", "all") or is_natural(checkpoint)):
        return folder, checkpoint or "latest"
    return entry, "latest"


# A collection plays in rounds; compiling the network takes most of the time of a small one.
@functools.lru_cache(maxsize=16)
def _load(
    agent: CollectingAgent, environment: str
) -> tuple[agent_policy.AgentPolicy, dict[str, bool]]:
    """The agent's policy in `environment`, and the switches of its training that its observations
    need.
    """
    _, options = agent_policy.environment_of(agent_policy.read_config(agent.folder))
    policy, _ = agent_policy.load(agent.folder, str(agent.step), environment)
    compat = options.get("compat", {})
    return policy, {name: True for name in _OBSERVATION_SWITCHES if compat.get(name)}


def play(
    agent: CollectingAgent,
    environment: str,
    options: dict[str, Any],
    episodes: Sequence[int],
    seeds: Sequence[int],
    actions_file: Callable[[int], Path],
    how: PlaySettings,
    stop: Any,
) -> Iterator[int]:
    """Plays `episodes`, of `seeds` 0, 1, ..., and writes their actions; yields each episode's index
    when it is done.

    Raises UserError where the checkpoint cannot be read, or does not fit the environment.
    """
    policy, switches = _load(agent, environment)
    # The seeds keep their places, so that an episode's index is its number in the collection.
    skip = set(range(len(seeds))) - set(episodes)
    agent_options = {**options, "compat": switches} if switches else options
    spec = registry.spec(environment, **options)
    dtype = spec.action.dtype if spec.action_size else np.min_scalar_type(spec.num_actions)
    for record in play_episodes(
        environment, agent_options, seeds, policy, how, skip=skip, stop=stop
    ):
        atomic_save_npy(actions_file(record.index), record.actions.astype(dtype))
        yield record.index
