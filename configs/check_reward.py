"""Measures how often a reward that was learned online agrees with its annotator about a message.

    python -m motif_jax.launch --config=configs/check_reward.py --workdir=runs/check \\
        --config.reward.dir=runs/oni --config.evaluation=runs/evaluation

It takes the labelled messages that the training saw at least three times, and the messages
without a label of the training and of an evaluation's games. About the latter it asks the run's
annotator, unless the answer store has the answer. With `minimum` it ends with an error where they
agree on fewer of the labelled messages. It writes agreement.json, which names every message on
which they disagree. Seconds with the lexicon.

Variants:
  (none)      reports how often they agree.
  quickstart  an error unless they agree on 95 % of the messages seen at least 3 times.
"""

from motif_jax.oni.config import CheckRewardConfig
from motif_jax.schema import configs, section_keys

KEYS = {"stage": "check_reward", **section_keys(CheckRewardConfig)}
get_config = configs(KEYS, {"quickstart": {"minimum": 0.95}, "smoke": {}})
