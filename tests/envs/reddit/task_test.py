"""Replies to comments: the published files, what they are paid, and made-up ones."""

from __future__ import annotations

import json
import zlib

import numpy as np
import pytest

from motif_jax.envs.reddit import made_up
from motif_jax.envs.reddit.task import REWARDS, Reddit
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
    votes = {**options, "reward": "upvote"}
    assert Reddit(votes).rewards([text for text, *_ in ROWS]) == returns(votes) == [1, 1, -1, -1, 1]
    # Of equal comments one is drawn by the text.
    drawn = [Reddit({**votes, "noise_seed": seed}).rewards(["same words"]) for seed in range(6)]
    assert drawn == [[1], [-1], [1], [-1], [1], [-1]]
    with pytest.raises(
        UserError, match=f"of its data only, and '{'x' * 40}' is not one: use upvote_model for"
    ):
        Reddit(votes).rewards(["thanks a lot", "x" * 41])
    said = "reward=upvote has rewards for recorded comments only, and new replies need one: give "
    with pytest.raises(UserError, match=f"config.options: {said}"):
        Reddit(votes).check_episodes()
    with pytest.raises(UserError, match="folder='': must be a folder of comments, or comments/ of a run of"):
        Reddit({}).check_episodes()
    Reddit({**options, "reward": "upvote_model", "upvote_run": "run"}).check_episodes()


def test_what_a_task_counts_and_where_its_comments_lie(tmp_path, options):
    task = Reddit(options)
    assert [task.count(kind) for kind in task.kinds] == [5, None]
    assert [task.endless(kind) for kind in task.kinds] == [False, True]
    assert [task.at_a_time(kind) for kind in task.kinds] == [1024, 64]
    assert [task.texts_to_score(kind) for kind in task.kinds] == [(), ()]
    assert Reddit({"num_comments": 7}).count("recorded") == 7
    unknown = Reddit({**options, "scores": "", "cutoff": 1.0})
    assert (unknown.count("recorded"), unknown.texts_to_score("recorded")) == (5, tuple(SCORES))
    unknown.use_scorer(lambda texts: [SCORES[text] for text in texts])
    assert (unknown.count("recorded"), Reddit({**options, "cutoff": 1.0}).count("recorded")) == (4, 4)
    assert Reddit({**options, "reward": "upvote", "cutoff": 1.0}).count("recorded") == 3
    (tmp_path / "model").mkdir()
    for name in ("model/a.safetensors", "b.safetensors", "c.txt"):
        (tmp_path / name).touch()
    files = {"scores": tmp_path / "scores.json"}
    files |= {
        f"folder ({name}.csv)": tmp_path / f"{name}.csv"
        for name in ("comments_positive", "comments_negative")
    }
    named = {key: path for key, path in task.files().items() if key != "folder"}
    assert named == files
    run = {"a": "model/a", "b": "b"}
    files |= {
        f"upvote_run ({name}.safetensors)": tmp_path / f"{path}.safetensors" for name, path in run.items()
    }
    assert Reddit({**options, "upvote_run": str(tmp_path)}).files() == files
    run = {"reward": "upvote_model", "upvote_run": "x"}
    judges = {"reward": "none"}, {"annotator": "openai"}, {"reward": "upvote_model"}, {"upvote_run": "x"}, run
    assert [Reddit(given).patient for given in ({}, *judges)] == [False, False, True, False, False, True]
    factors = [Reddit({"reward": name}).options["reward_scale"] for name in REWARDS]
    assert factors == [1, -5, -5, 1, 1]


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
        (
            [("text", "5.5", "parent")],
            "comments_positive.csv, line 2: must have a comment in column 4, its score, a whole number, in column 5, and its "
            "parent in column 10 (counted from 0)",
        ),
    ],
)
def test_files_without_comments(tmp_path, rows, said):
    write(tmp_path, rows)
    assert f"config.reddit.folder={tmp_path}: {said}" == refused({"folder": str(tmp_path)})
    write(tmp_path, [("long " * 30_000, 1, "")])
    assert [len(dialogue.texts[1]) for dialogue in recorded({"folder": str(tmp_path), "reward": "none"})] == [
        150_000
    ]
    (tmp_path / "comments_negative.csv").write_bytes(b"\xff")
    assert ": comments_negative.csv cannot be read ('utf-8' codec can't" in refused({"folder": str(tmp_path)})
    (tmp_path / "comments_negative.csv").unlink()
    (tmp_path / "comments_positive.csv").write_text("")
    assert "must be a folder with comments_positive.csv and" in refused({"folder": str(tmp_path)})


