from __future__ import annotations

import json
import shutil
from dataclasses import replace

import jax
import numpy as np
import pytest

from motif_jax.core import run_folder
from motif_jax.core.compat import Compat
from motif_jax.core.errors import UserError
from motif_jax.play import agent_policy, agents
from motif_jax.play.config import PlayedPolicy
from motif_jax.play.evaluation_setup import PinnedVersions, of_folder, open_setup
from motif_jax.rl import agent_checkpoints, settings
from motif_jax.rl.algorithms.appo import ValueStatistics
from motif_jax.rl.config import AgentReward
from tests.play import untrained
from tests.reward_fixtures import load_config

slow = pytest.mark.slow
# The first two are of training alone.
QUIRKS = (
    "glam_untrained_dropout",
    "symbolic_train_mode_batchnorm",
    "seed_noop",
    "sober_mask",
    "message_count_off",
)


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    """An agent run with checkpoints 100 (the best), 200 and 300, and the parameters of each and as
    training begins.
    """
    folder = tmp_path_factory.mktemp("agent")
    returns = {100: 0.9, 200: 0.1, 300: 0.5}
    network = untrained.write(folder, "recall", {"environment.recall.delay": 20}, returns)
    key = settings.random_key(agent_policy.read_config(folder).seed, "learner")
    params = {step: untrained.state_of(network, step).params for step in returns}
    return folder, network, {0: network.init(jax.random.split(key)[0]), **params}


@slow
@pytest.mark.parametrize("normalisation", ["none", "popart"])
def test_a_players_values_are_in_units_of_reward(tmp_path, normalisation):
    network = untrained.write(tmp_path, "recall", {"algorithm.value_normalisation": normalisation})
    # Targets of mean 3 and standard deviation 4.
    statistics = ValueStatistics(*map(jax.numpy.float32, (3.0, 16.0, 1.0)))
    state = untrained.state_of(network, 200)._replace(value_statistics=statistics)
    items = agent_checkpoints.items_of_learner(state)
    with agent_checkpoints.open_checkpoints(tmp_path, 5) as checkpoints:
        agent_checkpoints.save(checkpoints, 200, items, {}, {}, asynchronous=False)

    policy, _ = agent_policy.load(tmp_path, "200")

    rows = {
        name: np.zeros((1, 2, *array.shape), array.dtype)
        for name, array in network.spec.observation.items()
    }
    arguments = rows, network.initial_state(2), np.ones((1, 2), bool)
    _, standardised, _ = network.apply(state.params, *arguments)
    _, values, _ = network.apply(policy.params, *arguments)
    expected = standardised if normalisation == "none" else 4 * standardised + 3
    np.testing.assert_allclose(values, expected, rtol=1e-5)


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
@pytest.mark.parametrize(
    ("which", "step"), [("latest", 300), ("best", 100), ("200", 200), ("0", 0)]
)
def test_parameters_are_those_of_the_chosen_checkpoint(agent, which, step):
    folder, _, params = agent

    policy, loaded = agent_policy.load(folder, which)

    assert loaded == step
    jax.tree.map(np.testing.assert_array_equal, policy.params, params[step])


@slow
def test_a_policy_computes_what_its_network_does(agent):
    folder, network, params = agent
    policy, _ = agent_policy.load(folder, "200")
    fields = network.spec.observation.items()
    observation = {name: np.full((6, *field.shape), 1, field.dtype) for name, field in fields}
    first = np.array([True, False, True, False, False, False])
    state = np.random.default_rng(0).normal(size=(6, network.state_size)).astype(np.float32)

    logits, values, _ = policy.act(observation, first, state)

    rows = {field: array[None] for field, array in observation.items()}
    expected_logits, expected_values, _ = jax.jit(network.apply)(
        params[200], rows, state, first[None]
    )
    np.testing.assert_array_equal(logits, expected_logits[0])
    np.testing.assert_array_equal(values, expected_values[0])


@slow
def test_a_setup_has_its_runs_newest_checkpoint_and_options(agent):
    setup = open_setup(of_folder(agent[0]))

    assert (setup.checkpoint, setup.environment) == (300, "Recall-v0")
    assert setup.options["delay"] == 20


@slow
def test_a_pinned_checkpoint_stays(agent):
    setup = open_setup(of_folder(agent[0]), PinnedVersions(checkpoint=200))

    assert setup.checkpoint == 200


@slow
def test_a_deleted_reward_is_refused_unless_it_is_left_out(agent, tmp_path):
    config = json.loads((agent[0] / "config.json").read_text())
    config["reward"] |= {"dir": "/gone", "intrinsic_coefficient": 0.1}
    moved = tmp_path / "moved"
    moved.mkdir()
    (moved / "config.json").write_text(json.dumps(config))
    (moved / "checkpoints").symlink_to(agent[0] / "checkpoints")

    with pytest.raises(UserError, match="/gone"):
        open_setup(of_folder(moved))
    assert open_setup(of_folder(moved, reward=False)).rater is None


@slow
def test_a_folder_as_policy_plays_like_its_agent(agent):
    by_policy = open_setup(PlayedPolicy(policy=str(agent[0])))

    assert by_policy.plan == open_setup(of_folder(agent[0])).plan


