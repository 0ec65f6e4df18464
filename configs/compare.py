"""Compares methods over runs, seeds and tasks, and with published curves.

    python -m motif_jax.launch --config=configs/compare.py --workdir=runs/comparison \\
        --config.methods='motif=runs/m1,runs/m2,runs/m3; extrinsic=runs/x1,runs/x2,runs/x3' \\
        --config.published=motif_results.pkl

A folder is an evaluation (its episodes give one score) or a run of train_agent (its finished episodes give a curve).
Out come comparison.html, comparison.md, comparison.tex, comparison.json and plots/: interquartile mean, mean and
median with stratified bootstrap intervals, differences over runs and over games (paired where both methods played them),
probability of improvement, performance profiles (rliable), claims about what agents do, learning curves, sample efficiency (of runs with several numbers of
actions or distractors also against these). A run given twice is refused.
Ends with exit code 1 where the games do not carry one of `claims`. Under a minute.
"""

from __future__ import annotations

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from motif_jax.support.config import unknown_variant


def get_config(variant: str | None = None) -> ConfigDict:
    if variant not in (None, "", "smoke", "quickstart"):
        raise unknown_variant(variant, ("", "smoke", "quickstart"))
    config = ConfigDict()
    config.stage = "compare"
    config.seed = 0  # of the bootstrap
    config.title = "Comparison of methods"
    config.methods = ""  # 'name=folder,folder; name=folder,...'
    config.measure = "return"  # key of the episodes: return, score, dlvl, intrinsic_return, ...
    config.normalise_zero = placeholder(str)  # method whose mean becomes 0 on every task
    config.normalise_one = placeholder(str)  # method whose mean becomes 1 on every task
    config.published = placeholder(str)  # a motif_results.pkl
    config.published_tasks = ""  # 'theirs=ours, ...' where names differ; others are matched by name
    # Methods may also name folders with a log.csv and .npy files of returns, as GLAM's published tool writes them, and logs (.pkl) of ILQL's
    # published evaluations; they are of this task.
    config.published_task = placeholder(str)
    # 'A > B: measure; A > B + 0.3: measure; ...' of methods with one evaluation each: the 95 % interval of the difference, game by game,
    # must lie above 0, or 0.3.
    config.claims = ""
    # Further measures of these methods side by side, with commas between: numbers of an episode (docs/evaluation.md), also those that only the
    # task reports; 'deaths'; counts of messages: 'fights', the hero's own attacks, and 'finds', gold that he picked up; 'gathered': the pieces
    # of it, but for those of vaults, of which one has more than hundreds of games.
    config.measures = ""
    config.lexicon = ConfigDict({"file": ""})  # whose events are fights; empty: the built-in one
    config.efficiency_steps = placeholder(
        int
    )  # sample efficiency is the mean of a curve up to this step; None: to the end of a task's shortest run
    config.resamples = 2000 if variant != "smoke" else 100
    config.plots = variant != "smoke"
    return config
