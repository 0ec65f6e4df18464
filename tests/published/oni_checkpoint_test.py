"""Published checkpoints of ONI: the agent of 28 actions, and the labels; nothing in the file is run or built."""

from __future__ import annotations

import json
import sys
import types

import jax
import numpy as np
import pytest

from motif_jax import rewards
from motif_jax.networks import layout
from motif_jax.published import oni_checkpoint, torch_import
from motif_jax.rollouts import agent_policy, evaluation_setup
from motif_jax.sections.played import PlayedPolicy
from motif_jax.stages import import_torch
from motif_jax.support.errors import UserError
from tests import torch_files
from tests.golden_numbers import recipe_tensors
from tests.reward_fixtures import load_config, run_config
from tests.torch_files import tensor

LABELS = {"You kill the newt!": 1, "": 0, "It's a wall.": 0, "Kaboom": 1}


@pytest.fixture
def foreign():
    """A class of the published package, which may be pickled and never be made."""
    module = types.ModuleType("published_package")

    class OnlineDataset:
        def __init__(self, **attributes):
            self.__dict__.update(attributes)

        def __setstate__(self, state):
            raise AssertionError("an object of the file was built")

    OnlineDataset.__module__, OnlineDataset.__qualname__ = module.__name__, "OnlineDataset"
    module.OnlineDataset = OnlineDataset
    sys.modules[module.__name__] = module
    yield OnlineDataset
    del sys.modules[module.__name__]


def read(path, content):
    return torch_import.read(
        torch_files.write(path, {"model": {"a": tensor(np.ones(2, "f"))}, **content}), "model"
    )


def test_the_table_of_labels_is_read(tmp_path):
    content = {"llm_message_rewards": {**LABELS, "x": np.float32(1.0), "y": tensor(np.ones(1, "f"))}}
    assert oni_checkpoint.labels(read(tmp_path / "a.pth", content)) == {**LABELS, "x": 1, "y": 1}
    assert oni_checkpoint.labels(read(tmp_path / "b.pth", {})) is None


@pytest.mark.parametrize(
    "attributes",
    [
        {"size": 256, "data": list(LABELS.items())},
        {"size": 256, "labels": LABELS},
        {"texts": {"data": [list(pair) for pair in LABELS.items()]}},
    ],
)
@pytest.mark.parametrize("protocol", [2, 4])
def test_the_examples_of_the_classifier_are_read_as_data(foreign, tmp_path, attributes, protocol):
    content = {"model": {"a": tensor(np.ones(2, "f"))}, "reward_model_dataset": foreign(**attributes)}
    path = torch_files.write(tmp_path / "a.pth", content, protocol=protocol)
    del sys.modules["published_package"].OnlineDataset
    assert oni_checkpoint.labels(torch_import.read(path, "model")) == LABELS


def test_labels_that_are_none_are_refused(tmp_path):
    for text, label, line in (
        ("a" * 257, 1, "llm_message_rewards: .*257 bytes"),
        ("You see.", 2, "'You see.' is 2, neither 0 nor 1"),
        ("You see.", float("nan"), "is nan, neither"),
    ):
        with pytest.raises(UserError, match=line):
            oni_checkpoint.labels(read(tmp_path / "a.pth", {"llm_message_rewards": {text: label}}))


def test_a_classifier_is_read_with_its_examples_alone(tmp_path):
    model = {"reward_model": {"a": tensor(np.ones(2, "f"))}}
    assert oni_checkpoint.classifier(read(tmp_path / "a.pth", model)) is None
    assert oni_checkpoint.classifier(read(tmp_path / "a.pth", {"reward_model_dataset": []})) is None
    with pytest.raises(UserError, match="reward_model does not fit the classifier"):
        oni_checkpoint.classifier(read(tmp_path / "a.pth", {**model, "reward_model_dataset": []}))


def unnamed(arrays):
    """Tensors whose names tell weights from biases alone."""
    return {f"net.{place}.{name.split('/')[1]}": tensor(arrays[name]) for place, name in enumerate(arrays)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["retrieval", "classification", pytest.param("none", marks=pytest.mark.extra)]
)
def test_an_agent_of_28_actions_plays_and_is_rated_by_its_own_reward(golden, foreign, tmp_path, kind):
    config = load_config("import_torch", "oni")
    network = import_torch.network_of(config.agent)
    params = jax.tree.map(np.asarray, network.init(jax.random.key(3)))
    named = layout.to_torch(params)
    model = unnamed({name: named[name] for name in sorted(named, key=torch_import._agent_order)})
    content = {"model": model, "env_steps": 777, "llm_message_rewards": LABELS}
    if kind == "none":  # a ranking's network has no labels of messages
        del content["llm_message_rewards"]
    if kind == "classification":
        content["reward_model"] = unnamed(recipe_tensors(golden("oni/oni_classifier_shapes.json")))
        content["reward_model_dataset"] = foreign(data=list(LABELS.items()))
    config.file = str(torch_files.write(tmp_path / "checkpoint.pth", content))
    workdir = run_config(config, tmp_path / "run")
    policy, step = agent_policy.load(workdir)
    assert step == 777
    jax.tree.map(np.testing.assert_array_equal, policy.params, params)
    who = evaluation_setup.open_setup(PlayedPolicy(policy=str(workdir)))
    assert who.environment == "NetHackScoreExtendedActions-v1"
    if kind == "none":
        assert who.reward is None
        return
    assert who.reward.section.dir == str(workdir)
    assert json.loads((workdir / "labels.json").read_text()) == LABELS
    reward = rewards.load(workdir)
    if kind == "retrieval":
        np.testing.assert_array_equal(reward.intrinsic([*LABELS, "new"]), [*LABELS.values(), 0])
    else:
        g = golden("oni/oni_classifier.npz")
        found = reward.raw(g["message"])
        np.testing.assert_allclose(found, g["probability_of_class_1"], rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(reward.intrinsic(g["message"]), g["prediction_at_0.5"])
