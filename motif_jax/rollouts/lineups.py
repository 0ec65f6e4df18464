"""Who plays, where, and by which reward it is rated: what evaluate and visualize read from their configs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from motif_jax.envs import registry
from motif_jax.envs.babyai_text import catalogue
from motif_jax.envs.spec import EnvironmentSpec
from motif_jax.rollouts import fixed_shares, policies
from motif_jax.rollouts.ratings import EpisodeRater, LiveRater, load_rater
from motif_jax.support import config as checks
from motif_jax.support import entry_points, run_folder
from motif_jax.support.errors import UserError

DEFAULT_ENVIRONMENT = "NetHackScore-v1"
_NAMED = (policies.RANDOM, policies.FIXED, policies.BOT, policies.AGENT)
# What a result depends on, of the sections that this module reads.
IDENTITY = ("policy", "agent", "environment", "reward", "compat")
_MOTIF = "motif"  # the kind of reward that lies in a folder or file
# What the configs say of a reward that is named; an agent's own reward keeps the settings that it trained with.
_SETTINGS = {"step": None, "normalise": True, "quantile": 0.5, "threshold": "quantile", "count_exponent": 3.0}


@dataclass(frozen=True)
class Pins:
    """What a run that is resumed keeps although its config leaves it open: trainings that resume save newer ones.

    Attributes:
      checkpoint: step of the agent's checkpoint, None: as the config says.
      reward_step: evaluation of the reward, likewise.
      digests: of `Lineup`, which must be as they were; what is not among them is not compared.
      shares: of the actions, of the policy 'fixed'; None: they are fitted.
    """

    checkpoint: int | None = None
    reward_step: int | None = None
    digests: Mapping[str, str] = field(default_factory=dict)
    shares: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Lineup:
    """A policy in its environment.

    Attributes:
      policy: for `episodes.play_episodes`.
      environment, options, spec: where it plays.
      checkpoint: step of the agent's checkpoint, None for other policies.
      rater: the intrinsic reward, None without one.
      reward: dir, step, normalise, quantile, count_exponent and two_decimals of it, None without one.
      plan: all of this in words and numbers, JSON-able.
      digests: by what `agent` and `reward` are told from others that were put in their place, where something tells.
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
        """Loads the reward's numbers of single observations, for people who watch; None without a reward."""
        return None if self.reward is None else LiveRater(self.reward, self.spec)


def check(config: ConfigDict, pins: Pins | None = None) -> Lineup:
    """Raises UserError for values of the sections policy, agent, environment and reward that cannot work.

    Opens the lineup and returns it: what is wrong in its folders is told here, not when a run folder has been given
    to it. `pins` as in `open_lineup`.
    """
    named = config.policy in _NAMED or is_outside(config.policy)
    allowed = f"{', '.join(_NAMED)}, the folder of an agent run, or module:Class"
    there = bool(config.policy) and Path(config.policy).is_dir()
    checks.require(named or there, "policy", config.policy, allowed)
    which = config.agent.checkpoint
    good = which in ("latest", "best") or checks.is_natural(which)
    checks.require(good, "agent.checkpoint", which, "latest, best or a step")
    if config.policy == policies.AGENT or config.agent.dir is not None:
        checks.existing_folder(config, "agent.dir")
    if config.environment.name is not None and not registry.is_gym(config.environment.name):
        registry.check(config.environment.name)
    if config.reward.dir:
        from motif_jax.rewards.load import check_place

        check_place(config, "reward.dir")
    who = open_lineup(config, pins)
    if registry.is_gym(who.environment):
        registry.check(who.environment, who.options)
    allowed = f"False: {config.policy} chooses its actions itself, only a network's are drawn"
    checks.require(not (config.greedy and who.policy.in_workers), "greedy", config.greedy, allowed)
    return who


