"""Draws dialogues of a text task and writes them as dialogues.parquet, to learn from
(docs/ilql.md).

    python -m motif_jax.launch --config=configs/collect_text.py:wordle --workdir=runs/games

100,000 games of Wordle by the published noisy expert take about 10 seconds on 2 cores and 3 MB.
Stopped at any moment, the same command resumes; the result depends neither on that nor on the
number of workers.

Variants: wordle (whole games), branch (an expert's games and others that leave it at every turn),
adversarial (at the third guess), tweets (games with the colours of tweets), smoke (500 games,
seconds); visdial (the published files), reddit (replies to comments); babyai (1,000 random episodes
of BabyAI-Text, relabelled in hindsight, to make a language model of: docs/glam.md).
"""

from motif_jax.core import compat
from motif_jax.ilql.config import CollectTextConfig, TaskCompat
from motif_jax.ilql.tasks import babyai_text
from motif_jax.ilql.tasks.reddit import task as reddit
from motif_jax.ilql.tasks.visdial import task as visdial
from motif_jax.ilql.tasks.wordle import task as wordle
from motif_jax.schema import configs, section_keys

KEYS = {
    "stage": "collect_text",
    **section_keys(CollectTextConfig),
    "wordle": wordle.KEYS,
    "visdial": visdial.KEYS,
    "babyai_text": babyai_text.KEYS,
    "reddit": reddit.KEYS,
    "compat": compat.switches(
        "wordle_branch_restarts wordle_top_p_rows visdial_last_turn_free upvote_zero_one",
        TaskCompat,
    ),
}
_EXPERT = "optimal(start)"
VARIANTS = {
    "wordle": {},
    "branch": {"kind": "branch", "num_dialogues": 20_000, "policy": _EXPERT},
    "adversarial": {
        "kind": "adversarial",
        "num_dialogues": 2_000,
        "policy": _EXPERT,
        "wordle.num_suboptimal": 5,
    },
    "tweets": {"kind": "tweets"},
    "smoke": {"num_dialogues": 500},
    "visdial": {"task": "visdial", "kind": "recorded", "num_dialogues": 0, "policy": "remote"},
    "reddit": {"task": "reddit", "kind": "recorded", "num_dialogues": 0, "policy": "recorded"},
    "babyai": {
        "task": "babyai_text",
        "kind": "hindsight",
        "policy": "random",
        "num_dialogues": 1000,
        "babyai_text.observations": 1,
    },
}
get_config = configs(KEYS, VARIANTS)
