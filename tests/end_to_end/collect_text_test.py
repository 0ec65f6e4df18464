"""The collect_text stage through its real flags: whole, killed at any moment, on more processes,
and refusals.
"""

from __future__ import annotations

import glob
import json

import pytest

from motif_jax.core import resources
from motif_jax.core.errors import UserError
from motif_jax.ilql import collect_text as stage
from tests import reward_fixtures
from tests.processes import killed_often, launch

GAMES = "--config.num_dialogues=9000"


def collect(workdir, variant, *flags, code=0):
    return reward_fixtures.launch("collect_text", workdir, *flags, variant=variant, code=code)


def digest(folder):
    return json.loads((folder / "dialogues.json").read_text())["digest"]


@pytest.mark.extra
def test_killed_again_and_again(tmp_path):
    """SIGKILL after every few parts, with 1 and with 4 processes; the games are those of one
    process, and are left as they are.
    """
    folder = tmp_path / "run"
    undisturbed = tmp_path / "whole"
    log = tmp_path / "log"
    collect(undisturbed, "wordle", GAMES, "--config.workers=1")

    def start(attempt):
        workers = f"--config.workers={(4, 1)[attempt % 2]}"
        return launch(folder, "collect_text.py:wordle", GAMES, workers, log=log)

    # The folder goes when the last part is in place, perhaps while it is listed.
    parts = folder / ".staging"
    killed_often(start, lambda: len(glob.glob("0*", root_dir=parts)), 2, folder, least=2)
    assert digest(folder) == digest(undisturbed)
    written = {path: path.stat().st_mtime_ns for path in undisturbed.glob("dialogues.*")}
    assert "is complete: 9,000 dialogues" in collect(undisturbed, "wordle", GAMES)
    assert {path: path.stat().st_mtime_ns for path in undisturbed.glob("dialogues.*")} == written


def test_games_that_were_not_collected_here_stay(tmp_path):
    (tmp_path / "dialogues.parquet").write_text("")
    with pytest.raises(UserError, match="not collected here"):
        stage.check(resources.config("collect_text", "wordle"), tmp_path)
