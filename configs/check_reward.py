"""Measures how often a reward that was learned online agrees with its annotator about a message.

    python -m motif_jax.launch --config=configs/check_reward.py --workdir=runs/check --config.reward.dir=runs/oni \\
        --config.evaluation=runs/evaluation

It takes the labelled messages that the training saw at least `least_met` times, and the messages without a label of the training
and of an evaluation's games. About the latter it asks the run's annotator, unless the answer store has the answer.
With `minimum` it ends with an error where they agree on fewer of the labelled messages. It writes agreement.json, which names every
message on which they disagree. Seconds with the lexicon.

Variants:
  (none)      reports how often they agree.
  quickstart  an error unless they agree on 95 % of the messages seen at least 3 times.
"""

from motif_jax.core import sections
from motif_jax.rl.reward_keys import REWARD_STEP
from motif_jax.schema import Key, configs, fraction, positive

KEYS = {
    "stage": "check_reward",
    "seed": sections.SEED,
    "reward": {
        "dir": Key(None, "run of configs/oni.py, of kind classification or retrieval", str),
        "step": REWARD_STEP,
    },
    "evaluation": Key("", "an evaluation whose messages are checked too; empty: none"),
    "least_met": positive(3, "messages that the training saw less often are left out"),
    "questions": positive(1000, "questions to the annotator at most, about the most frequent messages"),
    "wait_seconds": positive(600.0, "how long to wait for the annotator's answers"),
    "minimum": fraction(None, "share of messages on which they must agree; None: any", float),
}
get_config = configs(KEYS, {"quickstart": {"minimum": 0.95}, "smoke": {}})
