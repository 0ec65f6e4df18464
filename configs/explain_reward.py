"""Shows what a trained reward likes: a table and a page of every distinct message of a dataset.

    python -m motif_jax.launch --config=configs/explain_reward.py --workdir=runs/explain --config.reward.dir=runs/reward

Two rewards side by side: --config.other.dir=runs/reward_combat. Any text: --config.text="You see here a key." (several
with | between them) is answered on the terminal and on the page. Out come explain.html (one file that needs no network),
messages.csv (every message), texts.csv and summary.json. Seconds; a minute for many messages and evaluations.
"""

from motif_jax.core import sections
from motif_jax.rl.reward_keys import QUANTILE, REWARD_STEP, THRESHOLD
from motif_jax.schema import Key, configs, positive

KEYS = {
    "stage": "explain_reward",
    "seed": sections.SEED,
    "reward": {
        "dir": Key(None, "run folder of train_reward or configs/oni.py, or a file of export_reward", str),
        "step": REWARD_STEP,
        "quantile": QUANTILE,
        "threshold": THRESHOLD,
    },
    "other": {"dir": Key(None, "a second reward to compare with", str), "step": REWARD_STEP},
    "dataset_dir": Key(None, "whose messages are shown; None: those that the reward was trained on", str),
    "text": Key("", "messages to rate, with | between them"),
    "max_evaluations": positive(12, "evaluations that show the change over training, spread evenly"),
    "max_rows": positive(5000, "messages on the page, the most frequent ones; messages.csv has all"),
    "max_steps": positive(200_000, "steps to average a reward over that reads more than the message"),
}
get_config = configs(KEYS, {"smoke": {}, "quickstart": {}})
