"""`motif_jax.run`: a stage from Python, as the command line runs it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import pytest

import motif_jax
from motif_jax import stages
from motif_jax.core.errors import UserError
from tests.processes import REPOSITORY

# Stage -> values that make it small.
TINY: dict[str, dict[str, Any]] = {
    "collect": {"num_pairs": 60, "environment.max_episode_steps": 60, "workers": 1},
    "annotate": {},
    "train_reward": {"batch_size": 8, "epochs": 1, "least_steps.per_text": 0.0},
    "train_agent": {
        "train_for_env_steps": 256,
        "batch_size": 128,
        "rollout": 16,
        "actors.workers": 1,
        "actors.envs_per_worker": 4,
        "environment.max_episode_steps": 20,
    },
    "evaluate": {"episodes": 2, "workers": 1},
    "report": {"plots": False},
}


@pytest.mark.slow
def test_the_journey_of_the_library_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (REPOSITORY / "docs/library.md").read_text(encoding="utf-8")
    (journey,) = (
        block
        for block in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
        if "motif_jax.run(" in block
    )
    run = motif_jax.run
    codes = []

    def tiny(config: str, workdir: str, values: Mapping[str, Any] = {}) -> None:
        codes.append(run(config, workdir, {**values, **TINY[config.partition(":")[0]]}))

    monkeypatch.setattr(motif_jax, "run", tiny)
    monkeypatch.chdir(tmp_path)
    exec(journey, {"__name__": "__main__"})

    assert codes == [0] * 6
    assert (tmp_path / "runs/report/report.html").is_file()


REFUSALS = [
    ("train_agent:none", {}, "variant 'none'"),
    ("train_agents", {}, "there is no file configs/train_agents.py"),
    ("collect", {"sed": 1}, "did you mean --config.seed"),
    ("collect", {"seed": "one"}, "config.seed=one"),
    ("collect", {"seed": None}, "this key needs a value"),
    ("collect", {"num_pairs": -1}, "num_pairs=-1"),
    ("train_agent", {"algorithm.gae_lambda": 0.9}, "has no effect with algorithm.advantage=vtrace"),
]


@pytest.mark.parametrize(("config", "values", "line"), REFUSALS)
def test_what_the_command_refuses_is_an_exception(
    tmp_path: Path, config: str, values: dict[str, Any], line: str
) -> None:
    with pytest.raises(UserError, match=re.escape(line)):
        motif_jax.run(config, tmp_path / "run", values)
    assert not (tmp_path / "run").exists()


class Given:
    """A stage that shows the config which it is given, and how jax is set, and asks to be called
    again.
    """

    NEEDS_WORKDIR = False

    def check(self, config: Any, workdir: Path | None) -> None:
        self.config = config
        self.workdir = workdir

    def run(self, config: Any, workdir: Path | None) -> int:
        jax.config.update("jax_default_matmul_precision", "highest")
        self.is_wide = jax.config.jax_enable_x64
        return 75


def test_values_are_those_of_flags_and_jax_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Given()
    monkeypatch.setattr(stages, "module", lambda name: stage)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "programs"))
    before = dict(jax.config.values)
    values = {"dataset_dir": tmp_path / "data", "annotator": "a", "epochs": 3}
    jax.config.update("jax_enable_x64", True)
    try:
        code = motif_jax.run("train_reward:smoke", "~/reward", values)
        assert jax.config.jax_enable_x64
    finally:
        jax.config.update("jax_enable_x64", False)

    assert code == 75
    assert stage.workdir == tmp_path / "reward"
    assert stage.config.dataset_dir == str(tmp_path / "data")
    assert (stage.config.epochs, stage.config.batch_size) == (3, 32)
    assert not stage.is_wide
    assert dict(jax.config.values) == before
