"""Players of the tests of generalisation: random, bot, an agent run, an untrained language model, a
class of your own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import jax

from motif_jax.core import config as checks
from motif_jax.core import resources, run_folder, seeds
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_json, read_json
from motif_jax.envs import registry
from motif_jax.envs.babyai_text import catalogue
from motif_jax.glam import generalisation
from motif_jax.glam.config import LevelPolicy
from motif_jax.glam.generalisation import CHOOSES_WORDS, READS, GeneralisationTest, PlayedLevel
from motif_jax.play import agent_policy
from motif_jax.rl import agent_networks, choices, settings
from motif_jax.rl.actors import policies
from motif_jax.rl.config import AgentConfig, TrainedTask, agent_config
from motif_jax.schema import read_section

ZERO_SHOT = "zero_shot"
PLAN = "plan.json"
_REMEDY = "restore a copy of it, or choose another --workdir"

# Episodes of each test that are begun before a training: all tests of a Mixed level take some 5 s
# an episode.
_EPISODES_BEFORE_TRAINING = 2


@dataclass(frozen=True)
class EvalAgent:
    """A player of the tests.

    Attributes:
      base: the level of its training or of the config, which the tests change.
      policy: makes the policy of a level.
      abilities: those of `READS` and `CHOOSES_WORDS` that it has.
      room: tokens of the longest prompt that it can read, None without a limit.
      checkpoint: step of the agent's checkpoint, None for other players.
      digests: of the files that it reads, by the kind of file; of a checkpoint its id.
    """

    name: str
    base: PlayedLevel
    policy: Callable[[PlayedLevel], Any]
    abilities: frozenset[str]
    room: int | None = None
    checkpoint: int | None = None
    digests: Mapping[str, str] = field(default_factory=dict)

    def takeable(
        self,
        names: Sequence[str],
        episode_seeds: Sequence[int],
        key: str = "prompt_tokens",
        action_names: Sequence[str] = (),
        prompt_tokens: int | None = None,
    ) -> tuple[list[tuple[GeneralisationTest, PlayedLevel]], dict[str, str]]:
        """The tests that it can take, with their levels; and the tests of 'all' that it cannot
        take, with the reason.

        Args:
          names: names of tests as the config has them; named tests and the base must be possible.
          key: the config's key for the length of a prompt, for the error.
          action_names, prompt_tokens: see `generalisation.every` and
              `generalisation.level_of_test`.

        Raises:
          UserError: a test that is named cannot be taken.
        """
        tests = []
        left_out = {}
        for test in generalisation.chosen(names, self.base, self.abilities, action_names):
            played_level = generalisation.level_of_test(test, self.base, prompt_tokens, self.room)
            try:
                if "actions" in test.options:
                    self.policy(played_level)  # refuses actions whose words have the same tokens
                # The beginnings of episodes are played at random: a long prompt is met before hours
                # of play.
                generalisation.require_room(test, played_level, episode_seeds, key)
            except (
                UserError
            ) as error:  # a small vocabulary: the words have the same tokens, or many
                if not may_be_left_out(test, names):
                    raise
                left_out[test.name] = str(error)
            else:
                tests.append((test, played_level))
        return tests, left_out


def may_be_left_out(test: GeneralisationTest, names: Sequence[str]) -> bool:
    """Whether only 'all' includes the test; named tests and the base are always taken."""
    return test.name not in (generalisation.BASE, *names)


def open_pinned(config: LevelPolicy, workdir: Path) -> EvalAgent:
    """Opens the agent, with the checkpoint that the run in `workdir` started with, even if there is
    a newer one.

    Raises UserError as `open_agent`, or if a file that it reads changed since the run started.
    """
    path = workdir / PLAN
    before = read_json(path, _REMEDY, keys=("checkpoint", "read")) if path.exists() else {}
    checkpoint = before.get("checkpoint")
    digests = before.get("read", {})
    # The pinned step, and not what `config.agent.checkpoint` means by now, such as the latest.
    agent = open_agent(config, checkpoint)
    changed = [name for name, digest in digests.items() if agent.digests.get(name) != digest]
    if changed:
        raise UserError(
            f"{agent.name} has another {' and another '.join(changed)} than when {workdir} started: restore the previous one, "
            "or choose another --workdir"
        )
    return agent


def pin(workdir: Path, agent: EvalAgent) -> None:
    """Writes the checkpoint and the digests that `open_pinned` reads."""
    atomic_write_json(workdir / PLAN, {"checkpoint": agent.checkpoint, "read": dict(agent.digests)})


def open_agent(config: LevelPolicy, pinned: int | None = None) -> EvalAgent:
    """Loads the player.

    An agent keeps the sections of its training, except the level. Raises UserError where the config
    has values that nobody would read.
    """
    name = config.policy
    # "random" and "bot" are these players even where a folder has such a name.
    is_plain = name in (policies.RANDOM, policies.BOT) or policies.is_user_policy(name)
    if is_plain:
        _refuse_unread(config, ("agent", "network"), "has no checkpoints and no network")
        return _without_network(config)
    if name == ZERO_SHOT:
        _refuse_unread(config, ("agent",), "has no checkpoints")
        return _zero_shot(config)
    return _trained(config, pinned)


def _abilities(config: AgentConfig) -> tuple[frozenset[str], int | None]:
    """`EvalAgent.abilities` and `.room` of a training's network."""
    abilities = set()
    room = None
    kind = agent_networks.class_of(config)
    # Networks of games read no prompt.
    if agent_networks.kind_of(config) != choices.GAME:
        abilities.add(READS)
        room = kind.prompt_room(config)
    if kind.takes_any_actions(config):
        abilities.add(CHOOSES_WORDS)
    return frozenset(abilities), room


