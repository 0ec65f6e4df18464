"""Visual dialogue: the published files, what turns are paid under each rule, and talks with the other side."""

from __future__ import annotations

import functools
import json

import h5py
import numpy as np
import pytest

from motif_jax.datasets.dialogues import parquet
from motif_jax.envs.text.contract import FunctionPolicy, interact
from motif_jax.envs.visdial import data
from motif_jax.envs.visdial.data import Features, Scene
from motif_jax.envs.visdial.environment import VisDialEnvironment
from motif_jax.envs.visdial.environment import recorded as recorded_of
from motif_jax.envs.visdial.rules import Rules
from motif_jax.envs.visdial.task import VisDial
from motif_jax.support.errors import UserError
from tests.envs import playing
from tests.envs.visdial import made_up

recorded, refused = (functools.partial(part, "visdial") for part in (playing.recorded, playing.refused))


@pytest.fixture
def files(tmp_path):
    return made_up.write(tmp_path)


def test_a_dialogue_ends_where_enough_is_known(files):
    found = recorded(files)
    assert [len(dialogue.texts) for dialogue in found] == [7, 21, 21]
    assert found[0].texts[:3] == ("picture 0", "what 0?", "yes")
    assert found[0].rewards == (None, -1.0, None, -1.0, None, 0.0, None)
    assert [dialogue.total for dialogue in found] == [-2.0, -10.0, -9.0]
    assert all(dialogue.terminal for dialogue in found)


@pytest.mark.parametrize(
    ("kind", "count"),
    # 'yes', 'No', 'no'; besides "I don't know", 'now and then'; nothing more than those has a key word.
    [("none", 0), ("hard", 4), ("soft", 6), ("conservative", 6)],
)
def test_answers_of_yes_and_no_cost(files, kind, count):
    found = recorded({**files, "yes_no": kind, "yes_no_reward": -2.0})
    assert found[1].total == -10 - 2 * count
    assert Rules(yes_no=kind, yes_no_reward=-2.0).rewards(0.0, ["Yes"], [1.0]) == [-2.0 * (kind != "none")]


def test_ten_turns_are_paid_their_progress(files):
    found = recorded({**files, "mode": "10_stop", "reward_scale": 10.0, "reward_shift": -1.0})
    assert [len(dialogue.texts) for dialogue in found] == [21] * 3
    assert found[0].rewards[1::2] == pytest.approx([0, 0, 1, *[-1] * 7])


def test_an_agent_that_stops_has_every_prefix(files):
    found = recorded({**files, "mode": "agent_stops"})
    assert len(found) == 3 * 11
    assert [len(dialogue.texts) for dialogue in found[:11]] == [2 * turn + 2 for turn in range(10)] + [21]
    assert all(dialogue.texts[-1] == "<stop>" and dialogue.rewards[-1] == 0 for dialogue in found[:10])
    assert found[2].total == pytest.approx(0.2)


@pytest.mark.parametrize("rules", [{"mode": "env_stops", "yes_no": "hard"}, {"mode": "10_stop"}], ids=str)
def test_playing_pays_as_the_record_does(files, rules):
    task = VisDial({**files, **rules})
    for row in range(made_up.DIALOGUES):
        other = made_up.Scripted(made_up.CACHE[row][1:])
        environment = VisDialEnvironment([task.scenes[row]], task.features, other, task.rules)
        reader = FunctionPolicy(lambda seen, _: f"what {len(seen.talk.answers)}?")
        episode = interact(environment, reader, np.random.default_rng(0))
        assert episode.observation.to_sequence() == recorded({**files, **rules})[row]
        history, caption, features = other.heard[1]
        assert [turn["speaker"] for turn in history] == ["question", "answer", "question"]
        assert caption == f"picture {row}"
        np.testing.assert_allclose(features, task.features[row])
        with pytest.raises(ValueError, match="ended"):
            environment.step("more?")


def test_an_agent_says_stop_and_starts_in_the_middle(files):
    rules = Rules(mode="agent_stops")
    task = VisDial(files)
    environment = VisDialEnvironment(task.scenes, task.features, made_up.Scripted([0.5] * 10), rules)
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
    for free in (False, True):
        paid = Rules(last_turn_free=free).rewards(0.0, ["a"] * 10, [0.0] * 10)
        assert paid == [-1.0] * 9 + [free - 1.0]
    scene = Scene("c", ("what?", "who?"), ("red", "no"), None, None, 3)
    ((whole,), (first,)) = (recorded_of(each, rules) for each in (scene, scene._replace(progress=(0.5, 0.0))))
    assert whole.to_sequence() == (
        ("c", "what?", "red", "who?", "no"),
        (None, -1.0, None, -1.0, None),
        False,
        {"image": 3},
    )
    assert first.to_sequence() == (("c", "what?", "red"), (None, 0.0, None), True, {"image": 3})
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
    assert (task.failures(), VisDial(files).failures(), task.at_a_time("games")) == (0, 0, 8)


