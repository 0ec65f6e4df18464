"""What each method minimises, against plain numpy written from the published facts; quirks; devices."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.ilql.agent import text_agent
from motif_jax.ilql.dialogues.dialogue_batches import ItemLayout
from motif_jax.ilql.methods import implicit_q
from motif_jax.ilql.methods.text_methods import RULES
from motif_jax.ilql.methods.text_objective import Objective, Part, Weights
from motif_jax.ilql.tasks.wordle.tokens import WordleTokenizer
from motif_jax.lm import init_model, lora, network
from motif_jax.lm.model import LanguageModel
from tests.golden_ilql import item_of
from tests.recorded_outputs import assert_matches_packed_recording

pytestmark = pytest.mark.usefixtures("compiled_quickly")

TEXTS = ("<a>abc</a><g><b></s>de</a>", "<a>fa</a><b></s></eod>", "<s><y></s>ab</a></eod>")
GAMMA, TAU, VOCABULARY = 0.9, 0.7, WordleTokenizer.size


def objective_of(method: str, dropout: float = 0.0, **changes: Any) -> Objective:
    rule, marks = RULES[method], WordleTokenizer.delimiters
    tokens = {"start": marks.state_start, "pad": marks.pad, "end": marks.action_end}
    config = init_model.make("gpt2", init_model.Sizes(8, 1, 2, max_length=48), VOCABULARY, tokens)
    design = changes.pop("design", text_agent.Design(rule.q, prefix=rule.prefix))
    agent = text_agent.TextAgentNetwork(LanguageModel(init_model.with_dropout(config, dropout)), design)
    settings = implicit_q.ImplicitQSettings(GAMMA, TAU, **changes.pop("settings", {}))
    weights = Weights(**changes.pop("weights", {"conservative": 0.1}))
    return Objective(agent, rule, settings, weights, dropout=dropout > 0, **changes)


def batch_of(by_utterance: bool = False) -> implicit_q.TextBatch:
    items = [item_of(text, 0.0) for text in TEXTS]
    return ItemLayout(WordleTokenizer.delimiters.pad, by_utterance).batch(items, 12, 8, 2)


def parameters(objective: Objective, batch: implicit_q.TextBatch) -> tuple[Any, Any, Part]:
    """Online and target parts that are not alike, and the whole batch as one part."""
    params = objective.agent.init(jax.random.key(1))
    other = objective.agent.init(jax.random.key(2))
    learned = {name: params[name] for name in ("heads", "prefix") if name in params}
    learned["trunks"] = {name: trunk for name, trunk in params["trunks"].items() if name != "target"}
    target = {}
    if objective.agent.design.qs:
        target = {"trunks": {"target": other["trunks"]["values"]}, "heads": other["target_heads"]}
    counted = implicit_q.Counts(*implicit_q.counts(batch, objective.settings))
    return learned, {"target": target}, Part(batch, counted)


def by_hand(method: str, objective: Objective, learned: Any, frozen: Any, batch: Any) -> dict[str, float]:
    """The terms of a method, a dialogue and an action at a time, from what the whole network says of every position."""
    returns = jnp.asarray([-2.0, -1.0, -1.0])
    behind = frozen["target"]
    parts = {"trunks": {**learned["trunks"], **behind.get("trunks", {})}, "target_heads": behind.get("heads")}
    whole = {"heads": None, "prefix": None, **learned, **parts}
    look = objective.agent.look(whole, batch.tokens, batch.valid, returns)
    log_pis = np.asarray(jax.nn.log_softmax(look.logits), np.float64)
    if look.values is not None:
        given = look.qs, jax.nn.log_softmax(np.array(look.qs))
        qs, log_qs = (np.asarray(each, np.float64) for each in given)
        target, v = np.asarray(look.target_q, np.float64), np.asarray(look.values, np.float64)
    policy = q_loss = v_loss = cql = 0.0
    actions = tokens = 0
    scale, beta = objective.reward_scale, objective.settings.beta
    for row, text in enumerate(TEXTS):
        item = item_of(text, 0.0)
        places = [*item.action_indices, len(item.tokens) - 1]
        rewards = np.zeros(len(places) - 1)
        for end in item.utterance_action_indices:  # every action is paid -1, at its last token
            rewards[list(item.action_indices).index(end - 1)] = -1.0
        for k, place in enumerate(places[:-1]):
            said, after = item.tokens[place + 1], places[k + 1]
            log_pi = log_pis[row, place, said]
            over = k == len(places) - 2 and text.endswith("</eod>")
            tokens += 1
            weight = 1.0
            if look.values is not None:
                weight = math.exp(beta * (target[row, place, said] - v[row, place]))
                best = target[row, after].max()
                following = {
                    "psi": np.logaddexp.reduce(target[row, after]),
                    "bcq": best,
                    "cql": best,
                    "g": np.logaddexp.reduce(log_pis[row, after] + target[row, after]),
                }.get(method, v[row, after])
                aim = rewards[k] / scale + (0 if over else GAMMA * following)
                if method in ("psi", "bcq"):
                    aim += log_pi
                for error in abs(aim - qs[:, row, place, said]):
                    huber = error**2 / 2 if error <= 1 else error - 0.5
                    q_loss += huber if method in ("psi", "bcq", "g") else error**2
                cql -= log_qs[:, row, place, said].sum()
                error = target[row, place, said] - v[row, place]
                v_loss += (TAU if error >= 0 else 1 - TAU) * error**2
                actions += 1
            policy -= weight * log_pi
    found = {"policy": policy / tokens}
    if actions:
        found |= {"q": q_loss / actions, "v": v_loss / actions, "conservative": cql / actions}
    return found


@pytest.mark.slow
@pytest.mark.parametrize("method", ["bc", "dt", "ilql", "awac", "cql", "psi", "bcq", "g"])
def test_each_method_minimises_what_was_published(method: str) -> None:
    settings, scale = {"beta": 1.5} if method == "awac" else {}, 0.5 if method in ("psi", "bcq", "g") else 1.0
    objective = objective_of(method, chunk=5, settings=settings, reward_scale=scale)
    batch = batch_of()
    learned, frozen, part = parameters(objective, batch)
    terms = objective.terms(learned, frozen, part, None)
    wanted = by_hand(method, objective, learned, frozen, batch)
    for name, value in wanted.items():
        np.testing.assert_allclose(getattr(terms, name), value, rtol=1e-4, err_msg=name)
    total = sum(getattr(objective.weights, name) * value for name, value in wanted.items())
    np.testing.assert_allclose(terms.loss, total, rtol=1e-4)
    if method == "cql":  # published: an unfinished dialogue bootstraps from a row of zeros
        published = dataclasses.replace(objective, zero_behind=True).terms(learned, frozen, part, None)
        assert abs(terms.q - published.q) > 1e-4 * terms.q
        np.testing.assert_allclose(terms.conservative, published.conservative, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("residual", [False, True], ids=["trunks", "heads"])
def test_dropout_stays_out_of_targets_and_weights(residual: bool) -> None:
    """Heads of the other form have dropout of their own, also on trunks from which nothing comes that could be left out."""
    objective = objective_of("ilql", dropout=0.5, chunk=4)
    design = dataclasses.replace(objective.agent.design, residual=residual)
    objective = dataclasses.replace(objective, agent=dataclasses.replace(objective.agent, design=design))
    learned, frozen, part = parameters(objective, batch_of())
    if residual:
        silent = {name: jax.tree.map(jnp.zeros_like, each) for name, each in learned["trunks"].items()}
        learned = {**learned, "trunks": silent}
        frozen["target"]["trunks"] = {"target": silent["values"]}
    alive = np.asarray(part.batch.live, bool)

    def differs(one: implicit_q.Estimates, other: implicit_q.Estimates) -> list[bool]:
        pairs = [(one.values[:, :-1], other.values[:, :-1]), (one.target_q, other.target_q)]
        pairs += [(a.chosen, b.chosen) for a, b in zip(one.qs, other.qs, strict=True)]
        return [bool(np.abs(np.asarray(a - b))[alive].max() > 1e-4) for a, b in pairs]

    estimates, key = jax.jit(objective.estimates), jax.random.key(3)
    quiet, loud = (estimates(learned, frozen, part.batch, each) for each in (None, key))
    again = estimates(learned, frozen, part.batch, jax.random.key(4))
    assert differs(loud, quiet) == differs(loud, again) == [True, False, True, True]
    # Each place of a batch has its own draw.
    assert len(np.unique(np.asarray(loud.values)[:, :-1][alive])) > alive.sum() // 2
    published = dataclasses.replace(objective, target_dropout=True)
    assert differs(jax.jit(published.estimates)(learned, frozen, part.batch, key), quiet) == [True] * 4


@pytest.mark.slow
@pytest.mark.parametrize(("part", "trunk"), [("v", "values"), ("q", "values"), ("policy", "policy")])
def test_a_detached_part_learns_and_its_trunk_does_not(part: str, trunk: str) -> None:
    """The policy's last layer is the table of embeddings, which continues."""
    weights = {"q": 0.0, "v": 0.0, "policy": 0.0, part: 1.0}
    objective = objective_of("ilql", weights=weights)
    learned, frozen, whole = parameters(objective, batch_of())

    def gradient(detach: tuple[str, ...]) -> Any:
        terms = dataclasses.replace(objective, detach=detach).terms
        return jax.jit(jax.grad(lambda each: terms(each, frozen, whole, None).loss))(learned)

    def moves(tree: Any) -> bool:
        return any(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(tree))

    plain, detached = gradient(()), gradient((part,))
    assert moves(plain["trunks"][trunk]["decoder"])
    assert not moves(detached["trunks"][trunk]["decoder"])
    own = {"v": ("heads", "v"), "q": ("heads", "q1"), "policy": ("trunks", "policy")}[part]
    assert moves(detached[own[0]][own[1]])