def _untrained_config(config: LevelPolicy) -> AgentConfig:
    """The config of a training in the level and with the network of `config`, for players without
    one.
    """
    training = agent_config(resources.config("train_language_agent"))
    name = config.environment.name or training.environment.name
    environment = TrainedTask(**{**vars(config.environment), "name": name})
    return replace(training, environment=environment, network=config.network)


def _without_network(config: LevelPolicy) -> EvalAgent:
    environment = _untrained_config(config).environment
    options = {
        **(environment.babyai_text or {}),
        "max_episode_steps": environment.max_episode_steps,
    }
    spec = registry.spec(environment.name, **options)
    policy: Any = policies.RandomPolicy()
    if config.policy == policies.BOT:
        policy = policies.BotPolicy()
        options = {**options, "fields": ["bot_action"]}
    elif config.policy != policies.RANDOM:
        policy = policies.load_user_policy(config.policy, spec)
    # Random play takes any number of actions; the bot and a class of one's own name those of the
    # level.
    abilities = frozenset({CHOOSES_WORDS} if config.policy == policies.RANDOM else ())
    return EvalAgent(
        config.policy, PlayedLevel(environment.name, options), lambda _: policy, abilities
    )


def _zero_shot(config: LevelPolicy) -> EvalAgent:
    from motif_jax.lm import weights
    from motif_jax.lm.text import fetch

    untrained = _untrained_config(config)
    kind = agent_networks.class_of(untrained)
    kind.check(untrained)
    allowed = "'score': the head of a model that was never trained knows nothing"
    checks.require(
        kind.takes_any_actions(untrained), "network.policy", config.network.policy, allowed
    )
    # As a training would make it: the level's tokens are those of the model.
    base = PlayedLevel(untrained.environment.name, settings.environment_options(untrained))
    policy = _policies(untrained, base, lambda network: network.init(jax.random.key(config.seed)))
    digests = {
        **kind.file_digests(untrained),
        "model": weights.digest(fetch(config.network.model)),
    }
    name = f"{config.network.model} before any training"
    return EvalAgent(name, base, policy, *_abilities(untrained), digests=digests)


