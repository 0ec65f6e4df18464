"""Compares methods over runs, seeds and tasks, and with published curves.

    python -m motif_jax.launch --config=configs/compare.py --workdir=runs/comparison \\
        --config.methods='motif=runs/m1,runs/m2,runs/m3; extrinsic=runs/x1,runs/x2,runs/x3' \\
        --config.published=motif_results.pkl

A folder is an evaluation (its episodes give one score) or a run of train_agent (its finished episodes give a curve).
Out come comparison.html, comparison.md, comparison.tex, comparison.json and plots/: interquartile mean, mean and
median with stratified bootstrap intervals, differences over runs and over games (paired where both methods played them),
probability of improvement, performance profiles (rliable), claims about what agents do, learning curves, sample
efficiency. A run given twice is refused.
Ends with exit code 1 where the games do not support one of `claims`. Under a minute.
"""

from motif_jax.play.keys import RESAMPLES
from motif_jax.schema import Key, configs, positive

KEYS = {
    "stage": "compare",
    "seed": Key(0, "seed of the bootstrap", minimum=0, maximum=2**32 - 1),
    "title": Key("Comparison of methods", "title of the page"),
    "methods": Key("", "methods and the run folders of each: 'name=folder,folder; name=folder,...'"),
    "measure": Key("return", "key of the episodes: return, score, dlvl, intrinsic_return, ..."),
    "normalise_zero": Key(None, "method whose mean becomes 0 on every task", str),
    "normalise_one": Key(None, "method whose mean becomes 1 on every task", str),
    "published": Key(None, "file motif_results.pkl of published results", str),
    "published_tasks": Key("", "'theirs=ours, ...' for names that differ; the others are matched by name"),
    "published_task": Key(
        None,
        "the task of published results in methods: folders with a log.csv and .npy files of returns (GLAM's tool), and logs (.pkl) of ILQL's "
        "evaluations",
        str,
    ),
    "claims": Key(
        "",
        "'A > B: measure; A > B + 0.3: measure; A > B - 0.1: measure' of methods with one evaluation each: the 95 % interval of the difference, "
        "game by game, must lie above 0, 0.3 or -0.1",
    ),
    "measures": Key(
        "",
        "further measures, with commas between: numbers of an episode (docs/evaluation.md), also those that only the "
        "task reports; 'deaths'; counts of messages: 'fights' (the hero's own attacks), 'finds' (gold picked up); 'gathered': gold pieces, "
        "without those of vaults (one vault has more than hundreds of games)",
    ),
    "lexicon": {"file": Key("", "a lexicon whose events count as fights; empty: the built-in one")},
    "efficiency_steps": positive(
        None,
        "sample efficiency is the mean of a curve up to here; None: the end of a task's shortest run",
        int,
    ),
    "resamples": RESAMPLES,
    "plots": Key(True, "PNG and PDF files beside the page"),
}
get_config = configs(KEYS, {"smoke": {"resamples": 100, "plots": False}, "quickstart": {}})
