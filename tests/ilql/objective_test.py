"""The terms that each method minimises, against plain numpy written from the paper; dropout,
detached parts, additions.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.ilql import methods
from motif_jax.ilql.agent import text_agent
from motif_jax.ilql.config import (
    IlqlCompat,
    LossWeights,
    PolicyWeights,
    TextConfig,
    TextLora,
    TextMethod,
)
from motif_jax.ilql.dialogues.dialogue_batches import ItemLayout
from motif_jax.ilql.methods import RULES
from motif_jax.ilql.objective import CountedBatch, Objective
from motif_jax.ilql.tasks.wordle.environment import WordleTokenizer
from motif_jax.lm import finetune_params, init_model, lora
from motif_jax.lm.model import LanguageModel
from tests.golden_ilql import item_of
from tests.sets import extra

TEXTS = ("<a>abc</a><g><b></s>de</a>", "<a>fa</a><b></s></eod>", "<s><y></s>ab</a></eod>")
GAMMA = 0.9
TAU = 0.7
VOCABULARY = WordleTokenizer.size
CQL = LossWeights(cql=0.1)
NO_QUIRKS = IlqlCompat()


def objective_of(
    method: str,
    dropout: float = 0.0,
    design: text_agent.Design | None = None,
    loss: LossWeights = CQL,
    compat: IlqlCompat = NO_QUIRKS,
    chunk: int | None = None,
    **numbers: Any,
) -> Objective:
    """The loss of a method with these `numbers` of `TextMethod`, on a small network."""
    rule = RULES[method]
    marks = WordleTokenizer.delimiters
    tokens = {"start": marks.state_start, "pad": marks.pad, "end": marks.action_end}
    model = init_model.make("gpt2", init_model.Sizes(8, 1, 2, max_length=48), VOCABULARY, tokens)
    agent = text_agent.TextAgentNetwork(
        LanguageModel(init_model.with_dropout(model, dropout)),
        design or text_agent.Design(rule.q, prefix=rule.prefix),
    )
    config = TextConfig(
        method=TextMethod(name=method, discount=GAMMA, expectile=TAU, **numbers),
        loss=loss,
        compat=compat,
        logits_chunk=chunk,
        dropout=dropout,
    )
    return Objective(config, agent)


def changed(objective: Objective, **sections: Any) -> Objective:
    """The loss with other sections or keys of its config."""
    return dataclasses.replace(objective, config=dataclasses.replace(objective.config, **sections))


def batch_of(by_utterance: bool = False) -> methods.TextBatch:
    items = [item_of(text, 0.0) for text in TEXTS]
    return ItemLayout(WordleTokenizer.delimiters.pad, by_utterance).batch(items, 12, 8, 2)


def parameters(objective: Objective, batch: methods.TextBatch) -> tuple[Any, Any, CountedBatch]:
    """Trained and frozen parameters, in which online and target parts are not alike, and the batch
    as one part.
    """
    params = objective.agent.init(jax.random.key(1))
    other = objective.agent.init(jax.random.key(2))
    learned = {name: params[name] for name in ("heads", "prefix") if name in params}
    learned["trunks"] = {
        name: trunk for name, trunk in params["trunks"].items() if name != "target"
    }
    target = {}
    if objective.agent.design.qs:
        target = {"trunks": {"target": other["trunks"]["values"]}, "heads": other["target_heads"]}
    return learned, {"target": target}, CountedBatch(batch, objective.counts(batch))


def agent_params(learned: Any, frozen: Any) -> dict[str, Any]:
    """Trained and target parameters as those of one agent."""
    target = frozen["target"]
    return {
        "trunks": {**learned["trunks"], **target.get("trunks", {})},
        "heads": learned.get("heads"),
        "target_heads": target.get("heads"),
        "prefix": learned.get("prefix"),
    }


def next_value(method: str, target_q: np.ndarray, log_pi: np.ndarray, v: float) -> float:
    """The bootstrap of Q in the next state, from target Qs and the policy [tokens]."""
    if method in ("cql", "bcq"):
        return target_q.max()
    if method == "psi":
        return np.logaddexp.reduce(target_q)
    if method == "g":
        return np.logaddexp.reduce(log_pi + target_q)
    return v


def published_terms(
    method: str, objective: Objective, learned: Any, frozen: Any, batch: methods.TextBatch
) -> dict[str, float]:
    """The terms of a method in plain numpy, a dialogue and an action at a time, from the outputs at
    every position.
    """
    returns = jnp.asarray([-2.0, -1.0, -1.0])
    readout = objective.agent.readouts(
        agent_params(learned, frozen), batch.tokens, batch.valid, returns
    )
    log_pis = np.asarray(jax.nn.log_softmax(readout.logits), np.float64)
    has_values = readout.values is not None
    if has_values:
        qs = np.asarray(readout.qs, np.float64)
        log_softmax_qs = np.asarray(jax.nn.log_softmax(np.array(readout.qs)), np.float64)
        target_q = np.asarray(readout.target_q, np.float64)
        v = np.asarray(readout.values, np.float64)
    has_huber_loss = method in ("psi", "bcq", "g")
    adds_log_pi = method in ("psi", "bcq")
    beta = objective.config.method.policy.beta

    policy = q_loss = v_loss = conservative = 0.0
    actions = 0
    for row, text in enumerate(TEXTS):
        item = item_of(text, 0.0)
        states = [*item.action_indices, len(item.tokens) - 1]
        # Each utterance is paid -1, at its last token.
        paid_positions = [end - 1 for end in item.utterance_action_indices]
        for state, next_state in itertools.pairwise(states):
            token = item.tokens[state + 1]
            log_pi = log_pis[row, state, token]
            weight = 1.0
            actions += 1
            if has_values:
                advantage = target_q[row, state, token] - v[row, state]
                weight = math.exp(beta * advantage)

                # Bellman error of each Q.
                bellman_target = (
                    -1.0 if state in paid_positions else 0.0
                ) / objective.config.method.reward_scale
                is_end = next_state == states[-1] and text.endswith("</eod>")
                if not is_end:
                    bellman_target += GAMMA * next_value(
                        method,
                        target_q[row, next_state],
                        log_pis[row, next_state],
                        v[row, next_state],
                    )
                if adds_log_pi:
                    bellman_target += log_pi
                for error in abs(bellman_target - qs[:, row, state, token]):
                    if not has_huber_loss:
                        q_loss += error**2
                    elif error <= 1:
                        q_loss += error**2 / 2
                    else:
                        q_loss += error - 0.5

                # Expectile regression of V on the target Q (Kostrikov et al. 2022, equation 5).
                v_loss += (TAU if advantage >= 0 else 1 - TAU) * advantage**2
                conservative -= log_softmax_qs[:, row, state, token].sum()
            policy -= weight * log_pi

    terms = {"policy": policy / actions}
    if has_values:
        terms |= {
            "q": q_loss / actions,
            "v": v_loss / actions,
            "conservative": conservative / actions,
        }
    return terms


@pytest.mark.slow
@pytest.mark.parametrize("method", ["bc", "dt", "ilql", "awac", "cql", "psi", "bcq", "g"])
def test_each_method_minimises_its_published_terms(method: str) -> None:
    policy = PolicyWeights(beta=1.5 if method == "awac" else 0.0)
    scale = 0.5 if method in ("psi", "bcq", "g") else 1.0
    objective = objective_of(method, chunk=5, policy=policy, reward_scale=scale)
    batch = batch_of()
    learned, frozen, part = parameters(objective, batch)

    terms = objective.terms(learned, frozen, part, None)

    expected = published_terms(method, objective, learned, frozen, batch)
    for name, value in expected.items():
        np.testing.assert_allclose(getattr(terms, name), value, rtol=1e-4, err_msg=name)
    total = sum(objective.weights.of_terms[name] * value for name, value in expected.items())
    np.testing.assert_allclose(terms.loss, total, rtol=1e-4)


@pytest.mark.slow
def test_an_unfinished_dialogue_of_cql_bootstraps_from_zeros_as_published() -> None:
    objective = objective_of("cql", chunk=5)
    learned, frozen, part = parameters(objective, batch_of())

    terms = objective.terms(learned, frozen, part, None)
    published = changed(objective, compat=IlqlCompat(ilql_next_q_zero=True)).terms(
        learned, frozen, part, None
    )

    assert abs(terms.q - published.q) > 1e-4 * terms.q
    np.testing.assert_allclose(terms.conservative, published.conservative, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("residual", [extra(False), True], ids=["trunks", "heads"])
def test_dropout_stays_out_of_targets_and_weights(residual: bool) -> None:
    """Heads of the other form have dropout of their own, also on trunks from which nothing comes
    that could be left out.
    """
    objective = objective_of("ilql", dropout=0.5, chunk=4)
    design = dataclasses.replace(objective.agent.design, residual=residual)
    objective = dataclasses.replace(
        objective, agent=dataclasses.replace(objective.agent, design=design)
    )
    learned, frozen, part = parameters(objective, batch_of())
    if residual:
        zeros = {
            name: jax.tree.map(jnp.zeros_like, trunk) for name, trunk in learned["trunks"].items()
        }
        learned = {**learned, "trunks": zeros}
        frozen["target"]["trunks"] = {"target": zeros["values"]}
    live = np.asarray(part.batch.action_mask, bool)

    def differs(one: methods.Estimates, other: methods.Estimates) -> list[bool]:
        pairs = [(one.values[:, :-1], other.values[:, :-1]), (one.target_q, other.target_q)]
        pairs += [(a.chosen, b.chosen) for a, b in zip(one.qs, other.qs, strict=True)]
        return [bool(np.abs(np.asarray(a - b))[live].max() > 1e-4) for a, b in pairs]

    estimates = jax.jit(objective.estimates)
    key = jax.random.key(3)
    without_dropout = estimates(learned, frozen, part.batch, None)
    with_dropout = estimates(learned, frozen, part.batch, key)
    with_another_key = estimates(learned, frozen, part.batch, jax.random.key(4))

    # V and both Qs differ, the target Q does not.
    assert differs(with_dropout, without_dropout) == [True, False, True, True]
    assert differs(with_dropout, with_another_key) == [True, False, True, True]
    # Each position of a batch has its own draw.
    assert len(np.unique(np.asarray(with_dropout.values)[:, :-1][live])) > live.sum() // 2
    published = changed(objective, compat=IlqlCompat(ilql_target_dropout=True))
    with_target_dropout = jax.jit(published.estimates)(learned, frozen, part.batch, key)
    assert differs(with_target_dropout, without_dropout) == [True] * 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "trunk"), [extra("v", "values"), ("q", "values"), ("policy", "policy")]
)
def test_a_detached_part_learns_and_its_trunk_does_not(part: str, trunk: str) -> None:
    """The policy's last layer is the table of embeddings, which goes on learning."""
    weights = {"q": 0.0, "v": 0.0, "policy": 0.0, part: 1.0}
    objective = objective_of("ilql", loss=LossWeights(**weights))
    learned, frozen, batch = parameters(objective, batch_of())

    def gradient(detach: bool) -> Any:
        method = dataclasses.replace(objective.config.method, **{f"detach_{part}": detach})
        terms = changed(objective, method=method).terms
        return jax.jit(jax.grad(lambda params: terms(params, frozen, batch, None).loss))(learned)

    def is_learned(tree: Any) -> bool:
        return any(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(tree))

    attached = gradient(False)
    detached = gradient(True)

    assert is_learned(attached["trunks"][trunk]["decoder"])
    assert not is_learned(detached["trunks"][trunk]["decoder"])
    group, name = {"v": ("heads", "v"), "q": ("heads", "q1"), "policy": ("trunks", "policy")}[part]
    assert is_learned(detached[group][name])