@pytest.mark.slow
def test_additions_to_a_head_of_its_own_count() -> None:
    plain, batch, spec = objective_of("bc"), batch_of(), lora.Spec(("head", "*/attention/query"), 2)
    model = LanguageModel(dataclasses.replace(plain.agent.model.config, tied=False))
    plain = dataclasses.replace(plain, agent=dataclasses.replace(plain.agent, model=model))
    trunk = plain.agent.init(jax.random.key(1))["trunks"]["policy"]
    draw = lambda leaf: jax.random.normal(jax.random.key(3), leaf.shape)  # noqa: E731
    additions = jax.tree.map(draw, lora.init(jax.random.key(2), trunk, spec))
    assert "head" in additions
    part = Part(batch, implicit_q.Counts(*implicit_q.counts(batch, plain.settings)))
    objective, frozen = dataclasses.replace(plain, spec=spec), {"trunks": {"policy": trunk}}
    added = objective.terms({"additions": {"policy": additions}}, frozen, part, None)
    merged = {"trunks": {"policy": lora.merged(trunk, additions, spec)}}
    whole, base = (plain.terms(each, {}, part, None) for each in (merged, frozen))
    np.testing.assert_allclose(added.policy, whole.policy, rtol=1e-4)
    assert abs(added.policy - base.policy) > 1e-2


