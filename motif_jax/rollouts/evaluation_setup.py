"""Which policy plays where, and by which reward it is rated: what evaluate and visualize read from their configs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from motif_jax.envs import registry
from motif_jax.envs.babyai_text import catalogue
from motif_jax.envs.spec import EnvironmentSpec
from motif_jax.rollouts import fixed_shares, policies
from motif_jax.rollouts.ratings import EpisodeRater, LiveRater, load_rater
from motif_jax.support import config as checks
from motif_jax.support import run_folder
from motif_jax.support.errors import UserError

DEFAULT_ENVIRONMENT = "NetHackScore-v1"
_NAMED = (policies.RANDOM, policies.FIXED, policies.BOT, policies.AGENT)
# What a result depends on, of the sections that this module reads.
IDENTITY = ("policy", "agent", "environment", "reward", "compat")
_MOTIF = "motif"  # the kind of reward that lies in a folder or file
# Defaults of the configs for a named reward; an agent's own reward keeps the settings that it trained with.
_SETTINGS = {"step": None, "normalise": True, "quantile": 0.5, "threshold": "quantile", "count_exponent": 3.0}


@dataclass(frozen=True)
class PinnedVersions:
    """What a resumed run keeps although its config leaves it open: trainings that resume save newer versions.

    Attributes:
      checkpoint: step of the agent's checkpoint, None: as the config says.
      reward_step: evaluation of the reward, likewise.
      digests: of `EvalSetup`; those that are missing are not compared.
      shares: of the actions, of the policy 'fixed'; None: they are fitted.
    """

    checkpoint: int | None = None
    reward_step: int | None = None
    digests: Mapping[str, str] = field(default_factory=dict)
    shares: tuple[float, ...] | None = None


@dataclass(frozen=True)
class EvalSetup:
    """A policy in its environment.

    Attributes:
      checkpoint: step of the agent's checkpoint, None for other policies.
      rater: the intrinsic reward, None without one.
      reward: dir, step, normalise, quantile, count_exponent and two_decimals of it, None without one.
      plan: all of this, JSON-able.
      digests: of `agent` and `reward`, where they have one.
    """

    policy: Any
    environment: str
    options: dict[str, Any]
    spec: EnvironmentSpec
    checkpoint: int | None
    rater: EpisodeRater | None
    reward: ConfigDict | None
    plan: dict[str, Any]
    digests: dict[str, str]

    def live_rater(self) -> LiveRater | None:
        return None if self.reward is None else LiveRater(self.reward, self.spec)


class _Agent(NamedTuple):
    """What the folder of an agent gives: where it plays, itself if it plays, its own reward and the rounding of that."""

    environment: str
    options: dict[str, Any]
    policy: Any = None
    step: int | None = None
    reward: ConfigDict | None = None
    two_decimals: bool | None = None


def check_checkpoint(which: str) -> None:
    """Raises UserError where `config.agent.checkpoint` names no checkpoint."""
    good = which in ("latest", "best") or checks.is_natural(which)
    checks.require(good, "agent.checkpoint", which, "latest, best or a step")


def check(config: ConfigDict, pins: PinnedVersions | None = None) -> EvalSetup:
    """Opens the setup as `open_setup` does; raises UserError, too, for values that it does not read."""
    is_known = config.policy in _NAMED or policies.is_outside(config.policy)
    allowed = f"{', '.join(_NAMED)}, the folder of an agent run, or module:Class"
    is_folder = bool(config.policy) and Path(config.policy).is_dir()
    checks.require(is_known or is_folder, "policy", config.policy, allowed)
    check_checkpoint(config.agent.checkpoint)
    if config.policy == policies.AGENT or config.agent.dir is not None:
        checks.existing_folder(config, "agent.dir")
    if config.environment.name is not None and not registry.is_gym(config.environment.name):
        registry.check(config.environment.name)
    if config.reward.dir:
        from motif_jax.rewards.load import check_place

        check_place(config, "reward.dir")
    setup = open_setup(config, pins)
    if registry.is_gym(setup.environment):
        registry.check(setup.environment, setup.options)
    check_greedy(config, setup.policy)
    return setup


def check_greedy(config: ConfigDict, policy: Any) -> None:
    """Raises UserError where `config.greedy` is asked of a policy that draws its actions itself."""
    allowed = f"False: {config.policy} chooses its actions itself, only a network's are drawn"
    checks.require(not (config.greedy and policy.in_workers), "greedy", config.greedy, allowed)


def open_setup(config: ConfigDict, pins: PinnedVersions | None = None) -> EvalSetup:
    """Loads what `config` names.

    The random policy, and one from outside, plays in the environment of `config.agent.dir` where that is given. The reward is
    that of `config.reward.dir`, none where that is empty, and the agent's own where it is None.

    Args:
      config: with the sections policy, agent, environment, reward, compat.

    Raises:
      UserError: a folder is not what it should be, or not what it was when `pins` were made.
    """
    pins = pins or PinnedVersions()
    is_outside = policies.is_outside(config.policy)
    is_folder = not is_outside and config.policy not in _NAMED
    folder = config.policy if is_folder else config.agent.dir
    if folder is None:
        agent = _without_agent(config)
    else:
        agent = _of_folder(config, folder, is_folder or config.policy == policies.AGENT, pins)
    name, options = agent.environment, _own_options(config, agent)
    owner = f"the agent in {folder}"
    reward = choose_reward(config.reward, agent.reward, owner, agent.two_decimals, pins.reward_step)
    if reward is not None:
        from motif_jax.rl import settings

        options |= settings.fields_option(name, options, reward)
    spec = registry.spec(name, **options)
    policy = agent.policy or _policy(config, name, options, spec, pins)
    plan = {
        "policy": config.policy if is_outside or agent.step is None else str(folder),
        "checkpoint": agent.step,
        "environment": name,
        "options": options,
        "reward": None if reward is None else run_folder.as_plain(reward),
        **({"shares": policy.shares} if config.policy == policies.FIXED else {}),
    }
    rater = None if reward is None else load_rater(reward, spec)
    digests = digests_of(folder, agent.step, reward)
    _refuse_changed(pins.digests, digests, plan)
    return EvalSetup(policy, name, options, spec, agent.step, rater, reward, plan, digests)


def _policy(config: ConfigDict, name: str, options: Any, spec: EnvironmentSpec, pins: PinnedVersions) -> Any:
    if config.policy == policies.FIXED:
        return policies.FixedPolicy(pins.shares or fixed_shares.fit(name, options, config.seed))
    if policies.is_outside(config.policy):
        return policies.from_outside(config.policy, spec)
    return policies.BotPolicy() if config.policy == policies.BOT else policies.RandomPolicy()


def _own_options(config: ConfigDict, agent: _Agent) -> dict[str, Any]:
    """The agent's options with those of `config.environment` over them, and the field of the scripted player where it is read."""
    name = agent.environment
    options = agent.options | registry.options_of({**config.environment, "name": name})
    if (change := config.environment.get("change")) is not None:
        allowed = f"None: {name} is none of BabyAI-Text, whose prompts alone are changed"
        checks.require(name.startswith(catalogue.PREFIX), "environment.change", change, allowed)
        options["change"] = change
    key = "policy" if config.policy == policies.BOT else "bot_agreement"
    if config.policy != policies.BOT and not config.get("bot_agreement"):
        return options
    expert = registry.spec(name, **options).expert_field
    checks.require(expert is not None, key, config[key], f"another: {name} has no scripted player")
    return options | {"fields": [*options.get("fields", ()), expert]}


