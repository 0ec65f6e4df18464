from __future__ import annotations

import functools
import json

import h5py
import numpy as np
import pytest

from motif_jax.ilql.dialogues import parquet
from motif_jax.ilql.tasks.contract import FunctionPolicy, interact
from motif_jax.ilql.tasks.visdial import data
from motif_jax.ilql.tasks.visdial.data import Features, Scene
from motif_jax.ilql.tasks.visdial.environment import VisDialEnvironment
from motif_jax.ilql.tasks.visdial.environment import recorded as recorded_of
from motif_jax.ilql.tasks.visdial.rules import MODES, YES_NO, Rules
from motif_jax.ilql.tasks.visdial.task import VisDial
from tests.envs import playing
from tests.envs.playing import told, without
from tests.ilql.tasks.visdial import made_up
from tests.recorded_outputs import assert_matches_packed_recording

recorded, refused = (functools.partial(part, "visdial") for part in (playing.recorded, playing.refused))


@pytest.fixture
def files(tmp_path):
    return made_up.write(tmp_path)


RULES = (
    {},
    *({"yes_no": kind, "yes_no_reward": -2.5} for kind in YES_NO),
    {"mode": "agent_stops"},
    {"goal": 0.9, "percentile": 0.75},
    {"mode": "10_stop", "reward_scale": 10.0, "reward_shift": -1.0},
    {"last_turn_free": True},
)


def test_recorded_dialogues_are_paid_by_each_rule_and_end_where_enough_is_known(files, record):
    found = {str(rules): recorded({**files, **rules}) for rules in RULES}
    assert_matches_packed_recording(
        "visdial_rules", {rules: "\n".join(map(str, said)) for rules, said in found.items()}, record
    )
    assert [dialogue.total for dialogue in found["{}"]] == [-2.0, -10.0, -9.0]


@pytest.mark.parametrize("rules", [{"mode": "env_stops", "yes_no": "hard"}, {"mode": "10_stop"}], ids=str)
def test_playing_pays_as_the_record_does(files, rules):
    task = VisDial({**files, **rules})
    reader = FunctionPolicy(lambda seen, _: f"what {len(seen.talk.answers)}?")
    for row, wanted in enumerate(recorded({**files, **rules})):
        other = made_up.Scripted(made_up.CACHE[row][1:])
        environment = VisDialEnvironment([task.scenes[row]], task.features, other, task.rules)
        assert interact(environment, reader, np.random.default_rng(0)).observation.to_sequence() == wanted
        history, caption, features = other.heard[1]
        speakers = [turn["speaker"] for turn in history]
        assert (caption, speakers) == (f"picture {row}", ["question", "answer", "question"])
        np.testing.assert_allclose(features, task.features[row])
        with pytest.raises(ValueError, match="ended"):
            environment.step("more?")


def test_rewards_of_env_stops_are_scaled_and_shifted_in_play_alone(files):
    options = {**files, "yes_no": "hard", "yes_no_reward": -2.0, "reward_scale": 10.0, "reward_shift": 0.5}
    task, other = VisDial(options), made_up.Scripted([0.1, 0.9])
    environment = VisDialEnvironment(task.scenes[:1], task.features, other, task.rules)
    environment.reset(np.random.default_rng(0))
    paid = [environment.step("what?").reward for _ in range(2)]
    # Both answers are a yes or a no; the second reaches the goal.
    assert paid == [10.0 * (-1.0 - 2.0) + 0.5, 10.0 * -2.0 + 0.5]
    unscaled = recorded({**options, "reward_scale": 1.0, "reward_shift": 0.0})
    assert [each.rewards for each in recorded(options)] == [each.rewards for each in unscaled]


def test_an_agent_says_stop_and_starts_in_the_middle(files):
    task, other = VisDial(files), made_up.Scripted([0.5] * 10)
    environment = VisDialEnvironment(task.scenes, task.features, other, Rules(mode="agent_stops"))
    environment.reset(np.random.default_rng(0))
    middle = environment.step("what?").observation
    ended = environment.step(" <stop>")
    assert (ended.terminal, ended.reward) == (True, 0)
    assert ended.observation.to_sequence().texts[-1] == "<stop>"
    environment.reset(np.random.default_rng(1), middle)
    assert environment.step("and?").observation.to_sequence().texts[1] == "what?"


def test_a_scene_without_values_is_worth_nothing_and_one_may_end_at_once():
    rules = Rules()
    assert rules == Rules("env_stops", 1.0, 0.5, "none", 0.0, 1.0, 0.0, False)
    assert [rules.reached(0.5, [0.125, more]) for more in (0.125, 0.124)] == [True, False]
    scene = Scene("c", ("what?", "who?"), ("red", "no"), None, None, 3)
    ((whole,), (first,)) = (recorded_of(each, rules) for each in (scene, scene._replace(progress=(0.5, 0.0))))
    texts, rewards = ("c", "what?", "red", "who?", "no"), (None, -1.0, None, -1.0, None)
    assert whole.to_sequence() == (texts, rewards, False, {"image": 3})
    assert first.to_sequence() == (texts[:3], (None, 0.0, None), True, {"image": 3})
    other = made_up.Scripted([0.3, 0.075])
    played = VisDialEnvironment([scene], {3: np.ones(2)}, other, rules)
    with pytest.raises(ValueError, match="the dialogue has ended"):
        played.step("so?")
    assert played.reset(np.random.default_rng(0)).talk.initial == 0.25
    assert [played.step("so?")[1:] for _ in range(2)] == [(-1.0, False), (0.0, True)]


