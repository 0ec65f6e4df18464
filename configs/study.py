"""Trains with one config from several seeds, plays the same games with each agent, and writes a
table with intervals.

    python -m motif_jax.launch --config=configs/study.py --workdir=runs/doorkey_seeds \\
        --config.seeds=5 --config.measures=success,return \\
        --config.training='configs/train_agent.py:minigrid --config.reward.dir=runs/reward'

The runs are trained one after the other, in WORKDIR/agent-SEED; study.html has the table and the
learning curves, tables.md the table.
Stopped at any moment and started again it resumes; with more seeds only the new ones are trained. A
study of several methods is a config file of ten lines: docs/tutorials/my_study.md.
"""

from motif_jax.reports import study_config as studies

get_config = studies.study({"methods": {"agent": ""}})
