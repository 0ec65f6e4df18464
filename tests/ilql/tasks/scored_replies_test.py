"""Scores of replies for the rewards of comments: who judges, what is written, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from motif_jax.core.errors import UserError
from motif_jax.core.interruption import StoppedError
from motif_jax.core.verdicts import UNKNOWN
from motif_jax.ilql.tasks import text_scores
from motif_jax.ilql.tasks.reddit import text_scorer
from motif_jax.ilql.tasks.reddit.task import Reddit
from motif_jax.motif.annotation.annotator import Answer
from motif_jax.motif.annotation.lexicon import LexiconAnnotator
from motif_jax.motif.annotation.prompts import FOLDER


@pytest.mark.parametrize(
    ("rude", "toxic", "label"),
    [
        (0.5, 0.9, 2.0),
        # The log-probability of the yes, -0.357, is below -0.355.
        (0.51, 0.7, 1.0),
        (0.9, 0.702, 2.0),
        (0.2, 0.5, 0.0),
        (0.2, 0.4, 0.0),
    ],
)
def test_a_text_is_toxic_rude_or_neither(rude: float, toxic: float, label: float) -> None:
    assert text_scores.toxicity_label(rude, toxic) == label


def test_a_lexicon_judges_without_a_prompt() -> None:
    config = text_scores.annotator_config(Reddit({}).options, "rude")

    assert (config.annotator, config.goal, config.lexicon.file) == ("lexicon", "rude", "comments.yaml")
    assert config.prompt.file == ""


def test_a_model_judges_with_the_built_in_prompt_and_the_most_likely_answer() -> None:
    options = Reddit({"annotator": "vllm", "model": "m"}).options

    config = text_scores.annotator_config(options, "rude")

    assert config.prompt.file == str(FOLDER / "comments" / "toxicity.yaml")
    assert (config.vllm.model, config.answer.mode) == ("m", "soft")
    assert (config.sampling.temperature, config.sampling.top_p, config.sampling.max_tokens) == (0.0, 1.0, 256)


def test_a_server_judges_with_the_prompt_of_the_options() -> None:
    judge = {"annotator": "openai", "server": "http://a", "model": "m", "prompt": "p.yaml"}

    config = text_scores.annotator_config(Reddit(judge).options, "toxic")

    assert (config.openai.base_url, config.openai.model) == ("http://a", "m")
    assert (config.prompt.file, config.goal) == ("p.yaml", "toxic")


def test_a_lexicon_can_judge_replies_as_they_are_said() -> None:
    text_scores.check(Reddit({}), plays=True)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            {"annotator": "vllm", "model": "m"},
            "config.reddit.annotator=vllm: would load the model again for every reply of a game: start vLLM's server, "
            "and give openai with config.reddit.server and config.reddit.model",
        ),
        (
            {"reward": "upvote_model", "upvote_run": "nowhere"},
            "config.reddit.upvote_run=nowhere: must be a run folder of train_upvote or import_ilql, whose training has ended",
        ),
        (
            {"annotator": "openai", "server": "http://a", "model": "m", "prompt": "p.yaml"},
            "prompt file p.yaml: cannot be read: No such file or directory",
        ),
    ],
)
def test_a_judge_that_cannot_be_used_is_refused(options: dict[str, str], line: str) -> None:
    with pytest.raises(UserError) as error:
        text_scores.check(Reddit(options), plays=True)

    assert str(error.value) == line


def test_a_judge_without_an_answer_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = Reddit({"store": str(tmp_path / "store")})
    monkeypatch.setattr(LexiconAnnotator, "annotate", lambda self, questions: [(0, Answer(UNKNOWN, None))])

    with pytest.raises(UserError) as error:
        text_scores.Toxicity(task.options)(["x" * 50])

    assert str(error.value) == (
        f"config.reddit.annotator: has no answer to whether '{'x' * 40}' is rude: give another model or prompt"
    )


TOO_LONG = "x" * (text_scores.MOST_CHARACTERS + 1)


def test_scores_are_written_beside_those_that_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Reddit, "known_scores", lambda self: {"known": 2.0})
    task = Reddit({"store": str(tmp_path / "store")})

    path = text_scores.write(task, ["thanks", "you idiot", TOO_LONG, "thanks"], tmp_path, lambda done: None)

    assert path == tmp_path / "scores.json"
    assert json.loads(path.read_text()) == {
        "judge": "toxicity",
        "scores": {"known": 2.0, "thanks": 0.0, "you idiot": 2.0, TOO_LONG: 0.0},
    }


def test_the_number_of_scored_texts_is_reported(tmp_path: Path) -> None:
    task = Reddit({"store": str(tmp_path / "store")})
    reports: list[int] = []

    text_scores.write(task, ["thanks", "you idiot", TOO_LONG, "thanks"], tmp_path, reports.append)

    # There are two questions about each of three texts, and four replies.
    assert reports == sorted(reports)
    assert reports[-1] == 4


def test_answers_of_the_store_are_not_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = Reddit({"store": str(tmp_path / "store")}).options
    text_scores.Toxicity(options)(["thanks"])

    def refuse(*_: object) -> None:
        pytest.fail("the text was judged again")

    monkeypatch.setattr(LexiconAnnotator, "annotate", refuse)

    assert text_scores.Toxicity(options)(["thanks"]) == [0.0]


@pytest.fixture
def lengths(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """A model of upvotes that gives the length of a text; the folders that it is read from."""
    folders: list[Path] = []

    def scorer_of(folder: Path) -> Callable[[Sequence[str]], list[int]]:
        folders.append(folder)
        return lambda texts: [len(text) for text in texts]

    monkeypatch.setattr(text_scorer, "TextScorer", scorer_of)
    return folders


def upvoted(run: Path) -> Any:
    return Reddit({"reward": "upvote_model", "upvote_run": str(run)})


@pytest.mark.parametrize("name", ["", "model"])
def test_a_model_of_upvotes_is_read_from_a_run_or_its_model(
    tmp_path: Path, lengths: list[Path], name: str
) -> None:
    folder = tmp_path / "upvote" / name
    folder.mkdir(parents=True)
    (folder / "heads.json").touch()

    path = text_scores.write(
        upvoted(tmp_path / "upvote"), ["thanks", "you idiot"], tmp_path, lambda done: None
    )

    assert lengths == [folder]
    scores = json.loads(path.read_text())
    assert scores["judge"] == "upvote"
    assert scores["scores"] == {"thanks": 6, "you idiot": 9}


def test_a_model_of_upvotes_scores_some_texts_at_a_time(tmp_path: Path, lengths: list[Path]) -> None:
    (tmp_path / "heads.json").touch()
    texts = [str(number) for number in range(300)]
    reports: list[int] = []

    text_scores.write(upvoted(tmp_path), texts, tmp_path, reports.append)

    assert reports == [256, 300]


def test_a_stop_between_texts_writes_no_scores(tmp_path: Path, lengths: list[Path]) -> None:
    (tmp_path / "heads.json").touch()
    texts = [str(number) for number in range(300)]
    reports: list[int] = []

    with pytest.raises(StoppedError):
        text_scores.write(upvoted(tmp_path), texts, tmp_path, reports.append, lambda: bool(reports))

    assert reports == [256]
    assert not (tmp_path / "scores.json").exists()
