"""The JSON line of the benchmark of annotation, with stand-ins for vLLM."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from motif_jax.benchmarks import annotate
from motif_jax.motif.annotation.annotator import Question
from motif_jax.motif.annotation.config import AnswerSampling
from tests.benchmarks.lines import line_of
from tests.benchmarks.stand_ins import StandInAnnotator, StandInSession
from tests.reward_fixtures import make_dataset

pytestmark = pytest.mark.usefixtures("clock")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The calls of both sides, (side, questions), and of the engine, 'reset'.

    The stage takes three seconds and gives labels 0, 1, 2, 3 in turns; the bare engine takes six,
    for labels 0 and 1.
    """
    calls: list[Any] = []

    def time_stage(
        session: StandInSession, questions: Sequence[Question]
    ) -> tuple[float, np.ndarray]:
        calls.append(("stage", len(questions)))
        return 3.0, np.arange(len(questions)) % 4

    def time_bare_engine(
        annotator: StandInAnnotator, questions: Sequence[Question], max_tokens: int
    ) -> tuple[float, np.ndarray]:
        assert max_tokens == AnswerSampling().max_tokens, "as the stage asks"
        calls.append(("bare", len(questions)))
        return 6.0, np.arange(len(questions)) % 2

    monkeypatch.setattr(annotate, "make_annotator", lambda config, dataset: StandInAnnotator(calls))
    monkeypatch.setattr(annotate, "AnnotationSession", StandInSession)
    monkeypatch.setattr(annotate, "time_stage", time_stage)
    monkeypatch.setattr(annotate, "time_bare_engine", time_bare_engine)
    return calls


def annotate_line(folder: Path) -> dict[str, Any]:
    """The line of twelve questions on a small dataset."""
    make_dataset(folder, pairs=200, messages=9)
    return line_of("annotate", dataset_dir=str(folder), model="m", questions=12)


def test_both_sides_annotate_in_turns_with_an_empty_cache(tmp_path: Path, calls: list[Any]) -> None:
    annotate_line(tmp_path)

    warm_up = [("stage", 12)]
    repeat = ["reset", ("stage", 12), "reset", ("bare", 12)]
    assert calls == warm_up + 3 * repeat


@pytest.mark.usefixtures("calls")
def test_the_line_of_annotation_compares_questions_a_second(tmp_path: Path) -> None:
    line = annotate_line(tmp_path)

    assert line["value"] == 12 / 3
    assert line["baseline"]["value"] == 12 / 6
    assert line["ratio"] == 2


@pytest.mark.usefixtures("calls")
def test_the_line_of_annotation_compares_labels(tmp_path: Path) -> None:
    assert annotate_line(tmp_path)["labels_equal_to_bare"] == 0.5


@pytest.mark.usefixtures("calls")
def test_the_line_of_annotation_counts_questions_a_pair(tmp_path: Path) -> None:
    per_pair = annotate_line(tmp_path)["questions_per_pair"]

    assert 0 < per_pair["once"] < per_pair["given"] < per_pair["both"] < 2
