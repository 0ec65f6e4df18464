"""CHAI: its loss against plain numpy written from the published facts, what a policy proposes, and the file that keeps it."""

from __future__ import annotations

import dataclasses
import errno
import functools
import math
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.core.interruption import never
from motif_jax.ilql.agent.text_agent import Design
from motif_jax.ilql.config import CandidateTexts
from motif_jax.ilql.dialogues.candidate_batches import CandidateBatches, Proposer
from motif_jax.ilql.dialogues.candidate_cache import CachedCandidates, CandidateCache
from motif_jax.ilql.methods import chai
from motif_jax.ilql.methods.text_objective import Objective
from motif_jax.ilql.tasks.wordle.tokens import WordleTokenizer
from tests.golden_ilql import item_of
from tests.ilql.methods.text_objective_test import GAMMA, TEXTS, batch_of, objective_of, parameters

pytestmark = pytest.mark.usefixtures("compiled_quickly")

WIDTH, COUNT, PAD = 8, 3, WordleTokenizer.delimiters.pad


@pytest.fixture(scope="module")
def objective() -> Objective:
    design = Design("mean", v=False, separate_policy=False, separate_target=False)
    weights = {"v": 0.0, "policy": 0.0, "conservative": 0.1}
    return objective_of("chai", design=design, weights=weights)


@pytest.fixture(scope="module")
def batch() -> Any:
    draws = np.random.default_rng(0)
    means = draws.normal(size=(3, 3, COUNT, WIDTH)).astype(np.float32)
    logs = -draws.random((3, 3, COUNT)).astype(np.float32) * 5
    return batch_of(True)._replace(candidates=chai.Candidates(means, logs, np.arange(3, dtype=np.uint32)))


def head(layers: Any, x: np.ndarray) -> np.ndarray:
    hidden = np.maximum(x @ np.asarray(layers["hidden_0"]["kernel"]) + layers["hidden_0"]["bias"], 0)
    return (hidden @ np.asarray(layers["output"]["kernel"]) + layers["output"]["bias"])[..., 0]


@pytest.mark.slow
@pytest.mark.parametrize("published", [False, True])
def test_the_loss_is_the_published_one(objective: Objective, batch: Any, published: bool) -> None:
    """A dialogue and an utterance at a time. The first dialogue is unfinished: its last state has candidates too, as published none."""
    objective = dataclasses.replace(objective, chai_scores=published, zero_behind=published)
    learned, frozen, part = parameters(objective, batch)
    frozen = {"trunks": learned.pop("trunks"), "target": {"heads": frozen["target"]["heads"]}}
    terms = objective.terms({**learned, "trunks": {}}, frozen, part, None)
    model, trunk = objective.agent.model, frozen["trunks"]["values"]
    states = np.asarray(model.prefill(trunk, batch.tokens, batch.valid)[0].after, np.float64)
    noise = np.asarray(chai.random_states(jnp.arange(3, dtype=jnp.uint32), 2, COUNT, WIDTH), np.float64)
    assert (np.abs(noise) < 1).all()
    assert noise.std() > 0.5
    of_states, logs, _ = (np.asarray(leaf, np.float64) for leaf in batch.candidates)
    density = -math.log(2 * WIDTH) if published else -WIDTH * math.log(2)
    targets, heads = ([tree["heads"][name] for name in ("q1", "q2")] for tree in (frozen["target"], learned))
    q_loss = cql = said = 0
    for row, text in enumerate(TEXTS):
        ends = list(item_of(text, 0.0).utterance_action_indices)
        for k, end in enumerate(ends):
            following = np.minimum(*(head(target, of_states[row, k + 1]) for target in targets)).max()
            over = k == len(ends) - 1 and (text.endswith("</eod>") or published)
            for layers in heads:
                q = head(layers, states[row, : end + 1].mean(axis=0))
                q_loss += (-1.0 + (0.0 if over else GAMMA * following) - q) ** 2
                drawn = head(layers, noise[row, k]) - density
                inner = np.ravel([head(layers, of_states[row, k]) - logs[row, k], drawn])
                plain = np.logaddexp.reduce(inner) - math.log(2 * COUNT)
                cql += (np.logaddexp.reduce(inner / (2 * COUNT)) if published else plain) - q
            said += 1
    wanted = [q_loss / said, cql / said, (q_loss + 0.1 * cql) / said]
    np.testing.assert_allclose([terms.q, terms.conservative, terms.loss], wanted, rtol=1e-4)


@pytest.fixture
def proposer(objective: Objective, tmp_path: Path) -> Any:
    config = CandidateTexts(count=COUNT, max_tokens=5, together=2)
    trunk = objective.agent.init(jax.random.key(1))["trunks"]["values"]
    given = objective.agent.model, trunk, PAD, WordleTokenizer.delimiters.action_end, config, 7
    return lambda name: Proposer(*given, CandidateCache(tmp_path / name, {}, COUNT, WIDTH, 1))


