"""Published checkpoints of ONI: the agent of 28 actions, and the labels; nothing in the file is run
or built.
"""

from __future__ import annotations

import collections
import json
import sys
import types

import jax
import numpy as np
import pytest

from motif_jax import rewards
from motif_jax.core.errors import UserError
from motif_jax.nets import layout
from motif_jax.play import agent_policy, evaluation_setup
from motif_jax.play.config import PlayedPolicy
from motif_jax.published import import_motif, import_oni, imports
from motif_jax.published.import_motif import TorchCheckpoint
from motif_jax.published.pickles import Stub
from tests import torch_files
from tests.golden_numbers import recipe_tensors
from tests.reward_fixtures import load_config, run_config
from tests.sets import extra

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

    OnlineDataset.__module__ = module.__name__
    OnlineDataset.__qualname__ = "OnlineDataset"
    module.OnlineDataset = OnlineDataset
    sys.modules[module.__name__] = module
    yield OnlineDataset
    del sys.modules[module.__name__]


def read(path, content):
    checkpoint = {"model": {"a": np.ones(2, "f")}, **content}
    return import_motif.read(torch_files.write(path, checkpoint), "model")


@pytest.mark.torch
@pytest.mark.parametrize(
    "attributes",
    [
        {"size": 256, "data": list(LABELS.items())},
        {"labels": LABELS},
        {"texts": {"data": [list(pair) for pair in LABELS.items()]}},
    ],
)
def test_the_examples_of_the_classifier_are_read_as_data(foreign, tmp_path, attributes):
    path = torch_files.write(
        tmp_path / "a.pth",
        {"model": {"a": np.ones(2, "f")}, import_oni.DATASET: foreign(**attributes)},
    )
    del sys.modules["published_package"].OnlineDataset

    assert import_oni.labels(import_motif.read(path, "model")) == LABELS


def stub(*arguments, state=None):
    """An object of an unknown class, as it is read."""
    made = Stub(*arguments)
    made.state = state
    return made


LABEL_TABLES = [
    ({"You see.": True, "": np.float32(0)}, {"You see.": 1, "": 0}),
    ([["a", 1], ("b", 0), ["c"], ["d", 1, 0]], {"a": 1, "b": 0}),
    ({"x": {"It is.": 1, "no": 0}}, {"It is.": 1, "no": 0}),
    ({"size": 1}, {"size": 1}),
    ({"x": [[["a", np.ones(1)]]]}, {"a": 1}),
    ({"x": ("You", np.array(1))}, {"You": 1}),
    ({"x": [[[[[[[[[["deep", 1]]]]]]]]]]}, {"deep": 1}),
    *((empty, None) for empty in (None, {}, [], (), stub())),
]
# What is too deep, or no pair of a text and a number, is no label; nor is there one before the
# first.
NO_LABELS = [
    {"x": [[[[[[[[[[["deeper", 1]]]]]]]]]]]},
    {"a": "b"},
    {1: 1},
    {"a": [1, 2]},
    {"x": {"size": 3, "other": 1}},
    ["a", np.ones(2)],
    [("the one", "the other", 1)],
    stub(np.ones(2)),
    stub(state={"data": [1]}),
    None,
    {},
    stub(),
    stub(100, state={"size": 0, "data": [], "device": "cpu"}),
    stub(state=(None, {"labels": np.zeros(0), "texts": ()})),
]
WRONG_LABELS = [
    ({"You see.": 2}, "the label of 'You see.' is 2, neither 0 nor 1"),
    ({"You see.": float("nan")}, "the label of 'You see.' is nan, neither 0 nor 1"),
]
KEYS = [import_oni.TABLE, import_oni.DATASET]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(("table", "expected"), LABEL_TABLES)
def test_labels_are_found_in_any_nesting(tmp_path, key, table, expected):
    assert import_oni.labels(TorchCheckpoint(tmp_path / "a.pth", [], {key: table})) == expected


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("table", NO_LABELS)
def test_what_has_another_form_is_no_label(tmp_path, key, table):
    assert import_oni.labels(TorchCheckpoint(tmp_path / "a.pth", [], {key: table})) is None


def test_numbers_of_a_config_are_no_labels(tmp_path):
    settings = stub(state={"use_rnn": 1, "lr": 0.1})
    examples = stub(state={"data": [("You see.", 1)], "cfg": settings})
    file = TorchCheckpoint(tmp_path / "a.pth", [], {import_oni.DATASET: examples})

    assert import_oni.labels(file) == {"You see.": 1}


@pytest.mark.torch
@pytest.mark.parametrize(
    "table",
    [LABELS, collections.OrderedDict(LABELS), {text: np.array(LABELS[text]) for text in LABELS}],
    ids=["dictionary", "ordered", "tensors"],
)
def test_tables_of_labels_are_read_from_files(tmp_path, table):
    file = read(tmp_path / "a.pth", {import_oni.TABLE: table})

    assert import_oni.labels(file) == LABELS


