"""Players of the tests of generalisation: random, bot, an agent run, an untrained language model, a class of your own."""

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
from motif_jax.envs.babyai_text.environment import levels_in_words
from motif_jax.glam import generalisation
from motif_jax.glam.generalisation import CHOOSES_WORDS, READS, GeneralisationTest, PlayedLevel
from motif_jax.play import agent_policy, evaluation_setup, policies
from motif_jax.play.config import LevelPolicy
from motif_jax.rl import agent_networks, settings
from motif_jax.rl.config import AgentConfig, TrainedTask, agent_config
from motif_jax.schema import read_section

ZERO_SHOT = "zero_shot"
PLAN = "plan.json"
_REMEDY = "restore a copy of it, or choose another --workdir"
_NAMED = (policies.RANDOM, policies.BOT, ZERO_SHOT)

# Episodes of each test that are begun before a training: all tests of a Mixed level take some 5 s an episode.
_TRIED_BEFORE = 2


@dataclass(frozen=True)
class EvalAgent:
    """Who takes the tests.

    Attributes:
      base: where it was trained, or is asked to play.
      policy: makes the policy of a place.
      abilities: of `READS` and `CHOOSES_WORDS`.
      room: tokens of the longest prompt that it can read, None without end.
      checkpoint: step of the agent's checkpoint, None for other players.
      read: digests of the files that it reads, by what they are.
    """

    name: str
    base: PlayedLevel
    policy: Callable[[PlayedLevel], Any]
    abilities: frozenset[str]
    room: int | None = None
    checkpoint: int | None = None
    read: Mapping[str, str] = field(default_factory=dict)

    def takeable(
        self,
        names: Sequence[str],
        episode_seeds: Sequence[int],
        key: str = "prompt_tokens",
        own_names: Sequence[str] = (),
        prompt_tokens: int | None = None,
    ) -> tuple[list[tuple[GeneralisationTest, PlayedLevel]], dict[str, str]]:
        """The tests that it can take, with their places; and the tests of 'all' that it cannot take, with the reason.

        Args:
          names: as the config has them; named tests and the base must be possible.
          key: of the config, which says how long a prompt may be.
          own_names, prompt_tokens: see `generalisation.every` and `generalisation.place_of`.

        Raises:
          UserError: a test that is named cannot be taken.
        """
        tests, left_out = [], {}
        for test in generalisation.chosen(names, self.base, self.abilities, own_names):
            place = generalisation.place_of(test, self.base, prompt_tokens, self.room)
            try:
                if "actions" in test.options:
                    self.policy(place)  # refuses actions whose words have the same tokens
                generalisation.require_room(test, place, episode_seeds, key)
            except UserError as error:  # a small vocabulary: the words have the same tokens, or many
                if not may_be_left_out(test, names):
                    raise
                left_out[test.name] = str(error)
            else:
                tests.append((test, place))
        return tests, left_out


def may_be_left_out(test: GeneralisationTest, names: Sequence[str]) -> bool:
    """Whether only 'all' includes the test; named tests and the base are always taken."""
    return test.name not in (generalisation.BASE, *names)


def open_pinned(config: LevelPolicy, workdir: Path) -> EvalAgent:
    """Opens the agent, with the checkpoint that the run in `workdir` started with, even if there is a newer one.

    Raises UserError as `open_agent`, or if a file that it reads changed since the run started, or it cannot be greedy.
    """
    path = workdir / PLAN
    before = read_json(path, _REMEDY, keys=("checkpoint", "read")) if path.exists() else {}
    checkpoint, digests = before.get("checkpoint"), before.get("read", {})
    if not (checkpoint is None or type(checkpoint) is int) or not isinstance(digests, dict):
        raise UserError(f"{path} is damaged (no checkpoint or no digests): {_REMEDY}")
    agent = open_agent(config, checkpoint)
    changed = [name for name, digest in digests.items() if agent.read.get(name) != digest]
    if changed:
        raise UserError(
            f"{agent.name} has another {' and another '.join(changed)} than when {workdir} started: restore the previous one, "
            "or choose another --workdir"
        )
    evaluation_setup.check_greedy(config.policy, config.greedy, agent.policy(agent.base))
    return agent


def pin(workdir: Path, agent: EvalAgent) -> None:
    """Writes what `open_pinned` reads."""
    atomic_write_json(workdir / PLAN, {"checkpoint": agent.checkpoint, "read": dict(agent.read)})


def open_agent(config: LevelPolicy, pinned: int | None = None) -> EvalAgent:
    """Loads the player.

    An agent keeps the sections of its training, except the level. Raises UserError where there is no such policy, or it does
    not fit the environment.
    """
    name, level = config.policy, config.environment.name
    is_plain = name in (policies.RANDOM, policies.BOT) or policies.is_outside(name)
    allowed = f"{', '.join(_NAMED)}, the folder of an agent run, or module:Class"
    is_folder = bool(name) and Path(name).is_dir()
    checks.require(name in _NAMED or is_plain or is_folder, "policy", name, allowed)
    allowed = f"a level of BabyAI-Text; {levels_in_words()}"
    checks.require(level is None or catalogue.find(level) is not None, "environment.name", level, allowed)
    if is_plain:
        return _without_network(config)
    return _zero_shot(config) if name == ZERO_SHOT else _trained(config, pinned)


