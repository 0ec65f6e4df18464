"""Asks the checkpoints of a language agent what they would do in fixed situations."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import numpy as np
from ml_collections import ConfigDict

from motif_jax.core import config as checks
from motif_jax.core import run_folder
from motif_jax.core.errors import UserError
from motif_jax.core.files import read_json_lines
from motif_jax.core.interruption import EXIT_CODE, Interruption
from motif_jax.core.progress import Progress
from motif_jax.glam import probing
from motif_jax.glam.probing import Probing
from motif_jax.play import agent_policy
from motif_jax.rl import agent_networks, settings
from motif_jax.rl.config import ProbeQuestions

IDENTITY = ("policy", "checkpoint", "probes", "published_files")


def check(config: ConfigDict, workdir: Path) -> None:
    run_folder.check_identity(workdir, config, IDENTITY)
    checks.existing_folder(config, "policy")
    checks.require(bool(config.probes.prompts), "probes.prompts", "", "'own' or a JSON file")
    which = config.checkpoint
    good = which in ("all", "latest", "best") or checks.is_natural(which)
    checks.require(good, "checkpoint", which, "all, latest, best or a step")
    made, _ = _open(config)
    known = not config.must_be_right or any(probe.right for probe in made.probes)
    checks.require(known, "must_be_right", True, "False unless config.probes.prompts says what is right")


def _open(config: ConfigDict) -> tuple[Probing, list[int]]:
    trained = agent_policy.read_config(config.policy)
    if agent_networks.kind_of(trained) != agent_networks.LANGUAGE:
        raise UserError(f"config.policy={config.policy!r}: must be a run of train_language_agent")
    trained = dataclasses.replace(trained, probes=ProbeQuestions(prompts=config.probes.prompts))
    made = probing.make(trained, settings.make_network(trained))
    if made is None:
        raise UserError(probing.ENGLISH_ALONE)
    with agent_policy.open_checkpoints(config.policy) as checkpoints:
        steps = sorted(checkpoints.steps())
        if config.checkpoint != "all":
            steps = [agent_policy.choose_step(checkpoints, config.checkpoint, config.policy)]
    if not steps:
        raise UserError(f"{config.policy} has no checkpoint yet: train for longer, or choose another folder")
    return made, steps


def run(config: ConfigDict, workdir: Path) -> int:
    with Interruption() as stop, run_folder.opened(workdir, config, IDENTITY):
        made, steps = _open(config)
        lines, clauses = (list(read_json_lines(workdir / name)) for name in (probing.LINES, probing.CLAUSES))
        done = min(len(lines), len(clauses))
        # A training that continued meanwhile has other checkpoints.
        asked = {row["step"] for row in lines[:done]}
        steps = [step for step in steps if step not in asked]
        published = config.published_files and made.by_words
        files = probing.ProbeFiles(workdir, made, done, clauses_every=1, published=published)
        try:
            with Progress(done + len(steps), "checkpoints", "probe", done) as progress:
                for number, step in enumerate(steps, done):
                    if stop.requested:
                        return EXIT_CODE
                    policy, _ = agent_policy.load(config.policy, str(step))
                    files.write(policy.params, number, step)
                    progress.update(number + 1)
        finally:
            files.close()
    wrong = _say(made, workdir)
    if config.must_be_right and wrong:
        named = ", ".join(wrong)
        print(f"it does not hold: the right action is not the most likely one for {named}", file=sys.stderr)
        return 1
    return 0


def _say(made: Probing, workdir: Path) -> list[str]:
    *_, last = read_json_lines(workdir / probing.LINES)
    wrong = []
    for probe, row in zip(made.probes, last["probabilities"], strict=True):
        if np.isnan(row).any():
            raise UserError(
                f"{probe.name}: the probabilities of actions are not numbers, so that none is the likeliest"
            )
        best = int(np.argmax(row))
        print(f"{probe.name}: {made.actions[best]} ({row[best]:.2f})", flush=True)
        if probe.right and probe.right != made.actions[best]:
            wrong.append(probe.name)
    return wrong