@pytest.mark.torch
def test_examples_that_another_part_refers_to_are_read(foreign, tmp_path):
    examples = foreign(data=list(LABELS.items()))
    examples.learner = {"examples": examples}
    content = {"learner": examples.learner, import_oni.DATASET: examples}

    assert import_oni.labels(read(tmp_path / "a.pth", content)) == LABELS


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(("table", "message"), WRONG_LABELS)
def test_a_label_that_is_neither_no_nor_yes_is_refused(tmp_path, key, table, message):
    with pytest.raises(UserError, match=f"^{message}"):
        import_oni.labels(TorchCheckpoint(tmp_path / "a.pth", [], {key: table}))


CLASSIFIER = {"reward_model": {"a": np.ones(2, "f")}}


@pytest.mark.parametrize("content", [CLASSIFIER, {"reward_model_dataset": []}])
def test_a_file_without_examples_or_model_has_no_classifier(tmp_path, content):
    assert import_oni.classifier(TorchCheckpoint(tmp_path / "a.pth", [], content)) is None


def test_a_classifier_of_another_shape_is_refused(tmp_path):
    content = {**CLASSIFIER, "reward_model_dataset": []}
    file = TorchCheckpoint(tmp_path / "a.pth", [], content)

    with pytest.raises(ValueError, match=r"^embedding/weight: shape \[256, 32\]"):
        import_oni.classifier(file)


def test_labels_become_the_log_of_a_reward_without_network(tmp_path):
    item = import_oni.reward_item({"a": 1, "b": 0}, None, tmp_path)

    assert list(item) == ["book"]
    book = json.loads(item["book"].tobytes())
    assert (book["labels"], book["own"]) == (2, None)
    assert book["length"] == (tmp_path / "labels.jsonl").stat().st_size


def test_an_imported_classifier_counts_as_trained(tmp_path):
    item = import_oni.reward_item({"c": 1}, {"x": 1}, tmp_path)

    assert item["own"] == {"params": {"x": 1}}
    assert json.loads(item["book"].tobytes())["own"] == {"taken": 1}
    line = (tmp_path / "labels.jsonl").read_text().partition("{")
    assert json.loads("{" + line[2]) == {"at": 0, "step": 0, "items": ["c"], "label": 1, "met": 0}


def unnamed(arrays):
    """Tensors whose names tell weights from biases alone."""
    return {
        f"net.{number}.{name.split('/')[1]}": arrays[name] for number, name in enumerate(arrays)
    }


def oni_model(config):
    """The tensors of a checkpoint for the network of `config`, and the network's parameters."""
    network = import_motif.network_of(config.agent)
    params = jax.tree.map(np.asarray, network.init(jax.random.key(3)))
    named = layout.to_torch(params)
    names = sorted(named, key=import_motif.published_agent_order)
    return unnamed({name: named[name] for name in names}), params


@pytest.mark.torch
@pytest.mark.slow
def test_an_agent_without_its_labels_is_imported_on_request(tmp_path, capsys):
    config = load_config("import", "oni")
    content = {"model": oni_model(config)[0], import_oni.TABLE: {"You see.": 2}}
    config.file = str(torch_files.write(tmp_path / "checkpoint.pth", content))
    with pytest.raises(UserError, match=r"the label of 'You see\.' is 2"):
        imports.run(config, tmp_path / "run")
    assert not (tmp_path / "run" / "import.json").exists()
    config.agent.reward.kind = "none"

    workdir = run_config(config, tmp_path / "run")

    assert json.loads((workdir / "config.json").read_text())["reward"]["kind"] == "none"
    line = "config.agent.reward.kind=none: the agent is read without a reward"
    assert line in capsys.readouterr().out


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("kind", [extra("retrieval"), "classification"])
def test_an_imported_agent_plays_and_is_rated_by_its_reward(golden, foreign, tmp_path, kind):
    config = load_config("import", "oni")
    model, params = oni_model(config)
    content = {"model": model, "env_steps": 777, "llm_message_rewards": LABELS}
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
    assert who.reward.section.dir == str(workdir)
    assert json.loads((workdir / "labels.json").read_text()) == LABELS
    reward = rewards.load(workdir)
    if kind == "retrieval":
        np.testing.assert_array_equal(reward.intrinsic([*LABELS, "new"]), [*LABELS.values(), 0])
    else:
        g = golden("oni/oni_classifier.npz")
        raw_rewards = reward.raw(g["message"])
        np.testing.assert_allclose(raw_rewards, g["probability_of_class_1"], rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(reward.intrinsic(g["message"]), g["prediction_at_0.5"])
