"""Writes one page about a run: curves, messages by reward, evaluations with intervals, configs and
versions.

    python -m motif_jax.launch --config=configs/report.py --workdir=runs/report \\
        --config.agent.dir=runs/agent --config.reward.dir=runs/reward \\
        --config.dataset_dir=runs/dataset \\
        --config.evaluations=runs/evaluation,runs/evaluation_random

Out come WORKDIR/report.html, one file that needs no network, its numbers as report.md and
report.json, and its charts as plots/*.png and plots/*.pdf. What is not given is left out, and the
page says so. A few seconds.
"""

from motif_jax.reports.config import ReportConfig
from motif_jax.schema import configs, section_keys

KEYS = {"stage": "report", **section_keys(ReportConfig)}
get_config = configs(KEYS, {"smoke": {"plots": False}, "quickstart": {"title": "Motif quickstart"}})
