"""Writes one page about a run: curves, messages by reward, evaluations with intervals, configs and versions.

    python -m motif_jax.launch --config=configs/report.py --workdir=runs/report --config.agent.dir=runs/agent \\
        --config.reward.dir=runs/reward --config.dataset_dir=runs/dataset \\
        --config.evaluations=runs/evaluation,runs/evaluation_random

Out come WORKDIR/report.html, one file that needs no network, its numbers as report.md, report.tex and report.json, and its
charts as plots/*.png and plots/*.pdf. What is not given is left out, and the page says so. A few seconds.
"""

from __future__ import annotations

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from motif_jax.support.config import unknown_variant


def get_config(variant: str | None = None) -> ConfigDict:
    if variant not in (None, "", "smoke", "quickstart"):
        raise unknown_variant(variant, ("", "smoke", "quickstart"))
    config = ConfigDict()
    config.stage = "report"
    config.seed = 0
    config.title = "Motif: a run" if variant != "quickstart" else "Motif quickstart"
    config.dataset_dir = placeholder(str)  # folder of a pairs dataset
    config.reward = ConfigDict()
    config.reward.dir = placeholder(str)  # run folder of train_reward
    config.reward.step = placeholder(int)  # its evaluation; None: the newest
    # The threshold of what is paid, in the page's list of messages; None: no threshold.
    config.reward.quantile = placeholder(float)
    config.reward.quantile = 0.5
    config.reward.threshold = "quantile"  # or 'auto': above the texts that the judge called ties
    config.agent = ConfigDict({"dir": placeholder(str)})  # run folder of train_agent
    config.language = ConfigDict({"dir": placeholder(str)})  # run folder of pretrain_language_model
    config.text = ConfigDict({"dir": placeholder(str)})  # run folder of train_text
    config.evaluations = ""  # folders of evaluations with commas between, the agent's first
    config.tests = ""  # folders of test_language_agent, with commas between
    config.yardsticks = ""  # further evaluations, shown beside the first one, which is not judged by them
    # Of BabyAI-Text and text tasks: exit code 1 unless the interval of the first one's success (return) lies wholly above all others.
    config.first_must_lead = False
    config.replays = (
        ""  # folders of `replay` with players of the training's recorded games, with commas between
    )
    config.max_messages = 5000  # of the dataset, most frequent first, in the page's list
    config.plots = variant != "smoke"  # PNG and PDF files beside the page
    return config
