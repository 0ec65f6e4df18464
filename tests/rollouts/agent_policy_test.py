"""Checkpoints of an agent as policies: the right one, the same numbers, the same episodes."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import jax
import numpy as np
import optax
import pytest

from motif_jax.algorithms.appo import make_state
from motif_jax.rl import agent_checkpoints, settings
from motif_jax.rollouts import agent_policy, agents
from motif_jax.rollouts.evaluation_setup import PinnedVersions, check, of_folder, open_setup
from motif_jax.sections import Compat
from motif_jax.sections.agents import AgentReward
from motif_jax.sections.played import PlayedEnvironment, PlayedPolicy
from motif_jax.support import run_folder
from motif_jax.support.errors import UserError
from tests.reward_fixtures import load_config
from tests.rollouts import untrained

# Compiling takes most of the time.
slow = pytest.mark.slow
QUIRKS = (
    "glam_untrained_dropout",
    "symbolic_train_mode_batchnorm",
    "seed_noop",
    "sober_mask",
    "message_count_off",
)


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    """An agent run with checkpoints 100 (the best), 200 and 300, and the parameters of each and as training begins."""
    folder, returns = tmp_path_factory.mktemp("agent"), {100: 0.9, 200: 0.1, 300: 0.5}
    network = untrained.write(folder, "recall", {"environment.recall.delay": 20}, returns)
    key = settings.random_key(agent_policy.read_config(folder).seed, "learner")
    params = {step: untrained.state_of(network, step).params for step in returns}
    return folder, network, {0: make_state(network, optax.sgd(0.1), key).params, **params}


@slow
def test_parameters_that_are_not_finite_are_not_evaluated(agent, tmp_path):
    folder, network, _ = agent
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    state = make_state(network, optax.sgd(0.1), jax.random.PRNGKey(0))
    with agent_checkpoints.open_checkpoints(tmp_path, 5) as checkpoints:
        for step, factor in ((100, 1.0), (200, np.nan)):
            scaled = state._replace(params=jax.tree.map(lambda leaf: leaf * factor, state.params))  # noqa: B023
            items = agent_checkpoints.items_of_learner(scaled)
            agent_checkpoints.save(checkpoints, step, items, {}, {}, asynchronous=False)
    with pytest.raises(UserError, match=r"at step 200 .*not finite.*there are 100"):
        agent_policy.load(tmp_path)
    assert agent_policy.load(tmp_path, "100")[1] == 100


@slow
@pytest.mark.parametrize(("which", "step"), [("latest", 300), ("best", 100), ("200", 200), ("0", 0)])
def test_it_is_the_checkpoint_that_was_asked_for(agent, which, step):
    folder, network, params = agent
    policy, loaded = agent_policy.load(folder, which)
    assert loaded == step
    generator = np.random.default_rng(0)
    observation = {
        field: generator.integers(0, 2, (6, *spec.shape)).astype(spec.dtype)
        for field, spec in network.spec.observation.items()
    }
    first = np.array([True, False, True, False, False, False])
    state = jax.numpy.asarray(generator.normal(size=(6, network.state_size)), jax.numpy.float32)
    logits, values, _ = policy.act(observation, first, state)
    rows = {field: array[None] for field, array in observation.items()}
    expected = jax.jit(network.apply)(params[step], rows, state, first[None])
    np.testing.assert_array_equal(logits, expected[0][0])
    np.testing.assert_array_equal(values, expected[1][0])


@slow
def test_a_setup_names_its_checkpoint_and_keeps_a_pinned_one(agent):
    config = of_folder(agent[0])
    who = open_setup(config)
    assert (who.checkpoint, who.environment, who.options["delay"]) == (300, "Recall-v0", 20)
    assert who.plan["checkpoint"] == 300
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
    assert open_setup(PlayedPolicy(policy=str(agent[0]))).plan == who.plan, (
        "the folder itself may stand as it"
    )
    who = open_setup(replace(config, policy="random"))
    assert (who.checkpoint, who.environment, who.options["delay"]) == (None, "Recall-v0", 20)


@slow
def test_a_setup_that_cannot_be_opened_is_refused(agent):
    config = of_folder(agent[0], "150")
    with pytest.raises(UserError, match=r"has no checkpoint 150: it has \[100, 200, 300\]"):
        check(config)
    check(config, PinnedVersions(checkpoint=200))
    with pytest.raises(UserError, match=r"must be Recall-v0, or .* was trained on Recall-v0"):
        check(of_folder(agent[0], environment="NetHackScore-v1"))
    check(replace(of_folder(agent[0]), compat=Compat(sober_mask=True)))  # the agent's own switches hold


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A run without a network, whose checkpoint 100 has the highest return, and 200 the least held-out loss; and its config."""
    folder = tmp_path_factory.mktemp("plain")
    config = run_folder.as_plain(
        load_config("train_agent", "smoke", {f"compat.{name}": True for name in QUIRKS})
    )
    (folder / "config.json").write_text(json.dumps(config))
    with agent_checkpoints.open_checkpoints(folder, 5) as checkpoints:
        for step, score, loss in ((100, 0.9, 0.3), (200, 0.1, 0.2), (300, 0.5, 0.4)):
            checkpoints.save(
                step, {"none": np.zeros(1)}, {"episode/return": score, "validation_loss": loss}, False
            )
    return folder, config


