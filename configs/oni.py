"""Trains an agent whose intrinsic reward is learned while it plays, from a language model that runs
beside it (ONI).

    python -m motif_jax.launch --config=configs/oni.py --workdir=runs/oni

asks the lexicon (a stand-in for a language model, which answers at once). A server that speaks the
OpenAI protocol:

    python -m motif_jax.launch --config=configs/oni.py --workdir=runs/oni \\
        --config.annotator.kind=openai \\
        --config.annotator.openai.base_url=http://127.0.0.1:8000/v1 \\
        --config.annotator.openai.model=MODEL

No dataset is needed. Everything else is as in configs/train_agent.py; besides its files the run
folder holds labels.jsonl, the log of what the reward learned and when. See docs/oni.md.

Variants:
  (none)      the published hyperparameters; quirks of the published code off; one worker per core
              but one (but two beside a GPU).
  faithful    the published command line, schedule and sizes, all published quirks on; needs a
              server.
  quickstart  a small network, classification, the lexicon; a few minutes on 2 cores.
  smoke       seconds: whether everything works.
"""

from motif_jax.core import compat, resources
from motif_jax.oni.config import LearnedReward, OnlineAnnotator, Queue
from motif_jax.schema import configs, section_keys

_FILE = resources.config_file("train_agent")
_AGENT, _VARIANTS = _FILE["KEYS"], _FILE["VARIANTS"]
KEYS = {
    **_AGENT,
    "reward": section_keys(LearnedReward),
    "annotator": section_keys(OnlineAnnotator),
    "queue": section_keys(Queue),
    "compat": _AGENT["compat"]
    | compat.switches(
        "oni_requeue oni_label_anywhere oni_extended_steps oni_untrained_reward oni_ranking_raw_reward"
    ),
}
_BASE = {
    "environment.name": "NetHackScoreExtendedActions-v1",
    "seed": 1,
    "reward.intrinsic_coefficient": 0.4,
    "save_every_steps": 100_000_000,
    "keep_checkpoints": 3,
    "stats_episodes": 100,
}
_LONG = {**_BASE, "batch_size": 1024, "train_for_env_steps": 10_000_000_000}
_FAITHFUL = {
    **compat.switched_on(*KEYS["compat"]),
    "matmul_precision": "highest",
    "reward": {"training.schedule": "published", "extrinsic_scale": 1.0},
    "network.obs_scale": 1.0,
    "actors.groups_per_worker": 2,
    "annotator": {"kind": "openai", "openai.model": "Meta-Llama-3.1-8B-Instruct"},
    "annotator.prompt.version": "default",
    "annotator.answer.mode": "analysis",
    "annotator.openai.base_url": "http://localhost:9001/v1",
}
_QUICKSTART = {
    "reward": {"kind": "classification", "encoder": "lt_cnn_small", "training.learning_rate": 1e-3},
    "save_every_steps": 100_000,
}
_SMOKE = {"reward.extrinsic_coefficient": 0.0, "save_every_steps": 1_024, "annotator.store_dir": ""}
VARIANTS = {
    "": _LONG,
    "faithful": (_LONG, _FAITHFUL),
    "quickstart": (_VARIANTS["quickstart"], _BASE, _QUICKSTART),
    "smoke": (_VARIANTS["smoke"], _BASE, _SMOKE),
}
get_config = configs(KEYS, VARIANTS)
