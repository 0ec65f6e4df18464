"""What the command line makes of arguments before absl reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from motif_jax import command_line
from tests.command_configs import CONFIGS, config_of


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("--workdir=~/runs/a", "--workdir=/home/me/runs/a"),
        ("--config.dataset_dirs=~/a,~/b,c", "--config.dataset_dirs=/home/me/a,/home/me/b,c"),
        ("--config=~/my.py:smoke", "--config=/home/me/my.py:smoke"),
        ("--config.text=a ~/b", "--config.text=a ~/b"),
        ("--config.seed=7", "--config.seed=7"),
        ("--workdir", "--workdir"),
    ],
)
def test_a_tilde_that_the_shell_left_is_the_home_folder(
    monkeypatch: pytest.MonkeyPatch, argument: str, expected: str
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert command_line.with_home(["launch", argument]) == ["launch", expected]


@pytest.mark.parametrize(
    ("config", "flags", "unread"),
    [
        (
            "train_agent",
            ["algorithm.name=ppo", "algorithm.exploration_coefficient=0.1"],
            "algorithm.exploration_coefficient",
        ),
        ("train_agent", ["algorithm.name=drrn", "algorithm.c_clip=1.0"], "algorithm.c_clip"),
        ("train_language_agent", ["network.kind=drrn", "network.score=raw_logit"], "network.score"),
        ("train_agent", ["algorithm.name=ppo", "algorithm.epochs=2"], None),
        ("train_agent", ["algorithm.exploration_coefficient=0.1"], None),
        # A class of the user's reads what it likes.
        ("train_agent", ["algorithm.name=tests.toys:Nothing", "algorithm.c_clip=0.1"], None),
        ("train_text", ["network.max_length=64"], None),
    ],
)
def test_flags_of_a_part_that_was_not_chosen_are_refused(
    capsys: pytest.CaptureFixture[str], config: str, flags: list[str], unread: str | None
) -> None:
    arguments = [f"--config.{flag}" for flag in flags]
    chosen = config_of(f"{config}.py", *arguments)
    if unread is None:
        command_line.check_chosen(arguments, chosen)
        return

    with pytest.raises(SystemExit, match="2"):
        command_line.check_chosen(arguments, chosen)

    assert capsys.readouterr().err.startswith(f"error: --config.{unread}=")


def test_packaged_files_are_found_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    probes = tmp_path / "configs" / "probes"
    probes.mkdir(parents=True)
    (probes / "judge_nethack.json").touch()
    arguments = [
        "--config.probes.prompts=configs/probes/babyai_directions.json",
        "--config.probe_pairs=configs/probes/judge_nethack.json",  # the user's own
        "--config.probe_pairs=configs/probes/none.json",
        "--config.text=configs/",
        "--workdir=configs/probes/babyai_directions.json",
    ]
    expected = [f"--config.probes.prompts={CONFIGS}/probes/babyai_directions.json", *arguments[1:]]
    assert command_line.with_installed_configs(["launch", *arguments]) == ["launch", *expected]
