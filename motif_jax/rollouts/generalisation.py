"""Tests of generalisation on BabyAI-Text: what each changes, and which players it applies to (Carta et al. 2023, GLAM).

A test replaces the level and options that an agent was trained with. All tests of all agents play episodes of the same seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from motif_jax.envs import registry
from motif_jax.envs.babyai_text import catalogue, changes
from motif_jax.envs.babyai_text.environment import PROMPT_BYTES
from motif_jax.envs.spec import RUNNING, empty_observation
from motif_jax.support import config as checks
from motif_jax.support import seeds
from motif_jax.support.errors import UserError

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


def every(base: PlayedLevel, own_names: Sequence[str] = ()) -> dict[str, GeneralisationTest]:
    """All tests by name, for an agent that was trained in `base`, without those that would repeat it.

    Args:
      own_names: names of its actions for the test `action_names`; () for the published ones.
    """
    tests = [GeneralisationTest(BASE, "nothing is changed"), *_words()]
    actions = tuple(base.options.get("actions", catalogue.ACTIONS))
    tests += _names(actions, own_names) + _lists(actions) + _worlds(base)
    if language(base) != catalogue.FRENCH:
        said = {"language": catalogue.FRENCH}
        tests.append(
            GeneralisationTest(
                "french", "clauses, goal and prompt in French", None, said, frozenset({READS}), True
            )
        )
    return {test.name: test for test in tests}


def _words() -> list[GeneralisationTest]:
    shown = {
        "other_name_same_categories": "chair, table, car for key, ball, box",
        "adj_synonym": "other words for the colours",
        "no_meaning_nouns": "invented words for the things",
        "no_meaning_adj": "invented words for the colours",
        "no_meaning_words": "invented words for things and colours",
        "change_intro_first_personne_speaker": "the goal begins 'I would like the agent to'",
        "change_intro_first_personne_agent": "the goal begins 'You have to'",
    }
    exchanged = {
        changes.OTHER_MISSION: "the mission of another episode",
        changes.OTHER_EPISODE: "the prompts of another episode, which the same actions play",
    }
    return [
        GeneralisationTest(name, what, None, {"change": name}, frozenset({READS}), name in shown)
        for name, what in (shown | exchanged).items()
    ]


def _names(actions: tuple[str, ...], own: Sequence[str]) -> list[GeneralisationTest]:
    given = {"action_names": tuple(own) or ROTATE, "action_names_shift": SHIFT}
    return [
        GeneralisationTest(name, ", ".join(names), None, {"actions": list(names)}, frozenset({READS}), True)
        for name, names in given.items()
        if len(names) == len(actions) and names != actions
    ]


def _lists(actions: tuple[str, ...]) -> list[GeneralisationTest]:
    return [
        GeneralisationTest(f"actions_{count}", f"{count} actions", None, {"actions": list(names)}, frozenset({CHOOSES_WORDS}), True)
        for count, names in ACTION_LISTS.items()
        if count != len(actions)
    ]  # fmt: skip


def _worlds(base: PlayedLevel) -> list[GeneralisationTest]:
    tests = [
        GeneralisationTest(
            f"distractors_{count}", f"{count} distractors", None, {"distractors": count}, longer=True
        )
        for count in DISTRACTORS
        if base.options.get("distractors") != count and _takes(base, {"distractors": count})
    ]  # fmt: skip
    levels = {"unseen_pairs": (UNSEEN_PAIRS, "pairs of colour and thing that no training mission names")}
    for name in SEQUENCES:
        short = name.removeprefix(catalogue.PREFIX).removesuffix("-v0")
        levels[short] = (name, "pick up and go to, or pick up, said in an order of its own")
    return tests + [
        GeneralisationTest(name, what, level)
        for name, (level, what) in levels.items()
        if level != base.environment
    ]


def _takes(base: PlayedLevel, options: Mapping[str, Any]) -> bool:
    from motif_jax.envs.babyai_text.levels import distractors_of

    level = catalogue.find(base.environment)
    own = None if level is None else distractors_of(level)
    if own is None:
        return False
    given = base.options.get("distractors")
    return (own[1] if given is None else given) != options["distractors"]


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
    """The tests that `names` means, the base first.

    Args:
      names: of tests or of levels, or 'all' for every test that applies to the player.

    Raises:
      UserError: there is no such test, or it does not apply to the player.
    """
    there = every(base, own_names)
    wanted = [BASE]
    for name in names:
        able = [one for one, test in there.items() if test.needs <= abilities]
        wanted += able if name == ALL else [name]
    found = []
    for name in dict.fromkeys(wanted):
        test = there.get(name) or _level(name)
        allowed = f"'all', or names of {', '.join(there)}, or a level of BabyAI-Text, with commas between"
        checks.require(test is not None, "tests", name, allowed)
        assert test is not None
        missing = sorted(test.needs - abilities)
        allowed = (
            f"without {name}, which means nothing to a player that does not do this: {', '.join(missing)}"
        )
        checks.require(not missing, "tests", name, allowed)
        found.append(test)
    return found


def _level(name: str) -> GeneralisationTest | None:
    if not name.startswith(catalogue.PREFIX) or catalogue.find(name) is None:
        return None
    return GeneralisationTest(name, "another level", name)


def place_of(
    test: GeneralisationTest, base: PlayedLevel, prompt_tokens: int | None = None, room: int | None = None
) -> PlayedLevel:
    """Where a test is played.

    Args:
      prompt_tokens: of the longest prompt; None: those of the training, twice as many where words may take more.
      room: the player's own limit of them, None for none.

    Raises:
      UserError: the level does not take the options.
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
    registry.spec(environment, **options)
    return PlayedLevel(environment, options)


