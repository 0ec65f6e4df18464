"""Compares methods over runs, seeds and tasks, and with published curves.

    python -m motif_jax.launch --config=configs/compare.py --workdir=runs/comparison \\
        --config.methods='motif=runs/m1,runs/m2,runs/m3; extrinsic=runs/x1,runs/x2,runs/x3' \\
        --config.published=motif_results.pkl

A folder is an evaluation (its episodes give one score) or a run of train_agent (its finished
episodes give a curve). Out come comparison.html, comparison.md, comparison.json and
plots/: interquartile mean, mean and median with stratified bootstrap intervals, differences over
runs and over games (paired where both methods played them), probability of improvement, performance
profiles (rliable), claims about what agents do, learning curves, sample efficiency. A run given
twice is refused. Ends with exit code 1 where the games do not support one of `claims`. Under a
minute.
"""

from motif_jax.reports.config import CompareConfig
from motif_jax.schema import configs, section_keys

KEYS = {"stage": "compare", **section_keys(CompareConfig)}
get_config = configs(KEYS, {"smoke": {"resamples": 100, "plots": False}, "quickstart": {}})
