"""Plays seeded episodes of an agent or of the random policy and writes their results.

    python -m motif_jax.launch --config=configs/evaluate.py --workdir=runs/evaluation \\
        --config.policy=agent --config.agent.dir=runs/agent --config.episodes=100
    python -m motif_jax.launch --config=configs/evaluate.py --workdir=runs/evaluation_random \\
        --config.policy=random --config.agent.dir=runs/agent --config.reward.dir=runs/reward

Two evaluations with the same `seed` play the same games; the random policy plays in the agent's
environment where one is given. Out come episodes.jsonl (one line an episode, also the resume
point), episodes.parquet (the same as a table, with every action), evaluation.json (means, medians
and interquartile means with confidence intervals), table.md, and recordings/ where asked for.
Stopped at any moment and started again, it loses at most the episodes in flight.

100 episodes of the random policy take about 10 seconds on two cores, of the published agent network
minutes.
"""

from motif_jax.core import compat
from motif_jax.play.config import EvaluateConfig
from motif_jax.schema import configs, section_keys

KEYS = {
    "stage": "evaluate",
    **section_keys(EvaluateConfig),
    "compat": compat.switches("sober_mask oracle_patch_edge crop_row_offset message_count_off"),
}
VARIANTS = {
    "smoke": {
        "episodes": 4,
        "lanes": 2,
        "workers": 2,
        "environment.max_episode_steps": 200,
    },
    "quickstart": {"episodes": 300, "show_best": 1},
}
get_config = configs(KEYS, VARIANTS)