@pytest.mark.slow
def test_what_is_proposed_follows_from_the_text_alone(proposer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [np.asarray(item_of(text, 0.0).tokens[:length], np.int32) for text in TEXTS for length in (1, 4)]
    one, other = proposer("one"), proposer("other")
    found = one.of(texts)
    again = one.of(texts[::-1])[::-1]
    alone = [other.of([text])[0] for text in texts[::-1]][::-1]
    # Another run of the policy finds them in the folder, and writes none.
    shared = proposer("one")
    monkeypatch.setattr(shared, "_write", lambda *_: pytest.fail("it was kept"))
    for same in (again, alone, shared.of(texts)):
        jax.tree.map(np.testing.assert_array_equal, found, same)
    assert any(entry.log_probs.std() > 0.1 for entry in found)
    assert all((entry.counts - len(text) <= 5).all() for entry, text in zip(found, texts, strict=True))


def test_batches_have_candidates_of_every_state_that_goes_on(batch: Any) -> None:
    """As published, in the first pass over the data, they count by sums."""
    bare = batch._replace(candidates=None)
    plain: Any = SimpleNamespace(batch_size=3, steps_per_pass=2, whole=lambda most: [bare] * most)
    plain.batches = lambda first, count: jax.tree.map(lambda leaf: np.stack([leaf] * count), bare)

    def proposed(text: np.ndarray) -> CachedCandidates:
        means, logs = np.full((COUNT, WIDTH), text.sum(), np.float32), np.full(COUNT, -len(text), np.float32)
        return CachedCandidates(means, logs, np.arange(2, 2 + COUNT))

    proposer: Any = SimpleNamespace(count=COUNT, of=lambda texts: [*map(proposed, texts)])
    found = CandidateBatches(plain, proposer, WIDTH, 0, False, never).batches(1, 2).candidates
    # The first dialogue is unfinished, so its end continues; the others have one utterance each.
    there = np.array([[1, 1, 1], [1, 0, 0], [1, 0, 0]])
    totals = np.cumsum(bare.tokens, axis=1)[np.arange(3)[:, None], bare.states] * there
    np.testing.assert_array_equal(found.states, np.broadcast_to(totals[..., None, None], found.states.shape))
    lengths = np.broadcast_to((-(bare.states + 1) * there)[..., None], found.log_probs.shape)
    np.testing.assert_array_equal(found.log_probs, lengths)
    assert len(np.unique(found.seeds)) == 6
    sums = CandidateBatches(plain, proposer, WIDTH, 0, True, never).batches(1, 2).candidates
    np.testing.assert_array_equal(sums.states[1], found.states[1])
    np.testing.assert_array_equal(sums.states[0], found.states[0] * np.arange(2, 2 + COUNT)[:, None])
    # A stage that is asked to stop does not propose to the end.
    stops = iter([False, True])
    [stopped] = CandidateBatches(plain, proposer, WIDTH, 0, True, lambda: next(stops)).whole(5)
    np.testing.assert_array_equal(stopped.candidates.states, found.states[0])


def entry(number: int) -> CachedCandidates:
    means, log_probs = np.full((2, 4), number, np.float32), np.full(2, -number, np.float32)
    return CachedCandidates(means, log_probs, np.full(2, number, np.int32))


def test_the_cache_is_bounded_and_a_torn_record_is_none(tmp_path: Path) -> None:
    def opened(policy: str = "a") -> CandidateCache:
        return CandidateCache(tmp_path, {"policy": policy}, 2, 4, 1)

    cache, path = opened(), tmp_path / "candidates.bin"
    keys = [number.to_bytes(16, "little") for number in range(1, cache.capacity + 4)]
    for number, key in enumerate(keys):
        cache.add(key, entry(number))
    size = path.stat().st_size
    assert 2**20 - size // cache.capacity < size <= 2**20
    for cached in (cache, opened()):
        assert cached.find(keys[2]) is None
        np.testing.assert_array_equal(cached.find(keys[3]).means, entry(3).means)
        np.testing.assert_array_equal(cached.find(keys[-1]).counts, entry(len(keys) - 1).counts)
    # A kill while the fourth newest was written.
    place = (len(keys) - 4) % cache.capacity
    with path.open("r+b") as file:
        file.seek(place * (size // cache.capacity) + 40)
        file.write(b"\x01\x02\x03")
    torn = opened()
    assert [torn.find(keys[place]) is None for place in (-4, -3)] == [True, False]
    torn.add(keys[-4], entry(9))
    np.testing.assert_array_equal(torn.find(keys[-4]).means, entry(9).means)
    assert opened("b").find(keys[-1]) is None
    with pytest.raises(UserError, match="cache_mebibytes=0"):
        CandidateCache(tmp_path / "none", {}, 2, 4, 0)


def test_a_full_disk_costs_the_entry_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a cache that was cut off is made again."""

    def no_room(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    opened = functools.partial(CandidateCache, tmp_path, {}, 2, 4, 1)
    (tmp_path / "mine.txt").write_text("mine")
    cache = opened()
    cache.add(b"a" * 16, entry(1))
    monkeypatch.setattr(os, "pwrite", no_room)
    with pytest.raises(OSError, match=r"No space left.*candidates\.bin"):
        cache.add(b"b" * 16, entry(2))
    assert cache.find(b"b" * 16) is None
    assert opened().find(b"a" * 16) is not None
    os.truncate(tmp_path / "candidates.bin", 100)
    assert opened().find(b"a" * 16) is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["candidates.bin", "mine.txt"]