def test_numbered_texts_as_visdial_publishes_them(tmp_path, files):
    numbered = {"caption": "c", "dialog": [{"question": 1, "answer": 0}]}
    published = {"questions": ["is it", "what"], "answers": ["no", "a dog"], "dialogs": [numbered]}
    (tmp_path / "n.json").write_text(json.dumps({"data": published}))
    (scene,) = VisDial({**files, "reward_cache": "", "data": str(tmp_path / "n.json")}).scenes
    assert scene == Scene("c", ("what?",), ("no",), None, None, 0)


def test_a_reward_cache_holds_what_the_other_side_says(tmp_path, files):
    task = VisDial({**files, "reward_cache": "", "url": "http://127.0.0.1:1/step"})
    assert task.options["url"] == "http://127.0.0.1:1"
    task.other_side = made_up.Scripted([])
    found = task.stream("reward_cache", "")(np.random.default_rng(0), 5, 1)
    values = [0.25, *(turns / 50 for turns in range(1, 11))]
    assert [dialogue.meta for dialogue in found] == [{"image": image, "values": values} for image in (1, 2)]
    assert found[0].texts[:2] == ("picture 1", "what 0?")
    parquet.write(tmp_path / "dialogues.parquet", [found], {})
    task.finish("reward_cache", tmp_path)
    assert json.loads((tmp_path / "reward_cache.json").read_text()) == [values, values]
    assert [task.count(kind) for kind in task.kinds] == [3, None, 3]
    start = task.environment().reset(np.random.default_rng(0))
    assert task.policy(" remote").act(start, np.random.default_rng(0)) == "question 0?"
    assert (task.failures(), VisDial(files).failures()) == (0, 0)
    assert [task.at_a_time(kind) for kind in task.kinds] == [1024, 8, 8]


def test_features_are_rows_of_length_one(tmp_path, files):
    rows = np.array([[3.0, 4.0], [0.0, 0.0]], np.float32)
    np.savez(tmp_path / "f.npz", images_val=rows)
    found, plain = (Features("k", str(tmp_path / "f.npz"), "val", *more) for more in ((), (False,)))
    assert [found[row].tolist() for row in (0, 1)] == [[0.6, 0.8], [0, 0]]
    assert [plain[row].tolist() for row in (0, 1)] == rows.tolist()
    assert (found[0].dtype, len(found)) == (np.float64, 2)
    own = Features("k", files["features"], "train")
    for row, plain in enumerate(np.arange(12.0).reshape(3, 4)):
        np.testing.assert_allclose(own[row], plain / np.linalg.norm(plain))


GOOD = {"caption": "a", "dialog": [{"question": "b", "answer": "c"}]}
DIALOGUES = [
    [{"caption": "a", "dialog": [{"question": "b"}]}],
    [GOOD, {**GOOD, "caption": "a \ud83d"}],
    [GOOD, {**GOOD, "dialog": [{"question": "b", "answer": "\ude00"}]}],
    [],
    {},
    [{"caption": 1, "dialog": []}],
]
URL = {"url": "http://127.0.0.1:1"}


def test_what_is_refused_is_told_in_one_line(tmp_path, files, monkeypatch, record):
    with h5py.File(tmp_path / "two.h5", "w") as file:
        file["images_train"], file["images_val"] = np.zeros((2, 4)), np.zeros(3)
    np.savez(tmp_path / "f.npz", images_train=np.ones((3, 2)))
    np.save(tmp_path / "one.npy", np.ones(2))
    (tmp_path / "one.npy").rename(tmp_path / "one.npz")
    two = {"features": str(tmp_path / "two.h5")}
    # Who imitates needs no rewards, and says so.
    VisDial({**files, "mode": "10_stop", "reward_cache": "", "reward_scale": 0.0}).check("recorded", "")
    VisDial({**files, **URL}).check_episodes()
    cases = [
        ({"mode": "11_stop"}, "recorded", ""),
        ({"url": "ftp://host"}, "recorded", ""),
        ({"yes_no": "maybe"}, "recorded", ""),
        ({"mode": "10_stop", "yes_no": "soft"}, "recorded", ""),
        (two, "recorded", ""),
        ({**two, "split": "val"}, "recorded", ""),
        ({**two, "split": "test"}, "recorded", ""),
        ({"features": files["data"]}, "recorded", ""),
        ({"data": ""}, "recorded", ""),
        ({"features": str(tmp_path / "one.npz")}, "recorded", ""),
        ({"additional": "nowhere"}, "recorded", ""),
        *(({"mode": mode, "reward_cache": ""}, "recorded", "") for mode in MODES),
        (URL, "chess", ""),
        ({**URL, "features": ""}, "games", "remote"),
        (URL, "games", "own"),
        ({}, "reward_cache", ""),
    ]
    said = {str(case): refused({**files, **case[0]}, *case[1:]) for case in cases}
    said["no server"] = told(VisDial(files).check_episodes)
    monkeypatch.setattr(data, "available_memory", lambda: 0)
    said["no memory"] = refused({**files, "features": str(tmp_path / "f.npz")})
    for number, last in enumerate(([], [[0.5, 0.1]], [[0.5, *[float("nan")] * 10]], [[10**400] * 11])):
        (tmp_path / "r.json").write_text(json.dumps([*made_up.CACHE[:2], *last]))
        said[f"cache {number}"] = refused(files)
    for number, content in enumerate(DIALOGUES):
        (tmp_path / "d.json").write_text(json.dumps(content))
        said[f"dialogues {number}"] = refused(files)
    (tmp_path / "d.json").write_text("[")
    said["no JSON"] = refused(files)
    assert_matches_packed_recording("visdial_refusals", without(tmp_path, said), record)
