"""A dry run says what an annotation would ask, cost and take."""

from __future__ import annotations

import json

import pytest
from ml_collections import ConfigDict

from motif_jax.core.verdicts import FIRST, UNKNOWN
from motif_jax.motif.annotation.annotator import Answer, Preview, Prices
from motif_jax.motif.annotation.dry_run import report_dry_run
from motif_jax.motif.annotation.questions import QuestionHasher, caption_questions
from motif_jax.motif.annotation.store import AnswerStore
from tests.motif.annotation.scripted_annotator import Scripted


def dry_run(tmp_path, capsys, preview, *, prices=None, summary=None):
    """What a dry run prints of 502 questions in two shards, one of which has an answer."""
    pairs = [("a", "b"), ("a", "b"), ("c", "c"), ("a", "c"), *((f"{n}", "d") for n in range(500))]
    listed = caption_questions(pairs, 504, QuestionHasher({}), "given")
    store = AnswerStore(tmp_path)
    # The second one is asked again, as the real run asks it.
    store.keep([(listed.questions[0], Answer(FIRST)), (listed.questions[1], Answer(UNKNOWN))])
    values = {
        "num_shards": 2,
        "store_dir": "s",
        "attempts": 2,
    }
    config = ConfigDict({**values, "name": "", "annotator": "own:Scripted"})
    if summary is not None:
        (tmp_path / "summary.json").write_text(json.dumps(summary))
    annotator = Scripted()
    annotator.prices = prices
    annotator.preview = lambda question: preview
    report_dry_run(config, tmp_path, annotator, listed, store)
    return capsys.readouterr().out


LAST_RUN = {
    "name": "scripted",
    "annotator": "own:Scripted",
    "asked": 2,
    "completion_tokens": 80,
    "questions_per_second": 9,
}


def test_a_dry_run_counts_what_is_to_be_asked(tmp_path, capsys):
    printed = dry_run(tmp_path, capsys, Preview("?", 1200))
    assert "pairs        504, 1 of them ties of equal captions\n" in printed
    assert "questions    502 distinct, 0.996 a pair; 1 answered in s\n" in printed
    assert "to be asked  501 in 2 shards\n" in printed
    assert "tokens       1,200 a question, 601,200 in all" in printed
    assert "not measured yet: ask a few with --config.limit=200 in the same --workdir" in printed
    assert "cost" not in printed


def test_a_dry_run_multiplies_tokens_by_prices(tmp_path, capsys):
    """501 questions with 1,200 tokens at 2 and 40 at 8 for a million."""
    prices = Prices(2.0, 2.0, 8.0)
    printed = dry_run(tmp_path, capsys, Preview("?", 1200), prices=prices, summary=LAST_RUN)
    cost = next(line for line in printed.splitlines() if line.startswith("cost"))
    assert f"{501 * (1200 * 2 + 40 * 8) / 1e6:.2f}, by config.openai.prices" in cost


def test_a_dry_run_estimates_from_the_last_run(tmp_path, capsys):
    """501 questions at half a one a second."""
    last_run = LAST_RUN | {"questions_per_second": 0.5}
    printed = dry_run(tmp_path, capsys, Preview("?", 1200), summary=last_run)
    words = "16 min 42 s at 0.50 questions/s (measured in"
    assert words in next(line for line in printed.splitlines() if line.startswith("time"))


@pytest.mark.parametrize("other", [{"name": "mine"}, {"annotator": "own:Other"}])
def test_a_run_of_another_annotator_measures_nothing(tmp_path, capsys, other):
    printed = dry_run(tmp_path, capsys, Preview("?", 1200), summary=LAST_RUN | other)
    assert "and those of the answers, not measured yet" in printed
    assert "time         not measured yet" in printed


def test_a_last_run_that_asked_nothing_measures_nothing(tmp_path, capsys):
    empty_run = LAST_RUN | {"asked": 0, "completion_tokens": 0, "questions_per_second": 0}
    assert "time         not measured yet" in dry_run(
        tmp_path, capsys, Preview("?", 1200), summary=empty_run
    )
