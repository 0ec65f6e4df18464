"""The method's own comparison: the task's reward alone, the intrinsic reward alone, and both, on two tasks.

    python -m motif_jax.launch --config=configs/results.py --workdir=runs/results

Trains each with each seed for 2 million steps, plays 300 games with it that no training meets, and keeps one line a run in
`rows`; the tables of `page` are written from these lines. Stopped at any moment and started again it goes on, also on another
machine with the same lines; what has a line is not run again. 18 runs of about 6 minutes and their games on 2 quiet cores.

Variants:
  (none)  2 million steps a run, a small network, games of 1,000 steps: docs/results.md.
  gpu     the published network and games of 5,000 steps, 1e8 and 2e9 steps a run.
  smoke   two methods, one seed, a minute: whether everything works.
"""

from __future__ import annotations

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from motif_jax.support.config import unknown_variant

VARIANTS = ("", "gpu", "smoke")
_MOTIF = "--config.reward.dir={workdir}/reward"
# The published coefficients: the intrinsic reward's is 0.1, the task's by itself 0.1 for scores and 10 for the others.
_OF_REWARD = {
    "task": "--config.reward.intrinsic_coefficient=0 --config.reward.extrinsic_coefficient=None",
    "intrinsic": f"{_MOTIF} --config.reward.intrinsic_coefficient=0.1 --config.reward.extrinsic_coefficient=0",
    "both": f"{_MOTIF} --config.reward.intrinsic_coefficient=0.1 --config.reward.extrinsic_coefficient=None",
}
_TASKS = {"score": "NetHackScore-v1", "staircase": "NetHackStaircase-v1"}
# What a task is about, among the numbers of the training's episodes.
_CURVES = {"score": "score", "staircase": "success"}


def _methods(config: ConfigDict, steps: dict[str, int]) -> None:
    """Each task with each reward, for each length of training (suffix -> steps)."""
    config.methods, config.tables, titles = ConfigDict(), ConfigDict(), []
    config.curves = ConfigDict()  # learning curves under the tables: table -> measure
    for suffix, count in steps.items():
        for task, name in _TASKS.items():
            names = []
            for reward, flags in _OF_REWARD.items():
                names.append(f"{task}_{reward}{suffix}")
                config.methods[names[-1]] = (
                    f"--config.environment.name={name} --config.train_for_env_steps={count} {flags}"
                )
            titles.append(f"{task}{suffix}")
            config.tables[titles[-1]] = ",".join(names)
            config.curves[titles[-1]] = _CURVES[task]
    config.table_order = ",".join(titles)


def get_config(variant: str | None = None) -> ConfigDict:
    """The study stage's config; see configs/oni_study.py for the keys."""
    if variant not in (None, *VARIANTS):
        raise unknown_variant(variant, VARIANTS)
    config = ConfigDict()
    config.stage = "study"
    config.seed = 1
    config.seeds = 3
    config.rows = "docs/studies/results.jsonl"  # runs that are there: one JSON line each
    config.page = "docs/results.md"
    config.only = ""  # of these methods only; empty: all
    config.most_runs = placeholder(int)  # so many runs at most now; None: all that have no line yet
    config.keep_runs = False
    config.prepare = ConfigDict()
    config.prepare.dataset = "configs/collect.py:quickstart"
    config.prepare.labels = "configs/annotate.py:quickstart --config.dataset_dir={workdir}/dataset --config.store_dir={workdir}/store"
    config.prepare.reward = (
        "configs/train_reward.py:quickstart --config.dataset_dir={workdir}/dataset "
        "--config.annotator=lexicon_msg_defaultgoal"
    )
    config.prepare_order = "dataset,labels,reward"
    # The smaller of the two published convolutions: a quarter of the arithmetic, and a third more steps in the same time.
    config.training = (
        "configs/train_agent.py:quickstart --config.environment.max_episode_steps=1000 "
        "--config.network.image_encoder=convnet_impala"
    )
    _methods(config, {"": 2_000_000})
    config.evaluation = (
        "configs/evaluate.py --config.policy=agent --config.reward.dir= --config.seed=77003 --config.episodes=300 "
        "--config.lanes=64"
    )
    config.goal = "defaultgoal"
    config.lexicon = ConfigDict({"file": ""})
    config.measures = "score,dlvl,scout,kills,success"  # columns of the tables
    config.resamples = 2000
    if variant == "gpu":
        config.rows, config.page = "{workdir}/rows.jsonl", ""
        config.prepare.dataset = "configs/collect.py"
        config.prepare.labels = (
            "configs/annotate.py --config.dataset_dir={workdir}/dataset --config.store_dir={workdir}/store"
        )
        config.prepare.reward = "configs/train_reward.py --config.dataset_dir={workdir}/dataset --config.annotator=lexicon_msg_defaultgoal"
        config.training = "configs/train_agent.py"
        _methods(config, {"_1e8": 100_000_000, "_2e9": 2_000_000_000})
    if variant == "smoke":
        config.seeds = 1
        config.rows, config.page = "{workdir}/rows.jsonl", ""
        config.prepare_order = ""
        config.training = "configs/train_agent.py:smoke --config.train_for_env_steps=1024"
        config.methods = ConfigDict(
            {
                "score_task": "--config.environment.name=NetHackScore-v1",
                "staircase_task": "--config.environment.name=NetHackStaircase-v1",
            }
        )
        config.tables = ConfigDict({"smoke": "score_task,staircase_task"})
        config.table_order, config.curves = "smoke", ConfigDict({"smoke": "score"})
        config.evaluation = "configs/evaluate.py:smoke --config.policy=agent --config.reward.dir="
        config.resamples = 100
    return config