@slow
def test_a_random_policy_plays_the_environment_of_an_agents_folder(agent):
    setup = open_setup(replace(of_folder(agent[0]), policy="random"))

    assert (setup.checkpoint, setup.environment) == (None, "Recall-v0")
    assert setup.options["delay"] == 20


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Run folders without a network: `run` and its copies `clone` and `a@b` have checkpoints,
    `empty` has none.

    Checkpoint 100 has the highest return, 200 the least held-out loss, and 300 is the newest.
    """
    root = tmp_path_factory.mktemp("runs")
    changes = {"reward.intrinsic_coefficient": 0.3, **{f"compat.{name}": True for name in QUIRKS}}
    config = run_folder.as_plain(load_config("train_agent", "smoke", changes))
    for name, stage in (
        ("run", "train_agent"),
        ("empty", "train_agent"),
        ("clone", "clone_behaviour"),
    ):
        write_config(root / name, {**config, "stage": stage})
    with agent_checkpoints.open_checkpoints(root / "run", 5) as checkpoints:
        for step, score, loss in ((100, 0.9, 0.3), (200, 0.1, 0.2), (300, 0.5, 0.4)):
            metrics = {"episode/return": score, "validation_loss": loss}
            checkpoints.save(step, {"none": np.zeros(1)}, metrics, asynchronous=False)
    shutil.copytree(
        root / "run" / "checkpoints", root / "clone" / "checkpoints", dirs_exist_ok=True
    )
    (root / "clone" / "plan.json").write_text(json.dumps({"reward_step": 3}))
    shutil.copytree(root / "run", root / "a@b")
    return root


def write_config(folder, config):
    (folder / "checkpoints").mkdir(parents=True)
    run_folder.write_config(folder, config)


@pytest.mark.parametrize(
    ("folder", "which", "step"),
    [
        ("run", "latest", 300),
        ("run", "best", 100),
        ("run", "0", 0),
        ("run", "200", 200),
        ("clone", "latest", 300),
        # The least held-out loss.
        ("clone", "best", 200),
    ],
)
def test_a_checkpoint_is_chosen_by_its_word_or_step(runs, folder, which, step):
    assert agent_policy.find_step(runs / folder, which) == step


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("run, run@best,a@b", ["run@300", "run@100", "a@b@300"]),
        (
            "run@all,run@200,a@b@,a@b@latest",
            ["run@100", "run@200", "run@300", "run@200", "a@b@300", "a@b@300"],
        ),
    ],
)
def test_agents_of_a_collection_are_named_by_run_and_checkpoint(runs, monkeypatch, text, expected):
    monkeypatch.chdir(runs)

    assert [agent.name for agent in agents.resolve(text)] == expected


def test_a_run_is_read_with_its_reward(runs):
    reward = agent_policy.read_config(runs / "run").reward

    assert (reward.kind, reward.dir, reward.step) == ("motif", None, None)
    assert reward.intrinsic_coefficient == 0.3
    assert (reward.quantile, reward.count_exponent) == (0.5, 3.0)


def test_a_clone_has_no_intrinsic_reward(runs):
    reward = agent_policy.read_config(runs / "clone").reward

    assert reward.intrinsic_coefficient == 0.0


def test_a_runs_language_model_is_found_from_any_folder(runs, tmp_path, monkeypatch):
    plain = run_folder.read_config(runs / "run")
    language = run_folder.as_plain(load_config("train_language_agent", "smoke"))
    project = tmp_path / "project"
    (project / "models" / "mine").mkdir(parents=True)
    (project / "run").mkdir()

    def model_of(named):
        network = {**language["network"], "model": named}
        values = {**plain, **language, "network": network, "stage": "train_agent"}
        run_folder.describe(project / "run", values)
        return agent_policy.read_config(project / "run").network.model

    monkeypatch.chdir(project)
    assert model_of("models/mine") == "models/mine"
    monkeypatch.chdir(tmp_path)
    assert model_of("models/mine") == str(project / "models" / "mine")
    assert model_of("google/flan-t5-small") == "google/flan-t5-small"


def test_switches_of_training_alone_are_off_at_play(runs):
    compat = agent_policy.read_config(runs / "run").compat

    assert [name for name, value in vars(compat).items() if value] == [
        "sober_mask",
        "seed_noop",
        "message_count_off",
    ]


def test_a_copied_checkpoint_has_the_identity_of_the_first(runs):
    assert agent_policy.identity(runs / "run", 100) == agent_policy.identity(runs / "a@b", 100)
    assert agent_policy.identity(runs / "run", 100) is not None
    assert agent_policy.identity(runs / "empty", 100) is None


def test_an_environment_with_other_actions_is_refused(runs, monkeypatch):
    monkeypatch.chdir(runs)

    with pytest.raises(UserError) as error:
        agent_policy.load("run", environment="NetHackOracleExtendedActions-v1")

    assert str(error.value) == (
        "run plays NetHackScore-v1 with 23 actions, NetHackOracleExtendedActions-v1 has 28 actions: "
        "choose an environment with the agent's actions"
    )


@pytest.mark.parametrize(
    ("compat", "options", "rounded"),
    [
        (Compat(), {}, None),
        # Episodes that are evaluated always have seeds.
        (Compat(seed_noop=True), {}, None),
        (Compat(sober_mask=True, seed_noop=True), {"compat": {"sober_mask": True}}, None),
        # Messages are counted, as published, where an intrinsic reward is trained on.
        (Compat(quantile_two_decimals=True, message_count_off=True), {}, True),
    ],
)
def test_switches_of_a_training_reach_the_environment(runs, compat, options, rounded):
    config = replace(agent_policy.read_config(runs / "run"), compat=compat, reward=AgentReward())

    environment = agent_policy.environment_of(config)

    assert environment == ("NetHackScore-v1", {"max_episode_steps": 100, **options})
    assert agent_policy.rounded_threshold(compat) is rounded