def open_lineup(config: ConfigDict, pins: Pins | None = None) -> Lineup:
    """Loads what `config` names.

    The random policy, and one from outside, plays in the environment of `config.agent.dir` where that is given. The reward is that of
    `config.reward.dir`, none where that is empty, and the agent's own where it is None.

    Args:
      config: with the sections policy, agent, environment, reward, compat.
      pins: in place of what `config.agent.checkpoint` and `config.reward.step` mean now.

    Raises:
      UserError: a folder is not what it should be, or not what it was when `pins` were made.
    """
    pins = pins or Pins()
    policy: Any = policies.BotPolicy() if config.policy == policies.BOT else policies.RandomPolicy()
    own: ConfigDict | None = None
    two_decimals: bool | None = None
    step: int | None = None
    outside = is_outside(config.policy)
    itself = not outside and config.policy not in _NAMED
    folder = config.policy if itself else config.agent.dir
    name = config.environment.name or DEFAULT_ENVIRONMENT
    switches = {key: True for key, on in config.compat.items() if on}
    options: dict[str, Any] = {}
    if folder is None and switches:
        quirks = () if registry.is_gym(name) else registry.spec(name).quirks
        unknown = sorted(set(switches) - set(quirks))
        allowed = f"off on {name}: only the game has published quirks"
        checks.require(not unknown, f"compat.{', compat.'.join(unknown)}", True, allowed)
        options["compat"] = switches
    if folder is not None:
        from motif_jax import rewards
        from motif_jax.rollouts import agent_policy

        trained = agent_policy.read_config(folder)
        trained_on, options = agent_policy.environment_of(trained)
        name = config.environment.name or trained_on
        given = registry.options_of({**config.environment, "name": name, "max_episode_steps": None})
        options = _options_in(name, trained_on, options | given, folder)
        two_decimals = rounded_threshold(trained)
        if trained.reward.intrinsic_coefficient and rewards.rates(trained.reward):
            own = _with_reward_beside(trained.reward, Path(folder))
        if itself or config.policy == policies.AGENT:
            which = config.agent.checkpoint if pins.checkpoint is None else str(pins.checkpoint)
            policy, step = agent_policy.load(folder, which, name)
        if trained.reward.intrinsic_coefficient and trained.reward.get("kind") in rewards.LEARNED:
            # What it paid when the checkpoint was written, whoever plays; before the first update nothing was known, and the newest is taken.
            rated_at = step
            if step is None and config.reward.dir is None and pins.reward_step is None:
                rated_at = agent_policy.find_step(folder, config.agent.checkpoint)
            own = ConfigDict({**trained.reward, "kind": _MOTIF, "dir": str(folder), "step": rated_at or None})
    options |= registry.options_of({**config.environment, "name": name})
    if (change := config.environment.get("change")) is not None:
        allowed = f"None: {name} is none of BabyAI-Text, whose prompts alone are changed"
        checks.require(name.startswith(catalogue.PREFIX), "environment.change", change, allowed)
        options["change"] = change
    if config.policy == policies.BOT:
        options |= _with_expert(name, options, "policy", policies.BOT)
    elif config.get("bot_agreement"):
        options |= _with_expert(name, options, "bot_agreement", True)
    reward = choose_reward(config.reward, own, f"the agent in {folder}", two_decimals, pins.reward_step)
    if reward is not None:
        from motif_jax.rl import settings

        options |= settings.fields_option(name, options, reward)
    spec = registry.spec(name, **options)
    if outside:
        policy = from_outside(config.policy, spec)
    if config.policy == policies.FIXED:
        policy = policies.FixedPolicy(pins.shares or fixed_shares.fit(name, options, config.seed))
    rater = None if reward is None else load_rater(reward, spec)
    plan = {
        "policy": config.policy if outside or step is None else str(folder),
        "checkpoint": step,
        "environment": name,
        "options": options,
        "reward": None if reward is None else run_folder.as_plain(reward),
        **({"shares": policy.shares} if config.policy == policies.FIXED else {}),
    }
    digests = digests_of(folder, step, reward)
    _refuse_changed(pins.digests, digests, plan)
    return Lineup(policy, name, options, spec, step, rater, reward, plan, digests)


def _with_reward_beside(reward: ConfigDict, folder: Path) -> ConfigDict:
    """The reward of an agent, taken from the agent's folder where it is there and no longer where it was trained from."""
    beside = folder / Path(reward.dir or "").name
    if reward.dir and not Path(reward.dir).exists() and beside.exists():
        return ConfigDict({**reward, "dir": str(beside)})
    return reward


def of_folder(
    folder: str | Path, checkpoint: str = "latest", environment: str | None = None, reward: bool = True
) -> ConfigDict:
    """The sections that `open_lineup` reads, for the agent in `folder` as it was trained, with its own reward or none."""
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
    """`Lineup.digests` of the agent's checkpoint and of the reward."""
    from motif_jax import rewards
    from motif_jax.rollouts import agent_policy

    agent = None if folder is None or step is None else agent_policy.digest(folder, step)
    found = {"agent": agent, "reward": None if reward is None else rewards.digest(reward)}
    return {name: digest for name, digest in found.items() if digest is not None}


def _refuse_changed(before: Mapping[str, str], now: Mapping[str, str], plan: Mapping[str, Any]) -> None:
    """Raises UserError where agent or reward is not the one that it was."""
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


def _with_expert(name: str, options: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    """The option `fields` with the field that the bot's actions stand in; UserError where there is no bot, for `config.key`."""
    field = registry.spec(name, **options).expert_field
    checks.require(field is not None, key, value, f"another: {name} has no scripted player")
    return {"fields": [*options.get("fields", ()), field]}


def is_outside(policy: str) -> bool:
    """Whether `config.policy` names a class; the path of a run folder may look like one."""
    return entry_points.is_entry_point(policy) and not Path(policy).is_dir()


def from_outside(name: str, spec: EnvironmentSpec, key: str = "policy") -> Any:
    """Makes the policy 'module:Class' that `config.key` names; UserError when it is none of either kind."""
    made: Any = entry_points.load(key, name)
    if callable(made):
        entry_points.require_signature(key, name, made, spec)
    policy = made(spec) if callable(made) else made
    in_workers = getattr(policy, "in_workers", None)
    needed = ("player", "probabilities") if in_workers else ("initial_state", "act")
    whole = isinstance(in_workers, bool) and all(callable(getattr(policy, method, None)) for method in needed)
    allowed = "a class with in_workers=True, player() and probabilities(), or in_workers=False, initial_state() and act()"
    checks.require(whole, key, name, f"{allowed}, see motif_jax.rollouts.policies")
    return policy


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
    """Returns the reward to lay over episodes, its evaluation resolved, with the keys of `Lineup.reward`.

    Args:
      given: the section `reward` of a config: dir None takes `own`, '' none.
      own: the reward of what is played, None where it has none.
      owner: who has it, for errors.
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
