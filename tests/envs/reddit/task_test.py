"""Replies to comments: the published files, what they are paid, and made-up ones."""

from __future__ import annotations

import json

import numpy as np
import pytest

from motif_jax.envs.reddit import made_up
from motif_jax.envs.reddit.task import Reddit
from motif_jax.envs.text.contract import interact
from motif_jax.rollouts import text_scores
from motif_jax.support.errors import UserError
from tests.envs.reddit.conftest import ROWS, SCORES, recorded, refused, returns, write


def test_both_files_one_behind_the_other(options):
    found = recorded({**options, "reward_scale": -5.0, "reward_shift": 1.0})
    assert [dialogue.texts for dialogue in found] == [(parent, text) for text, _, parent in ROWS]
    assert [dialogue.rewards for dialogue in found] == [(None, 1 - 5 * SCORES[text]) for text, _, _ in ROWS]
    assert all(dialogue.terminal for dialogue in found)


def test_rows_parents_and_a_least_reward(tmp_path, options):
    (tmp_path / "i.json").write_text("[4, 0, 2]")
    chosen = {**options, "indexes": str(tmp_path / "i.json")}
    assert [dialogue.texts[1] for dialogue in recorded(chosen)] == ["same words", "thanks a lot", "you idiot"]
    alone, *_ = recorded({**chosen, "include_parent": False})
    assert (alone.texts, alone.rewards) == (("same words",), (1.0,))
    assert returns({**options, "reward_scale": -1.0, "cutoff": -1.0}) == [0, -1, -1, -1]


def test_recorded_votes_pay_by_their_sign(options):
    (words, score, _), *_ = ROWS
    wanted = 1.0 if int(score) > 0 else -1.0
    assert Reddit({**options, "reward": "upvote"}).rewards([words]) == [wanted]


def test_noise_moves_the_middle(options):
    seen = set()
    for seed in range(8):
        paid = returns({**options, "reward": "toxicity_noised", "noise_seed": seed})
        assert (paid[0], paid[2]) == (0, 2)
        assert paid[1] == paid[4]
        seen.add((paid[1], paid[3]))
    assert seen == {(0, 0), (0, 2), (2, 0), (2, 2)}


def test_what_a_model_expects(tmp_path, options):
    (tmp_path / "scores.json").write_text(json.dumps(dict(zip(SCORES, (0.9, 0.5, 0.49, 0.0)))))
    for zero_one, low in ((True, 0), (False, -1)):
        options |= {"reward": "upvote_model", "zero_one": zero_one}
        assert returns(options) == [1, 1, low, low, 1]


def test_an_episode(options):
    task = Reddit({**options, "reward_scale": -5.0})
    task.use_scorer(lambda texts: [len(text) for text in texts])
    environment = task.environment()
    episode = interact(environment, task.policy("recorded"), np.random.default_rng(1))
    assert episode.observation.to_sequence().texts[0] in {parent for _, _, parent in ROWS}
    assert episode.steps[0].reward == -5 * SCORES[episode.steps[0].action]
    environment.reset(np.random.default_rng(0))
    assert environment.step("new").reward == -15
    with pytest.raises(ValueError, match="has been made"):
        environment.step("again")
    alone = Reddit({**options, "include_parent": False}).environment().reset(np.random.default_rng(0))
    assert alone.to_sequence().texts == ()


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "there is no comment in comments_positive.csv or comments_negative.csv"),
        ([("text", "5.5", "parent")], "comments_positive.csv, line 2: must have a comment in column 4"),
    ],
)
def test_files_without_comments(tmp_path, rows, said):
    write(tmp_path, rows)
    assert f"config.reddit.folder={tmp_path}: {said}" in refused({"folder": str(tmp_path)})
    (tmp_path / "comments_negative.csv").unlink()
    (tmp_path / "comments_positive.csv").write_text("")
    assert "must be a folder with comments_positive.csv and" in refused({"folder": str(tmp_path)})


def test_values_that_are_not_allowed(tmp_path, options):
    for option, value in (
        ("reward", "likes"), ("reward_scale", float("inf")), ("cutoff", "a"), ("num_comments", 0), ("folder", "nowhere"),
    ):  # fmt: skip
        assert f"config.reddit.{option}=" in refused({**options, option: value})
    for reward in ("upvote", "upvote_model"):
        assert "has rewards for recorded comments only" in refused({**options, "reward": reward}, "games")
    assert "config.reddit.scores=" in refused({**options, "reward": "upvote_model", "scores": ""})
    assert "config.policy='best'" in refused(options, "games", "best")
    for content in ("[-1]", "{}"):
        (tmp_path / "i.json").write_text(content)
        assert "config.reddit.indexes=" in refused({**options, "indexes": str(tmp_path / "i.json")})
    for content in ('{"a": "b"}', '{"a": 1e999}', f'{{"a": {10**400}}}', '{"scores": {"a": null}}'):
        (tmp_path / "scores.json").write_text(content)
        assert "config.reddit.scores=" in refused({**options, "reward": "none"})
    (tmp_path / "scores.json").write_text('{"thanks a lot": 1}')
    with pytest.raises(UserError, match="has no score of 'same words'"):
        recorded(options)
    with pytest.raises(UserError, match="no comment has so high a reward"):
        recorded({**options, "reward": "none", "cutoff": 1.0})
    with pytest.raises(UserError, match="lexicon nowhere"):
        text_scores.check(Reddit({**options, "lexicon": "nowhere"}), plays=True)
    with pytest.raises(UserError, match=r"openai\.model"):
        text_scores.check(Reddit({**options, "annotator": "openai"}), plays=True)


def test_a_made_up_corpus(tmp_path):
    options = {"store": str(tmp_path / "store"), "num_comments": 300}
    prepared = Reddit(options).prepare("recorded", "", tmp_path)
    made_up.write(tmp_path / "again", 300, 1)
    for name in ("comments_positive.csv", "comments_negative.csv"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "comments" / name).read_bytes()
    task = Reddit(prepared)
    assert len(task.comments) == 300
    labels = text_scores.Toxicity(prepared)([comment.text for comment in task.comments])
    scores = np.array([comment.score for comment in task.comments])
    means = [scores[np.equal(labels, label)].mean() for label in (2, 1, 0)]
    assert set(labels) == {0, 1, 2}
    assert means == sorted(means)