@pytest.mark.extra
def test_low_rank_additions_equal_their_merged_weights() -> None:
    plain = objective_of("bc")
    batch = batch_of()
    section = TextLora(patterns="head,*/attention/query", rank=2)
    spec = finetune_params.spec_of(section)
    assert spec is not None
    model = LanguageModel(dataclasses.replace(plain.agent.model.config, tied=False))
    plain = dataclasses.replace(plain, agent=dataclasses.replace(plain.agent, model=model))
    trunk = plain.agent.init(jax.random.key(1))["trunks"]["policy"]
    draw = lambda leaf: jax.random.normal(jax.random.key(3), leaf.shape)  # noqa: E731
    additions = jax.tree.map(draw, lora.init(jax.random.key(2), trunk, spec))
    assert "head" in additions
    part = CountedBatch(batch, plain.counts(batch))
    objective = changed(plain, lora=section)
    frozen = {"trunks": {"policy": trunk}}
    added = objective.terms({"additions": {"policy": additions}}, frozen, part, None)

    of_merged = plain.terms(
        {"trunks": {"policy": lora.merged(trunk, additions, spec)}}, {}, part, None
    )
    of_base = plain.terms(frozen, {}, part, None)
    np.testing.assert_allclose(added.policy, of_merged.policy, rtol=1e-4)
    assert abs(added.policy - of_base.policy) > 1e-2


