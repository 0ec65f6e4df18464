"""The section about a reward that is learned online: its labels over steps, and where it
contradicts them.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from motif_jax.core.metric_files import Curve
from motif_jax.display import page
from motif_jax.oni import label_log
from motif_jax.oni.label_log import LabelLog
from motif_jax.oni.label_queue import Label
from motif_jax.reports import learned_reward
from motif_jax.reports.learned_reward import LabelLogReport, LearnedText


def rising(count: int, slope: float = 1.0) -> Curve:
    return Curve(np.arange(float(count)), slope * np.arange(count))


# Every label beside every decision of the reward.
TEXTS = [
    LearnedText(f"{label} {decided}", 7, 9_000, label, number - 3.5, (0.5, number / 3), decided)
    for number, (label, decided) in enumerate(
        itertools.product(("", "no", "yes"), (None, False, True))
    )
]
UNCHANGED = LearnedText("still", None, None, "no", 0.0, (2.0, 2.0))
COUNTS = {"no": rising(4, 0), "yes": rising(4, 3), "tie": rising(4)}


def tables(report: LabelLogReport) -> dict[str, page.Table]:
    section = learned_reward.section(report, {}, top=25)
    assert section is not None
    return {part.name: part for part in section.parts if isinstance(part, page.Table)}


def test_a_reward_disagrees_only_where_it_decides() -> None:
    report = LabelLogReport("", texts=[*TEXTS, UNCHANGED])

    assert [text.text for text in learned_reward.disagreements(report)] == ["no True", "yes False"]


def test_disagreements_are_counted_among_labelled_texts() -> None:
    report = LabelLogReport("classification", COUNTS, rising(4, 50), TEXTS, (1_000, 20_000))

    table = tables(report)["learned-against"]

    assert table.title == "where reward and annotator disagree: 2 of 6 labelled messages"
    assert [row[0] for row in table.texts()] == ["no True", "yes False"]


def test_rewards_that_changed_between_checkpoints_are_listed() -> None:
    report = LabelLogReport(
        "classification", COUNTS, rising(4, 50), [*TEXTS, UNCHANGED], (1_000, 20_000)
    )

    table = tables(report)["learned-changed"]

    assert table.header == ("message", "label", "at 1,000", "at 20,000")
    assert table.texts()[0][0] == "yes True", "the largest change first"
    assert "still" not in [row[0] for row in table.texts()]


def test_a_reward_of_one_checkpoint_has_no_table_of_changes() -> None:
    report = LabelLogReport("retrieval", {}, rising(2, 0), [LearnedText("a", 1, 2, "yes")], (5,))

    assert list(tables(report)) == ["learned-all"]


def test_a_reward_that_is_not_learned_online_has_no_section() -> None:
    assert learned_reward.section(None, {"x": rising(3)}) is None


def test_a_run_without_a_log_has_no_labels(tmp_path) -> None:
    assert learned_reward.read_log(tmp_path, "ranking") is None


def read_log(folder, labels: list[Label]) -> LabelLogReport:
    with LabelLog(folder / label_log.FILE) as log:
        log.add(labels)
    report = learned_reward.read_log(folder, "ranking")
    assert report is not None
    return report


def test_labels_of_texts_are_counted_over_steps(tmp_path) -> None:
    labels = [
        Label(("a",), 1, tokens=7, step=50, first_step=20),
        Label(("b",), 0, tokens=2, step=90, first_step=60),
    ]

    report = read_log(tmp_path, labels)

    assert {name: curve.y.tolist() for name, curve in report.counts.items()} == {
        "no": [0, 1],
        "yes": [1, 1],
    }
    assert report.counts["yes"].x.tolist() == [50, 90]
    assert report.tokens is not None
    assert report.tokens.y.tolist() == [7, 9]
    assert report.texts == [LearnedText("a", 20, 50, "yes"), LearnedText("b", 60, 90, "no")]


def test_labels_of_pairs_are_none_of_texts(tmp_path) -> None:
    labels = [Label(("a", "b"), 2, tokens=5, step=30), Label(("a", "c"), 0, step=40)]

    report = read_log(tmp_path, labels)

    counts = {name: curve.y.tolist() for name, curve in report.counts.items()}
    assert counts == {"first": [0, 1], "second": [0, 0], "tie": [1, 1]}
    assert report.texts == []


@pytest.mark.parametrize("kind", ["ranking"])
def test_an_empty_log_has_no_counts(tmp_path, kind) -> None:
    report = read_log(tmp_path, [])

    assert report == LabelLogReport(kind)
