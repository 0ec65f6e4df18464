"""Plays seeded episodes of a text task by an agent of train_text, or by a policy of the task, and
writes what they reached.

    python -m motif_jax.launch --config=configs/evaluate_text.py:wordle --workdir=runs/eval \\
        --config.agent=runs/ilql
    python -m motif_jax.launch --config=configs/evaluate_text.py:wordle \\
        --workdir=runs/eval_expert --config.agent=runs/ilql --config.policy=optimal

Out come episodes.jsonl (one line an episode, also the resume point), episodes.parquet,
dialogues.parquet (what was said, as collect_text writes it), evaluation.json (means, medians,
interquartile means with confidence intervals), table.md, and tokens.html (the first games token by
token). Stopped at any moment and started again, it loses at most the episodes in flight. 1,024
games of Wordle by a network of the quick run's size take about 10 seconds on 2 cores.

Variants: wordle, visdial, reddit: the published way to decode for that task (weights 16, 16, 8);
babyai_text; TASK_utterance and TASK_chai (of 4 and of 5 samples the one with the best value, for
agents of those methods); smoke (8 episodes).

rank: the utterances and n-grams of greatest and least advantage by agents' values; and, on
branching and adversarial data, how often the values rank the expert's tokens above the others':

    python -m motif_jax.launch --config=configs/evaluate_text.py:rank --workdir=runs/ranks \\
        --config.agent=runs/sarsa,runs/ilql --config.data=runs/branch

Out come ranks.json and tables at the terminal. Published: `top_advantage`, `eval_q_rank`. 10,000
dialogues of Wordle take about a minute on 2 cores.

play: a person at the terminal plays a text task with an agent, against it, or is the other side:

    python -m motif_jax.launch --config=configs/evaluate_text.py:play --workdir=runs/play \\
        --config.agent=runs/ilql --config.play.mode=with

Every game is kept in WORKDIR/games.jsonl. End with Ctrl-D.
"""

import dataclasses

from motif_jax.ilql.config import EvaluateTextConfig
from motif_jax.schema import configs, section_keys

# The published way to decode, by task.
TASKS = {
    "wordle": {"kind": "greedy", "max_tokens": 6, "advantage_clip": 0.0},
    "visdial": {"max_tokens": 40},
    "reddit": {"max_tokens": 256, "advantage_weight": 8.0},
    "babyai_text": {},
}
# Of methods whose values are of whole actions: samples between which they decide.
CANDIDATES = {"utterance": 4, "chai": 5}
KEYS = {"stage": "evaluate_text", **section_keys(EvaluateTextConfig)}
# Of kind 'rank' nobody speaks.
KEYS["decode"] = {
    name: dataclasses.replace(key, read_when=("kind", ("episodes", "play")))
    for name, key in KEYS["decode"].items()
}
VARIANTS = {
    "smoke": {"episodes": 8, "lanes": 8, "show": 2},
    **{task: {"task": task, "decode": decode} for task, decode in TASKS.items()},
    **{
        f"{task}_{method}": {"task": task, "decode": {**decode, "kind": "rerank", "width": width}}
        for task, decode in TASKS.items()
        for method, width in CANDIDATES.items()
    },
    "rank": {"kind": "rank"},
    "play": {"kind": "play", "decode": {"kind": "greedy", "advantage_clip": 0.0}},
}
get_config = configs(KEYS, VARIANTS)
