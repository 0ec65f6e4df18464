"""Asks the checkpoints of a language agent what they would do in fixed situations."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from ml_collections import ConfigDict

from motif_jax.core import config as checks
from motif_jax.core import run_folder
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_json, read_json, read_json_lines
from motif_jax.core.interruption import EXIT_CODE, Interruption
from motif_jax.core.progress import Progress
from motif_jax.envs.babyai_text.probes import CLAUSES, LINES, Probe
from motif_jax.glam import probing
from motif_jax.glam.config import ProbeAgentConfig, ProbeQuestions
from motif_jax.glam.probing import Probing
from motif_jax.play import agent_policy
from motif_jax.rl import settings
from motif_jax.schema import read_section

# Keys that a result depends on.
IDENTITY = ("policy", "checkpoint", "probes", "published_files")
_PLAN = "plan.json"  # step -> id of the checkpoints that were asked


def check(config_tree: ConfigDict, workdir: Path) -> None:
    run_folder.check_identity(workdir, config_tree, IDENTITY)
    config = read_section(ProbeAgentConfig, config_tree)
    agent_probes, _ = _open_agent(config)
    # Without an answer none would be wrong.
    has_answers = any(probe.right for probe in agent_probes.probes)
    allowed = "False: no probe of config.probes.prompts names its right action"
    checks.require(has_answers or not config.must_be_right, "must_be_right", True, allowed)


def _open_agent(config: ProbeAgentConfig) -> tuple[Probing, list[int]]:
    """The probing of the config's agent, and the steps of the checkpoints to ask."""
    trained = agent_policy.read_config(config.policy)
    # The agent's own options and words, and this command's probes.
    trained = dataclasses.replace(trained, probes=ProbeQuestions(prompts=config.probes.prompts))
    agent_probes = probing.make(trained, settings.make_network(trained))
    if agent_probes is None:
        raise UserError(probing.ENGLISH_ONLY)
    with agent_policy.open_checkpoints(config.policy) as checkpoints:
        # Ascending, as the lines of a training's probes are.
        steps = sorted(checkpoints.steps())
        if config.checkpoint != "all":
            steps = [agent_policy.choose_step(checkpoints, config.checkpoint, config.policy)]
    return agent_probes, steps


def run(config_tree: ConfigDict, workdir: Path) -> int:
    config = read_section(ProbeAgentConfig, config_tree)
    with Interruption() as stop, run_folder.opened(workdir, config_tree, IDENTITY):
        agent_probes, steps = _open_agent(config)
        _pin_checkpoints(config.policy, steps, workdir)
        lines = list(read_json_lines(workdir / LINES))
        clauses = list(read_json_lines(workdir / CLAUSES))
        # A run that was killed between the two files wrote one line less into the second.
        done = min(len(lines), len(clauses))
        # By their steps: if the training has gone further since, its folder has other checkpoints.
        done_steps = {row["step"] for row in lines[:done]}
        steps = [step for step in steps if step not in done_steps]
        published = config.published_files and agent_probes.by_words
        files = probing.ProbeFiles(
            workdir, agent_probes, done, clauses_every=1, published=published
        )
        try:
            with Progress(done + len(steps), "checkpoints", "probe", done) as progress:
                for number, step in enumerate(steps, done):
                    if stop.requested:
                        return EXIT_CODE
                    # One at a time: a large model fits the memory once.
                    policy, _ = agent_policy.load(config.policy, str(step))
                    files.write(policy.params, number, step)
                    progress.update(number + 1)
        finally:
            files.close()
    wrong = show(agent_probes.probes, agent_probes.actions, workdir)
    if config.must_be_right and wrong:
        names = ", ".join(wrong)
        print(
            f"must_be_right: another action is likelier than the right one in {names}",
            file=sys.stderr,
        )
        return 1
    return 0


def _pin_checkpoints(policy: str, steps: list[int], workdir: Path) -> None:
    """Notes the ids of the checkpoints. Raises UserError: one is another than when it was
    asked.

    An agent that is trained again in its folder has checkpoints of the same steps.
    """
    path = workdir / _PLAN
    before = read_json(path, f"remove {workdir}") if path.exists() else {}
    now = {str(step): agent_policy.identity(policy, step) for step in steps}
    for step, checkpoint_id in now.items():
        # A checkpoint that was not asked before is new, not changed.
        if before.get(step, checkpoint_id) != checkpoint_id:
            raise UserError(
                f"config.policy={policy}: checkpoint {step} is another than when it was asked: give another --workdir"
            )
    atomic_write_json(path, {**before, **now})


def show(probes: Sequence[Probe], actions: Sequence[str], workdir: Path) -> list[str]:
    """Prints the likeliest action of the last checkpoint for each probe; returns the names of
    probes where it is wrong.
    """
    # There is a line for every checkpoint, so at least one.
    *_, last = read_json_lines(workdir / LINES)
    wrong = []
    for probe, row in zip(probes, last["probabilities"], strict=True):
        best = int(np.argmax(row))
        print(f"{probe.name}: {actions[best]} ({row[best]:.2f})", flush=True)
        if probe.right and probe.right != actions[best]:
            wrong.append(probe.name)
    return wrong