class Still(text_agent.TextAgentNetwork):
    """Without layers: a state is its token's embedding."""

    def run(self, params: Any, tokens: Any, valid: Any, parts: Any = (), *given: Any, **more: Any) -> Any:
        tables = {part: params["trunks"][self.design.roles.trunk_of[part]]["embedding"] for part in parts}
        return {part: network.States(table[tokens], table[tokens] / 2) for part, table in tables.items()}


@pytest.mark.parametrize(("method", "chunk"), [("g", 5), ("ilql_utterance", None)])
def test_losses_and_what_is_measured_beside_them(method: str, chunk: int | None, record: bool) -> None:
    weights = {"q": 0.7, "v": 0.6, "policy": 0.9, "conservative": 0.1, "margin": 0.3}
    objective = objective_of(method, reward_scale=0.5, settings={"beta": 1.5}, weights=weights, chunk=chunk)
    agent, batch = Still(objective.agent.model, objective.agent.design), batch_of(chunk is None)
    draws, shapes = np.random.default_rng(0), jax.eval_shape(agent.init, jax.random.key(0))
    draw = lambda leaf: draws.normal(0, 0.3, leaf.shape).astype(np.float32)  # noqa: E731
    params, other = (jax.tree.map(draw, shapes) for _ in range(2))
    target = {"trunks": {"target": other["trunks"]["values"]}, "heads": other["target_heads"]}
    params["trunks"].pop("target"), params.pop("target_heads")
    part = Part(batch, implicit_q.Counts(*implicit_q.counts(batch, objective.settings)))
    measure = jax.jit(dataclasses.replace(objective, agent=agent).measured)
    measured = measure(params, {"target": target}, part, None)
    assert_matches_packed_recording(
        f"text_losses_{method}", {"found": str(jax.tree.map(float, measured))}, record
    )
