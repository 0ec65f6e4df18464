"""Tests of generalisation on BabyAI-Text: the change of each, and the players that it applies to
(Carta et al. 2023, GLAM).

A test replaces the level and options that an agent was trained with. All tests of all agents play
episodes of the same seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from motif_jax.core import config as checks
from motif_jax.envs import registry
from motif_jax.envs.babyai_text import catalogue, changes, prompt_lengths
from motif_jax.envs.spec import EnvironmentSpec

BASE = changes.NONE
ALL = "all"
# Abilities of players, without which a test means nothing to them.
READS = "reads the prompt"
CHOOSES_WORDS = "takes any list of actions"
UNSEEN_PAIRS = "BabyAI-MixedTestLocal-v0"
SEQUENCES = tuple(
    name for name in catalogue.LEVELS if name.startswith(("BabyAI-PickUp", "BabyAI-GoToAfter"))
)
DISTRACTORS = (4, 8, 16)
# The published lists of actions by length, and other names for the six.
ACTION_LISTS = {
    3: catalogue.ACTIONS[:3],
    6: catalogue.ACTIONS,
    9: (*catalogue.ACTIONS, "sleep", "do nothing", "think"),
}
ROTATE = ("rotate left", "rotate right", "move ahead", "take", "release", "switch")
SHIFT = ("shift left", "shift right", "go ahead", "take", "release", "turn")
# Changes of what is read: other words, and texts of other episodes.
_OTHER_WORDS = {
    "other_name_same_categories": "chair, table, car for key, ball, box",
    "adj_synonym": "other words for the colours",
    "no_meaning_nouns": "invented words for the things",
    "no_meaning_adj": "invented words for the colours",
    "no_meaning_words": "invented words for things and colours",
    "change_intro_first_personne_speaker": "the goal begins 'I would like the agent to'",
    "change_intro_first_personne_agent": "the goal begins 'You have to'",
}
_OTHER_EPISODES = {
    changes.OTHER_MISSION: "the mission of another episode",
    changes.OTHER_EPISODE: "the prompts of another episode, which the same actions play",
}
# Where other words may take more tokens, a prompt may have so many times those of the training's
# longest.
_ROOM_FACTOR = 2


@dataclass(frozen=True)
class GeneralisationTest:
    """One test: options of the environment that replace the base's.

    Attributes:
      description: what it changes, for people.
      level: the level that is played; None for the base's.
      options: options that replace the base's.
      needs: abilities without which it means nothing to a player, see `READS` and `CHOOSES_WORDS`.
      longer: whether a prompt may take more tokens than those of the training.
    """

    name: str
    description: str
    level: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    needs: frozenset[str] = frozenset()
    longer: bool = False


@dataclass(frozen=True)
class PlayedLevel:
    """A level with its options."""

    environment: str
    options: Mapping[str, Any]

    def spec(self) -> EnvironmentSpec:
        return registry.spec(self.environment, **self.options)


def every(base: PlayedLevel, action_names: Sequence[str] = ()) -> dict[str, GeneralisationTest]:
    """All tests by name, for an agent that was trained in `base`, without those that would repeat
    it.

    Args:
      action_names: names of the actions for the test `action_names`; () for the published ones.
    """
    # The unchanged level comes first: the others are compared with it.
    tests = [
        GeneralisationTest(BASE, "nothing is changed"),
        *_prompt_tests(),
        *_action_tests(base, tuple(action_names)),
        *_distractor_tests(base),
        *_level_tests(base),
    ]
    if language(base) != catalogue.FRENCH:
        tests.append(
            _reading("french", "clauses, goal and prompt in French", language=catalogue.FRENCH)
        )
    return {test.name: test for test in tests}


def _reading(
    name: str, description: str, longer: bool = True, **options: Any
) -> GeneralisationTest:
    """A test of what is read."""
    return GeneralisationTest(name, description, None, options, frozenset({READS}), longer)


def _prompt_tests() -> list[GeneralisationTest]:
    words = [_reading(name, description, change=name) for name, description in _OTHER_WORDS.items()]
    # Other episodes of the same level take no more tokens.
    episodes = [
        _reading(name, description, longer=False, change=name)
        for name, description in _OTHER_EPISODES.items()
    ]
    return words + episodes


def _action_tests(base: PlayedLevel, action_names: tuple[str, ...]) -> list[GeneralisationTest]:
    """Other names for the same actions, and lists of another length. Raises UserError:
    `action_names` are of another length.
    """
    actions = tuple(base.options.get("actions", catalogue.ACTIONS))
    is_valid = not action_names or len(action_names) == len(actions)
    allowed = f"{len(actions)} names, one for each action of the policy"
    checks.require(is_valid, "action_names", action_names, allowed)
    tests = []
    for name, words in {
        "action_names": action_names or ROTATE,
        "action_names_shift": SHIFT,
    }.items():
        # Other names are for the same actions: a list of another length is a test below.
        if len(words) == len(actions) and words != actions:
            tests.append(_reading(name, ", ".join(words), actions=list(words)))
    for count, words in ACTION_LISTS.items():
        if count != len(actions):
            test = GeneralisationTest(
                name=f"actions_{count}",
                description=f"{count} actions",
                options={"actions": list(words)},
                needs=frozenset({CHOOSES_WORDS}),
                longer=True,
            )
            tests.append(test)
    return tests


def _distractor_tests(base: PlayedLevel) -> list[GeneralisationTest]:
    trained = _distractors(base)
    if trained is None:
        return []
    return [
        GeneralisationTest(
            name=f"distractors_{count}",
            description=f"{count} distractors",
            options={"distractors": count},
            longer=True,
        )
        for count in DISTRACTORS
        if count != trained
    ]


def _level_tests(base: PlayedLevel) -> list[GeneralisationTest]:
    description = "pairs of colour and thing that no training mission names"
    if not _excludes_held_out(base):
        description = f"missions of {UNSEEN_PAIRS}; the training may have named their pairs of colour and thing"
    tests = [GeneralisationTest("unseen_pairs", description, UNSEEN_PAIRS)]
    for level in SEQUENCES:
        name = level.removeprefix(catalogue.PREFIX).removesuffix("-v0")
        description = "pick up and go to, or pick up, said in an order of its own"
        tests.append(GeneralisationTest(name, description, level))
    return [test for test in tests if test.level != base.environment]


def _excludes_held_out(base: PlayedLevel) -> bool:
    """Whether no mission of `base` names a pair of `catalogue.HELD_OUT`."""
    level = catalogue.find(base.environment)
    excluded = () if level is None else level.options.get("excluded", ())
    return set(catalogue.HELD_OUT) <= set(excluded)


def _distractors(base: PlayedLevel) -> int | None:
    """The number of distractors in `base`; None for a level that takes no other number."""
    # Here, since it imports minigrid, with pygame.
    from motif_jax.envs.babyai_text.levels import distractors_of

    level = catalogue.find(base.environment)
    option_and_default = None if level is None else distractors_of(level)
    if option_and_default is None:
        return None
    _, default = option_and_default
    count = base.options.get("distractors")
    return default if count is None else count


def language(played_level: PlayedLevel) -> str:
    """The language of a level's prompts."""
    level = catalogue.find(played_level.environment)
    assert level is not None
    return played_level.options.get("language") or level.language


