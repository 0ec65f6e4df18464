from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import optax
import pytest

from motif_jax.core import run_folder
from motif_jax.core.compat import Compat
from motif_jax.core.errors import UserError
from motif_jax.play import agent_policy, agents
from motif_jax.play.config import PlayedPolicy
from motif_jax.play.evaluation_setup import PinnedVersions, of_folder, open_setup
from motif_jax.rl import agent_checkpoints, settings
from motif_jax.rl.algorithms.appo import make_state
from motif_jax.rl.config import AgentReward
from tests.play import untrained
from tests.recorded_outputs import assert_matches_packed_recording, outcome_text
from tests.reward_fixtures import load_config

slow = pytest.mark.slow
QUIRKS = "glam_untrained_dropout symbolic_train_mode_batchnorm seed_noop sober_mask message_count_off".split()


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    """An agent run with checkpoints 100 (the best), 200 and 300, and the parameters of each and as training begins."""
    folder, returns = tmp_path_factory.mktemp("agent"), {100: 0.9, 200: 0.1, 300: 0.5}
    network = untrained.write(folder, "recall", {"environment.recall.delay": 20}, returns)
    key = settings.random_key(agent_policy.read_config(folder).seed, "learner")
    params = {step: untrained.state_of(network, step).params for step in returns}
    return folder, network, {0: make_state(network, optax.sgd(0.1), key).params, **params}


@slow
def test_parameters_that_are_not_finite_are_not_evaluated(tmp_path):
    state = untrained.state_of(untrained.write(tmp_path, "recall", {}), 200)
    state = state._replace(params=jax.tree.map(lambda leaf: leaf * np.nan, state.params))
    items = agent_checkpoints.items_of_learner(state)
    with agent_checkpoints.open_checkpoints(tmp_path, 5) as checkpoints:
        agent_checkpoints.save(checkpoints, 200, items, {}, {}, asynchronous=False)
    with pytest.raises(UserError, match=r"at step 200 .*not finite.*there are 100"):
        agent_policy.load(tmp_path)
    assert agent_policy.load(tmp_path, "100")[1] == 100


@slow
@pytest.mark.parametrize(("which", "step"), [("latest", 300), ("best", 100), ("200", 200), ("0", 0)])
def test_it_is_the_checkpoint_that_was_asked_for(agent, which, step):
    folder, network, params = agent
    policy, loaded = agent_policy.load(folder, which)
    assert loaded == step
    jax.tree.map(np.testing.assert_array_equal, policy.params, params[step])
    fields = network.spec.observation.items()
    observation = {name: np.full((6, *field.shape), 1, field.dtype) for name, field in fields}
    first = np.array([True, False, True, False, False, False])
    state = np.random.default_rng(0).normal(size=(6, network.state_size)).astype(np.float32)
    found = policy.act(observation, first, state)[:2]
    rows = {field: array[None] for field, array in observation.items()}
    expected = jax.jit(network.apply)(params[step], rows, state, first[None])[:2]
    jax.tree.map(np.testing.assert_array_equal, found, tuple(each[0] for each in expected))


@slow
def test_a_setup_names_its_checkpoint_and_keeps_a_pinned_one(agent):
    config = of_folder(agent[0])
    who = open_setup(config)
    assert (who.checkpoint, who.environment, who.options["delay"]) == (300, "Recall-v0", 20)
    assert open_setup(config, PinnedVersions(checkpoint=200)).checkpoint == 200
    trained = json.loads((agent[0] / "config.json").read_text())
    trained["reward"] |= {"dir": "/gone", "intrinsic_coefficient": 0.1}
    moved = agent[0].parent / "moved"
    moved.mkdir(exist_ok=True)
    (moved / "config.json").write_text(json.dumps(trained))
    (moved / "checkpoints").symlink_to(agent[0] / "checkpoints")
    with pytest.raises(UserError, match="used the reward in /gone, which does not exist"):
        open_setup(of_folder(moved))
    assert open_setup(of_folder(moved, reward=False)).rater is None
    assert open_setup(PlayedPolicy(policy=str(agent[0]))).plan == who.plan
    who = open_setup(replace(config, policy="random"))
    assert (who.checkpoint, who.environment, who.options["delay"]) == (None, "Recall-v0", 20)


FOLDERS = {
    "run": {},
    "clone": {"stage": "clone_behaviour"},
    "empty": {},
    "another": {"stage": "evaluate"},
    "unpaid": {"reward": 3},
    "cut": {"environment": {"name": "Recall-v0"}},
    "unnamed": {"environment": {"name": 3, "max_episode_steps": 1}},
    "a@b": {},
    "wrong": {"compat": [], "environment": {"name": "x", "max_episode_steps": 1, "recall": 3}},
}
NAMED = "run, run@best,a@b; run@all,run@200,a@b@,a@b@latest;run@150;run@x; , ;b@c/d;empty;empty@all".split(
    ";"
)


def test_runs_are_read_and_refused_as_was_recorded(tmp_path, monkeypatch, record):
    """Without a network; checkpoint 100 has the highest return, and 200 the least held-out loss."""
    monkeypatch.chdir(tmp_path)
    changed = {"reward.intrinsic_coefficient": 0.3, **{f"compat.{name}": True for name in QUIRKS}}
    config = run_folder.as_plain(load_config("train_agent", "smoke", changed))
    for name, changes in FOLDERS.items():
        Path(name, "checkpoints").mkdir(parents=True)
        Path(name, "config.json").write_text(json.dumps({**config, **changes}))
    with agent_checkpoints.open_checkpoints("run", 5) as checkpoints:
        for step, score, loss in ((100, 0.9, 0.3), (200, 0.1, 0.2), (300, 0.5, 0.4)):
            metrics = {"episode/return": score, "validation_loss": loss}
            checkpoints.save(step, {"none": np.zeros(1)}, metrics, asynchronous=False)
    parts = {
        "elsewhere": outcome_text(agent_policy.load, "run", environment="NetHackOracleExtendedActions-v1")
    }
    for name in ("clone", "a@b"):
        shutil.copytree("run/checkpoints", f"{name}/checkpoints", dirs_exist_ok=True)
    Path("clone/plan.json").write_text(json.dumps({"reward_step": 3}))
    parts |= {f"agents={named}": outcome_text(agents.resolve, named) for named in NAMED}
    for folder in ("run", "clone", "empty", "nowhere"):
        for which in ("latest", "best", "150", "0", "x"):
            parts[f"{folder} {which}"] = outcome_text(agent_policy.find_step, folder, which)
    for name in FOLDERS:
        found = outcome_text(lambda name=name: vars(agent_policy.read_config(name).reward))
        parts[name] = f"{found} {outcome_text(agent_policy.digest, name, 100) != 'None'}"
    found = agent_policy.read_config("run")
    parts["switches"] = str([name for name, on in vars(found.compat).items() if on])
    for compat in (found.compat, Compat(), Compat(quantile_two_decimals=True, message_count_off=True)):
        played = agent_policy.environment_of(replace(found, compat=compat, reward=AgentReward()))
        parts[f"played {len(parts)}"] = f"{played} {agent_policy.rounded_threshold(compat)}"
    assert_matches_packed_recording("agent_runs", parts, record)