@pytest.mark.slow
def test_an_utterance_is_valued_at_its_last_token() -> None:
    objective = objective_of("ilql_utterance")
    batch = batch_of(by_utterance=True)
    learned, frozen, part = parameters(objective, batch)
    readout = objective.agent.readouts(agent_params(learned, frozen), batch.tokens, batch.valid)

    estimates = objective.estimates(learned, frozen, part.batch, None)

    def at(outputs: Any, positions: Any) -> Any:
        return jnp.take_along_axis(outputs, positions, axis=1)

    np.testing.assert_allclose(
        estimates.values, at(readout.values, batch.state_positions), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(
        estimates.target_q, at(readout.target_q, batch.action_positions), rtol=1e-5, atol=1e-6
    )
    for estimate, q in zip(estimates.qs, readout.qs, strict=True):
        np.testing.assert_allclose(
            estimate.chosen, at(q, batch.action_positions), rtol=1e-5, atol=1e-6
        )


ALL_TERMS = LossWeights(q=0.7, v=0.6, policy=0.9, cql=0.1, margin=0.3)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["ilql", extra("g")])
def test_chunks_of_positions_do_not_change_the_loss(method: str) -> None:
    at_once = objective_of(method, policy=PolicyWeights(beta=1.5), loss=ALL_TERMS)
    learned, frozen, part = parameters(at_once, batch_of())
    in_chunks = changed(at_once, logits_chunk=5)

    measured, expected = (
        jax.jit(objective.measured)(learned, frozen, part, None)
        for objective in (in_chunks, at_once)
    )

    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), measured, expected
    )


