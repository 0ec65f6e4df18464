"""What the command line makes of arguments before absl reads them."""

from __future__ import annotations

import pytest

from motif_jax import command_line


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
def test_the_users_folder_stands_for_a_tilde_that_the_shell_left(
    monkeypatch: pytest.MonkeyPatch, argument: str, expected: str
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert command_line.with_home(["launch", argument]) == ["launch", expected]
