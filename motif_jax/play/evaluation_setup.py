"""Which policy plays where, and by which reward it is rated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from motif_jax.core import config as checks
from motif_jax.core import entry_points, seeds
from motif_jax.core.errors import UserError
from motif_jax.envs import registry
from motif_jax.envs.babyai_text import catalogue
from motif_jax.envs.spec import EnvironmentSpec
from motif_jax.play import fixed_shares, ratings
from motif_jax.play.config import PlayedAgent, PlayedEnvironment, PlayedPolicy
from motif_jax.play.ratings import EpisodeRater, LiveRater, RatingReward
from motif_jax.rl import choices
from motif_jax.rl.actors import policies
from motif_jax.rl.config import AgentReward, TrainedTask
from motif_jax.rl.reward_keys import Scoring

DEFAULT_ENVIRONMENT = "NetHackScore-v1"
# Options that decide what an agent sees and does. 'obs:FIELD' as the text takes a field out of the
# observation.
_OBSERVATION_OPTIONS = (*registry.SHAPING, "text", "text_bytes")
_NAMED = (policies.RANDOM, policies.FIXED, policies.BOT, policies.AGENT)


@dataclass(frozen=True)
class PinnedVersions:
    """The versions that a resumed run keeps even if trainings saved newer ones; None: the config
    decides.

    Attributes:
      digests: those of `EvalSetup`; those that are missing are not compared.
      shares: the shares of the actions, of the policy 'fixed'.
    """

    checkpoint: int | None = None
    reward_step: int | None = None
    digests: Mapping[str, str] = field(default_factory=dict)
    shares: tuple[float, ...] | None = None


@dataclass(frozen=True)
class EvalSetup:
    """A policy in its environment.

    Attributes:
      options: the environment's options, see `registry.make`.
      checkpoint: step of the agent's checkpoint, None for other policies.
      rater: computes the intrinsic reward of episodes; None without a reward.
      plan: all of this, JSON-able.
      digests: what tells 'agent' and 'reward' from replacements, where they have it: the
          checkpoint's id (`agent_policy.identity`) and the digest of the reward's files.
    """

    policy: Any
    environment: str
    options: dict[str, Any]
    spec: EnvironmentSpec
    checkpoint: int | None
    rater: EpisodeRater | None
    reward: RatingReward | None
    plan: dict[str, Any]
    digests: dict[str, str]

    def live_rater(self) -> LiveRater | None:
        """The reward for single steps; None without one."""
        return None if self.reward is None else LiveRater(self.reward, self.spec)


class _Agent(NamedTuple):
    """An agent's folder: where it plays, its policy and checkpoint if it plays, the reward of its
    training and its rounding.
    """

    environment: str
    options: dict[str, Any]
    policy: Any = None
    step: int | None = None
    reward: RatingReward | None = None
    two_decimals: bool | None = None


def check(config: PlayedPolicy, pins: PinnedVersions | None = None) -> EvalSetup:
    """Opens the setup as `open_setup` does, and tries out its environment.

    Raises UserError, too, where the agent is not named, or with switches of `compat` that it does
    not play with.
    """
    policy = config.policy
    if policy == policies.AGENT:
        checks.existing_folder(config, "agent.dir")
    is_folder = policy not in _NAMED and not policies.is_user_policy(policy)
    if is_folder or config.agent.dir is not None:
        for key, is_on in asdict(config.compat).items():
            checks.require(
                not is_on, f"compat.{key}", True, "off: an agent's folder says how its game is"
            )
    setup = open_setup(config, pins)
    # Its options may be those of the agent, which are known now.
    if registry.is_gym(setup.environment):
        registry.check(setup.environment, setup.options)
    _require_room(config, setup)
    return setup


def _require_room(config: PlayedPolicy, setup: EvalSetup) -> None:
    """Refuses an environment with longer prompts than those that its agent reads."""
    if "tokenizer" not in setup.options:
        return
    from motif_jax.envs.babyai_text import prompt_lengths

    tried = range(prompt_lengths.TRIED_EPISODES)
    episode_seeds = [seeds.derive(config.seed, "evaluate", index) for index in tried]
    key = f"environment.name={config.environment.name}"
    remedy = (
        "choose another level or change, or an agent that was trained with more config.network.prompt_tokens, or play "
        f"{setup.environment} with test_language_agent, whose config.prompt_tokens may be more"
    )
    prompt_lengths.require_room(setup.environment, setup.options, episode_seeds, key, remedy)


def open_setup(config: PlayedPolicy, pins: PinnedVersions | None = None) -> EvalSetup:
    """Loads the policy, its environment and its reward.

    Raises:
      UserError: a folder cannot be used, or changed since `pins` were made.
    """
    pins = pins or PinnedVersions()
    policy_name = config.policy
    is_user_policy = policies.is_user_policy(policy_name)
    is_folder = not is_user_policy and policy_name not in _NAMED

    # Beside another policy, the agent's folder gives the environment and the reward.
    folder = policy_name if is_folder else config.agent.dir
    if folder is None:
        agent = _without_agent(config)
    else:
        agent = _of_folder(config, folder, is_folder or policy_name == policies.AGENT, pins)
    name = agent.environment
    options = _options(config, agent)

    owner = f"the agent in {folder}"
    reward = ratings.choose_reward(
        config.reward, agent.reward, owner, agent.two_decimals, pins.reward_step
    )
    if reward is not None:
        # Before the spec: a reward may read a field that is shown on demand alone.
        from motif_jax.rl import settings

        options |= settings.fields_option(name, options, reward.section)
    spec = registry.spec(name, **options)
    policy = agent.policy or _policy(config, name, options, spec, pins.shares)

    plan: dict[str, Any] = {
        "policy": policy_name if is_user_policy or agent.step is None else str(folder),
        "checkpoint": agent.step,
        "environment": name,
        "options": options,
        "reward": None if reward is None else reward.plan(),
    }
    if policy_name == policies.FIXED:
        # A resumed evaluation plays these: to fit them takes minutes.
        plan["shares"] = policy.shares
    rater = None if reward is None else reward.rater(spec)
    digests = digests_of(folder, agent.step, reward)
    _refuse_changed(pins.digests, digests, plan)
    return EvalSetup(policy, name, options, spec, agent.step, rater, reward, plan, digests)


def _policy(
    config: PlayedPolicy, name: str, options: Any, spec: EnvironmentSpec, shares: Any
) -> Any:
    if config.policy == policies.FIXED:
        return policies.FixedPolicy(shares or fixed_shares.fit(name, options, config.seed))
    if policies.is_user_policy(config.policy):
        return policies.load_user_policy(config.policy, spec)
    return policies.BotPolicy() if config.policy == policies.BOT else policies.RandomPolicy()


def _options(config: PlayedPolicy, agent: _Agent) -> dict[str, Any]:
    """The options of the agent's environment, with those of the config and the field of a scripted
    player.
    """
    name = agent.environment
    options = registry.replace_options(agent.options, {**asdict(config.environment), "name": name})
    change = config.environment.change
    if change is not None:
        options["change"] = change
    if config.policy != policies.BOT and not config.bot_agreement:
        return options
    key = "policy" if config.policy == policies.BOT else "bot_agreement"
    expert = registry.spec(name, **options).expert_field
    checks.require_key(config, key, expert is not None, f"another: {name} has no scripted player")
    return options | {"fields": [*options.get("fields", ()), expert]}


def _without_agent(config: PlayedPolicy) -> _Agent:
    name = config.environment.name or DEFAULT_ENVIRONMENT
    options: dict[str, Any] = {}
    if not entry_points.is_entry_point(name):
        # As trainings have it: an environment may have no limit, and games with another one are no
        # pairs of theirs. A class of the user's has a limit of its own.
        options["max_episode_steps"] = TrainedTask().max_episode_steps
    switches = {key: True for key, on in asdict(config.compat).items() if on}
    if not switches:
        return _Agent(name, options)
    quirks = () if registry.is_gym(name) else registry.spec(name).quirks
    unknown = sorted(set(switches) - set(quirks))
    allowed = f"off on {name}: only the game has published quirks"
    checks.require(not unknown, f"compat.{', compat.'.join(unknown)}", True, allowed)
    return _Agent(name, {**options, "compat": switches})


def _of_folder(config: PlayedPolicy, folder: str, plays: bool, pins: PinnedVersions) -> _Agent:
    from motif_jax.play import agent_policy
    from motif_jax.rl import intrinsic

    trained = agent_policy.read_config(folder)
    trained_on, trained_options = agent_policy.environment_of(trained)
    name = config.environment.name or trained_on
    section = {**asdict(config.environment), "name": name, "max_episode_steps": None}
    options = _options_of_agent(trained_on, trained_options, section, folder)

    # A class that is not trusted is refused before the checkpoint is read.
    reward = trained.reward
    agent_reward = None
    if reward.intrinsic_coefficient and intrinsic.kind_of(reward).rates(reward):
        agent_reward = _moved(reward, Path(folder))

    policy = None
    step = None
    if plays:
        checkpoint = config.agent.checkpoint if pins.checkpoint is None else str(pins.checkpoint)
        # Of another environment with the flags of this command.
        elsewhere = options if name != trained_on else None
        policy, step = agent_policy.load(folder, checkpoint, name, elsewhere)

    if reward.intrinsic_coefficient and reward.kind in choices.LEARNED_REWARDS:
        # Rate with the reward as of the agent's checkpoint; before the first update use the newest.
        rated_at = step
        if step is None and config.reward.dir is None and pins.reward_step is None:
            rated_at = agent_policy.find_step(folder, config.agent.checkpoint)
        agent_reward = replace(reward, kind=choices.MOTIF, dir=str(folder), step=rated_at or None)
    two_decimals = agent_policy.rounded_threshold(trained.compat)
    rating = None if agent_reward is None else RatingReward(agent_reward, two_decimals)
    return _Agent(name, options, policy, step, rating, two_decimals)


def _moved(reward: AgentReward, folder: Path) -> AgentReward:
    """The reward, looked for in the agent's folder too: it may no longer lie where the training
    read it.
    """
    path = Path(reward.dir or "")
    copy = folder / path.name
    if not path.exists() and copy.exists():
        return replace(reward, dir=str(copy))
    return reward


def of_folder(
    folder: str | Path,
    checkpoint: str = "latest",
    environment: str | None = None,
    reward: bool = True,
) -> PlayedPolicy:
    """The agent in `folder` as it was trained, with its own reward or none."""
    return PlayedPolicy(
        policy=policies.AGENT,  # whatever the folder is called
        agent=PlayedAgent(dir=str(folder), checkpoint=checkpoint),
        environment=PlayedEnvironment(name=environment),
        reward=Scoring(dir=None if reward else ""),
    )


def digests_of(folder: str | None, step: int | None, reward: RatingReward | None) -> dict[str, str]:
    """`EvalSetup.digests` of the agent's checkpoint and of the reward."""
    from motif_jax.play import agent_policy
    from motif_jax.rl import intrinsic

    agent = None if folder is None or step is None else agent_policy.identity(folder, step)
    digests = {
        "agent": agent,
        "reward": None if reward is None else intrinsic.digest(reward.section),
    }
    return {name: digest for name, digest in digests.items() if digest is not None}


