"""Plays recorded episodes again and makes something to look at: HTML player, ttyrec3, GIF.

    python -m motif_jax.launch --config=configs/replay.py --workdir=runs/replays \\
        --config.evaluation=runs/evaluation --config.episodes=best,worst,7
    python -m motif_jax.launch --config=configs/replay.py --workdir=runs/replays \\
        --config.recordings=runs/watch/episode-00000.json --config.reward.dir=runs/other_reward

Every episode of an evaluation can be replayed, recorded or not: its seed and actions are in the
journal. Another reward can be laid over it (`reward.dir`), and an agent can be asked what it thinks
of it (`agent.dir`). A second or two per episode of 1,000 steps, GIF 10 ms per frame.
"""

from motif_jax.play.config import ReplayConfig
from motif_jax.schema import configs, section_keys

KEYS = {"stage": "replay", **section_keys(ReplayConfig)}
get_config = configs(KEYS, {"smoke": {}, "quickstart": {}})
