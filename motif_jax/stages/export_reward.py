"""Writes a trained reward as one safetensors file, and its model card beside it."""

from __future__ import annotations

from pathlib import Path

from ml_collections import ConfigDict

from motif_jax.support import config as checks
from motif_jax.support import run_folder
from motif_jax.support.files import atomic_write_text
from motif_jax.support.locks import FolderLock

FILE, CARD = "reward.safetensors", "README.md"


def check(config: ConfigDict, workdir: Path) -> None:
    """Raises UserError if there is no such reward, or the work folder is another stage's."""
    run_folder.check_identity(workdir, config)
    checks.existing_folder(config, "reward.dir")


def run(config: ConfigDict, workdir: Path) -> None:
    """Reads the evaluation and writes file and card."""
    from motif_jax.reports import model_card
    from motif_jax.rewards import exchange
    from motif_jax.rewards.trained import read_trained

    reward = read_trained(config.reward.dir, config.reward.step)
    card = model_card.render(reward, config.licence, config.notes)
    with FolderLock(workdir):
        run_folder.prepare(workdir, config)
        exchange.write_safetensors(reward, workdir / FILE)
        atomic_write_text(workdir / CARD, card)
    print(f"evaluation {reward.step} of {config.reward.dir}: {(workdir / FILE).resolve()}")
