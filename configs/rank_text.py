"""Shows the utterances and n-grams of greatest and least advantage by agents' values; and, on branching and adversarial data,
how often the values rank the expert's tokens above the others'.

    python -m motif_jax.launch --config=configs/rank_text.py --workdir=runs/ranks --config.agents=runs/sarsa,runs/ilql \\
        --config.data=runs/branch

Out come ranks.json and tables at the terminal. Published: `top_advantage`, `eval_q_rank`. 10,000 dialogues of Wordle take
about a minute on 2 cores.
"""

from motif_jax.schema import Key, configs, positive

KEYS = {
    "stage": "rank_text",
    "agents": Key("", "runs of train_text with commas between; their tokens must have values"),
    "data": Key(None, "a folder of collect_text, or a file of dialogues (.parquet)", str),
    "dialogues": positive(
        10_000, "number of dialogues to read, from the start of the data; groups are never split"
    ),
    "n_gram": positive(3, "tokens of an n-gram"),
    "shown": positive(20, "number of texts to show in the list of the greatest and in that of the least"),
    "least_count": positive(2, "the lists leave out what was said less often"),
    "tokens": positive(6, "last tokens of an action for which ranking accuracy is measured"),
}
get_config = configs(KEYS, {"smoke": {"dialogues": 20}})
