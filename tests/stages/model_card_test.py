"""The model card says what the model was made from: every prompt, every annotator, every setting."""

from __future__ import annotations

import importlib
import json
from types import SimpleNamespace

import numpy as np
import pytest

from motif_jax.annotation.chat import check_chat
from motif_jax.datasets.pairs.dataset import PairsDataset
from motif_jax.datasets.verdicts import SINGLE
from motif_jax.networks.reward import RewardNetwork
from motif_jax.rewards import learned
from motif_jax.rewards.exchange import statistics_of, write_safetensors
from motif_jax.rewards.label_log import FILE, Label, LabelLog
from motif_jax.stages import merge_annotations, model_card
from motif_jax.support import run_folder
from tests.made_up_runs import evaluation_rows, write_evaluation
from tests.reward_fixtures import load_config, make_dataset, reward_config, write_labels


@pytest.fixture
def prompt():
    config = load_config("annotate", "")
    return check_chat(config).identity()


@pytest.fixture
def reward(tmp_path, prompt):
    """A reward run's config on labels of a language model and of the lexicon."""
    dataset = tmp_path / "dataset"
    make_dataset(dataset, pairs=40)
    annotators = {
        "chat": {"annotator": "vllm", "model": "some/model", "goal": "defaultgoal", "prompt": prompt},
        "lexicon": {"annotator": "lexicon", "goal": "defaultgoal", "lexicon_digest": "abc"},
    }
    for shift, (name, who) in enumerate(annotators.items()):
        write_labels(dataset, name, np.full(40, shift, np.int8))
        folder = dataset / "annotations" / name
        folder.mkdir(parents=True)
        manifest = {"name": name, "annotator": who, "questions": {"orders": "both", "fields": ["a", "b"]}}
        (folder / "shard-00000-of-00001.json").write_text(json.dumps(manifest))
    return write_run(tmp_path / "reward", reward_config(dataset, annotator="chat, lexicon"))


def write_run(folder, config):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(run_folder.as_plain(config)))
    return folder


def card_of(folder, workdir):
    config = load_config("model_card", "")
    config.model = str(folder)
    model_card.check(config, workdir)
    model_card.run(config, workdir)
    return (workdir / model_card.CARD).read_text()


def test_prompts_and_lists_of_every_annotator_are_in_the_card(reward, prompt, tmp_path):
    card = card_of(reward, tmp_path / "card")
    assert "data/message" in card
    assert "uint8" not in card, "what an array is made of says nothing about the model"
    assert len(prompt["question"]) > 300, "long texts are what this is about"
    for key in ("system", "question", "retry", "goal"):
        for line in prompt[key].splitlines():
            assert line in card, key
    assert json.dumps(prompt["verdicts"]) in card
    assert '["a", "b"]' in card
    assert "- 40 pairs: first 40 (100.0 %), second 0" in card, "labels of the language model"
    assert "- 40 pairs: first 0 (0.0 %), second 40 (100.0 %)" in card, "labels of the lexicon"
    assert "stands in for a language model" in card
    assert "config.network" not in card
    assert "network.hidden_dim: 64" in card


def test_text_with_backticks_ends_no_code(reward, prompt, tmp_path):
    path = tmp_path / "dataset" / "annotations" / "chat" / "shard-00000-of-00001.json"
    manifest = json.loads(path.read_text())
    manifest["annotator"]["prompt"]["system"] = "answer in\n```\n# Not a heading\n```"
    manifest["annotator"]["model"] = "a`b"
    path.write_text(json.dumps(manifest))
    card = card_of(reward, tmp_path / "card")
    assert "````\nanswer in\n```\n# Not a heading\n```\n````" in card
    assert "- model: `` a`b ``" in card


def test_merged_labels_are_followed_to_their_annotators(reward, tmp_path):
    config = load_config("merge_annotations", "")
    config.dataset_dir, config.names, config.name = str(tmp_path / "dataset"), "chat,lexicon", "both"
    merge_annotations.check(config, tmp_path / "merge")
    merge_annotations.run(config, tmp_path / "merge")
    assert "both" in PairsDataset.open(tmp_path / "dataset").preference_names()
    merged = write_run(tmp_path / "merged", reward_config(tmp_path / "dataset", annotator="both"))
    card = card_of(merged, tmp_path / "card")
    assert "- combined from `chat`, `lexicon`, which follow" in card
    assert "some/model" in card
    assert "### Labels `lexicon`" in card


def test_an_agents_reward_that_has_moved_is_still_its_reward(reward, tmp_path):
    config = load_config("train_agent", "smoke")
    config.reward.dir, config.reward.intrinsic_coefficient = str(reward), 0.1
    agent = write_run(tmp_path / "agent", config)
    assert "some/model" in card_of(agent, tmp_path / "card")
    reward.rename(tmp_path / "elsewhere")
    card = card_of(agent, tmp_path / "card")
    assert f"Intrinsic reward: `{reward}`, which is not there" in card
    assert "task's reward alone" not in card
    config.reward.intrinsic_coefficient = 0.0
    alone = write_run(tmp_path / "alone", config)
    assert "Trained on the task's reward alone." in card_of(alone, tmp_path / "card")


