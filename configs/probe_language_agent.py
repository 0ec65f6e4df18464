"""Asks a language agent's checkpoints what they would do in fixed situations, and what they would
do without each clause.

    python -m motif_jax.launch --config=configs/probe_language_agent.py \\
        --workdir=runs/gflan_probes --config.policy=runs/gflan

Out come probes.json (situations and actions), probes.jsonl (one line per checkpoint: probabilities
of every action) and clauses.jsonl (the same with one clause left out at a time); it takes seconds
per checkpoint of a small model. A training writes the same files (`config.probes` there); `report`
shows them. A run that is stopped resumes with the next checkpoint. See docs/glam.md.
"""

from motif_jax.glam.config import ProbeAgentConfig
from motif_jax.schema import configs, section_keys

KEYS = {"stage": "probe_language_agent", **section_keys(ProbeAgentConfig)}
get_config = configs(KEYS)
