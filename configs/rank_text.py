"""Says what the values of agents hold for good: utterances and n-grams of greatest and least advantage; and, on branching and
adversarial data, how often they rank the expert's tokens above the others'.

    python -m motif_jax.launch --config=configs/rank_text.py --workdir=runs/ranks --config.agents=runs/sarsa,runs/ilql \\
        --config.data=runs/branch

Out come ranks.json, ranks.html and tables at the terminal. Published: `top_advantage`, `eval_q_rank`. 10,000 dialogues of Wordle take
about a minute on 2 cores.
"""

from __future__ import annotations

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from motif_jax.support.config import unknown_variant


def get_config(variant: str | None = None) -> ConfigDict:
    if variant not in (None, "", "smoke"):
        raise unknown_variant(variant, ("", "smoke"))
    config = ConfigDict()
    config.stage = "rank_text"
    config.agents = ""  # run folders of train_text with commas between; their tokens must have values
    config.data = placeholder(str)  # a folder of collect_text, or a file of dialogues (.parquet)
    config.dialogues = 20 if variant == "smoke" else 10_000  # of the data, from its start; groups stay whole
    config.n_gram = 3  # tokens of an n-gram
    config.shown = 20  # of the greatest and of the least
    config.least_count = 2  # what was said less often is left out of the lists
    config.tokens = 6  # from the end of an action, of ranking accuracy
    return config
