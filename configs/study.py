"""Trains with one config from several seeds, plays the same games with each agent, and writes a
table with intervals; or puts finished runs beside each other.

    python -m motif_jax.launch --config=configs/study.py --workdir=runs/doorkey_seeds \\
        --config.seeds=5 --config.measures=success,return \\
        --config.training='configs/train_agent.py:minigrid --config.reward.dir=runs/reward'

The runs are trained one after the other, in WORKDIR/agent-SEED; study.html has the table and the
learning curves, study.md the table. Stopped at any moment and started again it resumes; with more
seeds only the new ones are trained. A study of several methods is a config file of ten lines:
docs/tutorials/my_study.md.

Without training:

    python -m motif_jax.launch --config=configs/study.py --workdir=runs/comparison \\
        --config.runs='motif=runs/m1,runs/m2,runs/m3; extrinsic=runs/x1,runs/x2,runs/x3' \\
        --config.published=motif_results.pkl

A folder is an evaluation (its games are a run of a table) or a run of train_agent (its finished
episodes give a curve and the sample efficiency). A run given twice is refused. Under a minute.

Ends with exit code 1 where the games do not support one of `claims`.
"""

from motif_jax.reports import study_config as studies

get_config = studies.study({"methods": {"agent": ""}})
