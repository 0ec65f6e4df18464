"""Steered decoding against plain numpy, written from the published description alone."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax, softmax

from motif_jax.ilql.agent import decoding as decodings
from motif_jax.ilql.agent.decoding import Decoding, TokenOutputs
from motif_jax.ilql.config import IlqlCompat
from motif_jax.ilql.methods import target_of
from motif_jax.lm import beams, generation
from motif_jax.lm.generation import Limits, Sampling
from tests.golden_ilql import Case, batch_of, cases, method_of

VOCAB = 7
PAD = 6
STOP = 5


def oracle(z: np.ndarray, q: np.ndarray | None, v: float | None, how: dict[str, Any]) -> np.ndarray:
    """One state's steered logits [V]: z / temp, top-k, top-p, plus min(w (Q - V), clip); padding is
    never said.
    """
    total = np.where(np.arange(VOCAB) == PAD, -np.inf, 0.0)
    if how.get("logits", True):
        total = (total + z) / how.get("temperature", 1.0)
        if k := how.get("top_k", 0):
            total = np.where(total < np.sort(total)[-min(k, VOCAB)], -np.inf, total)
        if (p := how.get("top_p", 1.0)) < 1:
            order = np.argsort(-total)
            probabilities = softmax(total)[order]
            total[order[1 + int((np.cumsum(probabilities) < p).sum()) :]] = -np.inf
    if how.get("advantages", True) and q is not None and v is not None:
        weight = how.get("advantage_weight", 0.0)
        advantage = q - v
        sign = how.get("advantage_form") == "sign"
        added = np.log(np.where(advantage > 0, weight, 1 - weight)) if sign else weight * advantage
        total = total + np.minimum(added, how.get("advantage_clip", np.inf))
    return total


HOWS: list[dict[str, Any]] = [
    {},
    {"advantage_weight": 4.0},
    {"advantage_weight": 16.0, "advantage_clip": 0.0},
    {"advantage_weight": 0.8, "advantage_form": "sign"},
    {"advantage_weight": 0.8, "advantage_form": "sign", "advantage_clip": -0.5},
    {"advantage_weight": 2.0, "logits": False},
    {"advantage_weight": 2.0, "advantages": False, "temperature": 0.5},
    {"advantage_weight": 3.0, "temperature": 2.0, "top_k": 3},
    {"advantage_weight": 3.0, "top_p": 0.6},
    {"top_k": 1},
    {"top_k": 9},
    {"top_p": 0.01},
    {"advantage_weight": 1.0, "top_k": 4, "top_p": 0.5, "temperature": 0.7, "advantage_clip": 1.0},
]


@pytest.mark.parametrize("how", HOWS)
def test_steered_logits_are_the_oracles(how: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(5, VOCAB))
    q = rng.normal(size=(5, VOCAB))
    v = rng.normal(size=5)
    outputs = TokenOutputs(jnp.asarray(z), jnp.asarray(q), jnp.asarray(v))
    steered = np.asarray(decodings.steered(outputs, Decoding(**how), PAD))
    np.testing.assert_allclose(
        steered, [oracle(*row, how) for row in zip(z, q, v, strict=True)], rtol=2e-5
    )
    alone = np.asarray(decodings.steered(TokenOutputs(outputs.logits), Decoding(**how), PAD))
    np.testing.assert_allclose(alone, [oracle(row, None, None, how) for row in z], rtol=2e-5)


RERANK = Decoding(
    "rerank", width=2, batches=3, advantage_weight=2.0, rerank_advantage_weight=0.5,
    rerank_log_prob_weight=0.3, log_prob_weight=0.2,
)  # fmt: skip


class TokenCandidates(NamedTuple):
    """Three candidates of four tokens: what a network says of each token, and what the oracle makes
    of it.
    """

    outputs: TokenOutputs
    tokens: np.ndarray  # int [3, 4]
    valid: np.ndarray  # bool [3, 4]
    values: np.ndarray  # float32 [3], of the candidates
    policy: np.ndarray  # float [3, 4, V], log-probabilities
    steered: np.ndarray  # float [3, 4, V], log-probabilities

    def chosen(self, array: Any) -> np.ndarray:
        """The entries of `array` [3, 4, V] at the tokens, [3, 4]."""
        return np.take_along_axis(np.asarray(array), self.tokens[..., None], -1)[..., 0]

    def facts(self, outputs: TokenOutputs) -> Any:
        steered = decodings.steered(self.outputs, RERANK, PAD)
        return decodings.token_facts(outputs, steered, jnp.asarray(self.tokens, jnp.int32), PAD)

    def summed(self, array: Any) -> np.ndarray:
        """Sums of `array` [3, 4] over the tokens of each candidate, [1, 3]."""
        return np.sum(array * self.valid, axis=1)[None]

    def scored(self) -> tuple[Any, jax.Array]:
        """The facts and whether each token counts, as scores read them: [1, 3, 4]."""
        return jax.tree.map(
            lambda leaf: jnp.asarray(leaf)[None], (self.facts(self.outputs), self.valid)
        )


@pytest.fixture(scope="module")
def candidates() -> TokenCandidates:
    rng = np.random.default_rng(1)
    shape = (3, 4)
    z = rng.normal(size=(*shape, VOCAB))
    q = rng.normal(size=(*shape, VOCAB))
    v = rng.normal(size=shape)
    weighted = {"advantage_weight": 2.0}
    steered = [
        [oracle(*x, weighted) for x in zip(*row, strict=True)] for row in zip(z, q, v, strict=True)
    ]
    return TokenCandidates(
        outputs=TokenOutputs(jnp.asarray(z), jnp.asarray(q), jnp.asarray(v)),
        tokens=rng.integers(0, PAD, shape),
        valid=rng.random(shape) < 0.7,
        values=rng.normal(size=3).astype(np.float32),
        policy=log_softmax(np.where(np.arange(VOCAB) == PAD, -np.inf, z), -1),
        steered=log_softmax(steered, axis=-1),
    )


def test_the_kind_of_decoding_sets_candidates_and_draws() -> None:
    assert (RERANK.candidates, Decoding("beam", width=2).candidates) == (6, 1)
    assert (RERANK.draws, Decoding("greedy").draws) == (Sampling(), Sampling(greedy=True))


def test_facts_of_tokens_are_the_oracles(candidates: TokenCandidates) -> None:
    facts = candidates.facts(candidates.outputs)

    np.testing.assert_allclose(facts.v, candidates.outputs.v, rtol=1e-5)
    np.testing.assert_allclose(facts.q, candidates.chosen(candidates.outputs.q), rtol=1e-5)
    np.testing.assert_allclose(facts.policy, candidates.chosen(candidates.policy), rtol=1e-5)
    np.testing.assert_allclose(
        facts.steered, candidates.chosen(candidates.steered), rtol=1e-5, atol=1e-6
    )


def test_facts_name_the_best_tokens_of_policy_and_values(candidates: TokenCandidates) -> None:
    facts = candidates.facts(candidates.outputs)

    np.testing.assert_array_equal(facts.by_policy, candidates.policy.argmax(-1))
    np.testing.assert_array_equal(facts.by_values, candidates.outputs.q[..., :PAD].argmax(-1))


def test_facts_without_values_are_those_of_the_policy(candidates: TokenCandidates) -> None:
    facts = candidates.facts(TokenOutputs(candidates.outputs.logits))

    assert not np.asarray([facts.q, facts.v]).any()
    np.testing.assert_array_equal(facts.by_values, candidates.policy.argmax(-1))


def test_a_summed_score_weighs_advantage_and_log_probability(candidates: TokenCandidates) -> None:
    scores = decodings.summed_scores(*candidates.scored(), RERANK)

    advantage = candidates.summed(candidates.chosen(candidates.outputs.q) - candidates.outputs.v)
    drawn = candidates.summed(candidates.chosen(candidates.steered))
    np.testing.assert_allclose(scores, 0.5 * advantage + 0.3 * drawn, rtol=1e-4, atol=1e-5)


def test_an_utterance_score_adds_weighted_log_probability_to_its_value(
    candidates: TokenCandidates,
) -> None:
    values = jnp.asarray(candidates.values)[None]

    scores = decodings.utterance_scores(values, *candidates.scored(), RERANK)

    by_policy = candidates.summed(candidates.chosen(candidates.policy))
    np.testing.assert_allclose(scores, candidates.values + 0.2 * by_policy, rtol=1e-4, atol=1e-5)


def test_the_divergence_counts_the_choice_among_candidates(candidates: TokenCandidates) -> None:
    divergence = decodings.divergence(*candidates.scored(), RERANK)

    by_policy = candidates.summed(candidates.chosen(candidates.policy))
    drawn = candidates.summed(candidates.chosen(candidates.steered))
    best_of_six = math.log(6) - 5 / 6
    np.testing.assert_allclose(divergence, drawn - by_policy + best_of_six, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["beam", "greedy"])
def test_the_divergence_of_what_is_not_drawn_has_no_draw(
    candidates: TokenCandidates, kind: str
) -> None:
    not_drawn = dataclasses.replace(RERANK, kind=kind, width=1, batches=1)

    divergence = decodings.divergence(*candidates.scored(), not_drawn)

    by_policy = candidates.summed(candidates.chosen(candidates.policy))
    np.testing.assert_allclose(divergence, -by_policy, rtol=1e-4, atol=1e-5)


def beams_of(
    table: np.ndarray, start: np.ndarray, width: int, max_tokens: int
) -> list[tuple[list[int], float]]:
    """Beams over texts whose next logits depend on the last token: those that have ended stay among
    the K.
    """
    best_beams: list[tuple[list[int], float]] = [([], 0.0)]
    for _ in range(max_tokens):
        longer_beams = []
        for text, score in best_beams:
            logs = log_softmax(table[text[-1]] if text else start)
            longer = [([*text, token], score + logs[token]) for token in range(PAD)]
            longer_beams += [(text, score)] if STOP in text else longer
        best_beams = sorted(longer_beams, key=lambda beam: -beam[1])[:width]
    return best_beams


def test_texts_are_written_up_to_their_stop_and_no_further() -> None:
    """Each token is followed by the next number, and 4 by the stop; the second text has ended
    before.
    """
    table = 3.0 * jnp.eye(VOCAB)[jnp.array([1, 2, 3, 4, STOP, 0, 0])]

    def step(carry: jax.Array, tokens: jax.Array, valid: jax.Array) -> tuple[jax.Array, jax.Array]:
        return table[tokens], carry + valid

    logits = table[jnp.array([[0, 1], [2, 3]])]
    ended = jnp.array([[False, True], [False, False]])
    greedy = Decoding("greedy").draws
    limits = Limits(4, (STOP, 9))
    write = jax.jit(functools.partial(generation.write, step), static_argnums=(3, 4, 5))
    texts = write(
        jnp.zeros((2, 2), jnp.int32), logits, jax.random.key(0), limits, greedy, PAD, ended
    )
    assert texts.tokens.tolist() == [
        [[1, 2, 3, 4], [PAD] * 4],
        [[3, 4, STOP, PAD], [4, STOP, PAD, PAD]],
    ]
    lengths = [[4, 0], [3, 2]]
    assert texts.valid.sum(axis=-1).tolist() == texts.carry.tolist() == lengths
    assert texts.ended.tolist() == [[False, True], [True, True]]
    likely = 3 - math.log(math.exp(3) + VOCAB - 1)
    np.testing.assert_allclose(texts.log_probs.sum(axis=-1), likely * np.array(lengths), rtol=1e-5)
    np.testing.assert_array_equal(texts.logits[0, 0], table[4])


def test_draws_depend_on_a_texts_key_and_place_alone() -> None:
    def write(keys: jax.Array, max_tokens: int, before: int) -> np.ndarray:
        logits = jnp.zeros((1, len(keys), VOCAB))
        step = lambda carry, tokens, valid: (logits, carry)  # noqa: E731
        how = (Limits(max_tokens, ()), Sampling(), jnp.int32(PAD))
        return np.asarray(
            generation.write(step, (), logits, keys[None], *how, before=before).tokens[0]
        )

    keys = jax.random.split(jax.random.key(1), 3)
    all_texts = write(keys, 8, 0)
    np.testing.assert_array_equal(write(keys[1:2], 8, 0), all_texts[1:2])
    np.testing.assert_array_equal(write(keys, 5, 3), all_texts[:, 3:])
    assert len({tuple(row) for row in all_texts.tolist()}) == 3
    expected = [
        jax.random.categorical(jax.random.fold_in(key, 2), jnp.zeros(VOCAB)) for key in keys
    ]
    np.testing.assert_array_equal(all_texts[:, 2], expected)


def test_beams_are_those_of_a_plain_search() -> None:
    rng = np.random.default_rng(2)
    width = 3
    table = rng.normal(size=(VOCAB, VOCAB)) * 2
    start = rng.normal(size=(2, VOCAB))
    table[:, PAD] = start[:, PAD] = -np.inf
    table[:, STOP] += 1.5

    def step(carry: jax.Array, tokens: jax.Array, valid: jax.Array) -> tuple[jax.Array, jax.Array]:
        # The carry, the sum of all tokens so far, must follow its beam.
        return jnp.asarray(table)[tokens], carry + jnp.where(valid, tokens, 0)

    logits = jnp.broadcast_to(jnp.asarray(start)[:, None], (2, width, VOCAB))
    reorder = functools.partial(jnp.take_along_axis, axis=1)
    searched = beams.search(step, reorder, jnp.zeros((2, width)), logits, Limits(4, (STOP,)), PAD)
    for row, k in np.ndindex(2, width):
        text, score = beams_of(table, start[row], width, 4)[k]
        assert (
            np.asarray(searched.tokens[row, k])[np.asarray(searched.valid[row, k])].tolist() == text
        )
        np.testing.assert_allclose(searched.scores[row, k], score, rtol=1e-5)
        assert searched.carry[row, k] == sum(text)


# The decodings of the golden scores.
PUBLISHED_SCORES = {
    "perturbed_w16_clip0": Decoding("greedy", advantage_weight=16.0, advantage_clip=0.0),
    "w1": Decoding("greedy", advantage_weight=1.0),
    "advantage_only": Decoding("greedy", advantage_weight=2.0, logits=False),
    "logits_temp": Decoding("greedy", advantages=False, temperature=0.5, top_k=5),
}
SCORED = [case for case in cases() if "score/w1" in case.arrays]


@pytest.mark.parametrize("case", SCORED, ids=lambda case: case.name)
@pytest.mark.parametrize("name", PUBLISHED_SCORES)
def test_scores_of_actions_are_the_published_ones(name: str, case: Case) -> None:
    """Those are log-probabilities, ours are logits: equal up to a number for each state. Published,
    padding may be said.
    """
    batch = batch_of(case, IlqlCompat())
    arrays = case.arrays
    places = arrays["batch/action_idxs"]
    live = np.asarray(batch.action_mask)
    targets = [arrays[f"in/tq{n}"] for n in (("1", "2") if case.config["double_q"] else ("1",))]
    q = target_of(targets, method_of(case))
    z = np.take_along_axis(arrays["in/logits"], places[..., None], axis=1)
    pad = 29
    outputs = TokenOutputs(jnp.asarray(z), jnp.asarray(q), jnp.asarray(arrays["in/v"][:, :-1]))
    ours = np.delete(decodings.steered(outputs, PUBLISHED_SCORES[name], pad), pad, axis=-1)
    theirs = np.take_along_axis(arrays[f"score/{name}"], places[..., None], axis=1)
    if name == "logits_temp":  # where padding is not among the five
        live = live & ~np.isfinite(theirs[..., pad])
        assert live.sum() > 10
    ours = ours[live]
    theirs = np.delete(theirs, pad, axis=-1)[live]
    is_allowed = theirs > -1e6
    np.testing.assert_array_equal(ours > -1e6, is_allowed)
    ours, theirs = (x - x.max(axis=-1, keepdims=True) for x in (ours, theirs))
    np.testing.assert_allclose(ours[is_allowed], theirs[is_allowed], atol=2e-4)
