"""Plays recorded episodes again and makes something to look at: HTML player, ttyrec3, GIF, MP4.

    python -m motif_jax.launch --config=configs/replay.py --workdir=runs/replays --config.evaluation=runs/evaluation \\
        --config.episodes=best,worst,7
    python -m motif_jax.launch --config=configs/replay.py --workdir=runs/replays \\
        --config.recordings=runs/watch/episode-00000.json --config.reward.dir=runs/other_reward

Every episode of an evaluation can be replayed, recorded or not: its seed and actions are in the journal. Another
reward can be laid over it (`reward.dir`), and an agent can be asked what it thinks of it (`agent.dir`). A second or two
per episode of 1,000 steps, GIF and MP4 10 ms per frame.
"""

from __future__ import annotations

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from motif_jax.support.config import unknown_variant


def get_config(variant: str | None = None) -> ConfigDict:
    if variant not in (None, "", "smoke", "quickstart"):
        raise unknown_variant(variant, ("", "smoke", "quickstart"))
    config = ConfigDict()
    config.stage = "replay"
    config.seed = 0
    config.evaluation = placeholder(str)  # folder of an evaluation
    config.episodes = "best,worst"  # of it: indices, best, worst (by intrinsic return, else return), or all
    config.recordings = ""  # recordings (.json) or folders of them, with commas between

    config.agent = ConfigDict()  # whose value and action probabilities are shown
    config.agent.dir = placeholder(str)  # None: the evaluation's agent; '': none
    config.agent.checkpoint = "latest"
    config.reward = ConfigDict()  # what is laid over the episode
    config.reward.dir = placeholder(str)  # None: the evaluation's reward with its settings; '': none
    config.reward.step = placeholder(int)
    config.reward.normalise = True
    config.reward.quantile = placeholder(float)
    config.reward.quantile = 0.5
    config.reward.threshold = "quantile"  # or 'auto': above the texts that the judge called ties
    config.reward.count_exponent = 3.0

    config.forms = ConfigDict()
    config.forms.html = True
    config.forms.ttyrec = True  # for nle-ttyplay2
    config.forms.gif = False
    config.forms.mp4 = False  # needs ffmpeg
    config.forms.frames_per_second = 10.0
    config.forms.start = 0  # steps of gif and mp4: [start, stop), every `every`-th and the rewarded ones
    config.forms.stop = placeholder(int)
    config.forms.every = 1
    return config
