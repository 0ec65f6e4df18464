"""The command line as people use it: every mistake is one line and exit code 2, before any work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from motif_jax import command_line
from motif_jax.core import run_folder
from motif_jax.core.interruption import INTERRUPTED
from tests.commands import Commands, commands
from tests.processes import REPOSITORY, with_sigint
from tests.reward_fixtures import load_config

MINE = """
from ml_collections import ConfigDict
def get_config(variant=None):
    return ConfigDict({"stage": "report", "numbers": [1, 2], "section": {"of-two": 3, "below": {"last": 4}}, "some": (1, 2)})
"""


@pytest.fixture(scope="module")
def quick() -> Iterator[Commands]:
    """Command lines without the start of a process each, which takes longest; others here start one
    as people do.
    """
    with commands(REPOSITORY) as started:
        yield started


# AT is a folder with a config file, `mine.py`. A section's literal would be
# taken as it is: its other keys gone, unknown ones and other types let in.
MISTAKES = [
    ("--config=configs/none.py", ["configs/none.py", "no file"]),
    ("--config=configs/collect.py:none", ["'none'", "smoke"]),
    ("--config=configs/collect.py --config.sed=1", ["config.sed", "config.seed"]),
    ("--config=configs/annotate.py --config.lexicon=a.yaml", ["did you mean --config.lexicon.file?"]),
    ("--config=configs/oni.py --config.lexicon=a.yaml", ["did you mean --config.annotator.lexicon.file?"]),
    ("--config=configs/collect.py --config.lexicon=a.yaml", ["not a key of configs/collect.py; --help shows them"]),
    ("--config=configs/collect.py --config.seed=one", ["config.seed", "one"]),
    ("--config=configs/collect.py --sed=1", ["--sed"]),
    ("--config=configs/collect.py", ["--workdir is missing"]),
    ("--config=configs/collect.py --config.seed=None", ["--config.seed=None", "needs a value"]),
    ("--config=configs/train_agent.py --config.stage=evaluate", ["--config.stage is not a key of configs/train_agent.py"]),
    ("--config=AT/mine.py --config.section={'of-twoo':7}", ["--config.section is not a key of", "did you mean --config.section.of-two?"]),
    ("--config=AT/mine.py --config.section=None", ["--config.section is not a key of"]),
    ("--config=AT/mine.py --config.some[0]=5", ["--config.some[0] is not a key of", "did you mean --config.some?"]),
    ("--config=configs/train_agent.py --config.algorithm.gae_lambda=0.9", ["gae_lambda=0.9: has no effect with algorithm.advantage=vtrace, only with gae"]),
    ("--config=configs/oni.py --config.reward.kind=table --config.reward.pairs.every=3", ["every=3: has no effect with reward.kind=table, only with ranking"]),
]  # fmt: skip


def assert_one_line(done: subprocess.CompletedProcess[str], words: list[str]) -> None:
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("error: ")
    assert [word for word in words if word not in line] == []


@pytest.mark.parametrize(("flags", "words"), MISTAKES)
def test_a_mistake_is_one_line(
    quick: Commands, tmp_path: Path, flags: str, words: list[str]
) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    assert_one_line(quick.launch(REPOSITORY, *flags.replace("AT", str(tmp_path)).split()), words)


def test_flags_with_blanks_are_taken(quick: Commands) -> None:
    blanks = "--config configs/collect.py:smoke --config.seed 7 --print_config"
    done = quick.launch(REPOSITORY, *blanks.split())
    assert done.returncode == 0, done.stderr
    assert "--config.seed=7" in done.stdout.splitlines()


def test_a_file_of_flags_stands_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "flags").write_text("--config=configs/collect.py\n# a remark\n--config.seed=7\n")
    arguments = [
        "launch",
        "--config.seed=1",
        "--flagfile",
        f"{tmp_path / 'flags'}",
        "--config.seed=9",
    ]
    expanded = [
        "--config.seed=1",
        "--config=configs/collect.py",
        "--config.seed=7",
        "--config.seed=9",
    ]
    assert command_line.with_flag_files(arguments) == ["launch", *expanded]


def test_help_names_stages_and_endings(quick: Commands) -> None:
    done = quick.launch(REPOSITORY, "--help")
    assert done.returncode == 0
    for word in ("train_agent", "train_reward", "annotate", "--workdir", "75", "130"):
        assert word in done.stdout


def interrupted(*arguments: str) -> subprocess.Popen[str]:
    """The entry point as a terminal starts it."""
    command = with_sigint(signal.SIG_DFL, "-m", "motif_jax.launch", *arguments)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=REPOSITORY, text=True, **pipes)


def test_ctrl_c_before_the_stage_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import os, signal, time; os.kill(os.getpid(), 2); time.sleep(60)"
    )
    process = interrupted(f"--config={tmp_path / 'mine.py'}")
    assert process.communicate(timeout=240) == ("", f"{INTERRUPTED}\n")
    assert process.returncode == 130


@pytest.mark.slow
def test_ctrl_c_in_a_stage_is_one_line(tmp_path: Path) -> None:
    """Here in `report`, when it reads a file that never comes; nothing is left half-written."""
    (tmp_path / "reward").mkdir()
    run_folder.write_config(tmp_path / "reward", run_folder.as_plain(load_config("train_reward")))
    os.mkfifo(tmp_path / "reward/val_metrics.csv")
    flags = [f"--workdir={tmp_path / 'report'}", f"--config.reward.dir={tmp_path / 'reward'}"]
    process = interrupted("--config=configs/report.py:smoke", *flags)
    with open(tmp_path / "reward/val_metrics.csv", "w"):  # returns when the stage reads
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=240) == ("", f"{INTERRUPTED}\n")
    assert process.returncode == 130
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize("stage", ["train_agent", "evaluate"])
@pytest.mark.parametrize(
    ("flags", "shown"),
    [
        # Also the value of a key whose placeholder got one in the config file.
        ("--config.reward.quantile=None", "reward.quantile=None"),
        ("--config.reward.step=3 --config.reward.step=None", "reward.step=None"),
        ("--config.reward.quantile=None --config.reward.quantile=0.7", "reward.quantile=0.7"),
    ],
)
def test_none_clears_a_value_and_the_last_flag_decides(
    quick: Commands, stage: str, flags: str, shown: str
) -> None:
    done = quick.launch(
        REPOSITORY, f"--config=configs/{stage}.py", *flags.split(), "--print_config"
    )
    assert done.returncode == 0, done.stderr
    assert f"--config.{shown}" in done.stdout.splitlines()


def test_packaged_config_files_are_found_from_any_folder(quick: Commands, tmp_path: Path) -> None:
    """Those of the folder where the command is given come first."""
    for shown in ("--config.num_pairs=300", "--config.numbers=[1, 2]"):
        done = quick.launch(tmp_path, "--config=configs/collect.py:smoke", "--print_config")
        assert done.returncode == 0, done.stderr
        assert shown in done.stdout.splitlines()
        (tmp_path / "configs").mkdir(exist_ok=True)
        (tmp_path / "configs/collect.py").write_text(MINE)


def test_a_config_files_folder_may_hold_an_equals_sign(quick: Commands, tmp_path: Path) -> None:
    file = tmp_path / "seed=3" / "collect.py"
    file.parent.mkdir()
    file.write_text((REPOSITORY / "configs/collect.py").read_text())

    done = quick.launch(tmp_path, f"--config={file}:smoke", "--print_config")

    assert done.returncode == 0, done.stderr
    assert "--config.num_pairs=300" in done.stdout.splitlines()


def test_the_entry_point_is_light() -> None:
    """Spawned workers import it again: it must not bring jax, flax, nle or a plotting library."""
    heavy = "jax flax orbax nle matplotlib torch pandas pyarrow"
    code = (
        f"import sys, motif_jax.launch; print([m for m in '{heavy}'.split() if m in sys.modules])"
    )
    printed = subprocess.check_output([sys.executable, "-c", code], cwd=REPOSITORY, text=True)
    assert printed.strip() == "[]"


BROKEN = """
from motif_jax.motif.annotation.annotator import Annotator
class Judge(Annotator):
    annotate = None
    def __init__(self, *_, **__):
        raise RuntimeError("no judge is at home")
"""


def test_a_folder_keeps_the_traceback_of_an_error_whose_last_line_is_printed(
    tmp_path: Path,
) -> None:
    (tmp_path / "broken.py").write_text(BROKEN)
    folder = tmp_path / "run"
    folder.mkdir()
    arguments = (
        "--config=configs/annotate.py --config.probe=True --config.annotator=broken:Judge"
    ).split()

    done = subprocess.run(
        [sys.executable, "-m", "motif_jax.launch", *arguments, f"--workdir={folder}"],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{REPOSITORY}"},
        capture_output=True,
        text=True,
        timeout=200,
    )

    assert done.returncode == 1
    assert "RuntimeError: no judge is at home" in done.stderr
    assert "Traceback" not in done.stderr
    assert "raise RuntimeError" in (folder / "error.txt").read_text()
