from __future__ import annotations

import json

import numpy as np
import pytest

from configs import collect_text, train_text
from motif_jax.core import run_folder
from motif_jax.ilql.dialogues import dialogue_files
from motif_jax.ilql.dialogues.dialogue import Dialogue, Dialogues
from motif_jax.ilql.tasks import recorded, registry


def test_every_variant_fits_its_task():
    configs = [collect_text.get_config(variant) for variant in collect_text.VARIANTS]
    for config in (*configs, *(train_text.get_config(f"{name}_bc") for name in registry.names())):
        task = registry.load(config.task)
        assert set(registry.options_of(config.to_dict())) <= set(task.defaults)
        assert config.kind in task.kinds
        assert config.kind != "games" or task({}).policy(config.policy)


def test_a_game_is_identified_without_an_agent_s_files(tmp_path):
    def drawn(run, **options):
        files = {
            "scores": tmp_path / run / "scores.json",
            "tokenizer": tmp_path / run / "tokenizer.json",
        }
        for path in files.values():
            path.parent.mkdir(exist_ok=True)
            path.write_text("{}" if path.name == "scores.json" else run)
        values = {key: str(path) for key, path in files.items()} | options
        return registry.drawn_from(registry.make("reddit", values))

    first = drawn("a")
    assert drawn("b", server="http://127.0.0.1:1", store="c", vocab_size=300) == first
    assert drawn("b", num_comments=7) != first
    (tmp_path / "words.json").write_text('{"thanks": 1}')
    assert drawn("b", scores=str(tmp_path / "words.json")) != first


def test_only_the_switches_of_a_task_are_among_its_options():
    config = collect_text.get_config("wordle").to_dict()
    config["compat"]["wordle_branch_restarts"] = True
    assert registry.options_of(config)["branch_restarts"] is True
    config["task"] = "babyai_text"
    assert set(registry.options_of(config)) == set(config["babyai_text"])


@pytest.fixture
def dialogues():
    return [Dialogue((f"{number}?", "yes"), (None, 1.0), True) for number in range(5)]


@pytest.fixture
def task(tmp_path, dialogues):
    """The task of recorded dialogues."""
    dialogue_files.write(tmp_path / "dialogues.parquet", [Dialogues.of(dialogues)], {})
    return registry.make("dialogues", {"data": str(tmp_path)})


def test_recorded_dialogues_come_in_their_order(task, dialogues):
    task.check(recorded.RECORDED, "")

    drawn = task.stream("recorded", "")(np.random.default_rng(0), 2, 3)

    assert list(drawn) == dialogues[3:]


def test_recorded_dialogues_are_counted_and_have_a_file(task, tmp_path):
    assert task.count("recorded") == 5
    assert not task.endless("recorded")
    assert task.learned_tokens() == 2000
    assert task.files() == {"data": tmp_path / "dialogues.parquet"}


def test_options_may_be_empty():
    assert registry.json_options("") == {}
    assert registry.json_options('{"a": 1}') == {"a": 1}


@pytest.mark.parametrize("name", ["url", "server", "timeout_seconds", "attempts"])
def test_a_resumed_run_may_change_addresses_and_patience(name):
    before = {"options": json.dumps({name: 1, "words": 3})}
    now = {"options": json.dumps({name: 2, "words": 3})}
    keys = ("options",)
    assert run_folder.differences(before, now, keys)
    assert not run_folder.differences(before, now, keys, registry.FREE_OPTIONS)


def test_recorded_paths_begin_where_their_command_was_given(tmp_path, monkeypatch):
    """Of two folders with the same files those of the run count, and a list's name is no path."""
    for place in ("a", "b"):
        (tmp_path / place / "runs" / "tweet_words").mkdir(parents=True)
        for name in ("words.txt", "runs/tweet_words/tweets.csv"):
            (tmp_path / place / name).touch()
    run = tmp_path / "a" / "runs" / "tweet_words"
    monkeypatch.chdir(tmp_path / "a")
    run_folder.describe(run, {"stage": "collect_text"})
    options = {"words": "tweet_words", "guesses": "words.txt", "num_words": 3}
    options["tweets"] = "runs/tweet_words/tweets.csv"
    assert registry.located("wordle", options, run) == options

    monkeypatch.chdir(tmp_path / "b")
    located = {"guesses": str(tmp_path / "a" / "words.txt"), "tweets": str(run / "tweets.csv")}
    assert registry.located("wordle", options, run) == {**options, **located}

    (tmp_path / "comments").mkdir()
    (tmp_path / "a" / "comments").mkdir()
    located = {"folder": str(tmp_path / "a" / "comments")}
    assert registry.located("reddit", {"folder": "comments"}, run) == located

    renamed = run.rename(tmp_path / "games")
    assert registry.located("wordle", options, renamed)["tweets"] == str(renamed / "tweets.csv")
