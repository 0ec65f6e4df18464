from __future__ import annotations

import json

import pytest

from motif_jax.core.errors import UserError
from motif_jax.ilql import collect_text
from motif_jax.ilql.config import EvaluateTextConfig
from motif_jax.ilql.dialogues import dialogue_files
from motif_jax.ilql.evaluation import text_setup
from motif_jax.ilql.tasks import registry
from motif_jax.ilql.tasks.reddit.task import Reddit
from tests.ilql.tasks.reddit.conftest import SCORES, returns
from tests.reward_fixtures import load_config


@pytest.mark.extra
def test_missing_scores_are_added_to_known_ones(tmp_path, options):
    """Nobody is asked about a known text: the lexicon would say 0 of thanks."""
    known = {"thanks a lot": 2, "elsewhere": 1}
    (tmp_path / "scores.json").write_text(json.dumps(known))
    liked = Reddit({**options, "reward": "upvote_model", "upvote_run": "run"})
    assert liked.texts_to_score("recorded") == ("same words", "you idiot", "that is boring")
    config = load_config("collect_text", "reddit", {"workers": 1, "reddit.cutoff": -9.0})
    config.reddit.update(
        folder=options["folder"], scores=options["scores"], store=str(tmp_path / "store")
    )
    run = tmp_path / "run"
    collect_text.check(config, run)
    assert not (tmp_path / "store").exists(), "the check asks nobody"
    collect_text.run(config, run)
    scores = {**known, "same words": 0, "you idiot": 2, "that is boring": 1}
    assert json.loads((run / "scores.json").read_text()) == {"judge": "toxicity", "scores": scores}
    assert dialogue_files.read_parquet(run / "dialogues.parquet").returns().tolist() == [0, -5, 0]


def test_scores_of_another_judge_are_refused(tmp_path, options):
    (tmp_path / "scores.json").write_text(json.dumps({"judge": "toxicity", "scores": SCORES}))
    assert returns({**options, "reward": "toxicity_noised"})[0] == 0
    with pytest.raises(
        UserError, match="must be scores of upvote with reward=upvote_model, these are of toxicity"
    ):
        Reddit({**options, "reward": "upvote_model"}).check("recorded", "")


def test_another_reward_drops_the_scores_and_scale_of_a_training(options):
    """Labels of toxicity for a model's probabilities would pay the rude, and -5 would turn the
    sign.
    """
    trained = {**options, "reward": "toxicity", "reward_scale": -5.0, "noise_seed": 3}
    about = {"task": "reddit", "options": trained, "folder": "nowhere"}

    def overlaid(**changes):
        return text_setup.named_task(
            EvaluateTextConfig(task="reddit", options=json.dumps(changes)), about
        )[1]

    liked = {"reward": "upvote_model", "upvote_run": "runs/upvote"}
    assert overlaid(**liked) == {"folder": options["folder"], "noise_seed": 3, **liked}
    assert registry.make("reddit", overlaid(**liked)).options["reward_scale"] == 1.0
    assert overlaid(**liked, reward_scale=2.0)["reward_scale"] == 2.0
    assert overlaid() == overlaid(reward="toxicity") == trained
    judged = overlaid(lexicon="other.yaml")
    assert "scores" not in judged
    assert judged["reward_scale"] == -5.0