def _without_agent(config: ConfigDict) -> _Agent:
    name = config.environment.name or DEFAULT_ENVIRONMENT
    switches = {key: True for key, on in config.compat.items() if on}
    if not switches:
        return _Agent(name, {})
    unknown = sorted(set(switches) - set(() if registry.is_gym(name) else registry.spec(name).quirks))
    allowed = f"off on {name}: only the game has published quirks"
    checks.require(not unknown, f"compat.{', compat.'.join(unknown)}", True, allowed)
    return _Agent(name, {"compat": switches})


def _of_folder(config: ConfigDict, folder: str, plays: bool, pins: PinnedVersions) -> _Agent:
    from motif_jax import rewards
    from motif_jax.rollouts import agent_policy

    trained = agent_policy.read_config(folder)
    trained_on, options = agent_policy.environment_of(trained)
    name = config.environment.name or trained_on
    over = registry.options_of({**config.environment, "name": name, "max_episode_steps": None})
    options = _options_in(name, trained_on, options | over, folder)
    policy, step, own = None, None, None
    if trained.reward.intrinsic_coefficient and rewards.kind_of(trained.reward).rates(trained.reward):
        own = _with_reward_beside(trained.reward, Path(folder))
    if plays:
        which = config.agent.checkpoint if pins.checkpoint is None else str(pins.checkpoint)
        policy, step = agent_policy.load(folder, which, name)
    if trained.reward.intrinsic_coefficient and trained.reward.get("kind") in rewards.LEARNED:
        # Rate with the reward as of the agent's checkpoint; before the first update use the newest.
        rated_at = step
        if step is None and config.reward.dir is None and pins.reward_step is None:
            rated_at = agent_policy.find_step(folder, config.agent.checkpoint)
        own = ConfigDict({**trained.reward, "kind": _MOTIF, "dir": str(folder), "step": rated_at or None})
    return _Agent(name, options, policy, step, own, rounded_threshold(trained))


def _with_reward_beside(reward: ConfigDict, folder: Path) -> ConfigDict:
    """The reward of an agent, taken from the agent's folder if it is there and no longer where it was trained from."""
    beside = folder / Path(reward.dir or "").name
    if reward.dir and not Path(reward.dir).exists() and beside.exists():
        return ConfigDict({**reward, "dir": str(beside)})
    return reward


