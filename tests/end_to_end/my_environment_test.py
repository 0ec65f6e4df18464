"""The tutorial's own environment, by the commands of its page, small; and environments without a text."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import numpy as np
import pytest

from motif_jax.datasets.pairs.dataset import PairsDataset
from motif_jax.reports.evaluation_files import read_evaluation
from motif_jax.stages import train_agent
from motif_jax.support.errors import UserError
from motif_jax.support.metrics import read_metrics
from tests.refusals import config_of
from tests.reward_fixtures import run_config, run_stage
from tests.rollouts.agent_runs import recall_config

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs" / "tutorials" / "my_environment.md"
SMALL = {
    "collect": {"num_pairs": 60, "workers": 1},
    "annotate": {"store_dir": "store"},
    "train_reward": {"epochs": 1, "num_devices": 1, "network.hidden_dim": 8, "network.message": "lt_cnn_small"},
    "train_agent": {"train_for_env_steps": 600, "batch_size": 128, "serial": True, "actors.envs_per_worker": 4, "actors.warmup_steps": 0, "log_every_seconds": 0.001, "compile_cache": "", "devices.learner": "0", "actors.workers": 1},
    "evaluate": {"episodes": 3, "workers": 1, "resamples": 20, "record_every": 2},
}  # fmt: skip

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def commands():
    text = PAGE.read_text(encoding="utf-8").replace("\\\n", " ")
    for line in re.findall(r"motif_jax\.launch (.*)", text):
        yield shlex.split(line)


def test_the_notebook_is_the_page():
    made = runpy.run_path(str(PAGE.with_name("notebook.py")))["notebook"](PAGE.read_text(encoding="utf-8"))
    assert PAGE.with_suffix(".ipynb").read_text(encoding="utf-8") == made, "python docs/tutorials/notebook.py"


@pytest.mark.extra
def test_the_tutorial_runs_by_its_commands(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(REPOSITORY / "docs" / "examples")
    monkeypatch.setenv("PYTHONPATH", f"{REPOSITORY / 'docs' / 'examples'}:{REPOSITORY}")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").symlink_to(REPOSITORY / "docs")
    code = [line for line in (REPOSITORY / "docs/examples/mine.py").read_text().splitlines() if line.strip()]
    assert len(code) < 40
    stages = []
    for flags in commands():
        named, workdir, *given = (
            flag.partition("=")[2] if number < 2 else flag for number, flag in enumerate(flags)
        )
        monkeypatch.setenv("MOTIF_JAX_TRUST", "")  # each command by itself
        config = config_of(named.removeprefix("configs/"), *given)
        config.update_from_flattened_dict(SMALL[config.stage])
        run_config(config, Path(workdir))
        stages.append(config.stage)
    assert stages == ["collect", "annotate", "train_reward", "train_agent", "evaluate"]
    captions = {
        bytes(row).rstrip(b"\0").decode()
        for row in np.asarray(PairsDataset.open("runs/mine/data").data["message"]).reshape(-1, 256)
    }
    assert {"You bump into rock.", "The gate is shut.", ""} <= captions
    metrics = list(read_metrics("runs/mine/agent"))
    assert metrics[-1]["episode/captions_cut"] == 0
    assert "episode/intrinsic_return" in metrics[-1]
    evaluation = read_evaluation("runs/mine/evaluation")
    assert {"success", "intrinsic_return", "captions_cut"} <= set(evaluation["measures"])


def test_without_a_text_only_the_task_is_learned_from(tmp_path, trained):
    cart = {"environment__name": "gym:CartPole-v1", "train_for_env_steps": 300, "serial": True}
    run_config(recall_config(**cart), tmp_path / "agent")
    words = r"config\.environment\.text='': must be module:function, info:KEY or obs:KEY, for gym:CartPole-v1 shows no"
    paid = {**cart, "reward__dir": str(trained), "reward__intrinsic_coefficient": 0.5}
    table = {
        **cart,
        "reward__kind": "table",
        "reward__table": str(tmp_path / "table.json"),
        "reward__intrinsic_coefficient": 0.5,
    }
    (tmp_path / "table.json").write_text("{}")
    for changes in (paid, table):
        with pytest.raises(UserError, match=words):
            train_agent.check(recall_config(**changes), tmp_path / "other")
    with pytest.raises(UserError, match=words):
        run_stage("collect", tmp_path / "data", **{"environment.name": "gym:CartPole-v1"})
    with pytest.raises(UserError, match=words):
        run_stage(
            "evaluate", tmp_path / "scores", **{"policy": str(tmp_path / "agent"), "reward.dir": str(trained)}
        )
