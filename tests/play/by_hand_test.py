"""Small parts of stages with numbers and lines by hand."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.envs import registry
from motif_jax.glam import collect_trajectories
from motif_jax.ilql import rank_text
from motif_jax.ilql.dialogues import parquet
from motif_jax.ilql.dialogues.dialogue import Dialogue, Dialogues
from motif_jax.ilql.evaluation import recorded_texts
from motif_jax.motif import collect, explain_reward
from motif_jax.oni import check_reward
from motif_jax.play import evaluate
from motif_jax.reports import report
from tests.reward_fixtures import load_config


def test_the_expert_agrees_where_it_has_an_answer():
    assert evaluate.agreement(np.array([0, 1, 2, 255]), np.array([0, 2, 2, 255], np.uint8)) == 0.75
    assert evaluate.agreement(np.zeros(0, int), np.zeros(0, np.uint8)) == 0


def test_the_best_episode_is_chosen_by_the_reward():
    rows = [{"return": 1.0, "intrinsic_return": 2.0}, {"return": 0.0, "intrinsic_return": None}]
    assert [evaluate.return_key(rows[:1]), evaluate.return_key(rows)] == ["intrinsic_return", "return"]


def test_values_rank_neighbours_with_other_returns():
    rows = [{"return": r, "q": q} for r, q in ((1.0, 0.0), (2.0, 1.0), (2.0, 5.0), (0.0, 3.0), (1.0, 2.0))]
    assert recorded_texts.ranking(rows) == {"accuracy": pytest.approx(2 / 3), "pairs": 3}
    assert recorded_texts.ranking(rows[1:3]) is None
    assert recorded_texts.ranking([{"return": 1.0}, {"return": 2.0}]) is None


def test_a_table_of_texts_begins_with_the_greatest_reward():
    a = SimpleNamespace(
        raw=np.array([0.5, 2, 1 / 3], np.float32), normalised=np.array([-1, 1.5, np.nan]), paid=np.array([0, 1.5, np.nan]),
        disagreement=None, evaluations=[0], history=[np.array([0.25, 0, np.nan])],
    )  # fmt: skip
    texts, counts = ["=x", "b,c", "d"], np.array([3, 1, 2])
    assert explain_reward._table(texts, counts, [a]).splitlines() == [
        "message,count,raw,normalised,paid,normalised_at_0", '"b,c",1,2,1.5,1.5,0', "'=x,3,0.5,-1,0,0.25", "d,2,0.3333333,,,",
    ]  # fmt: skip
    b = SimpleNamespace(**vars(a) | {"disagreement": np.array([1, 2, 3.0]), "evaluations": [], "history": []})
    names = "A_raw A_normalised A_paid A_normalised_at_0 B_raw B_normalised B_paid B_disagreement".split()
    assert explain_reward._table(texts, counts, [a, b]).splitlines()[0].split(",")[2:] == names


def test_a_summary_of_rewards_names_their_favourite_messages(capsys):
    a = SimpleNamespace(
        name="a",
        normalised=np.array([0.5, np.nan, 2.0, -1.0]),
        rated=np.array([True, False, True, True]),
        paid=np.array([0, 0, 2.0, 0]),
        pays=np.array([False, False, True, False]),
        threshold=1.5,
    )
    b = SimpleNamespace(
        **vars(a) | {"name": "b", "normalised": np.array([4.0, 1.0, 3.0, 2.0]), "rated": np.ones(4, bool)}
    )
    both = SimpleNamespace(
        messages=list("wxyz"),
        counts=np.array([5, 1, 2, 9]),
        rewards=[a, b],
        typed=[a, b],
        texts=["t", "u"],
        text_counts=np.array([0, 7]),
    )
    lines = explain_reward._summary(both)
    assert (lines["messages"], lines["steps"], lines["rank_correlation"]) == (4, 17, pytest.approx(0.5))
    assert [(one["unrated_messages"], one["most_liked"], one["least_liked"]) for one in lines["rewards"]] == [
        (1, ["y", "w", "z"], ["z", "w", "y"]),
        (0, list("wyzx"), list("xzyw")),
    ]
    explain_reward._print_texts(both)
    assert capsys.readouterr().out.splitlines() == [
        "'t'  a: normalised +0.500, pays 0.000; b: normalised +4.000, pays 0.000; never in the dataset: a guess",
        "'u'  a: normalised +nan, pays 0.000; b: normalised +1.000, pays 0.000; 7 times in the dataset",
    ]
    rows = np.array([[1, 2], [3, 4], [5, 6]], np.uint8)
    assert explain_reward._counts(rows, rows[::2], np.array([7, 8])).tolist() == [7, 0, 8]
    named = ("runs/a", "x/b.safetensors", "y/b.safetensors", "z/b")
    places = [SimpleNamespace(folder=Path(path)) for path in named]
    assert explain_reward._names(places[:2]) == ["a", "b"]
    assert explain_reward._names(places[1:3]) == explain_reward._names(places[2:]) == ["b (A)", "b (B)"]


def test_a_collection_knows_its_players_fields_and_disk_space(tmp_path, monkeypatch):
    nethack, recall = (registry.spec(name) for name in ("NetHackScore-v1", "Recall-v0"))
    values = {"num_pairs": 1000, "length": 3, "mixture.walker": 0, "mixture.agents": 0.5}
    config = load_config("collect", "smoke", values)
    players = "uniform runner kicker searcher eater descender agents".split()
    assert collect._weights(config, nethack) == dict(zip(players, (2, 3, 6, 1, 2, 3, 0.5), strict=True))
    assert collect._weights(config, recall) == {"uniform": 2.0, "agents": 0.5}
    assert collect._fields(config, nethack) == ("blstats", "tty_chars", "tty_colors")
    config.screens, config.glyphs = False, True
    assert [collect._fields(config, spec) for spec in (nethack, recall)] == [("blstats", "glyphs"), ()]
    # Texts and rewards, of three steps of two sub-sequences, twice and a little more.
    needed = int(2.1 * (256 + 4) * 3 * 2 * 1000)
    for free in (needed, needed - 1):
        monkeypatch.setattr("shutil.disk_usage", lambda _, free=free: SimpleNamespace(free=free))
        if free < needed:
            with pytest.raises(UserError, match=f"needs about 0.00328 GB .*, {tmp_path} has 0.00328 GB:"):
                collect._check_disk(config, tmp_path / "new/run", recall)
        else:
            collect._check_disk(config, tmp_path / "new/run", recall)
    for policy, weights in {"random": {"uniform": 1.0}, "scripted": {"scripted": 1.0}}.items():
        config.policy = policy
        assert collect._weights(config, nethack) == weights


def test_as_many_episodes_are_played_as_reach_the_steps(tmp_path, monkeypatch):
    asked: list[list[int]] = []
    kept: list[bool] = []

    def play(journal, title, game, policy, numbers, how, stop, row):
        asked.append(numbers)
        rows = [{"length": 3, "success": any(kept) and place % 2} for place in range(len(numbers))]
        return rows[: 20_000 if kept else 1]

    monkeypatch.setattr(collect_trajectories, "play_policy", play)
    base = SimpleNamespace(environment="BabyAI", options={})
    player = SimpleNamespace(policy=lambda base: None, base=base, name="bot")
    values = {"lanes": 2, "steps": 70, "successes": False, "seed": 4}
    config = load_config("collect_trajectories", "smoke", values)
    assert collect_trajectories._enough(config, tmp_path, player, None) is None
    kept.append(False)
    rows = collect_trajectories._enough(config, tmp_path, player, None)
    assert ([len(numbers) for numbers in asked], len(rows)) == ([2, 2, 20, 23, 25], 24)


def test_the_first_dialogues_end_with_a_complete_group(tmp_path):
    groups = ({"group": 0}, {"group": 0}, {"group": 1}, {})
    dialogues = [Dialogue(("a",), (0.0,), True, group) for group in groups]
    parquet.write(tmp_path / "dialogues.parquet", [Dialogues.of(dialogues)], {})
    config = load_config("rank_text", "smoke")
    config.data = str(tmp_path)
    for asked, expected in ((1, 2), (2, 2), (3, 3), (4, 4), (9, 4)):
        config.dialogues = asked
        assert len(rank_text._dialogues(config)) == expected


def test_messages_with_different_judgements_are_named():
    labels = {"a": False, "b": True, "c": False, "d": True}
    comparison = check_reward.compare({"a": 3, "b": 5, "c": 5, "d": 1}, dict.fromkeys("abcd", 1), labels)
    assert (comparison.messages, comparison.against, comparison.share.value) == (4, ["c", "a"], 0.5)
    line = "reward and annotator agree on 50.0% (15.0% to 85.0%) of the 4 texts; not on 'c'; 'a'"
    assert check_reward._line(comparison, "texts") == line
    assert check_reward.compare({}, {}, {}) == (None, 0, [])


def test_names_that_are_taken_get_a_number():
    plan = {"policy": "runs/b", "checkpoint": 3}
    assert report._evaluation_name(plan, {"agent"}) == "b"
    assert report._evaluation_name(plan, {"agent", "b", "b 2"}) == "b 3"
    assert report._evaluation_name({**plan, "checkpoint": 0}, {}) == "before training"
