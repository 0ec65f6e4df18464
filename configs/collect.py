"""Plays games and writes the pairs dataset that annotate reads.

    python -m motif_jax.launch --config=configs/collect.py --workdir=runs/dataset

The work folder becomes the dataset (layout: docs/data.md). Stopped at any moment, the same command goes on; the
result depends neither on that nor on the number of workers. With the defaults, 500,000 pairs (one million game
steps) of a mixture of random players: two to four minutes on 2 cores, 9 GB while it runs, 4.5 GB at the end.

Variants: smoke (300 pairs, seconds), quickstart (20,000 pairs from many games, half a minute on 2 cores), steering (the same
of scripted players besides, so that fights, gold and stairs occur), minigrid (3,000 pairs of random play in DoorKey-6x6 with
captions of events, half a minute).
"""

from __future__ import annotations

from ml_collections import ConfigDict

from motif_jax.support.config import available_cores, unknown_variant

VARIANTS = ("", "smoke", "quickstart", "steering", "minigrid")


def get_config(variant: str | None = None) -> ConfigDict:
    if (variant or "") not in VARIANTS:
        raise unknown_variant(variant, VARIANTS)
    config = ConfigDict(
        {
            "stage": "collect",
            "seed": 1,
            "num_pairs": 500_000,
            # Steps of a sub-sequence; 1 in the paper.
            "length": 1,
            # Part of the published number of start points (steps / length of each episode) that is drawn. Below 1,
            # a dataset of the same size comes from more games.
            "start_share": 1.0,
            # How start points are drawn: all steps of a game alike, as published ('steps'), or all distinct messages of it alike,
            # however often each came ('messages'): rare ones are compared with each other, too.
            "spread": "steps",
            # Leaves out pairs whose two captions are equal: ties that no annotator is asked about.
            "drop_equal_captions": False,
            "environment": {
                "name": "NetHackScore-v1",
                "max_episode_steps": 5000,
                # Of gym:ID, as in train_agent.
                "text": "",
                "text_bytes": 256,
                "modules": "",
            },
            # Who plays: 'random' (all actions alike), 'mixture' (an episode's player is drawn by the weights
            # below), 'scripted' or 'agents' alone.
            "policy": "mixture",
            "mixture": {
                "uniform": 2.0,
                # Habits of NetHack's actions, up to descender: elsewhere they do not play.
                "walker": 1.0,
                "runner": 3.0,
                "kicker": 6.0,
                "searcher": 1.0,
                "eater": 2.0,
                "descender": 3.0,
                # Scripted: they explore, and walk up to monsters, to gold, to the stairs down (and so to the next level).
                "fighter": 0.0,
                "collector": 0.0,
                "diver": 0.0,
                # All of `scripted` together, and all of `agents`.
                "scripted": 0.0,
                "agents": 0.0,
            },
            # Run folders of train_agent, separated by commas: RUN for its newest checkpoint, RUN@STEP, RUN@best, RUN@all.
            # An episode's agent is drawn from all of these alike.
            "agents": "",
            # Scripted players of your own, module:Class (playing/policies.py), separated by commas.
            "scripted": "",
            # Episodes that an agent plays at a time, an even number.
            "lanes": 32,
            # data/tty_chars and data/tty_colors where the environment has a screen, most of a dataset's size; needed only to look at it.
            "screens": True,
            # data/glyphs, for rewards that read the map.
            "glyphs": False,
            # Processes; this one only hands out episodes, so all cores play.
            "workers": available_cores(),
        }
    )
    if variant == "smoke":
        config.num_pairs = 300
        config.environment.max_episode_steps = 300
        config.start_share = 0.1
    if variant in ("quickstart", "steering"):
        config.num_pairs = 20_000
        config.start_share = 0.05
    if variant == "steering":
        config.mixture.fighter = config.mixture.collector = config.mixture.diver = 6.0
        config.environment.max_episode_steps = 1000
        config.start_share, config.spread = 0.1, "messages"
    if variant == "minigrid":
        config.environment.name, config.environment.max_episode_steps = "MiniGrid-DoorKey-6x6-v0", 250
        config.policy, config.num_pairs = "random", 3_000
        # Rare events are compared, too: random play unlocks the door in one game of six.
        config.start_share, config.spread = 0.1, "messages"
    return config
