from __future__ import annotations

import json

import pytest

from motif_jax.ilql import collect_text
from motif_jax.ilql.dialogues import parquet
from motif_jax.ilql.evaluation import text_setup
from motif_jax.ilql.evaluation.config import TextSpeaker
from motif_jax.ilql.tasks import registry, text_scores
from motif_jax.ilql.tasks.reddit.task import Reddit
from tests.ilql.tasks.reddit.conftest import SCORES, refused, returns
from tests.reward_fixtures import load_config


@pytest.mark.slow
def test_scores_that_lack_some_are_completed(tmp_path, options):
    """The collection's file holds both, and nothing that is known is asked: the lexicon would have thanks pay 0."""
    known = {"thanks a lot": 2, "elsewhere": 1}
    (tmp_path / "scores.json").write_text(json.dumps(known))
    liked = Reddit({**options, "reward": "upvote_model", "upvote_run": "run"})
    assert liked.texts_to_score("recorded") == ("same words", "you idiot", "that is boring")
    config = load_config("collect_text", "reddit", {"workers": 1, "reddit.cutoff": -9.0})
    config.reddit.update(folder=options["folder"], scores=options["scores"], store=str(tmp_path / "store"))
    run = tmp_path / "run"
    collect_text.check(config, run)
    assert not (tmp_path / "store").exists(), "the check asks nobody"
    collect_text.run(config, run)
    found = {"judge": "toxicity", "scores": {**known, "same words": 0, "you idiot": 2, "that is boring": 1}}
    assert json.loads((run / "scores.json").read_text()) == found
    assert parquet.read(run / "dialogues.parquet").returns().tolist() == [0, -5, 0]


def test_labels_fall_back_below_the_threshold():
    """Published: a 2 of less than -0.355 becomes the likelier of the others."""
    label = text_scores.toxicity_label
    assert [label(1.0, share) for share in (0.71, 0.70, 0.4)] == [2, 1, 1]
    assert label(0.3, 0.69) == 0


def test_scores_that_say_whose_they_are_pay_no_other_reward(tmp_path, options):
    (tmp_path / "scores.json").write_text(json.dumps({"judge": "toxicity", "scores": SCORES}))
    assert returns({**options, "reward": "toxicity_noised"})[0] == 0
    told = refused({**options, "reward": "upvote_model"})
    assert "must be scores of upvote with reward=upvote_model, these are of toxicity" in told


def test_an_agent_under_another_reward_keeps_neither_scores_nor_scale(options):
    """Labels of toxicity for a model's probabilities would pay the rude, and -5 would turn the sign."""
    trained = {**options, "reward": "toxicity", "reward_scale": -5.0, "noise_seed": 3}
    about = {"task": "reddit", "options": trained, "folder": "nowhere"}

    def taken(**own):
        return text_setup.named_task(TextSpeaker(task="reddit", options=json.dumps(own)), about)[1]

    liked = {"reward": "upvote_model", "upvote_run": "runs/upvote"}
    assert taken(**liked) == {"folder": options["folder"], "noise_seed": 3, **liked}
    assert registry.make("reddit", taken(**liked)).options["reward_scale"] == 1.0
    assert taken(**liked, reward_scale=2.0)["reward_scale"] == 2.0
    assert taken() == taken(reward="toxicity") == trained
    judged = taken(lexicon="other.yaml")
    assert "scores" not in judged
    assert judged["reward_scale"] == -5.0