def test_checkpoints_of_a_run_and_of_a_clone_are_chosen(plain, tmp_path):
    folder, config = plain
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "config.json").write_text(json.dumps({**config, "stage": "clone_behaviour"}))
    asked = ("latest", "best", "150", "0")
    assert [agent_policy.find_step(folder, which) for which in asked] == [300, 100, 150, 0]
    assert [agent_policy.find_step(tmp_path, which) for which in asked] == [300, 200, 150, 0]
    assert agent_policy.read_config(tmp_path).reward == AgentReward(
        **{**vars(AgentReward()), "intrinsic_coefficient": 0.0}
    )
    with pytest.raises(UserError) as caught:
        agent_policy.find_step(folder, "x")
    assert str(caught.value) == f"there is no checkpoint 'x' of {folder}: must be latest, best or a step"
    shutil.rmtree(tmp_path / "checkpoints")
    (tmp_path / "checkpoints").mkdir()
    for which in ("latest", "best"):
        with pytest.raises(UserError) as caught:
            agent_policy.find_step(tmp_path, which)
        told = f"{tmp_path} has no {which} checkpoint yet: train for longer, or choose another folder"
        assert str(caught.value) == told


def test_a_collection_names_checkpoints_of_runs(plain, tmp_path):
    folder, other = plain[0], tmp_path / "a@b"
    shutil.copytree(folder, other)
    named = f"{folder}, {folder}@best,{other}, {folder}@all,{folder}@200,{other}@,{other}@latest"
    found = [(each.folder, each.step) for each in agents.resolve(named)]
    ours = (
        [(str(folder), step) for step in (300, 100)],
        [(str(folder), step) for step in (100, 200, 300, 200)],
    )
    assert found == [*ours[0], (str(other), 300), *ours[1], (str(other), 300), (str(other), 300)]
    assert agents.CollectingAgent("a", 7).name == "a@7"
    for entry, told in (
        (f"{folder}@150", f"={folder}@150: no such checkpoint; the steps of {folder} are 100, 200, 300"),
        (f"{folder}@x", f"={folder}@x: must end with @latest, @best, @all or @STEP"),
        (" , ", "=' , ': must be run folders of train_agent, with commas between"),
    ):
        with pytest.raises(UserError) as caught:
            agents.resolve(entry)
        assert str(caught.value) == f"config.agents{told}"
    with pytest.raises(UserError, match=r"b@c/d is not a run folder"):
        agents.resolve("b@c/d")


def test_a_config_is_read_without_switches_of_training_alone(plain, tmp_path):
    folder, config = plain
    found = agent_policy.read_config(folder)
    assert [name for name, on in vars(found.compat).items() if on] == [
        "sober_mask",
        "seed_noop",
        "message_count_off",
    ]
    switches = {"sober_mask": True, "message_count_off": True}
    options = {"max_episode_steps": 100, "compat": switches}
    assert agent_policy.environment_of(found) == ("NetHackScore-v1", options)
    assert agent_policy.environment_of(replace(found, compat=Compat())) == (
        "NetHackScore-v1",
        {"max_episode_steps": 100},
    )
    rounded = [agent_policy.rounded_threshold(Compat(quantile_two_decimals=on)) for on in (True, False)]
    assert rounded == [True, None]
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "plan.json").write_text(json.dumps({"reward_step": 3}))
    assert agent_policy.read_config(tmp_path).reward.step == 3


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"stage": "evaluate"}, " is a run of evaluate, not of train_agent"),
        ({"reward": 3}, "it has no reward.dir"),
        ({"environment": {"name": "Recall-v0"}}, "it has no environment.max_episode_steps"),
        ({"environment": {"name": 3, "max_episode_steps": 1}}, "invalid: environment.name"),
        ({"compat": [], "environment": {"name": "x", "max_episode_steps": 1, "recall": 3}}, "invalid: compat, environment.recall"),
    ],
)  # fmt: skip
def test_what_cannot_be_loaded_is_told(plain, tmp_path, changes, told):
    with pytest.raises(UserError, match="is not a run folder"):
        agent_policy.load(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**plain[1], **changes}))
    with pytest.raises(UserError) as caught:
        agent_policy.load(tmp_path)
    damaged = f"/config.json is damaged ({told}): restore a copy of the file, or train in another folder"
    assert str(caught.value) == f"{tmp_path}{damaged if 'stage' not in changes else told}"


def test_an_agent_plays_only_where_its_actions_are(tmp_path):
    config = load_config("train_agent", "smoke")
    (tmp_path / "config.json").write_text(json.dumps(run_folder.as_plain(config)))
    other = "NetHackOracleExtendedActions-v1"
    with pytest.raises(UserError, match=f"plays NetHackScore-v1 with 23 actions, {other} has 28"):
        agent_policy.load(tmp_path, environment=other)
    elsewhere = PlayedEnvironment(name="NetHackScoreExtendedActions-v1")
    with pytest.raises(UserError, match=r"same fields and actions: .* was trained on NetHackScore-v1"):
        check(PlayedPolicy(policy=str(tmp_path), environment=elsewhere))
