"""Asks a language agent's checkpoints what they would do in fixed situations, and what they would without each clause of them.

    python -m motif_jax.launch --config=configs/probe_language_agent.py --workdir=runs/gflan_probes --config.policy=runs/gflan

Out come probes.json (situations and actions), probes.jsonl (a line a checkpoint: probabilities of every action) and clauses.jsonl (the
same with one clause left out at a time); seconds a checkpoint of a small model. A training writes the same files as it goes on
(`config.probes` there); `report` shows them. A run that is stopped goes on with the next checkpoint. See docs/glam.md.
"""

from __future__ import annotations

from ml_collections import ConfigDict

from motif_jax.support.config import unknown_variant


def get_config(variant: str | None = None) -> ConfigDict:
    if variant not in (None, ""):
        raise unknown_variant(variant, ("",))
    config = ConfigDict()
    config.stage = "probe_language_agent"
    config.policy = ""  # folder of a run of train_language_agent
    config.checkpoint = "all"  # of it: 'all', 'latest', 'best', or a step
    config.probes = ConfigDict(
        {"prompts": "own"}
    )  # 11 of ours, or a JSON file as configs/probes/babyai_text.json is
    config.published_files = True  # distrib.csv, too: a row a checkpoint
    return config
