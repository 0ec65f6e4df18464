"""Shows what a trained reward likes: a table and a page of every distinct message of a dataset.

    python -m motif_jax.launch --config=configs/explain_reward.py --workdir=runs/explain --config.reward.dir=runs/reward

Two rewards side by side: --config.other.dir=runs/reward_combat. Any text: --config.text="You see here a key." (several
with | between them) is answered on the terminal and on the page. Out come explain.html (one file that needs no network),
messages.csv (every message), texts.csv and summary.json. Seconds; a minute for many messages and evaluations.
"""

from __future__ import annotations

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from motif_jax.support.config import unknown_variant


def get_config(variant: str | None = None) -> ConfigDict:
    if variant not in (None, "", "smoke", "quickstart"):
        raise unknown_variant(variant, ("", "smoke", "quickstart"))
    config = ConfigDict()
    config.stage = "explain_reward"
    config.seed = 0
    config.reward = ConfigDict()
    config.reward.dir = placeholder(
        str
    )  # run folder of train_reward or configs/oni.py, or a file of export_reward
    config.reward.step = placeholder(int)  # its evaluation; None: the newest (best if it stops early)
    config.reward.quantile = placeholder(float)  # threshold, of both rewards; None: no threshold
    config.reward.quantile = 0.5
    config.reward.threshold = "quantile"  # or 'auto': above the texts that the judge called ties
    config.other = ConfigDict()
    config.other.dir = placeholder(str)  # a second reward to compare with
    config.other.step = placeholder(int)
    # Whose messages; None: the one the reward was trained on, or those that the run met which learned its reward while it played.
    config.dataset_dir = placeholder(str)
    config.text = ""  # messages to rate, with | between them
    config.max_evaluations = 12  # of the change over training, spread evenly
    config.max_rows = placeholder(int)  # messages on the page, the most frequent ones; None: all
    config.max_steps = 200_000  # a reward that reads more than the message is averaged over so many steps
    return config
