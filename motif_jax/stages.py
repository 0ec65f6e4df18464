"""The stages of the pipeline by name, and the module of each.

A stage is what `config.stage` names, and lies in the folder of its method. `check(config, workdir)`
raises UserError, before anything is written, for values that cannot work, missing inputs, or a
folder of another run; IDENTITY names the keys with which a run continues. `run(config, workdir)`
does what is missing, and returns the exit code: 75 after a request to stop, None or 0 else. A stage
connects parts and computes nothing itself.
"""

from __future__ import annotations

import importlib
from types import ModuleType

MODULES = {
    # Motif
    "collect": "motif_jax.motif.collect",
    "annotate": "motif_jax.motif.annotate",
    "train_reward": "motif_jax.motif.train_reward",
    "explain_reward": "motif_jax.motif.explain_reward",
    # Agents of games
    "train_agent": "motif_jax.rl.train_agent",
    # ONI
    "check_reward": "motif_jax.oni.check_reward",
    # GLAM
    "collect_trajectories": "motif_jax.glam.collect_trajectories",
    "clone_behaviour": "motif_jax.glam.clone_behaviour",
    "probe_language_agent": "motif_jax.glam.probe_language_agent",
    "test_language_agent": "motif_jax.glam.generalisation_stage",
    # ILQL
    "collect_text": "motif_jax.ilql.collect_text",
    "train_text": "motif_jax.ilql.train_text",
    "evaluate_text": "motif_jax.ilql.evaluate_text",
    "train_upvote": "motif_jax.ilql.train_upvote",
    # Language models
    "pretrain_language_model": "motif_jax.lm.pretrain_language_model",
    # Playing and looking
    "evaluate": "motif_jax.play.evaluate",
    "visualize": "motif_jax.play.visualize",
    "report": "motif_jax.reports.report",
    "study": "motif_jax.reports.run_study",
    # Files of others, and for others
    "export": "motif_jax.published.exports",
    "import": "motif_jax.published.imports",
    "benchmark": "motif_jax.benchmarks",
}


def names() -> list[str]:
    return sorted(MODULES)


def module(stage: str) -> ModuleType:
    """The module of a stage, imported only now: some take seconds."""
    return importlib.import_module(MODULES[stage])