def of_folder(
    folder: str | Path, checkpoint: str = "latest", environment: str | None = None, reward: bool = True
) -> ConfigDict:
    """The sections that `open_setup` reads, for the agent in `folder` as it was trained, with its own reward or none."""
    return ConfigDict(
        {
            "policy": policies.AGENT,  # whatever the folder is called
            "agent": {"dir": str(folder), "checkpoint": checkpoint},
            "environment": {"name": environment, "max_episode_steps": None},
            "reward": {"dir": None if reward else "", **_SETTINGS},
            "compat": {},
        }
    )


def digests_of(folder: str | None, step: int | None, reward: ConfigDict | None) -> dict[str, str]:
    """`EvalSetup.digests` of the agent's checkpoint and of the reward."""
    from motif_jax import rewards
    from motif_jax.rollouts import agent_policy

    agent = None if folder is None or step is None else agent_policy.digest(folder, step)
    found = {"agent": agent, "reward": None if reward is None else rewards.digest(reward)}
    return {name: digest for name, digest in found.items() if digest is not None}


def _refuse_changed(before: Mapping[str, str], now: Mapping[str, str], plan: Mapping[str, Any]) -> None:
    reward = plan["reward"] or {}
    places = {
        "agent": f"policy={plan['policy']}",
        "reward": f"reward={reward.get('dir') or reward.get('kind')}",
    }
    for name, digest in before.items():
        if now.get(name) != digest:
            raise UserError(
                f"config.{places.get(name, name)}: is not the one that the run started with: it was trained or written again: "
                "restore the previous one, or choose another --workdir"
            )


def rounded_threshold(trained: ConfigDict) -> bool | None:
    """Whether an agent's config asks for the published two-decimal threshold; None: as its reward run says."""
    return bool(trained.compat.get("quantile_two_decimals")) or None


def choose_reward(
    given: ConfigDict,
    own: Mapping[str, Any] | None,
    owner: str,
    two_decimals: bool | None = None,
    pinned: int | None = None,
) -> ConfigDict | None:
    """Returns the reward to lay over episodes, its evaluation resolved, with the keys of `EvalSetup.reward`.

    Args:
      given: the section `reward` of a config: dir None takes `own`, '' none.
      own: the reward of what is played, None where it has none.
      two_decimals: whether the threshold is the published two-decimal number, where `own` does not say; None: as
        the reward run says.
      pinned: this evaluation in place of the newest.

    Raises:
      UserError: there is no such folder or evaluation, or settings are given of a reward that is not.
    """
    if given.dir is None:
        _check_settings_unused(given, own, owner)
    chosen: Any = own if given.dir is None else given
    if not chosen or not (given.dir is None or chosen["dir"]):
        return None
    if chosen.get("kind", _MOTIF) != _MOTIF:
        return ConfigDict({**chosen, "two_decimals": None})
    if given.dir is None and not Path(chosen["dir"]).exists():
        raise UserError(
            f"config.reward.dir=None: {owner} has the reward in {chosen['dir']}, which is not there: give "
            "--config.reward.dir=DIR, or --config.reward.dir= to go without"
        )
    from motif_jax.rewards.load import open_reward

    reward = ConfigDict({"dir": str(chosen["dir"]), **{key: chosen[key] for key in _SETTINGS}})
    reward.step = open_reward(reward.dir, chosen["step"] if pinned is None else pinned).step
    reward.two_decimals = own.get("two_decimals", two_decimals) if own and chosen is own else two_decimals
    return reward


def _check_settings_unused(given: ConfigDict, own: Mapping[str, Any] | None, owner: str) -> None:
    for key, default in _SETTINGS.items():
        if given[key] == default or (own is not None and given[key] == own[key]):
            continue
        if own is None:
            allowed = f"left at {default}, or given together with reward.dir"
        else:
            allowed = f"left at {default}: {owner} keeps its own {own[key]}; give --config.reward.dir={own['dir']} to score otherwise"
        checks.require(False, f"reward.{key}", given[key], allowed)


def _options_in(name: str, trained_on: str, options: dict[str, Any], folder: str) -> dict[str, Any]:
    """Returns `options` of an agent's environment for `name`; UserError when the agent cannot play there."""
    if name == trained_on:
        return options
    trained = registry.spec(trained_on, **options)
    allowed = f"{trained_on}, or of its kind, with the same fields and actions: {folder} was trained on {trained_on}"
    # Another family need not take these options.
    same = registry.is_gym(name) and registry.is_gym(trained_on)
    same = same or (bool(trained.family) and registry.spec(name).family == trained.family)
    options = catalogue.options_elsewhere(options, trained_on, name)
    checks.require(same and registry.spec(name, **options).fits(trained), "environment.name", name, allowed)
    return options