def _trained(config: LevelPolicy, pinned: int | None) -> EvalAgent:
    folder = config.policy
    checkpoint = config.agent.checkpoint
    level = config.environment.name
    trained = agent_policy.read_config(folder)
    name, options = agent_policy.environment_of(trained)
    spec = registry.spec(name, **options)
    _refuse_unread(config, ("environment", "network"), "keeps those of its training")
    # The options of the training, without those that the other level may lack.
    if level is not None:
        # An agent that was trained in French reads French on every level.
        language = generalisation.language_options(PlayedLevel(name, options))
        options = catalogue.options_elsewhere(options, name, level) | language
        name = level
    kind = agent_networks.class_of(trained)
    network = kind.make(trained, spec)
    params, step = agent_policy.restore(
        folder, checkpoint if pinned is None else str(pinned), network
    )
    base = PlayedLevel(name, options)
    policy = _policies(trained, base, lambda _: params)
    digests = dict(kind.file_digests(trained))
    # By its id, since a run may be trained again in the same folder.
    checkpoint_id = agent_policy.identity(folder, step)
    if checkpoint_id is not None:
        digests["checkpoint"] = checkpoint_id
    return EvalAgent(folder, base, policy, *_abilities(trained), step, digests)


def refused_after(config: AgentConfig) -> dict[str, str]:
    """Test -> why the agent of a training could not take it, of those that 'all' means; {} for an
    environment without tests.

    Raises UserError where a named test cannot be taken, or a prompt of the training itself is too
    long.
    """
    base = PlayedLevel(config.environment.name, settings.environment_options(config))
    if catalogue.find(base.environment) is None:
        return {}
    kind = agent_networks.class_of(config)
    # The networks are made without parameters: they check actions, and the prompts are tokenised.
    agent = EvalAgent("", base, lambda level: kind.make(config, level.spec()), *_abilities(config))
    episode_seeds = [
        seeds.derive(config.seed, "test", index) for index in range(_EPISODES_BEFORE_TRAINING)
    ]
    _, left_out = agent.takeable(
        checks.listed(config.tests or ""), episode_seeds, "network.prompt_tokens"
    )
    return left_out


def _refuse_unread(config: LevelPolicy, keys: Sequence[str], reason: str) -> None:
    """Refuses values of `keys` (a name covers all below it), except the level, that differ from the
    defaults.
    """
    defaults = asdict(read_section(LevelPolicy, resources.config("test_language_agent")))
    values = asdict(config)
    changed = run_folder.differences(defaults, values, keys, free=("environment.name",))
    if changed:
        # `differences` gives lines: 'network.chat: never before, auto now', or 'network.chat
        # differs'.
        key = changed[0].split(":")[0].removesuffix(" differs")
        allowed = f"left at {checks.dotted(defaults, key)!r}: {config.policy} {reason}"
        checks.require(False, key, checks.dotted(values, key), allowed)


def _policies(
    config: AgentConfig, base: PlayedLevel, params: Callable[[Any], Any]
) -> Callable[[PlayedLevel], Any]:
    """Makes policies of levels: one for each list of actions and length of prompts, all with the
    same parameters.
    """
    policy_of: dict[Any, Any] = {}
    device_params: list[Any] = []  # read on first use

    def policy(played_level: PlayedLevel) -> Any:
        spec = played_level.spec()
        # What makes the shapes of a network's inputs; levels with the same share a program.
        key = (spec.action_names, played_level.options.get("prompt_tokens"))
        if key not in policy_of:
            section: Any = config.network
            if "prompt_tokens" in played_level.options:
                section = replace(section, prompt_tokens=played_level.options["prompt_tokens"])
            level_config = replace(config, network=section)
            # Another list of actions or another length makes other shapes, but the same parameters.
            network = agent_networks.class_of(level_config).make(level_config, spec)
            if not device_params:
                device_params.append(jax.device_put(params(network)))
            policy_of[key] = agent_policy.AgentPolicy(
                f"{base.environment}'s", network, device_params[0]
            )
        return policy_of[key]

    return policy