def test_values_that_are_not_allowed(tmp_path, options):
    for option, value in (
        ("reward", "likes"), ("reward_scale", float("inf")), ("cutoff", "a"), ("num_comments", 0), ("folder", "nowhere"),
    ):  # fmt: skip
        assert f"config.reddit.{option}=" in refused({**options, option: value})
    expected = (
        "a file with what a model expects of each comment, a probability, for reward=upvote_model; or give"
    )
    for changed, kind, policy, said in (
        ({"reward": "upvote"}, "games", "recorded", "reddit.reward='upvote': must be another for games: this one has"),
        ({"reward": "upvote_model"}, "games", "recorded", "reddit.reward='upvote_model': must be another for games: this"),
        ({"reward": "upvote_model", "scores": ""}, "recorded", "", f"reddit.scores='': must be {expected} upvote_run, a run of"),
        ({"folder": "", "indexes": "x"}, "recorded", "", "reddit.folder='': must be a folder where indexes are given"),
        ({}, "games", "best", "policy='best': must be recorded or friendly"),
        ({}, "chess", "", "kind=chess: must be one of recorded, games"),
    ):  # fmt: skip
        assert refused({**options, **changed}, kind, policy).startswith(f"config.{said}")
    run = {"upvote_run": "run", "reward": "upvote_model"}
    Reddit({**options, **run, "scores": ""}).check("games", " friendly ")
    Reddit({**options, "reward": "upvote_model"}).check("recorded", "best")
    for content in ("[-1]", "{}"):
        (tmp_path / "i.json").write_text(content)
        assert "config.reddit.indexes=" in refused({**options, "indexes": str(tmp_path / "i.json")})
    for content in ('{"a": "b"}', '{"a": 1e999}', f'{{"a": {10**400}}}', '{"scores": {"a": null}}'):
        (tmp_path / "scores.json").write_text(content)
        assert "config.reddit.scores=" in refused({**options, "reward": "none"})
    (tmp_path / "scores.json").write_text('{"thanks a lot": 1}')
    with pytest.raises(UserError, match="has no score of 'same words', and nothing here scores it"):
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
    for name, sum_of_bytes in (("comments_positive.csv", 0x1700ED18), ("comments_negative.csv", 0x8986897D)):
        assert zlib.crc32((tmp_path / "again" / name).read_bytes()) == sum_of_bytes
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "comments" / name).read_bytes()
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "again").iterdir()}
    made_up.write(tmp_path / "again", 9, 2)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "again").iterdir()} == kept
    task, rng = Reddit(prepared), np.random.default_rng(0)
    assert len(task.comments) == 300
    assert [task.policy(" friendly ").act(None, rng) for _ in range(4)] == [
        "I had the same trouble with my tent, try cleaning it first.", "Thank you for showing us your novel.",
        "That is a lovely chess, well done!", "That is a lovely bread, well done!",
    ]  # fmt: skip
    labels = text_scores.Toxicity(prepared)([comment.text for comment in task.comments])
    scores = np.array([comment.score for comment in task.comments])
    means = [scores[np.equal(labels, label)].mean() for label in (2, 1, 0)]
    assert set(labels) == {0, 1, 2}
    assert means == sorted(means)
