"""Who plays, where, and by which reward it is rated: what evaluate and visualize read from their configs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from motif_jax.envs import registry
from motif_jax.envs.spec import EnvironmentSpec
from motif_jax.runtime import policies
from motif_jax.runtime.episode_rewards import EpisodeRater, TextRater, load_rater
from motif_jax.support import config as checks
from motif_jax.support import run_folder
from motif_jax.support.errors import UserError

DEFAULT_ENVIRONMENT = "NetHackScore-v1"
# What a result depends on, of the sections that this module reads.
IDENTITY = ("policy", "agent", "environment", "reward", "compat")


@dataclass(frozen=True)
class Contest:
    """A policy in its environment.

    Attributes:
      policy: for `episodes.play_episodes`.
      environment, options, spec: where it plays.
      checkpoint: step of the agent's checkpoint, None for the random policy.
      rater: the intrinsic reward, None without one.
      reward: its config section, None without one.
      plan: all of this in words and numbers, JSON-able.
    """

    policy: Any
    environment: str
    options: dict[str, Any]
    spec: EnvironmentSpec
    checkpoint: int | None
    rater: EpisodeRater | None
    reward: ConfigDict | None
    plan: dict[str, Any]

    def text_rater(self) -> TextRater | None:
        """Loads the reward's numbers of single texts, for people who watch; None without a reward."""
        return None if self.reward is None else TextRater(self.reward, self.spec)


def check(config: ConfigDict, checkpoint: int | None = None) -> None:
    """Raises UserError for values of the sections policy, agent, environment and reward that cannot work.

    Opens the contest: what is wrong in its folders is told here, not when a run folder has been given to it.
    `checkpoint` as in `open_contest`.
    """
    named = config.policy in (policies.RANDOM, policies.AGENT)
    allowed = f"{policies.RANDOM}, {policies.AGENT}, or the folder of an agent run"
    checks.require(named or Path(config.policy).is_dir(), "policy", config.policy, allowed)
    which = config.agent.checkpoint
    good = which in ("latest", "best") or which.isdigit()
    checks.require(good, "agent.checkpoint", which, "latest, best or a step")
    if config.policy == policies.AGENT or config.agent.dir is not None:
        checks.existing_folder(config, "agent.dir")
    if config.environment.name is not None:
        registry.check(config.environment.name)
    checks.positive(config, "environment.max_episode_steps", allow_none=True)
    checks.positive(config, "reward.count_exponent", allow_zero=True)
    checks.fraction(config, "reward.quantile", allow_none=True)
    if config.reward.dir:
        checks.existing_folder(config, "reward.dir")
    open_contest(config, checkpoint)


def open_contest(config: ConfigDict, checkpoint: int | None = None) -> Contest:
    """Loads what `config` names.

    The random policy plays in the environment of `config.agent.dir` where that is given. The reward is that of
    `config.reward.dir`, none where that is empty, and the agent's own where it is None.

    Args:
      config: with the sections policy, agent, environment, reward, compat.
      checkpoint: this step in place of `config.agent.checkpoint`.

    Raises:
      UserError: a folder is not what it should be.
    """
    policy: Any = policies.RandomPolicy()
    reward: ConfigDict | None = None
    step: int | None = None
    folder = config.agent.dir if config.policy in (policies.RANDOM, policies.AGENT) else config.policy
    name = config.environment.name or DEFAULT_ENVIRONMENT
    switches = {key: True for key, on in config.compat.items() if on}
    options: dict[str, Any] = {}
    if folder is None and switches:
        allowed = f"off on {name}: only the game has published quirks"
        checks.require(name in registry.NETHACK_TASKS, f"compat.{min(switches)}", True, allowed)
        options["compat"] = switches
    if folder is not None:
        from motif_jax.runtime import agent_policy

        trained = agent_policy.read_config(folder)
        trained_on, options = agent_policy.environment_of(trained)
        name = config.environment.name or trained_on
        _check_fits(folder, trained_on, name)
        if trained.reward.get("dir") and trained.reward.intrinsic_coefficient:
            reward = trained.reward
        if config.policy != policies.RANDOM:
            which = config.agent.checkpoint if checkpoint is None else str(checkpoint)
            policy, step = agent_policy.load(folder, which, name)
    if config.environment.max_episode_steps is not None:
        options["max_episode_steps"] = config.environment.max_episode_steps
    if config.reward.dir is not None:
        reward = config.reward if config.reward.dir else None
    elif reward is not None and not Path(reward.dir).is_dir():
        raise UserError(
            f"{folder} was trained with the reward in {reward.dir}, which is not there: give --config.reward.dir=DIR, or "
            "--config.reward.dir= to go without"
        )
    spec = registry.spec(name, **options)
    rater = None if reward is None else load_rater(reward, spec)
    plan = {
        "policy": policies.RANDOM if step is None else str(folder),
        "checkpoint": step,
        "environment": name,
        "options": options,
        "reward": None if reward is None else run_folder.as_plain(reward),
    }
    return Contest(policy, name, options, spec, step, rater, reward, plan)


def _check_fits(folder: str, trained_on: str, name: str) -> None:
    """Raises UserError when an agent of one environment cannot play in another: the tasks of the game are one kind."""
    game = registry.NETHACK_TASKS
    allowed = f"one of {', '.join(game)}" if trained_on in game else trained_on
    good = name == trained_on or (name in game and trained_on in game)
    checks.require(good, "environment.name", name, f"{allowed}: {folder} was trained on {trained_on}")
