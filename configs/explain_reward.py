"""Shows what a trained reward likes: a table and a page of every distinct message of a dataset.

    python -m motif_jax.launch --config=configs/explain_reward.py --workdir=runs/explain \\
        --config.reward.dir=runs/reward

Two rewards side by side: --config.other.dir=runs/reward_combat. Any text: --config.text="You see
here a key." (several with | between them) is answered on the terminal and on the page. Out come
explain.html (one file that needs no network), messages.csv (every message), texts.csv and
summary.json. Seconds; a minute for many messages and evaluations.
"""

from motif_jax.motif.config import ExplainRewardConfig
from motif_jax.schema import configs, section_keys

KEYS = {"stage": "explain_reward", **section_keys(ExplainRewardConfig)}
get_config = configs(KEYS, {"smoke": {}, "quickstart": {}})
