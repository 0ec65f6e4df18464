"""The configs of Motif's commands besides annotating and training."""

from __future__ import annotations

import functools
from typing import Any

from motif_jax.core import sections
from motif_jax.core.config import available_cores
from motif_jax.envs.config import LAST_TEXT, MAX_EPISODE_STEPS, GymOptions
from motif_jax.play.config import LANES
from motif_jax.rl.reward_keys import RewardCheckpoint, ThresholdedReward
from motif_jax.schema import (
    length_key,
    non_negative,
    one_of,
    plain_key,
    positive,
    section_class,
    subsection,
)


@section_class
class CollectedEnvironment(GymOptions):
    """The environment of a collection."""

    name: str = plain_key("NetHackScore-v1", "environment to play, named as in train_agent")
    max_episode_steps: int = MAX_EPISODE_STEPS
    last_text: bool | None = LAST_TEXT


_weight: Any = functools.partial(non_negative, read_when=("policy", ("mixture",)))
_WEIGHT = "weight of this player in a mixture"
_HABIT = f"{_WEIGHT}; habits of NetHack's actions"
_ERRAND = f"{_WEIGHT}; it explores, and walks up to"


@section_class
class PlayerWeights:
    """How often each player of a mixture plays, relative to the others."""

    uniform: float = _weight(2.0, _WEIGHT)
    walker: float = _weight(1.0, _HABIT)
    runner: float = _weight(3.0, _HABIT)
    kicker: float = _weight(6.0, _HABIT)
    searcher: float = _weight(1.0, _HABIT)
    eater: float = _weight(2.0, _HABIT)
    descender: float = _weight(3.0, _HABIT)
    fighter: float = _weight(0.0, f"{_ERRAND} monsters")
    collector: float = _weight(0.0, f"{_ERRAND} gold")
    diver: float = _weight(0.0, f"{_ERRAND} the stairs down")
    scripted: float = _weight(0.0, f"{_WEIGHT}: all of `scripted` together")
    agents: float = _weight(0.0, f"{_WEIGHT}: all of `agents` together")


@section_class
class CollectConfig:
    """A collection of pairs."""

    seed: int = sections.seed(1)
    num_pairs: int = positive(500_000, "number of pairs of the dataset")
    look: bool = plain_key(
        False,
        "collects nothing: a minute of random play, and look.html in the work folder, which says what a collection would hold",
    )
    drop_equal_captions: bool = plain_key(
        False, "leaves out pairs with two equal captions, which are ties"
    )
    lanes: int = LANES
    # The process that collects only hands out episodes, so all cores play.
    workers: int = positive(available_cores(), "number of processes that play")
    length: int = length_key(1, "steps of a sub-sequence; 1 in the paper")
    # Below 1, a dataset of the same size comes from more games. With 1 every step of a game is
    # drawn, whatever `spread` says.
    start_share: float | None = plain_key(
        None,
        "share of the published start points (steps / length); None: 1 with spread=steps, as published, 0.1 with spread=messages",
        above=0,
        maximum=1,
    )
    spread: str = one_of(
        ("steps", "messages"),
        "how start points are drawn: from all steps of a game alike, as published, or from its distinct messages alike",
    )
    environment: CollectedEnvironment = subsection(CollectedEnvironment)
    policy: str = one_of(
        ("mixture", "random", "scripted", "agents"),
        "who plays: 'random' (all actions alike), 'mixture' (the weights draw each episode's player), or one of the others alone",
    )
    mixture: PlayerWeights = subsection(PlayerWeights)
    agents: str = plain_key(
        "",
        "runs of train_agent, with commas between: RUN (the newest), RUN@STEP, RUN@best, RUN@all",
    )
    scripted: str = plain_key(
        "", "players of your own, module:Class (rl/actors/policies.py), with commas between"
    )
    screens: bool = plain_key(
        True, "writes data/tty_chars and data/tty_colors, to look at: most of a dataset's size"
    )
    glyphs: bool = plain_key(False, "writes data/glyphs, for rewards that read the map")


@section_class
class ExaminedReward(ThresholdedReward):
    """The reward that is explained."""

    dir: str | None = plain_key(
        None, "run folder of train_reward or configs/oni.py, or a file of export:reward"
    )


@section_class
class OtherReward(RewardCheckpoint):
    """A reward beside the one that is explained."""

    dir: str | None = plain_key(None, "a second reward to compare with")


@section_class
class ExplainRewardConfig:
    """What is shown of a reward."""

    seed: int = sections.SEED
    reward: ExaminedReward = subsection(ExaminedReward)
    other: OtherReward = subsection(OtherReward)
    dataset_dir: str | None = plain_key(
        None,
        "folder of the dataset whose messages are shown, or of several with commas between; None: those that the reward was trained on",
    )
    text: str = plain_key("", "messages to rate, with | between them")
    max_rows: int = positive(
        5000, "messages on the page, the most frequent ones; messages.csv has all"
    )
    max_steps: int = positive(
        200_000, "steps to average a reward over that reads more than the message"
    )
