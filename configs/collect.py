"""Plays games and writes the pairs dataset that annotate reads.

    python -m motif_jax.launch --config=configs/collect.py --workdir=runs/dataset

The work folder becomes the dataset (layout: docs/data.md). Stopped at any moment, the same command resumes; the
result depends neither on that nor on the number of workers. With the defaults, 500,000 pairs (one million game
steps) of a mixture of random players: two to four minutes on 2 cores, 9 GB while it runs, 4.5 GB at the end.

Variants: smoke (300 pairs, seconds), quickstart (20,000 pairs from many games, half a minute on 2 cores), steering (the same
of scripted players besides, so that fights, gold and stairs occur), minigrid (3,000 pairs of random play in DoorKey-6x6 with
captions of events, half a minute), crafter (3,000 pairs of Crafter, most of a player that gathers and builds; a minute).
"""

from motif_jax.core import sections
from motif_jax.envs.keys import GYM, LAST_TEXT
from motif_jax.play.config import CollectedPairs
from motif_jax.schema import Key, configs, length_key, non_negative, one_of, positive, section_keys

_WEIGHT = "weight of this player in a mixture"
_HABIT = f"{_WEIGHT}; habits of NetHack's actions"
_ERRAND = f"{_WEIGHT}; it explores, and walks up to"
KEYS = {
    "stage": "collect",
    "seed": sections.seed(1),
    **section_keys(CollectedPairs),
    "length": length_key(1, "steps of a sub-sequence; 1 in the paper"),
    # Below 1, a dataset of the same size comes from more games.
    "start_share": Key(1.0, "share of the published start points (steps / length)", above=0, maximum=1),
    "spread": one_of(
        ("steps", "messages"),
        "how start points are drawn: from all steps of a game alike, as published, or from its distinct messages alike",
    ),
    "environment": {
        "name": Key("NetHackScore-v1", "environment to play, named as in train_agent"),
        "max_episode_steps": positive(5000, "longest episode in steps; longer ones are cut off"),
        "last_text": LAST_TEXT,
        **GYM,
    },
    "policy": one_of(
        ("mixture", "random", "scripted", "agents"),
        "who plays: 'random' (all actions alike), 'mixture' (the weights draw each episode's player), or one of the others alone",
    ),
    "mixture": {
        "uniform": non_negative(2.0, _WEIGHT),
        "walker": non_negative(1.0, _HABIT),
        "runner": non_negative(3.0, _HABIT),
        "kicker": non_negative(6.0, _HABIT),
        "searcher": non_negative(1.0, _HABIT),
        "eater": non_negative(2.0, _HABIT),
        "descender": non_negative(3.0, _HABIT),
        "fighter": non_negative(0.0, f"{_ERRAND} monsters"),
        "collector": non_negative(0.0, f"{_ERRAND} gold"),
        "diver": non_negative(0.0, f"{_ERRAND} the stairs down"),
        "scripted": non_negative(0.0, f"{_WEIGHT}: all of `scripted` together"),
        "agents": non_negative(0.0, f"{_WEIGHT}: all of `agents` together"),
    },
    "agents": Key(
        "", "runs of train_agent, with commas between: RUN (the newest), RUN@STEP, RUN@best, RUN@all"
    ),
    "scripted": Key("", "players of your own, module:Class (play/policies.py), with commas between"),
    "screens": Key(True, "writes data/tty_chars and data/tty_colors, to look at: most of a dataset's size"),
    "glyphs": Key(False, "writes data/glyphs, for rewards that read the map"),
}
VARIANTS = {
    "smoke": {"num_pairs": 300, "environment.max_episode_steps": 300, "start_share": 0.1},
    "quickstart": {"num_pairs": 20_000, "start_share": 0.05},
    "steering": {
        "num_pairs": 20_000,
        "mixture": {"fighter": 6.0, "collector": 6.0, "diver": 6.0},
        "environment.max_episode_steps": 1000,
        "start_share": 0.1,
        "spread": "messages",
    },
    "minigrid": {
        "environment": {"name": "MiniGrid-DoorKey-6x6-v0", "max_episode_steps": 250},
        "policy": "random",
        "num_pairs": 3_000,
        # Rare events are compared, too: random play unlocks the door in one game of six.
        "start_share": 0.1,
        "spread": "messages",
    },
    "crafter": {
        "environment": {"name": "Crafter-v1", "max_episode_steps": 500},
        # Random play reaches no table in most games, and no stone.
        "mixture": {"uniform": 1.0, "scripted": 2.0},
        "scripted": "motif_jax.envs.crafter.players:Gatherer",
        "num_pairs": 3_000,
        "start_share": 0.1,
        "spread": "messages",
    },
}
get_config = configs(KEYS, VARIANTS)
