"""The model card says what the model was made from: every prompt, every annotator, every
setting.
"""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from motif_jax.core import run_folder
from motif_jax.motif.annotation.annotator import with_annotator_defaults
from motif_jax.motif.annotation.chat import check_chat
from motif_jax.motif.reward.reward_model import RewardModel
from motif_jax.motif.reward.safetensors_file import statistics_of
from motif_jax.nets.reward import RewardArchitecture, RewardNetwork
from motif_jax.oni import online_model
from motif_jax.published import exports
from tests.reward_fixtures import (
    annotation_config,
    load_config,
    make_dataset,
    reward_config,
    write_labels,
)

PROMPT = check_chat(with_annotator_defaults(annotation_config())).identity()


@pytest.fixture
def reward(tmp_path):
    """A reward run's config on labels of a language model and of the lexicon."""
    dataset = tmp_path / "dataset"
    make_dataset(dataset, pairs=40)
    annotators = {
        "chat": {
            "annotator": "vllm",
            "model": "some/model",
            "goal": "defaultgoal",
            "prompt": PROMPT,
        },
        "lexicon": {"annotator": "lexicon", "goal": "defaultgoal", "lexicon_digest": "abc"},
    }
    for shift, (name, who) in enumerate(annotators.items()):
        write_labels(dataset, name, np.full(40, shift, np.int8))
        folder = dataset / "annotations" / name
        folder.mkdir(parents=True)
        manifest = {
            "name": name,
            "annotator": who,
            "questions": {"orders": "both", "fields": ["a", "b"]},
        }
        (folder / "shard-00000-of-00001.json").write_text(json.dumps(manifest))
    return write_run(tmp_path / "reward", reward_config(dataset, annotator="chat, lexicon"))


def write_run(folder, config):
    folder.mkdir()
    run_folder.write_config(folder, run_folder.as_plain(config))
    return folder


def model_of(folder, config):
    """A reward of a run folder, without parameters and evaluations."""
    return RewardModel(folder, 0, RewardNetwork(RewardArchitecture()), {}, 1, {}, config, [])


def card_of(folder):
    config = run_folder.read_config(folder)
    return exports.reward_card(model_of(folder, config))


def test_every_annotator_is_in_the_card_with_model_and_goal(reward):
    card = card_of(reward)

    for words in ("some/model", "Labels `chat`", "Labels `lexicon`", "defaultgoal"):
        assert words in card


def test_the_prompt_of_a_language_model_is_in_the_card(reward):
    card = card_of(reward)

    lines = [line for name in ("system", "question", "retry") for line in PROMPT[name].splitlines()]
    assert len(lines) > 3
    for line in lines:
        assert line in card


def test_a_dataset_that_is_gone_is_named_in_the_card(reward):
    config = {"dataset_dir": "/gone", "annotator": "a, b"}

    card = exports.reward_card(model_of(reward, config))

    assert "/gone" in card


def test_numbers_settings_and_licence_are_in_the_card(reward):
    config = json.loads((reward / "config.json").read_text())
    evaluation = {"validation/accuracy": 0.875, "validation_unseen/accuracy_pairs": 40}
    model = dataclasses.replace(model_of(reward, config), curve=[evaluation])

    card = exports.reward_card(model, licence="CC-BY-4.0.", notes="Of two hours.")

    assert "    validation/accuracy: 0.875\n    validation_unseen/accuracy_pairs: 40\n" in card
    assert f"    annotator: {config['annotator']}\n" in card
    assert "CC-BY-4.0." in card
    assert "Of two hours." in card


def test_the_card_of_a_learned_reward_counts_its_labels(tmp_path):
    settings = run_folder.as_plain(load_config("oni", "smoke"))
    architecture, members = online_model.architecture_of_run(settings)
    learned = {**settings["reward"], "kind": "ranking", "training": {"members": 3}}
    assert (members, online_model.architecture_of_run({"reward": learned})[1]) == (1, 3)
    labels = {"a": (0, None), "b": (1, None), "c": (0, None)}
    statistics = {**statistics_of(0.0, 1.0, None), "num_distinct": 3}
    model = online_model.OnlineRewardModel(
        tmp_path,
        100,
        RewardNetwork(architecture),
        {},
        members,
        statistics,
        settings,
        [],
        labels=labels,
    )
    card = exports.reward_card(model)
    game = settings["environment"]["name"]
    assert f"Learned while an agent played {game}, from 3 labels" in card
    assert "    reward.kind: retrieval\n" in card
