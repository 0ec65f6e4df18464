"""Trains an agent whose intrinsic reward is learned while it plays, from a language model that runs beside it (ONI).

    python -m motif_jax.launch --config=configs/oni.py --workdir=runs/oni

asks the lexicon (a stand-in for a language model, which answers at once). A server that speaks the OpenAI protocol:

    python -m motif_jax.launch --config=configs/oni.py --workdir=runs/oni --config.annotator.kind=openai \\
        --config.annotator.openai.base_url=http://127.0.0.1:8000/v1 --config.annotator.openai.model=MODEL

No dataset is needed. Everything else is as in configs/train_agent.py; besides its files the run folder holds labels.jsonl,
the log of what the reward learned and when. See docs/oni.md.

Variants:
  (none)      the published hyperparameters; quirks of the published code off; one worker per core but one.
  faithful    the published command line, schedule and sizes, all published quirks on; needs a server.
  quickstart  a small network, classification, the lexicon; a few minutes on 2 cores.
  smoke       seconds: whether everything works.
"""

from motif_jax import sections
from motif_jax.labels import defaults
from motif_jax.schema import Key, configs, fraction, natural, one_of, positive, size
from motif_jax.support import resources

_FILE = resources.config_file("train_agent")
_AGENT, _VARIANTS = _FILE["KEYS"], _FILE["VARIANTS"]
REWARD = {
    **{name: key for name, key in _AGENT["reward"].items() if name != "threshold"},
    "kind": Key(
        "retrieval",
        "retrieval: the labels themselves. classification: a network that is trained on them. ranking: one that is trained on preferences "
        "between two messages. motif, table, bag_of_words: frozen, as in configs/train_agent.py. none: the task's reward alone",
    ),
    "intrinsic_coefficient": natural(0.4, "of the intrinsic reward; as published for retrieval on the score"),
    "value": one_of(("label", "probability"), "pays 1 for yes (above the threshold), or its probability"),
    "encoder": one_of(("lt_cnn", "lt_cnn_small"), "of networks; the small one reads 128 bytes and is cheap"),
    "classifier": {
        "threshold": fraction(0.5, "probabilities strictly above it are helpful"),
        "dropout": fraction(0.1, "while it trains"),
    },
    # With reward.normalise=False rewards are raw, and there is no threshold.
    "threshold": Key(-0.5, "ranking: normalised rewards at or below it become 0"),
    "decay": Key(1.0, "ranking: factor on the weight of earlier steps at each batch", above=0, most=1),
    "pairs": {
        "every": positive(10, "ranking: pairs are drawn from every Nth step"),
        "distinct": Key(False, "ranking: draws each distinct text alike, not each step"),
        "a_batch": positive(10, "ranking: pairs drawn with each batch"),
        "waiting": positive(200, "ranking: draws only while fewer questions than this wait"),
    },
    "training": {
        "batch_size": sections.batch(256, "labels"),
        "learning_rate": positive(1e-4, "of Adam", most=100.0),
        "schedule": one_of(
            ("budget", "published"),
            "'budget': new labels call for steps_per_arrival steps, taken beside the learner, at most steps_per_update an "
            "update. 'published': all at once, and from 25,000 labels on one step an update",
        ),
        "steps_per_arrival": positive(32, "see schedule"),
        "steps_per_update": positive(1, "see schedule"),
        "target": one_of(("label", "probability"), "learns labels, or the annotator's probabilities"),
        "members": size(1, "networks"),
        "deviations": natural(0.0, "standard deviations of the members that are subtracted from their mean"),
        "device": Key("auto", "number of the device that trains; 'auto': the one that computes rewards"),
    },
}
KEYS = {
    **_AGENT,
    "reward": REWARD,
    "annotator": defaults.ANNOTATOR,
    "queue": defaults.QUEUE,
    "compat": _AGENT["compat"]
    | sections.compat(
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
    **sections.on(*KEYS["compat"]),
    "matmul_precision": "highest",
    "reward": {"training.schedule": "published", "extrinsic_scale": 1.0},
    "network.obs_scale": 1.0,
    "annotator": {"kind": "openai", "openai.model": "Meta-Llama-3.1-8B-Instruct"},
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