def test_features_are_rows_of_length_one(tmp_path, files, monkeypatch):
    rows = np.array([[3.0, 4.0], [0.0, 0.0]], np.float32)
    np.savez(tmp_path / "f.npz", images_val=rows)
    for path, split, wanted in (
        (tmp_path / "f.npz", "val", rows / [[5], [1]]),
        (files["features"], "train", None),
    ):
        for normalise in (True, False):
            found = Features("k", str(path), split, *([] if normalise else [False]))
            if wanted is None:
                plain = np.arange(12.0).reshape(3, 4)
                wanted_rows = plain / np.linalg.norm(plain, axis=1)[:, None] if normalise else plain
            else:
                wanted_rows = wanted if normalise else rows
            assert found[0].dtype == np.float64
            np.testing.assert_allclose([found[row] for row in range(len(found))], wanted_rows)
    np.save(tmp_path / "one.npy", rows)
    (tmp_path / "one.npy").rename(tmp_path / "one.npz")
    for free, name, said in (
        (0, "f.npz", "images_val takes 0 MiB of memory, 0 MiB are left"), (None, "one.npz", "one array, not an archive of them"),
    ):  # fmt: skip
        monkeypatch.setattr(data, "available_memory", lambda free=free: free)
        with pytest.raises(UserError) as told:
            Features("k", str(tmp_path / name), "val")
        assert str(told.value) == f"config.k={tmp_path / name}: cannot be read ({said})"
    assert len(Features("k", str(tmp_path / "f.npz"), "val")) == 2


def test_files_that_do_not_fit_each_other(tmp_path, files):
    url = {"url": "http://127.0.0.1:1"}
    cache = tmp_path / "cache.json"
    for last in ([], [[0.5, 0.1]], [[0.5, *[float("nan")] * 10]], [[10**400] * 11]):
        cache.write_text(json.dumps([*made_up.CACHE[:2], *last]))
        told = "dialogue 2 must have 11 finite numbers" if last else "holds 2 dialogues, must have the 3"
        assert told in refused({**files, "reward_cache": str(cache)})
    with h5py.File(tmp_path / "two.h5", "w") as file:
        file["images_train"] = np.zeros((2, 4))
        file["images_val"] = np.zeros(3)
    two = {"features": str(tmp_path / "two.h5")}
    for changed, told in (
        (two, "do not belong together"),
        ({**two, "split": "val"}, "a row for each picture"),
        ({**two, "split": "test"}, "no array images_test"),
        ({"features": files["data"]}, "cannot be read"),
        ({"data": ""}, "config.visdial.data=''"),
        ({"reward_cache": ""}, "config.visdial.reward_cache=''"),
    ):
        assert told in refused({**files, **changed})
    assert "config.visdial.features=''" in refused({**files, "features": "", **url}, "games")
    for mode in ("10_stop", "agent_stops"):
        assert "config.visdial.reward_cache=''" in refused({**files, "mode": mode, "reward_cache": ""})
        # Who imitates needs no rewards, and says so.
        VisDial({**files, "mode": mode, "reward_cache": "", "reward_scale": 0.0}).check("recorded", "")
    (tmp_path / "d.json").write_text('[{"caption": "a", "dialog": [{"question": "b"}]}]')
    assert "dialogue 0 is invalid (no 'answer')" in refused(files)
    good = {"caption": "a", "dialog": [{"question": "b", "answer": "c"}]}
    for half in ({"caption": "a \ud83d"}, {"dialog": [{"question": "b", "answer": "\ude00"}]}):
        (tmp_path / "d.json").write_text(json.dumps([good, {**good, **half}]))
        assert "dialogue 1 is invalid (half of a character stands in it, " in refused(files)
    wrong = {"[]": "found list", "{}": "found dict", '[{"caption": 1, "dialog": []}]': "1 is no text"}
    for content, told in wrong.items():
        (tmp_path / "d.json").write_text(content)
        assert told in refused(files)
    (tmp_path / "d.json").write_text("[")
    assert "config.visdial.data takes a JSON file" in refused(files)


def test_values_that_are_not_allowed(tmp_path):
    for option, value in (("mode", "11_stop"), ("url", "ftp://host"), ("yes_no", "maybe")):
        assert f"config.visdial.{option}='{value}': must be " in refused({option: value})
    served = {**made_up.write(tmp_path), "url": "http://127.0.0.1:1"}
    assert refused(served, "games", "own") == "config.policy=own: must be remote, the server's own questioner"
    assert refused(served, "chess") == "config.kind=chess: must be one of recorded, games, reward_cache"
    more = f"visdial.additional='{tmp_path}': must be an existing file of dialogues (.parquet), or empty"
    assert refused({**served, "additional": str(tmp_path)}) == f"config.{more}"
    assert [VisDial(served).at_a_time(kind) for kind in VisDial.kinds] == [1024, 8, 8]
    VisDial(served).check_episodes()
    with pytest.raises(UserError, match=r"visdial\.url='': must be the server's address"):
        VisDial({**served, "url": ""}).check_episodes()
    assert "url='': must be the server's address" in refused({**served, "url": ""}, "reward_cache")
    assert "yes_no='soft': must be none with mode=10_stop" in refused({"mode": "10_stop", "yes_no": "soft"})
