"""Says how often a reward that was learned online says of a message what its annotator says.

    python -m motif_jax.launch --config=configs/check_reward.py --workdir=runs/check --config.reward.dir=runs/oni \\
        --config.evaluation=runs/evaluation

Of the labelled messages that the training met at least `least_met` times, and of messages that were never labelled: those of the
training, and of an evaluation's games. About the latter the run's annotator is asked, unless its answer store knows.
With `minimum` it ends with an error where they agree on fewer of the former. Out comes agreement.json, which names every message
on which they do not agree. Seconds with the lexicon.

Variants:
  (none)      says how often.
  quickstart  at least 95 % of the messages met at least 3 times, else an error.
"""

from __future__ import annotations

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from motif_jax.support.config import unknown_variant

VARIANTS = ("", "quickstart", "smoke")


def get_config(variant: str | None = None) -> ConfigDict:
    """The check_reward stage's config."""
    if variant not in (None, *VARIANTS):
        raise unknown_variant(variant, VARIANTS)
    config = ConfigDict()
    config.stage = "check_reward"
    config.seed = 0
    config.reward = ConfigDict()
    config.reward.dir = placeholder(str)  # run folder of configs/oni.py, of kind classification or retrieval
    config.reward.step = placeholder(int)  # which of its checkpoints; None: the newest
    config.evaluation = ""  # an evaluation whose messages are looked at too; empty: none
    config.least_met = 3
    # The annotator is asked about so many messages at most, the most frequent ones, and for so long.
    config.questions = 1000
    config.wait_seconds = 600.0
    config.minimum = placeholder(float)  # share on which they have to agree; None: any
    if variant == "quickstart":
        config.minimum = 0.95
    return config
