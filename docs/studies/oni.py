"""Compares what an agent learns from rewards of several kinds, and from a server that answers a
tenth of the questions.

    python -m motif_jax.launch --config=docs/studies/oni.py --workdir=runs/oni_study

Trains each method with each seed, plays 300 games with it that no training meets, and has the
annotator, here the lexicon, judge everything that was met in them. Each run leaves one line in
`rows`, and the tables are made from these lines. Stopped at any moment and started again it
resumes; what has a line is not run again. Seed by seed, each with all methods, so that what there
is can always be compared. 30 runs of 6 to 12 minutes on 2 cores. docs/oni.md has the results.
"""

from motif_jax.reports import study_config as studies

_DATASET = "--config.dataset_dir={workdir}/dataset"
_CLASSIFICATION = "--config.reward.kind=classification"
# About a tenth of the distinct messages that are met.
_TENTH = f"{_CLASSIFICATION} --config.queue.budget.questions_per_million_steps=800"
BASE = {
    "rows": "docs/studies/oni.jsonl",
    "prepare": {
        "dataset": "configs/collect.py:quickstart",
        "labels": f"configs/annotate.py:quickstart {_DATASET} --config.store_dir={{workdir}}/store",
        "reward": f"configs/train_reward.py:quickstart {_DATASET} --config.annotator=lexicon_msg_defaultgoal",
    },
    # A small network, 40 environments. Published coefficients of retrieval on the score task.
    "training": "configs/oni.py:quickstart --config.train_for_env_steps=500000 --config.environment.max_episode_steps=1000 "
    "--config.reward.extrinsic_coefficient=0.1 --config.reward.intrinsic_coefficient=0.4 "
    "--config.annotator.store_dir={run}/store",
    "methods": {
        "retrieval": "--config.reward.kind=retrieval",
        "classification": _CLASSIFICATION,
        "ranking": "--config.reward.kind=ranking",
        "bag_of_words": "--config.reward.kind=bag_of_words",
        "motif": "--config.reward.kind=motif --config.reward.dir={workdir}/reward",
        "none": "--config.reward.kind=none --config.reward.intrinsic_coefficient=0",
        "frequent": f"{_TENTH} --config.queue.order=frequent",
        "newest": f"{_TENTH} --config.queue.order=newest",
        "uncertain": f"{_TENTH} --config.queue.order=uncertain",
        "uncertain_of_five": f"{_TENTH} --config.queue.order=uncertain --config.reward.training.members=5",
    },
    "tables": {
        "kinds": "none,retrieval,classification,ranking,bag_of_words,motif",
        "a_tenth": "frequent,newest,uncertain,uncertain_of_five",
    },
    "evaluation": "configs/evaluate.py --config.policy=agent --config.reward.dir= --config.seed=77003 --config.episodes=300 "
    "--config.lanes=64",
    # Of judged, score, dlvl, scout, kills, gold, success those that all lines of a table have.
    "measures": "judged,score",
}
get_config = studies.study(BASE)
