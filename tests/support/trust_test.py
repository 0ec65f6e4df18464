"""Opening somebody else's files runs none of their code: what they name is imported only where the user's own command names it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from motif_jax import agents, rewards, wrappers
from motif_jax.envs.replay import FORMAT, Recording
from motif_jax.support import entry_points, run_folder
from motif_jax.support.errors import UserError
from motif_jax.trainers import agent_folder
from tests import text_agents
from tests.commands import commands
from tests.rollouts.agent_runs import recall_config


@pytest.fixture(autouse=True)
def own_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTIF_JAX_TRUST", "")


def evil(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str = "evil") -> Path:
    """A module that leaves a file where it is imported; returns that file."""
    ran = folder / f"{name}_ran"
    (folder / f"{name}.py").write_text(f"open({str(ran)!r}, 'w')\nclass Env: pass\nclass Other: pass\n")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, name, raising=False)
    return ran


def test_a_name_that_only_data_give_is_refused_with_its_folder_and_the_remedy(tmp_path, monkeypatch):
    ran = evil(tmp_path, monkeypatch, "evil_class")
    entry_points.asked("runs/x", {"environment": {"name": "evil_class:Env"}})
    told = r"config.environment.name=evil_class:Env: runs/x asks.*--config.trust=evil_class:Env .*trust=\["
    with pytest.raises(UserError, match=told):
        entry_points.load("environment.name", "evil_class:Env")
    assert not ran.exists()
    entry_points.trust(["evil_class:Env"])
    assert entry_points.load("environment.name", "evil_class:Env").__name__ == "Env"
    with pytest.raises(UserError, match="trust"):
        entry_points.load("environment.name", "evil_class:Other")


def test_a_module_is_imported_by_its_own_name_or_that_of_a_trusted_class(tmp_path, monkeypatch):
    ran = evil(tmp_path, monkeypatch, "evil_module")
    with pytest.raises(UserError, match=r"a file of data asks for.*--config.trust=evil_module"):
        entry_points.load_module("environment.modules", "evil_module")
    assert not ran.exists()
    entry_points.trust(["evil_module:Env"])
    assert entry_points.load_module("environment.modules", "evil_module").Env
    monkeypatch.setenv("MOTIF_JAX_TRUST", "")
    entry_points.trust("evil_module")
    assert entry_points.load("policy", "evil_module:Other")


def test_what_a_config_names_is_found_in_lists_and_json():
    config = {
        "environment": {"name": "a.b:Env", "modules": ("minihack", "own"), "text": "t:of"},
        "options": '{"annotator": "own:Judge", "url": "http://127.0.0.1:80/v1"}',
        "policy": "runs/x:y",
        "seed": 1,
    }
    assert entry_points.named(config) == {"a.b:Env", "minihack", "own", "t:of", "own:Judge"}


def run_of(folder: Path, **changes: str) -> Path:
    """A run folder of somebody else's; returns it."""
    folder.mkdir()
    config = run_folder.as_plain(recall_config(**changes))
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"environment__name": "evil_run:Env"}, "environment.name"),
        ({"reward__kind": "evil_run:Env", "reward__intrinsic_coefficient": 0.1}, "reward.kind"),
    ],
)
def test_a_folder_of_somebody_elses_is_opened_by_no_call_without_trust(tmp_path, monkeypatch, changes, key):
    ran, folder = evil(tmp_path, monkeypatch, "evil_run"), run_of(tmp_path / "run", **changes)
    calls = (
        agents.load,
        lambda of: next(agents.play(of, 1, workers=1)),
        lambda of: wrappers.IntrinsicReward.of_agent(agents.gymnasium.make("CartPole-v1"), of),
    )
    for call in calls:
        with pytest.raises(UserError, match=f"config.{key}=evil_run:Env: {folder} asks"):
            call(folder)
    with pytest.raises(UserError, match="no"):
        rewards.load(folder)  # which names no class of its own
    assert not ran.exists()
    game = agents.gymnasium.make("CartPole-v1")
    with pytest.raises(Exception, match=r"make_spec|must be a subclass"):
        wrappers.IntrinsicReward.of_agent(game, folder, trust=["evil_run:Env"])
    assert ran.exists()


def test_a_recording_of_a_class_is_read_only_with_trust(tmp_path, monkeypatch):
    ran, path = evil(tmp_path, monkeypatch, "evil_recording"), tmp_path / "episode.json"
    content = {"format": FORMAT, "task": "evil_recording:Env", "options": {}, "seed": 1, "actions": []}
    path.write_text(json.dumps({**content, "digest": "", "engine": "", "info": {}}))
    with pytest.raises(UserError, match=f"{path} asks for.*--config.trust=evil_recording:Env"):
        Recording.load(path)
    assert not ran.exists()
    entry_points.trust(["evil_recording:Env"])
    with pytest.raises(UserError, match="make_spec"):
        Recording.load(path)
    assert ran.exists()


@pytest.mark.extra
def test_every_stage_takes_the_names_and_opens_none_without(tmp_path):
    """As people do it: somebody else's folders below the one where the command is given."""
    (tmp_path / "runs").mkdir()
    run_of(tmp_path / "runs/x", environment__name="runs.x.evil:Env")
    (tmp_path / "runs/x/evil.py").write_text(
        f"open({str(tmp_path / 'ran')!r}, 'w')\nfrom motif_jax.envs.recall import Recall as Env\n"
    )
    text_agents.write(tmp_path / "runs/y")
    about = tmp_path / "runs/y/agent" / agent_folder.FILE
    about.write_text(json.dumps({**json.loads(about.read_text()), "task": "runs.x.evil:Env"}))
    configs = Path(__file__).parents[2] / "configs"
    given = {"evaluate": "--config.policy=runs/x", "evaluate_text": "--config.agent=runs/y"}
    with commands(configs.parent) as quick:
        for stage, flag in given.items():
            command = [f"--config={configs}/{stage}.py:smoke", "--workdir=out", flag]
            done = quick.launch(tmp_path, *command)
            assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
            assert "runs.x.evil:Env: runs/" in done.stderr
            assert "give --config.trust=runs.x.evil:Env" in done.stderr
            assert not (tmp_path / "ran").exists()
        trusted = "--config.trust=other:Class,runs.x.evil:Env"
        done = quick.launch(tmp_path, *command, trusted)
        assert "must be a subclass" in done.stderr, "it was imported"
        assert (tmp_path / "ran").exists()
