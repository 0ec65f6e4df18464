from __future__ import annotations

import json
import zlib

import numpy as np
import pytest

from motif_jax.ilql.tasks import text_scores
from motif_jax.ilql.tasks.contract import interact
from motif_jax.ilql.tasks.reddit import made_up
from motif_jax.ilql.tasks.reddit.task import REWARDS, Reddit
from tests.envs.playing import told, without
from tests.ilql.tasks.reddit.conftest import ROWS, SCORES, recorded, refused, write
from tests.recorded_outputs import assert_matches_packed_recording


def test_recorded_replies_are_paid_by_each_reward(tmp_path, options, record):
    (tmp_path / "i.json").write_text("[4, 0, 2]")
    (tmp_path / "liked.json").write_text(json.dumps(dict(zip(SCORES, (0.9, 0.5, 0.49, 0.0)))))
    chosen, liked = {"indexes": str(tmp_path / "i.json")}, {"scores": str(tmp_path / "liked.json")}
    cases = [{"reward_scale": -5.0, "reward_shift": 1.0}, chosen, {**chosen, "include_parent": False}]
    cases += [{"reward": "upvote"}, {"reward_scale": -1.0, "cutoff": -1.0}]
    cases += [{"reward": name, "noise_seed": n} for name in ("upvote", "toxicity_noised") for n in range(6)]
    cases += [{**liked, "reward": "upvote_model", "zero_one": zero} for zero in (True, False)]
    paid = [recorded({**options, **case}) for case in cases]
    assert_matches_packed_recording(
        "reddit_rewards", {f"{n}": "\n".join(map(str, each)) for n, each in enumerate(paid)}, record
    )


def test_what_a_task_counts_and_where_its_comments_lie(tmp_path, options, record):
    task, unknown = Reddit(options), Reddit({**options, "scores": "", "cutoff": 1.0})
    asked = task.count, task.endless, task.at_a_time, task.texts_to_score
    said = {"facts": [str([fact(kind) for fact in asked]) for kind in task.kinds]}
    said["games"] = [*task.stream("games", "recorded")(np.random.default_rng(3), 4, 0)]
    said["asked"] = [unknown.count("recorded"), unknown.texts_to_score("recorded")]
    unknown.use_scorer(lambda texts: [SCORES[text] for text in texts])
    others = {"num_comments": 7}, {**options, "cutoff": 1.0}, {**options, "reward": "upvote", "cutoff": 1.0}
    said["counts"] = [each.count("recorded") for each in (unknown, *map(Reddit, others))]
    (tmp_path / "model").mkdir()
    for name in ("model/a.safetensors", "b.safetensors", "c.txt"):
        (tmp_path / name).touch()
    found = Reddit({**options, "upvote_run": str(tmp_path)}).files()
    said["files"] = [f"{key}: {path}" for key, path in found.items()]
    run = {"reward": "upvote_model", "upvote_run": "x"}
    judges = {}, {"reward": "none"}, {"annotator": "openai"}, run, {"upvote_run": "x"}
    said["patient"] = [Reddit(given).patient for given in judges]
    said["scales"] = [Reddit({"reward": name}).options["reward_scale"] for name in REWARDS]
    assert_matches_packed_recording("reddit_facts", without(tmp_path, said), record)


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


CHECKED = [
    ({"reward": "likes"}, "recorded", ""),
    ({"reward_scale": float("inf")}, "recorded", ""),
    ({"cutoff": "a"}, "recorded", ""),
    ({"num_comments": 0}, "recorded", ""),
    ({"folder": "nowhere"}, "recorded", ""),
    ({"reward": "upvote"}, "games", "recorded"),
    ({"reward": "upvote_model"}, "games", "recorded"),
    ({"reward": "upvote_model", "scores": ""}, "recorded", ""),
    ({"folder": "", "indexes": "x"}, "recorded", ""),
    ({}, "games", "best"),
    ({}, "chess", ""),
]


def test_what_is_refused_is_told_in_one_line(tmp_path, options, record):
    run = {"upvote_run": "run", "reward": "upvote_model"}
    Reddit({**options, **run, "scores": ""}).check("games", " friendly ")
    Reddit({**options, **run}).check_episodes()
    Reddit({**options, "reward": "upvote_model"}).check("recorded", "best")
    folder, votes = {"folder": str(tmp_path)}, {**options, "reward": "upvote"}
    said = {f"{more} {kind} {name}": refused({**options, **more}, kind, name) for more, kind, name in CHECKED}
    scores = '{"a": "b"}', '{"a": 1e999}', f'{{"a": {10**400}}}', '{"scores": {"a": null}}'
    for key, content in (("indexes", "[-1]"), ("indexes", "{}"), *(("scores", each) for each in scores)):
        (tmp_path / "s.json").write_text(content)
        said[content[:30]] = refused({**options, "reward": "none", key: str(tmp_path / "s.json")})
    said |= {
        "unknown": told(Reddit(votes).rewards, ["thanks a lot", "x" * 41]),
        "vote": told(Reddit(votes).check_episodes),
        "none": told(Reddit({}).check_episodes),
        "unscored": told(recorded, {**options, "scores": ""}),
        "high": told(recorded, {**options, "reward": "none", "cutoff": 1.0}),
        "lexicon": told(text_scores.check, Reddit({**options, "lexicon": "nowhere"}), plays=True),
        "openai": told(text_scores.check, Reddit({**options, "annotator": "openai"}), plays=True),
    }
    for name, rows in (("empty", []), ("fraction", [("text", "5.5", "parent")])):
        write(tmp_path, rows)
        said[name] = refused(folder)
    write(tmp_path, [("long " * 30_000, 1, "")])
    assert [len(dialogue.texts[1]) for dialogue in recorded({**folder, "reward": "none"})] == [150_000]
    (tmp_path / "comments_negative.csv").write_bytes(b"\xff")
    said["no text"] = refused(folder)
    (tmp_path / "comments_negative.csv").unlink()
    said["one file"] = refused(folder)
    assert_matches_packed_recording("reddit_refusals", without(tmp_path, said), record)


def test_a_made_up_corpus(tmp_path):
    options = {"store": str(tmp_path / "store"), "num_comments": 300}
    prepared = Reddit(options).prepare("recorded", "", tmp_path)
    made_up.write(tmp_path / "again", 300, 1)
    made_up.write(tmp_path / "again", 9, 2)  # which changes nothing
    for name, sum_of_bytes in (("comments_positive.csv", 0x1700ED18), ("comments_negative.csv", 0x8986897D)):
        for folder in ("again", "comments"):
            assert zlib.crc32((tmp_path / folder / name).read_bytes()) == sum_of_bytes
    task, rng = Reddit(prepared), np.random.default_rng(0)
    assert len(task.comments) == 300
    assert [task.policy(" friendly ").act(None, rng) for _ in range(4)] == [
        "I had the same trouble with my tent, try cleaning it first.",
        "Thank you for showing us your novel.",
        "That is a lovely chess, well done!",
        "That is a lovely bread, well done!",
    ]
    labels = text_scores.Toxicity(prepared)([comment.text for comment in task.comments])
    scores = np.array([comment.score for comment in task.comments])
    means = [scores[np.equal(labels, label)].mean() for label in (2, 1, 0)]
    assert set(labels) == {0, 1, 2}
    assert means == sorted(means)
