"""Compares what an agent learns from rewards of several kinds, and from a server that answers a tenth of the questions.

    python -m motif_jax.launch --config=configs/oni_study.py --workdir=runs/oni_study

Trains each method with each seed, plays 300 games with it that no training meets, and has the annotator, here the lexicon,
judge everything that was met in them. Each run leaves one line in `rows`, and the tables of `page` are written from these
lines. Stopped at any moment and started again it goes on; what has a line is not run again. Seed by seed, each with all
methods, so that what there is can always be compared. 30 runs of 6 to 12 minutes on 2 cores; two at once, each of a part of the
methods (`--config.only`), took 8 to 17 minutes each beside a third program, with five networks 13
to 24.

Variants:
  (none)   500,000 steps a run, three seeds: docs/oni.md.
  smoke    two methods, one seed, a minute: whether everything works.
"""

from __future__ import annotations

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from motif_jax.support.config import unknown_variant

VARIANTS = ("", "smoke")
_RETRIEVAL = "--config.reward.kind=retrieval"
_CLASSIFICATION = "--config.reward.kind=classification"
# About a tenth of the distinct messages that are met: the lines say how many it came to.
_TENTH = f"{_CLASSIFICATION} --config.queue.budget.questions_per_million_steps=800"


def get_config(variant: str | None = None) -> ConfigDict:
    """The study stage's config."""
    if variant not in (None, *VARIANTS):
        raise unknown_variant(variant, VARIANTS)
    config = ConfigDict()
    config.stage = "study"
    config.seed = 1  # of the first run of a method; the others follow
    config.seeds = 3
    # Runs that are there: one JSON line each.
    config.rows = "docs/studies/oni.jsonl"
    # Markdown file in which the tables stand between <!-- study --> and <!-- /study -->; empty: none, they are printed.
    config.page = "docs/oni.md"
    # Of these methods only; empty: all.
    config.only = ""
    # So many runs at most now, 0 to write the tables of what there is; None: all that have no line yet.
    config.most_runs = placeholder(int)
    # Run folders are removed when their line is written.
    config.keep_runs = False
    # Done first, once, for the methods that use it: folder in --workdir -> config file and flags; {workdir} is that of the study.
    config.prepare = ConfigDict()
    config.prepare.dataset = "configs/collect.py:quickstart"
    config.prepare.labels = "configs/annotate.py:quickstart --config.dataset_dir={workdir}/dataset --config.store_dir={workdir}/store"
    config.prepare.reward = (
        "configs/train_reward.py:quickstart --config.dataset_dir={workdir}/dataset "
        "--config.annotator=lexicon_msg_defaultgoal"
    )
    # In this order; each may use those before it.
    config.prepare_order = "dataset,labels,reward"
    # What all methods have in common: a small network, 40 environments. Published
    # coefficients of retrieval on the score task.
    config.training = (
        "configs/oni.py:quickstart --config.train_for_env_steps=500000 --config.environment.max_episode_steps=1000 "
        "--config.reward.extrinsic_coefficient=0.1 --config.reward.intrinsic_coefficient=0.4 "
        "--config.annotator.store_dir={run}/store"
    )
    config.methods = ConfigDict()
    config.methods.retrieval = _RETRIEVAL
    config.methods.classification = _CLASSIFICATION
    config.methods.ranking = "--config.reward.kind=ranking"
    config.methods.bag_of_words = "--config.reward.kind=bag_of_words"
    config.methods.motif = "--config.reward.kind=motif --config.reward.dir={workdir}/reward"
    config.methods.none = "--config.reward.kind=none --config.reward.intrinsic_coefficient=0"
    config.methods.frequent = f"{_TENTH} --config.queue.order=frequent"
    config.methods.newest = f"{_TENTH} --config.queue.order=newest"
    config.methods.uncertain = f"{_TENTH} --config.queue.order=uncertain"
    config.methods.uncertain_of_five = (
        f"{_TENTH} --config.queue.order=uncertain --config.reward.training.members=5"
    )
    # The tables, by their titles: the methods, of which the first is what the others are compared with. Runs are made in
    # this order, too.
    config.tables = ConfigDict()
    config.tables.kinds = "none,retrieval,classification,ranking,bag_of_words,motif"
    config.tables.a_tenth = "frequent,newest,uncertain,uncertain_of_five"
    config.table_order = "kinds,a_tenth"
    # The games that tell what was learned.
    config.evaluation = (
        "configs/evaluate.py --config.policy=agent --config.reward.dir= --config.seed=77003 --config.episodes=300 "
        "--config.lanes=64"
    )
    # The annotator whose labels are the yardstick: what was judged by another goal or lexicon is another run.
    config.goal = "defaultgoal"
    config.lexicon = ConfigDict({"file": ""})
    # Columns of the tables: judged, score, dlvl, scout, kills, gold, success, those that all lines of a table have.
    config.measures = "judged,score,dlvl,scout"
    # Learning curves under the tables: table -> measure of the training's episodes (those of `measures` but judged).
    config.curves = ConfigDict()
    config.resamples = 2000
    if variant == "smoke":
        config.seeds = 1
        config.rows = "{workdir}/rows.jsonl"
        config.page = ""
        config.prepare_order = ""
        config.training = (
            "configs/oni.py:smoke --config.train_for_env_steps=1024 --config.annotator.store_dir={run}/store"
        )
        config.tables.kinds, config.table_order = "none,retrieval", "kinds"
        config.evaluation = "configs/evaluate.py:smoke --config.policy=agent --config.reward.dir="
        config.resamples = 100
    return config
