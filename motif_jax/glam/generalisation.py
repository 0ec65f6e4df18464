"""Tests of generalisation on BabyAI-Text: what each changes, and which players it applies to (Carta et al. 2023, GLAM).

A test replaces the level and options that an agent was trained with. All tests of all agents play episodes of the same seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from motif_jax.core import config as checks
from motif_jax.core import seeds
from motif_jax.core.errors import UserError
from motif_jax.envs import registry
from motif_jax.envs.babyai_text import catalogue, changes
from motif_jax.envs.babyai_text.environment import PROMPT_BYTES
from motif_jax.envs.episode import given_actions, play
from motif_jax.envs.spec import EnvironmentSpec

BASE = changes.NONE
ALL = "all"
# What a player must do for a test to mean something to it.
READS, CHOOSES_WORDS = "reads the prompt", "takes any list of actions"
UNSEEN_PAIRS = "BabyAI-MixedTestLocal-v0"
SEQUENCES = tuple(name for name in catalogue.LEVELS if name.startswith(("BabyAI-PickUp", "BabyAI-GoToAfter")))
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
_ROOM = 2  # so many times the tokens of the training's longest prompt where other words may take more
# Prompts are tried in so many episodes, so many steps of each: windows are full by then.
TRIED_EPISODES, _TRIED_STEPS = 16, 8


@dataclass(frozen=True)
class GeneralisationTest:
    """One test: options of the environment that replace the base's.

    Attributes:
      level: None for the base's.
      longer: whether a prompt may take more tokens than those of the training.
    """

    name: str
    what: str
    level: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    needs: frozenset[str] = frozenset()
    longer: bool = False


@dataclass(frozen=True)
class PlayedLevel:
    """Where episodes are played: a level and its options."""

    environment: str
    options: Mapping[str, Any]

    def spec(self) -> EnvironmentSpec:
        return registry.spec(self.environment, **self.options)


def every(base: PlayedLevel, own_names: Sequence[str] = ()) -> dict[str, GeneralisationTest]:
    """All tests by name, for an agent that was trained in `base`, without those that would repeat it.

    Args:
      own_names: names of its actions for the test `action_names`; () for the published ones.
    """
    actions = tuple(base.options.get("actions", catalogue.ACTIONS))
    tests = [GeneralisationTest(BASE, "nothing is changed")]
    tests += [_reading(name, what, change=name) for name, what in _OTHER_WORDS.items()]
    tests += [_reading(name, what, False, change=name) for name, what in _OTHER_EPISODES.items()]
    names = {"action_names": tuple(own_names) or ROTATE, "action_names_shift": SHIFT}
    tests += [
        _reading(name, ", ".join(words), actions=list(words))
        for name, words in names.items()
        if len(words) == len(actions) and words != actions
    ]
    needs = frozenset({CHOOSES_WORDS})
    tests += [
        GeneralisationTest(f"actions_{n}", f"{n} actions", None, {"actions": list(words)}, needs, True)
        for n, words in ACTION_LISTS.items()
        if n != len(actions)
    ]
    own = _distractors(base)
    tests += [
        GeneralisationTest(f"distractors_{n}", f"{n} distractors", None, {"distractors": n}, longer=True)
        for n in DISTRACTORS
        if own not in (None, n)
    ]
    levels = {"unseen_pairs": (UNSEEN_PAIRS, "pairs of colour and thing that no training mission names")}
    for level in SEQUENCES:
        short = level.removeprefix(catalogue.PREFIX).removesuffix("-v0")
        levels[short] = (level, "pick up and go to, or pick up, said in an order of its own")
    tests += [
        GeneralisationTest(name, what, level)
        for name, (level, what) in levels.items()
        if level != base.environment
    ]
    if language(base) != catalogue.FRENCH:
        tests.append(_reading("french", "clauses, goal and prompt in French", language=catalogue.FRENCH))
    return {test.name: test for test in tests}


def _reading(name: str, what: str, longer: bool = True, **options: Any) -> GeneralisationTest:
    return GeneralisationTest(name, what, None, options, frozenset({READS}), longer)


def _distractors(base: PlayedLevel) -> int | None:
    """Their number in `base`; None for a level that takes no other."""
    from motif_jax.envs.babyai_text.levels import distractors_of

    level = catalogue.find(base.environment)
    own = None if level is None else distractors_of(level)
    given = base.options.get("distractors")
    return own[1] if own and given is None else given if own else None


def language(place: PlayedLevel) -> str:
    """In which language a place speaks."""
    level = catalogue.find(place.environment)
    assert level is not None
    return place.options.get("language") or level.language


def language_options(base: PlayedLevel) -> dict[str, str]:
    """Options that make other levels speak the language of `base`; most speak English by default."""
    return {"language": catalogue.FRENCH} if language(base) == catalogue.FRENCH else {}


def chosen(
    names: Sequence[str], base: PlayedLevel, abilities: frozenset[str], own_names: Sequence[str] = ()
) -> list[GeneralisationTest]:
    """The tests that `names` means, the base first; 'all' stands for every test that applies to the player.

    Raises:
      UserError: there is no such test or level, or it does not apply to the player.
    """
    tests = every(base, own_names)
    able = [name for name, test in tests.items() if test.needs <= abilities]
    wanted, found = [BASE], []
    for name in names:
        wanted += able if name == ALL else [name]
    for name in dict.fromkeys(wanted):
        is_level = name.startswith(catalogue.PREFIX) and catalogue.find(name) is not None
        allowed = f"'all', or names of {', '.join(tests)}, or a level of BabyAI-Text, with commas between"
        checks.require(name in tests or is_level, "tests", name, allowed)
        test = tests.get(name) or GeneralisationTest(name, "another level", name)
        missing = ", ".join(sorted(test.needs - abilities))
        allowed = f"without {name}, which means nothing to a player that does not do this: {missing}"
        checks.require(not missing, "tests", name, allowed)
        found.append(test)
    return found


def place_of(
    test: GeneralisationTest, base: PlayedLevel, prompt_tokens: int | None = None, room: int | None = None
) -> PlayedLevel:
    """Where a test is played; UserError where the level does not take the options.

    Args:
      prompt_tokens: of the longest prompt; None: those of the training, twice as many where words may take more.
      room: the player's own limit of them, None for none.
    """
    environment = test.level or base.environment
    options = {**base.options, **test.options}
    if test.level is not None:
        for name in catalogue.OF_ONE_LEVEL:
            options.pop(name, None)
        options |= language_options(base)
    if "tokenizer" in options:
        own = options["prompt_tokens"]
        wanted = prompt_tokens or (_ROOM * own if test.longer else own)
        options["prompt_tokens"] = wanted if room is None else min(wanted, max(room, own))
    place = PlayedLevel(environment, options)
    place.spec()
    return place


def require_room(
    test: GeneralisationTest, place: PlayedLevel, episode_seeds: Sequence[int], key: str = "prompt_tokens"
) -> None:
    """Plays the beginnings of the first episodes at random; UserError names `key` if a prompt has more tokens than `place` has room for."""
    if "tokenizer" not in place.options:
        return
    room = place.options["prompt_tokens"]
    game = registry.make(place.environment, **{**place.options, "prompt_tokens": PROMPT_BYTES})
    longest = 0
    for seed in episode_seeds[:TRIED_EPISODES]:
        actions = seeds.rng(seed, "tried").integers(game.spec.num_actions, size=_TRIED_STEPS)
        for moment in play(game, seed, given_actions(actions)):
            longest = max(longest, int((moment.observation["tokens"] >= 0).sum()))
    game.close()
    if longest > room:
        raise UserError(
            f"config.{key}: a prompt of the test {test.name} has {longest} tokens, and {room} are allowed: raise it in another "
            "--workdir (if the model has the positions), or leave the test out of config.tests"
        )