def language_options(base: PlayedLevel) -> dict[str, str]:
    """Options that make other levels speak the language of `base`; most speak English by
    default.
    """
    return {"language": catalogue.FRENCH} if language(base) == catalogue.FRENCH else {}


def chosen(
    names: Sequence[str],
    base: PlayedLevel,
    abilities: frozenset[str],
    action_names: Sequence[str] = (),
) -> list[GeneralisationTest]:
    """The tests that `names` means, the base first; 'all' stands for every test that applies to the
    player.

    Raises UserError: a named test does not apply to the player.
    """
    tests = every(base, action_names)
    # 'all' leaves out what means nothing to the player; a test that is named must apply.
    applicable = [name for name, test in tests.items() if test.needs <= abilities]
    chosen_names = [BASE]
    for name in names:
        chosen_names += applicable if name == ALL else [name]

    chosen_tests = []
    # Each once, in the order of the names, the base first.
    for name in dict.fromkeys(chosen_names):
        test = tests.get(name) or GeneralisationTest(name, "another level", name)
        missing = ", ".join(sorted(test.needs - abilities))
        allowed = (
            f"without {name}, which means nothing to a player that does not do this: {missing}"
        )
        checks.require(not missing, "tests", name, allowed)
        chosen_tests.append(test)
    return chosen_tests


def level_of_test(
    test: GeneralisationTest,
    base: PlayedLevel,
    prompt_tokens: int | None = None,
    room: int | None = None,
) -> PlayedLevel:
    """The level of a test with its options; UserError where the level does not take them.

    Args:
      prompt_tokens: tokens of the longest prompt; None: those of the training, twice as many where
          words may take more.
      room: the player's limit of these tokens, None for none.
    """
    environment = test.level or base.environment
    options = {**base.options, **test.options}
    # Another level may lack the options of this one, such as a kind of task.
    if test.level is not None:
        for name in catalogue.OF_ONE_LEVEL:
            options.pop(name, None)
        options |= language_options(base)
    if "tokenizer" in options:
        trained = options["prompt_tokens"]
        # Only for an environment that shows tokens: the symbolic agent reads no prompts.
        length = prompt_tokens or (_ROOM_FACTOR * trained if test.longer else trained)
        if room is not None:
            # No more than the model has positions for, but never less than the training had.
            length = min(length, max(room, trained))
        options["prompt_tokens"] = length
    played_level = PlayedLevel(environment, options)
    played_level.spec()  # checks the options
    return played_level


def require_room(
    test: GeneralisationTest,
    played_level: PlayedLevel,
    episode_seeds: Sequence[int],
    key: str = "prompt_tokens",
) -> None:
    """Plays the beginnings of the first episodes at random.

    Raises UserError, which names the config's `key`: a prompt has more tokens than `played_level`
    has room for.
    """
    prompt_lengths.require_room(
        played_level.environment,
        played_level.options,
        episode_seeds,
        key,
        "raise it in another --workdir (if the model has the positions), or leave the test out of config.tests",
        f"a prompt of the test {test.name}",
    )