def _abilities(config: AgentConfig) -> tuple[frozenset[str], int | None]:
    """`EvalAgent.abilities` and `.room` of a training's network."""
    reads = agent_networks.kind_of(config) != agent_networks.GAME
    able = {READS: reads, CHOOSES_WORDS: agent_networks.takes_any_actions(config)}
    room = agent_networks.prompt_room(config) if reads else None
    return frozenset(name for name, is_able in able.items() if is_able), room


def _asked(config: LevelPolicy) -> AgentConfig:
    training = agent_config(resources.config("train_language_agent"))
    name = config.environment.name or training.environment.name
    environment = TrainedTask(**{**vars(config.environment), "name": name})
    return replace(training, environment=environment, network=config.network)


def _without_network(config: LevelPolicy) -> EvalAgent:
    environment = _asked(config).environment
    options = {**(environment.babyai_text or {}), "max_episode_steps": environment.max_episode_steps}
    spec = registry.spec(environment.name, **options)
    policy: Any = policies.RandomPolicy()
    if config.policy == policies.BOT:
        policy, options = policies.BotPolicy(), {**options, "fields": ["bot_action"]}
    elif config.policy != policies.RANDOM:
        policy = policies.from_outside(config.policy, spec)
    able = frozenset({CHOOSES_WORDS} if config.policy == policies.RANDOM else ())
    return EvalAgent(config.policy, PlayedLevel(environment.name, options), lambda _: policy, able)


def _zero_shot(config: LevelPolicy) -> EvalAgent:
    from motif_jax.lm import weights
    from motif_jax.lm.text import fetch

    asked = _asked(config)
    agent_networks.check(asked)
    allowed = "'score': the head of a model that was never trained knows nothing"
    checks.require(agent_networks.takes_any_actions(asked), "network.policy", config.network.policy, allowed)
    base = PlayedLevel(asked.environment.name, settings.environment_options(asked))
    policy = _policies(asked, base, lambda network: network.init(jax.random.key(config.seed)))
    read = {**agent_networks.read_anew(asked), "model": weights.digest(fetch(config.network.model))}
    name = f"{config.network.model} before any training"
    return EvalAgent(name, base, policy, *_abilities(asked), read=read)


def _trained(config: LevelPolicy, pinned: int | None) -> EvalAgent:
    folder, which, level = config.policy, config.agent.checkpoint, config.environment.name
    evaluation_setup.check_checkpoint(which)
    trained = agent_policy.read_config(folder)
    name, options = agent_policy.environment_of(trained)
    spec = registry.spec(name, **options)
    checks.require(spec.family == "BabyAI-Text", "policy", folder, f"an agent of BabyAI-Text, not of {name}")
    _refuse_other_options(config)
    if level is not None:
        spoken = generalisation.language_options(PlayedLevel(name, options))
        options = catalogue.options_elsewhere(options, name, level) | spoken
        name = level
    network = agent_networks.make(trained, spec)
    params, step = agent_policy.restore(folder, which if pinned is None else str(pinned), network)
    base, digest = PlayedLevel(name, options), agent_policy.digest(folder, step)
    policy = _policies(trained, base, lambda _: params)
    read = {**agent_networks.read_anew(trained), **({} if digest is None else {"checkpoint": digest})}
    return EvalAgent(folder, base, policy, *_abilities(trained), step, read)


def refused_after(config: AgentConfig) -> dict[str, str]:
    """Test -> why the agent of a training could not take it, of those that 'all' means; {} for an environment without tests.

    Raises UserError where a named test cannot be taken, or a prompt of the training itself is too long.
    """
    base = PlayedLevel(config.environment.name, settings.environment_options(config))
    if catalogue.find(base.environment) is None:
        return {}
    agent = EvalAgent("", base, lambda place: agent_networks.make(config, place.spec()), *_abilities(config))
    numbers = [seeds.derive(config.seed, "test", index) for index in range(_TRIED_BEFORE)]
    return agent.takeable(checks.listed(config.tests or ""), numbers, "network.prompt_tokens")[1]


def _refuse_other_options(config: LevelPolicy) -> None:
    own = read_section(LevelPolicy, resources.config("test_language_agent"))
    usual, given = ({key: asdict(each)[key] for key in ("environment", "network")} for each in (own, config))
    for section in (given, usual):
        section["environment"].pop("name")
    changed = run_folder.differences(usual, given, given)
    allowed = f"left as it is: {config.policy} keeps those of its training ({'; '.join(changed)})"
    key = changed[0].split(":")[0] if changed else ""
    checks.require(not changed, key, "given", allowed)


def _policies(
    config: AgentConfig, base: PlayedLevel, params: Callable[[Any], Any]
) -> Callable[[PlayedLevel], Any]:
    made: dict[Any, Any] = {}
    kept: list[Any] = []  # parameters are the same whatever the actions

    def policy(place: PlayedLevel) -> Any:
        spec = place.spec()
        key = (spec.action_names, place.options.get("prompt_tokens"))
        if key not in made:
            own: Any = config.network
            if "prompt_tokens" in place.options:
                own = replace(own, prompt_tokens=place.options["prompt_tokens"])
            network = agent_networks.make(replace(config, network=own), spec)
            if not kept:
                kept.append(jax.device_put(params(network)))
            made[key] = agent_policy.AgentPolicy(f"{base.environment}'s", network, kept[0])
        return made[key]

    return policy
