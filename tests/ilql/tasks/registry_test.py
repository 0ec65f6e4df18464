from __future__ import annotations

import numpy as np

from configs import collect_text, train_text
from motif_jax.ilql.dialogues import parquet
from motif_jax.ilql.dialogues.dialogue import Dialogue, Dialogues
from motif_jax.ilql.tasks import recorded, registry
from tests.envs.playing import refused, told, without
from tests.recorded_outputs import assert_matches_packed_recording


def test_the_task_of_every_variant_takes_its_options_its_kind_and_its_policy():
    configs = [collect_text.get_config(variant) for variant in collect_text.VARIANTS]
    for config in (*configs, *(train_text.get_config(f"{name}_bc") for name in registry.names())):
        task = registry.load(config.task)
        assert set(registry.options_of(config.to_dict())) <= set(task.defaults)
        assert config.kind in task.kinds
        assert config.kind != "games" or task({}).policy(config.policy)


def test_options_have_the_defaults_and_limits_that_were_recorded(record):
    def limits(key):
        return key.above, key.minimum, key.below, key.maximum, key.multiple_of, key.choices, key.allow_none

    found = {}
    for name in registry.names():
        keys = registry.load(name).keys
        found[name] = "\n".join(f"{option}: {key.default!r} {limits(key)}" for option, key in keys.items())
    assert_matches_packed_recording("text_options", found, record)


def test_a_game_is_known_by_what_it_is_drawn_from_and_not_by_an_agents_files(tmp_path):
    def drawn(run, **options):
        made = {"scores": tmp_path / run / "scores.json", "tokenizer": tmp_path / run / "tokenizer.json"}
        for path in made.values():
            path.parent.mkdir(exist_ok=True)
            path.write_text("{}" if path.name == "scores.json" else run)
        given = {key: str(path) for key, path in made.items()} | options
        return registry.drawn_from(registry.make("reddit", given))

    first = drawn("a")
    assert drawn("b", server="http://127.0.0.1:1", store="c", vocab_size=300) == first
    assert drawn("b", data_seed=7) != first
    (tmp_path / "words.json").write_text('{"thanks": 1}')
    assert drawn("b", scores=str(tmp_path / "words.json")) != first


def test_only_the_switches_of_a_task_are_among_its_options():
    config = collect_text.get_config("wordle").to_dict()
    config["compat"]["wordle_branch_restarts"] = True
    assert registry.options_of(config)["branch_restarts"] is True
    config["task"] = "babyai_text"
    assert set(registry.options_of(config)) == set(config["babyai_text"])


def test_recorded_dialogues_are_listed_in_their_order(tmp_path, record, monkeypatch):
    monkeypatch.setenv("MOTIF_JAX_TRUST", "tests.toy_text,tests.envs.playing")
    talks = [Dialogue((f"{number}?", "yes"), (None, 1.0), True) for number in range(5)]
    parquet.write(tmp_path / "dialogues.parquet", [Dialogues.of(talks)], {})
    task = registry.make("dialogues", {"data": str(tmp_path)})
    task.check(recorded.RECORDED, "")
    assert (task.count("recorded"), task.endless("recorded"), task.learned_tokens()) == (5, False, 2000)
    assert list(task.stream("recorded", "")(np.random.default_rng(0), 2, 3)) == talks[3:]
    assert task.files() == {"data": tmp_path / "dialogues.parquet"}
    said = {data: refused("dialogues", {"data": data}) for data in ("", str(tmp_path / "x"))}
    said["policy"] = told(task.policy, "random")
    for named in ("", "tests.toy_text:NoSuchClass", "tests.envs.playing:shown"):
        said[f"environment {named}"] = told(registry.make("dialogues", {"environment": named}).check_episodes)
    said |= {text: told(registry.json_options, text) for text in ("[1]", "{")}
    assert_matches_packed_recording(
        "text_refusals", without(tmp_path, said | {"": told(registry.load, "chess")}), record
    )
    assert (registry.json_options(""), registry.json_options('{"a": 1}')) == ({}, {"a": 1})
