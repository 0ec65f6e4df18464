"""Shows the utterances and n-grams of greatest and least advantage by agents' values; and, on
branching and adversarial data, how often the values rank the expert's tokens above the others'.

    python -m motif_jax.launch --config=configs/rank_text.py --workdir=runs/ranks \\
        --config.agents=runs/sarsa,runs/ilql --config.data=runs/branch

Out come ranks.json and tables at the terminal. Published: `top_advantage`, `eval_q_rank`. 10,000
dialogues of Wordle take about a minute on 2 cores.
"""

from motif_jax.ilql.evaluation.config import RankTextConfig
from motif_jax.schema import configs, section_keys

KEYS = {"stage": "rank_text", **section_keys(RankTextConfig)}
get_config = configs(KEYS, {"smoke": {"dialogues": 20}})
