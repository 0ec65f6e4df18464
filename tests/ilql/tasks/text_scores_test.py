from __future__ import annotations

import json
from pathlib import Path

import pytest

from motif_jax.core.interruption import StoppedError
from motif_jax.ilql.tasks import text_scores
from motif_jax.ilql.tasks.reddit import text_scorer
from motif_jax.ilql.tasks.reddit.task import Reddit


@pytest.fixture
def task(tmp_path: Path) -> Reddit:
    scores = tmp_path / "known.json"
    scores.write_text('{"known": 2.0}')
    return Reddit({"store": str(tmp_path / "store"), "scores": str(scores)})


def test_a_file_of_scores_names_its_judge_beside_known_scores(task: Reddit, tmp_path: Path) -> None:
    path = text_scores.write(task, ["thanks", "you idiot"], tmp_path / "run", lambda done: None)

    assert path == tmp_path / "run" / "scores.json"
    scores = {"known": 2.0, "thanks": 0.0, "you idiot": 2.0}
    assert json.loads(path.read_text()) == {"judge": "toxicity", "scores": scores}


def test_reports_count_texts_up_to_all(task: Reddit, tmp_path: Path) -> None:
    counts: list[int] = []

    text_scores.write(task, ["thanks", "you idiot", "thank you"], tmp_path / "run", counts.append)

    assert counts == sorted(counts)
    assert counts[-1] == 3


def test_a_stopped_scoring_writes_no_file(task: Reddit, tmp_path: Path) -> None:
    with pytest.raises(StoppedError):
        text_scores.write(task, ["thanks"], tmp_path / "run", lambda done: None, lambda: True)

    assert not (tmp_path / "run").exists()


def test_a_runs_finished_model_precedes_the_folder_itself(tmp_path: Path) -> None:
    (tmp_path / "heads.json").touch()
    assert text_scores.upvote_folder(str(tmp_path)) == tmp_path

    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "heads.json").touch()
    assert text_scores.upvote_folder(str(tmp_path)) == tmp_path / "model"


def test_an_attached_scorer_pays_new_replies(task: Reddit) -> None:
    attached = text_scores.attach(task)

    # Toxic by 0 and by 2, times the published -5.
    assert attached.rewards(["thanks", "you idiot"]) == [0.0, -10.0]


def test_a_task_whose_rewards_need_no_scorer_gets_none() -> None:
    attached = text_scores.attach(Reddit({"reward": "none"}))

    assert attached.rewards(["thanks", "you idiot"]) == [0.0, 0.0]


@pytest.fixture
def lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of upvotes that gives the length of a text."""
    monkeypatch.setattr(
        text_scorer, "TextScorer", lambda folder: lambda texts: [len(text) for text in texts]
    )


@pytest.mark.usefixtures("lengths")
def test_a_model_of_upvotes_scores_batches_until_it_is_stopped(tmp_path: Path) -> None:
    (tmp_path / "heads.json").touch()
    task = Reddit({"reward": "upvote_model", "upvote_run": str(tmp_path)})
    texts = ["x" * length for length in range(text_scores.BATCH + 44)]
    counts: list[int] = []

    with pytest.raises(StoppedError):
        text_scores.write(task, texts, tmp_path / "run", counts.append, lambda: bool(counts))
    assert counts == [text_scores.BATCH]
    assert not (tmp_path / "run").exists()

    path = text_scores.write(task, texts, tmp_path / "run", counts.append)
    assert counts[1:] == [text_scores.BATCH, len(texts)]
    scores = {text: len(text) for text in texts}
    assert json.loads(path.read_text()) == {"judge": "upvote", "scores": scores}
