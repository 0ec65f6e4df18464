"""Plays games and writes the pairs dataset that annotate reads.

    python -m motif_jax.launch --config=configs/collect.py --workdir=runs/dataset

The work folder becomes the dataset (layout: docs/data.md). Stopped at any moment, the same command
resumes; the result depends neither on that nor on the number of workers. With the defaults, 500,000
pairs (one million game steps) of a mixture of random players: two to four minutes on 2 cores, 9 GB
while it runs, 4.2 GB at the end.

With --config.look=True it collects nothing: random play of a minute, and look.html says whether
games are functions of their seeds, what is observed and measured, and which captions a collection
would hold.

Variants: smoke (300 pairs, seconds), quickstart (20,000 pairs from many games, half a minute on 2
cores), steering (the same of scripted players besides, so that fights, gold and stairs occur),
minigrid (3,000 pairs of random play in DoorKey-6x6 with captions of events, half a minute), crafter
(3,000 pairs of Crafter, most of a player that gathers and builds; 100 s of processor time).
"""

from motif_jax.motif.config import CollectConfig
from motif_jax.schema import configs, section_keys

KEYS = {"stage": "collect", **section_keys(CollectConfig)}
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
