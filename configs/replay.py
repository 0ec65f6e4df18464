"""Plays recorded episodes again and makes something to look at: HTML player, ttyrec3, GIF.

    python -m motif_jax.launch --config=configs/replay.py --workdir=runs/replays --config.evaluation=runs/evaluation \\
        --config.episodes=best,worst,7
    python -m motif_jax.launch --config=configs/replay.py --workdir=runs/replays \\
        --config.recordings=runs/watch/episode-00000.json --config.reward.dir=runs/other_reward

Every episode of an evaluation can be replayed, recorded or not: its seed and actions are in the journal. Another
reward can be laid over it (`reward.dir`), and an agent can be asked what it thinks of it (`agent.dir`). A second or two
per episode of 1,000 steps, GIF 10 ms per frame.
"""

from motif_jax.core import sections
from motif_jax.play.keys import EPISODES, Forms
from motif_jax.rl.reward_keys import Scoring
from motif_jax.schema import Key, configs, section_keys

KEYS = {
    "stage": "replay",
    "seed": sections.SEED,
    "evaluation": Key(None, "folder of an evaluation", str),
    "episodes": Key(
        EPISODES,
        "episodes of the evaluation: indices, best, worst (by intrinsic return, else return), or all",
    ),
    "recordings": Key("", "recordings (.json) or folders of them, with commas between"),
    "agent": {
        "dir": Key(
            None,
            "whose value and action probabilities are shown; None: the evaluation's agent; '': none",
            str,
        ),
        "checkpoint": Key(
            None,
            "'latest', 'best' (by mean return in training), or a step; 0: before it; None: the evaluation's, or the latest of agent.dir",
            str,
        ),
    },
    "reward": section_keys(Scoring),
    "forms": section_keys(Forms),
}
get_config = configs(KEYS, {"smoke": {}, "quickstart": {}})