def takeable(
    names: Sequence[str],
    wanted: Sequence[GeneralisationTest],
    place: Callable[[GeneralisationTest], PlayedLevel],
    make: Callable[[PlayedLevel], Any],
    episode_seeds: Sequence[int],
    key: str = "prompt_tokens",
) -> tuple[list[tuple[GeneralisationTest, PlayedLevel]], dict[str, str]]:
    """The tests that a player can take, with their places; and the tests of 'all' that it cannot take, with the reason.

    Args:
      names: as the config has them; named tests and the base must be possible.
      make: the player in a place; it refuses actions whose words have the same tokens.

    Raises:
      UserError: a test that is named cannot be taken.
    """
    tests, left_out = [], {}
    for test in wanted:
        there = place(test)
        try:
            if "actions" in test.options:
                make(there)
            require_room(test, there, episode_seeds, key)
        except (
            UserError
        ) as error:  # a small vocabulary may not tell words apart, or take many tokens for them
            if not may_be_left_out(test, names):
                raise
            left_out[test.name] = str(error)
        else:
            tests.append((test, there))
    return tests, left_out


def may_be_left_out(test: GeneralisationTest, names: Sequence[str]) -> bool:
    """Whether only 'all' includes the test; named tests and the base are always taken."""
    return test.name not in (BASE, *names)


def require_room(
    test: GeneralisationTest, place: PlayedLevel, episode_seeds: Sequence[int], key: str = "prompt_tokens"
) -> None:
    """Plays the beginnings of the first episodes at random; `key` of the config says how long a prompt may be.

    Raises:
      UserError: the player reads prompts as tokens, and one of these has more than `place` has room for.
    """
    if "tokenizer" not in place.options:
        return
    room = place.options["prompt_tokens"]
    game = registry.make(place.environment, **{**place.options, "prompt_tokens": PROMPT_BYTES})
    seen, lengths = empty_observation(game.spec), []
    for seed in episode_seeds[:TRIED_EPISODES]:
        game.reset(seed, seen)
        lengths.append(int((seen["tokens"] >= 0).sum()))
        for action in seeds.rng(seed, "tried").integers(game.spec.num_actions, size=_TRIED_STEPS):
            _, ended = game.step(int(action), seen)
            lengths.append(int((seen["tokens"] >= 0).sum()))
            if ended != RUNNING:
                break
    game.close()
    longest = max(lengths)
    if longest > room:
        raise UserError(
            f"config.{key}: a prompt of the test {test.name} has {longest} tokens, and {room} are allowed: raise it in another "
            "--workdir (if the model has the positions), or leave the test out of config.tests"
        )