def test_the_file_of_an_agents_reward_says_what_it_was_made_from(reward, tmp_path, monkeypatch):
    file = tmp_path / "reward.safetensors"
    file.touch()
    read = SimpleNamespace(config=json.loads((reward / "config.json").read_text()))
    monkeypatch.setattr(
        importlib.import_module("motif_jax.rewards.load"), "open_reward", lambda path: {file: read}[path]
    )
    config = load_config("train_agent", "smoke")
    config.reward.dir, config.reward.intrinsic_coefficient = str(file), 0.1
    card = card_of(write_run(tmp_path / "agent", config), tmp_path / "card")
    assert f"Intrinsic reward: `{file}`.\n" in card
    assert "some/model" in card


def test_a_reward_that_was_learned_is_in_the_agents_card(tmp_path):
    config = load_config("oni", "smoke")
    agent = write_run(tmp_path / "agent", config)
    assert "Intrinsic reward of kind `retrieval`, with the settings below." in card_of(
        agent, tmp_path / "card"
    )
    log = LabelLog(agent / FILE)
    log.append([Label(0, 0, (text,), number % 2) for number, text in enumerate("abc")])
    log.close()
    card = card_of(agent, tmp_path / "card")
    assert "# Model card: an agent of NetHackScoreExtendedActions-v1" in card
    assert "28 actions" in card
    assert (
        "kind `retrieval`, learned while the agent played from labels of the annotator that follows" in card
    )
    assert f"- 3 labels: {SINGLE.verdicts[0]} 2, {SINGLE.verdicts[1]} 1" in card
    assert "- kind: `lexicon`" in card
    config.reward.tape = "runs/other"
    (agent / "config.json").write_text(json.dumps(run_folder.as_plain(config)))
    assert "labels of the run `runs/other`, played again" in card_of(agent, tmp_path / "other_card")


@pytest.mark.parametrize("form", ["folder", "file", "file of pairs"])
def test_a_reward_that_another_agent_learned_is_told_by_its_labels(tmp_path, form):
    oni = load_config("oni", "smoke")
    run, file = write_run(tmp_path / "oni", oni), tmp_path / "reward.safetensors"
    if form == "folder":
        log = LabelLog(run / FILE)
        log.append([Label(0, 0, (text,), number % 2) for number, text in enumerate("abc")])
        log.close()
    else:
        settings, labels = run_folder.as_plain(oni), {"a": (0, None), "b": (1, None), "c": (0, None)}
        architecture, members = learned.architecture_of_run(settings)
        found = learned.LearnedReward(
            run, 100, RewardNetwork(architecture), {}, members, {**statistics_of(0.0, 1.0, None), "num_distinct": 3},
            settings, [], labels={} if form == "file of pairs" else labels,
        )  # fmt: skip
        write_safetensors(found, file)
    config = load_config("train_agent", "smoke")
    config.reward.dir = str(run if form == "folder" else file)
    config.reward.intrinsic_coefficient = 0.1
    card = card_of(write_run(tmp_path / "agent", config), tmp_path / "card")
    assert f"Intrinsic reward: `{config.reward.dir}`.\n" in card
    assert "no dataset: the messages that an agent met as it played NetHackScoreExtendedActions-v1" in card
    assert (
        "kind `retrieval`, learned while the agent played from labels of the annotator that follows" in card
    )
    assert ("- 3 labels: no 2, yes 1" in card) == (form != "file of pairs")
    assert "- kind: `lexicon`" in card
    assert "unknown`" not in card.partition("## Numbers")[0].partition("## Data")[2]


def test_an_agent_of_another_task_is_no_agent_of_nethack(tmp_path):
    card = card_of(write_run(tmp_path / "agent", load_config("train_agent", "recall")), tmp_path / "card")
    assert "# Model card: an agent of Recall-v0" in card
    assert "NetHack itself" not in card
    assert "monk" not in card


def test_evaluations_of_one_name_are_both_in_the_card(reward, tmp_path):
    folders = [tmp_path / name / "evaluate" for name in ("first", "second")]
    for number, folder in enumerate(folders):
        write_evaluation(folder, "agent", evaluation_rows(5, 0.0, number))
    config = load_config("model_card", "")
    config.model, config.evaluations = str(reward), ",".join(map(str, folders))
    model_card.run(config, tmp_path / "card")
    card = (tmp_path / "card" / model_card.CARD).read_text()
    assert all(f"{folder}: 5 episodes" in card for folder in folders)
