"""The collect_text stage through its real flags: whole, killed at any moment, on more processes, and refusals."""

from __future__ import annotations

import glob
import json

import pytest

from motif_jax.datasets.dialogues import parquet
from motif_jax.envs.text.file_tokens import FileTokenizer
from motif_jax.stages import collect_text as stage
from motif_jax.support import resources
from motif_jax.support.errors import UserError
from tests import reward_fixtures
from tests.processes import killed_often, launch

GAMES = "--config.num_dialogues=9000"


def collect(workdir, variant, *flags, code=0):
    return reward_fixtures.launch("collect_text", workdir, *flags, variant=variant, code=code)


def digest(folder):
    return json.loads((folder / "dialogues.json").read_text())["digest"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Games that one process drew without disturbance."""
    folder = tmp_path_factory.mktemp("whole")
    collect(folder, "wordle", GAMES, "--config.workers=1")
    return folder


def test_a_complete_dataset_is_left_as_it_is(whole):
    before = digest(whole)
    written = {path: path.stat().st_mtime_ns for path in whole.glob("dialogues.*")}
    assert "is complete: 9,000 dialogues" in collect(whole, "wordle", GAMES)
    assert digest(whole) == before
    assert {path: path.stat().st_mtime_ns for path in whole.glob("dialogues.*")} == written


def test_killed_again_and_again(whole, tmp_path):
    """SIGKILL after every few parts, with 1 and with 4 processes; the games are those of one process."""
    log, parts = tmp_path.with_name("log"), tmp_path / ".staging"

    def start(attempt):
        return launch(
            tmp_path, "collect_text.py:wordle", GAMES, f"--config.workers={(4, 1)[attempt % 2]}", log=log
        )

    # The folder goes when the last part is in place, perhaps while it is listed.
    killed_often(start, lambda: len(glob.glob("0*", root_dir=parts)), 2, tmp_path, least=2)
    assert digest(tmp_path) == digest(whole)


@pytest.mark.extra
def test_a_task_from_outside(tmp_path):
    flags = ("--config.task=tests.toy_text:Task", '--config.options={"length": 4}', "--config.policy=half")
    said = collect(tmp_path / "a", "smoke", *flags, "--config.workers=2")
    dialogues = parquet.read(tmp_path / "a" / "dialogues.parquet")
    assert "500 dialogues, 2,000 actions" in said
    assert {len(dialogue.texts) for dialogue in dialogues} == {5}
    assert 2.3 < dialogues.returns().mean() < 3.0
    # The example's own tokens are learned from its dialogues.
    example = ("--config.task=docs.examples.backwards:Task", "--config.policy=half")
    collect(tmp_path / "c", "smoke", *example, "--config.workers=2")
    tokenizer = FileTokenizer("options.tokenizer", str(tmp_path / "c"))
    assert tokenizer.decode(tokenizer.encode("abcab")) == "abcab"
    said = collect(
        tmp_path / "b", "smoke", "--config.task=tests.toy_text:Fatal", "--config.policy=half", code=2
    )
    assert "3 processes died while they drew part" in said


def test_games_that_were_not_collected_here_stay(tmp_path):
    (tmp_path / "dialogues.parquet").write_text("")
    with pytest.raises(UserError, match="not collected here"):
        stage.check(resources.config("collect_text", "wordle"), tmp_path)