def _refuse_changed(
    before: Mapping[str, str], now: Mapping[str, str], plan: Mapping[str, Any]
) -> None:
    reward = plan["reward"] or {}
    keys = {
        "agent": f"policy={plan['policy']}",
        "reward": f"reward={reward.get('dir') or reward.get('kind')}",
    }
    for name, digest in before.items():
        if now.get(name) != digest:
            raise UserError(
                f"config.{keys.get(name, name)}: was trained or written again since the run started: "
                "restore the previous one, or choose another --workdir"
            )


def _options_of_agent(
    trained_on: str, trained_options: Mapping[str, Any], section: Mapping[str, Any], folder: str
) -> dict[str, Any]:
    """The options of an agent's training, but for those that the section `config.environment` sets.

    Raises UserError: the agent cannot play the environment of `section`.
    """
    name = section["name"]
    options = registry.replace_options(trained_options, section)
    changed = [key for key in _OBSERVATION_OPTIONS if options.get(key) != trained_options.get(key)]
    if name == trained_on and not changed:
        return options

    others = {key: value for key, value in options.items() if key not in _OBSERVATION_OPTIONS}
    shaping = {key: trained_options[key] for key in _OBSERVATION_OPTIONS if key in trained_options}
    if entry_points.is_entry_point(shaping.get("text") or ""):
        # A function takes nothing out of the observation, and need not be trusted any more.
        shaping["text"] = ""
    # What shapes observations as in the training, all else as it is played.
    trained = registry.spec(trained_on, **others, **shaping)
    if name == trained_on:
        allowed = f"such that {name} has the fields and actions with which {folder} was trained"
        fits = registry.spec(name, **options).fits(trained)
        checks.require(fits, f"environment.{changed[0]}", section[changed[0]], allowed)
        return options

    allowed = f"{trained_on}, or of its kind, with the same fields and actions: {folder} was trained on {trained_on}"
    # Another family need not take these options.
    is_relative = registry.is_gym(name) and registry.is_gym(trained_on)
    if not is_relative and trained.family:
        is_relative = registry.spec(name).family == trained.family
    options = catalogue.options_elsewhere(options, trained_on, name)
    fits = is_relative and registry.spec(name, **options).fits(trained)
    checks.require(fits, "environment.name", name, allowed)
    return options
