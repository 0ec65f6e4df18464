"""Opening somebody else's files runs none of their code: what they name is imported only where the
user's own command names it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from motif_jax import agents, rewards, wrappers
from motif_jax.core import entry_points, run_folder
from motif_jax.core.errors import UserError
from motif_jax.envs.recording import FORMAT, Recording
from motif_jax.ilql import evaluate_text
from motif_jax.ilql.agent import agent_folder
from motif_jax.play import evaluate
from tests import text_agents
from tests.play.agent_runs import recall_config
from tests.reward_fixtures import load_config

stages = {"evaluate": evaluate, "evaluate_text": evaluate_text}


@pytest.fixture(autouse=True)
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that a module `evil` of somebody else's leaves where it is imported."""
    file = tmp_path / "evil_ran"
    (tmp_path / "evil.py").write_text(
        f"open({str(file)!r}, 'w')\nclass Env: pass\nclass Other: pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "evil", raising=False)
    monkeypatch.setenv("MOTIF_JAX_TRUST", "")
    return file


def test_a_class_that_only_data_name_is_refused(ran):
    entry_points.note_source("runs/x", {"environment": {"name": "evil:Env"}})
    line = r"config.environment.name=evil:Env: runs/x asks.*--config.trust=evil:Env .*trust=\["
    with pytest.raises(UserError, match=line):
        entry_points.load("environment.name", "evil:Env")
    assert not ran.exists()
    entry_points.trust(["evil:Env"])
    assert entry_points.load("environment.name", "evil:Env").__name__ == "Env"
    with pytest.raises(UserError, match="trust"):
        entry_points.load("environment.name", "evil:Other")


def test_a_trusted_class_or_module_is_imported(ran, monkeypatch):
    with pytest.raises(UserError, match=r"a file of data asks for.*--config.trust=evil"):
        entry_points.load_module("environment.modules", "evil")
    assert not ran.exists()
    entry_points.trust(["evil:Env"])
    assert entry_points.load_module("environment.modules", "evil").Env
    monkeypatch.setenv("MOTIF_JAX_TRUST", "")
    entry_points.trust("evil")
    assert entry_points.load("policy", "evil:Other")


@pytest.mark.parametrize("names", ["json:A,evil:Env", ["json:A, evil:Env"]])
def test_several_names_may_stand_in_one_text(ran, names):
    entry_points.trust(names)
    assert entry_points.load("policy", "evil:Env").__name__ == "Env"


def test_named_classes_are_collected_from_lists_and_json():
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
    run_folder.write_config(folder, config)
    return folder


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"environment__name": "evil:Env"}, "environment.name"),
        ({"reward__kind": "evil:Env", "reward__intrinsic_coefficient": 0.1}, "reward.kind"),
    ],
)
def test_no_call_opens_a_foreign_folder_without_trust(ran, tmp_path, changes, key):
    folder = run_of(tmp_path / "run", **changes)
    calls = (
        agents.load,
        lambda of: next(agents.play(of, 1, workers=1)),
        lambda of: wrappers.IntrinsicReward.of_agent(agents.gymnasium.make("CartPole-v1"), of),
    )
    for call in calls:
        with pytest.raises(UserError, match=f"config.{key}=evil:Env: {folder} asks"):
            call(folder)
    with pytest.raises(UserError, match="no"):
        rewards.load(folder)  # which names no class of its own
    assert not ran.exists()
    game = agents.gymnasium.make("CartPole-v1")
    with pytest.raises(Exception, match=r"make_spec|must be a subclass"):
        wrappers.IntrinsicReward.of_agent(game, folder, trust=["evil:Env"])
    assert ran.exists()


def test_a_recording_of_a_class_is_read_only_with_trust(ran, tmp_path):
    path = tmp_path / "episode.json"
    content = {"format": FORMAT, "task": "evil:Env", "options": {}, "seed": 1, "actions": []}
    path.write_text(json.dumps({**content, "digest": "", "engine": "", "info": {}}))
    with pytest.raises(UserError, match=f"{path} asks for.*--config.trust=evil:Env"):
        Recording.load(path)
    assert not ran.exists()
    entry_points.trust(["evil:Env"])
    with pytest.raises(AttributeError, match="make_spec"):
        Recording.load(path)
    assert ran.exists()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["evaluate", "evaluate_text"])
def test_stages_open_somebody_elses_folders_only_with_trust(ran, tmp_path, kind):
    config = load_config(kind, "smoke")
    stage = stages[kind]
    if kind == "evaluate":
        config.policy = str(run_of(tmp_path / "run", environment__name="evil:Env"))
    else:
        config.agent = str(text_agents.write(tmp_path / "run"))
        about = tmp_path / "run/agent" / agent_folder.FILE
        about.write_text(json.dumps({**json.loads(about.read_text()), "task": "evil:Env"}))
    with pytest.raises(
        UserError, match=rf"evil:Env: {tmp_path}/run.* give --config.trust=evil:Env"
    ):
        stage.check(config, tmp_path / "out")
    assert not ran.exists()
    entry_points.trust(["evil:Env"])
    with pytest.raises(Exception, match=r"make_spec|must be a subclass"):
        stage.check(config, tmp_path / "out")
    assert ran.exists()