@pytest.mark.slow
def test_the_loss_is_the_weighted_sum_of_its_terms() -> None:
    objective = objective_of("ilql", policy=PolicyWeights(beta=1.5), margin=0.5, loss=ALL_TERMS)
    learned, frozen, part = parameters(objective, batch_of())

    terms = jax.jit(objective.terms)(learned, frozen, part, None)

    weights = ALL_TERMS.of_terms
    assert all(getattr(terms, name) > 0 for name in weights)
    total = sum(weight * getattr(terms, name) for name, weight in weights.items())
    np.testing.assert_allclose(terms.loss, total, rtol=1e-5)


@pytest.mark.extra
def test_spreads_are_of_the_actions_that_count() -> None:
    objective = objective_of("ilql", policy=PolicyWeights(beta=1.5))
    learned, frozen, part = parameters(objective, batch_of())
    live = np.asarray(part.batch.action_mask)
    estimates = jax.jit(objective.estimates)(learned, frozen, part.batch, None)

    spreads = jax.jit(objective.measured)(learned, frozen, part, None).spreads

    values = np.asarray(estimates.values)[:, :-1][live]
    target_q = np.asarray(estimates.target_q)[live]
    weights = np.exp(1.5 * (target_q - values))
    for name, numbers in {"v": values, "target_q": target_q, "policy_weight": weights}.items():
        spread = spreads[name]
        expected = (numbers.sum(), live.sum(), numbers.min(), numbers.max())
        np.testing.assert_allclose(spread, expected, rtol=1e-4, err_msg=name)
    assert spreads["q"].entries == 2 * live.sum()
    assert spreads["entropy"].entries == live.sum()
