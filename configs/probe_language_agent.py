"""Asks a language agent's checkpoints what they would do in fixed situations, and what they would do without each clause.

    python -m motif_jax.launch --config=configs/probe_language_agent.py --workdir=runs/gflan_probes --config.policy=runs/gflan

Out come probes.json (situations and actions), probes.jsonl (one line per checkpoint: probabilities of every action) and clauses.jsonl (the
same with one clause left out at a time); it takes seconds per checkpoint of a small model. A training writes the same files
(`config.probes` there); `report` shows them. A run that is stopped resumes with the next checkpoint. See docs/glam.md.
"""

from motif_jax.schema import Key, configs

KEYS = {
    "stage": "probe_language_agent",
    "policy": Key("", "folder of a run of train_language_agent"),
    "checkpoint": Key("all", "checkpoint of the agent: 'all', 'latest', 'best', or a step"),
    "probes": {
        "prompts": Key("own", "'own' (11 built-in ones), or a JSON file like configs/probes/babyai_text.json")
    },
    "must_be_right": Key(
        False,
        "exit code 1 unless the newest checkpoint's most likely action is the one that the file calls `right`, in all probes that have one",
    ),
    "published_files": Key(True, "also writes distrib.csv, one row per checkpoint"),
}
get_config = configs(KEYS)
