"""Candidates that a frozen policy proposes in the states of dialogues (CHAI)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from motif_jax.core.interruption import never
from motif_jax.ilql.chai_candidates import (
    CachedCandidates,
    CandidateBatches,
    CandidateCache,
    Proposer,
)
from motif_jax.ilql.config import CandidateTexts
from motif_jax.ilql.methods import TextBatch
from motif_jax.ilql.tasks.wordle.environment import WordleTokenizer
from tests.golden_ilql import item_of
from tests.ilql.objective_test import TEXTS, batch_of, objective_of

WIDTH = 8
COUNT = 3
MAX_TOKENS = 5
MARKS = WordleTokenizer.delimiters
# Beginnings of dialogues, as tokens.
BEGINNINGS = [
    np.asarray(item_of(text, 0.0).tokens[:length], np.int32) for text in TEXTS for length in (1, 4)
]


@pytest.fixture
def make_proposer(tmp_path: Path) -> Callable[[str], Proposer]:
    """Proposers of one policy and seed, by the name of their cache's folder."""
    agent = objective_of("bc").agent
    trunk = agent.init(jax.random.key(1))["trunks"]["policy"]
    config = CandidateTexts(count=COUNT, max_tokens=MAX_TOKENS, together=2)

    def make(folder: str) -> Proposer:
        cache = CandidateCache(tmp_path / folder, {}, COUNT, WIDTH, mebibytes=1)
        return Proposer(agent.model, trunk, MARKS.pad, MARKS.action_end, config, 7, cache)

    return make


def assert_equal(entries: Sequence[CachedCandidates], others: Sequence[CachedCandidates]) -> None:
    jax.tree.map(np.testing.assert_array_equal, list(entries), list(others))


@pytest.mark.slow
def test_candidates_depend_on_their_text_alone(make_proposer: Callable[[str], Proposer]) -> None:
    joint = make_proposer("together").of(BEGINNINGS)

    proposer = make_proposer("alone")
    alone = [proposer.of([text])[0] for text in reversed(BEGINNINGS)]

    assert_equal(joint, alone[::-1])


@pytest.mark.slow
def test_another_run_finds_candidates_in_the_cache(
    make_proposer: Callable[[str], Proposer], monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = make_proposer("shared").of(BEGINNINGS)
    monkeypatch.setattr(
        CandidateCache, "add", lambda *_: pytest.fail("candidates were drawn again")
    )

    assert_equal(make_proposer("shared").of(BEGINNINGS), entries)


@pytest.mark.slow
def test_candidates_have_different_texts_of_limited_length(
    make_proposer: Callable[[str], Proposer],
) -> None:
    entries = make_proposer("one").of(BEGINNINGS)

    assert any(entry.log_probs.std() > 0.1 for entry in entries)
    for entry, text in zip(entries, BEGINNINGS, strict=True):
        assert (entry.counts - len(text) <= MAX_TOKENS).all()


class Repeated:
    """Gives one batch in every step; a pass has two steps."""

    batch_size = 3
    steps_per_pass = 2

    def __init__(self, batch: TextBatch) -> None:
        self._batch = batch

    def batches(self, first: int, count: int) -> TextBatch:
        return jax.tree.map(lambda leaf: np.stack([leaf] * count), self._batch)

    def all_batches(self, max_batches: int) -> list[TextBatch]:
        return [self._batch] * max_batches


class Sums:
    """Stands for a proposer: states are the sum of a text's tokens, log-probabilities its negative
    length.
    """

    count = COUNT
    # Tokens of the candidates, with those of the text.
    counts = np.arange(2, 2 + COUNT)

    def of(self, texts: Sequence[np.ndarray]) -> list[CachedCandidates]:
        return [
            CachedCandidates(
                means=np.full((COUNT, WIDTH), text.sum(), np.float32),
                log_probs=np.full(COUNT, -len(text), np.float32),
                counts=self.counts,
            )
            for text in texts
        ]


BATCH = batch_of(by_utterance=True)
# The first dialogue is unfinished, so its end continues; the others have one utterance each.
CONTINUES = np.array([[1, 1, 1], [1, 0, 0], [1, 0, 0]])


def with_candidates(sums: bool = False, stopped: Callable[[], bool] = never) -> CandidateBatches:
    inner: Any = Repeated(BATCH)
    proposer: Any = Sums()
    return CandidateBatches(inner, proposer, WIDTH, 0, sums, stopped)


def test_every_state_that_continues_has_candidates_of_its_text() -> None:
    candidates = with_candidates().batches(1, 2).candidates

    totals = (
        np.cumsum(BATCH.tokens, axis=1)[np.arange(3)[:, None], BATCH.state_positions] * CONTINUES
    )
    lengths = (BATCH.state_positions + 1) * CONTINUES
    for step in range(2):
        np.testing.assert_array_equal(candidates.states[step, ..., 0, 0], totals)
        np.testing.assert_array_equal(candidates.log_probs[step, ..., 0], -lengths)


def test_every_dialogue_of_every_step_has_its_seed() -> None:
    assert len(np.unique(with_candidates().batches(1, 2).candidates.seeds)) == 6


def test_published_states_are_sums_in_the_first_pass() -> None:
    means = with_candidates().batches(1, 2).candidates
    sums = with_candidates(sums=True).batches(1, 2).candidates

    # Step 1 is the last of the first pass.
    np.testing.assert_array_equal(sums.states[0], means.states[0] * Sums.counts[:, None])
    np.testing.assert_array_equal(sums.states[1], means.states[1])


def test_a_stop_ends_the_proposals_of_a_measurement() -> None:
    stops = iter([False, True])

    batches = with_candidates(sums=True, stopped=lambda: next(stops)).all_batches(5)

    (batch,) = batches
    means = with_candidates().batches(1, 1).candidates
    np.testing.assert_array_equal(batch.candidates.states, means.states[0])
