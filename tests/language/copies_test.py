"""Three trunks as one program, stacked or one after the other, as each by itself."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.language import beams, generation
from motif_jax.language.config import Dropout, parse
from motif_jax.language.copies import Copies, Roles
from motif_jax.language.heads import HeadConfig, Heads
from motif_jax.language.model import LanguageModel
from motif_jax.language.network import States
from motif_jax.language.sampling import Limits, Sampling
from motif_jax.language.scoring import last_state
from tests.language import models, recipes

TOKENS = jnp.asarray(recipes.tokens(), jnp.int32)
VALID = jnp.asarray(recipes.mask("left"))
ROLES = Roles({"policy": "policy", "values": "values", "target": "target"})
ways = pytest.mark.parametrize("together", [True, pytest.param(False, marks=pytest.mark.slow)])


@pytest.fixture(scope="module")
def trunks(tmp_path_factory: pytest.TempPathFactory) -> tuple[LanguageModel, dict[str, Any]]:
    folder: Path = tmp_path_factory.mktemp("checkpoints")
    model, params = models.load(models.write(folder, "gpt2"))
    scales = {"policy": 1.0, "values": 1.2, "target": 0.8}
    return model, {name: jax.tree.map(lambda x, s=s: x * s, params) for name, s in scales.items()}  # type: ignore[misc]


def close(found: Any, expected: Any) -> None:
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5 * float(jnp.abs(b).max()), rtol=0)


def run(model: Any, params: Any, start: Any, rows: Any) -> Any:
    """A prompt, two turns with a cache between which continuations change places, logits; from embeddings with more than tokens."""
    words, good = TOKENS[:, None, :2].repeat(2, axis=1), jnp.ones((3, 2, 2), bool).at[1, 0, 1].set(False)
    states, prompt = model.prefill(params, None, VALID, model.embed(params, TOKENS) * 0.5)
    first, cache = model.extend(params, prompt, words, good, start(3, 2, 4))
    second, _ = model.extend(params, prompt, words, good, rows(cache, jnp.array([[1, 0], [1, 1], [0, 1]])))
    return states, first, second, model.logits(params, second.after)


def loss(found: Any) -> tuple[jax.Array, Any]:
    return sum(jnp.square(leaf).sum() for leaf in jax.tree.leaves(found)), found  # type: ignore[return-value]


@pytest.fixture(scope="module")
def by_itself(trunks: Any) -> Any:
    """What each trunk gives, and the gradient, of every trunk."""
    model, trees = trunks
    rows = type(model.start(1, 1, 1)).rows
    alone = jax.jit(jax.grad(lambda tree: loss(run(model, tree, model.start, rows)), has_aux=True))
    gradients, found = zip(*[alone(tree) for tree in ROLES.trees(trees)], strict=True)
    return list(gradients), jax.tree.map(lambda *leaves: jnp.stack(leaves), *found)


@pytest.mark.slow
@ways
def test_copies_give_what_each_gives_by_itself(trunks: Any, by_itself: Any, together: bool) -> None:
    model, trees = trunks
    copies = Copies(model, together)

    def all_of_them(trees: list[Any]) -> tuple[jax.Array, Any]:
        params = copies.join(trees)
        return loss(run(copies, params, functools.partial(copies.start, params), copies.rows))

    close(jax.jit(jax.grad(all_of_them, has_aux=True))(ROLES.trees(trees)), by_itself)


@pytest.mark.slow
@ways
def test_values_of_other_trunks_steer_what_a_policy_writes(trunks: Any, together: bool) -> None:
    """ILQL's decoding: logits + min(Q1, Q2) - V, by draws and by beams, with and without the cache."""
    model, trees = trunks
    copies, roles = (
        Copies(model, together),
        Roles({"policy": "policy", "values": "target", "target": "target"}),
    )
    assert roles.trunks == ("policy", "target")
    wide = HeadConfig(recipes.VOCAB, (2 * model.config.width,))
    heads = Heads(model.config.width, {"q1": wide, "q2": wide, "v": HeadConfig(1, (2 * model.config.width,))})
    head_params, limits = heads.init(jax.random.key(1)), Limits(5, (2,))

    def steered(states: States) -> jax.Array:
        """States [C, B, N, D] -> logits [B, N, V]."""
        target = roles.of("target", states)
        q = jnp.minimum(*(heads.apply(head_params, name, target) for name in ("q1", "q2")))
        advantage = q - heads.apply(head_params, "v", roles.of("values", states))[..., None]
        return model.logits(trees["policy"], roles.of("policy", states).after) + 4 * advantage

    def run(trees: Any) -> Any:
        params = copies.join(roles.trees(trees))
        states, prompt = copies.prefill(params, TOKENS, VALID)
        last = States(
            *(jax.vmap(lambda leaf: last_state(States(leaf, leaf), VALID).after)(x) for x in states)
        )
        first = steered(States(*(leaf[:, :, None].repeat(3, axis=2) for leaf in last)))
        step = copies.step(params, prompt, steered)
        cache = copies.start(params, recipes.BATCH, 3, limits.most)
        drawn = generation.write(step, cache, first, jax.random.key(5), limits, Sampling())
        best = beams.search(step, copies.rows, cache, first, limits, apart=True)
        return drawn.tokens, drawn.log_probs, best.tokens, best.scores

    found = jax.jit(run)(trees)
    # The same without a cache: the whole text so far through every trunk by itself.
    tokens, log_probs = np.asarray(found[0]), np.asarray(found[1])
    text = jnp.concatenate([TOKENS[:, None].repeat(3, axis=1), tokens], axis=2).reshape(9, -1)
    good = jnp.concatenate([VALID.repeat(3, axis=0), jnp.ones((9, limits.most), bool)], axis=1)
    apart = [model.prefill(trees[name], text, good)[0] for name in roles.trunks]
    logits = steered(States(*(jnp.stack(leaves)[:, :, None] for leaves in zip(*apart, strict=True))))[:, 0]
    expected = jax.nn.log_softmax(logits[:, recipes.LENGTH - 1 : -1])
    chosen = jnp.take_along_axis(expected, tokens.reshape(9, -1, 1), axis=-1)[..., 0]
    written = log_probs.reshape(9, -1) != 0
    np.testing.assert_allclose(log_probs.reshape(9, -1)[written], chosen[written], rtol=1e-4, atol=1e-5)
    assert written.sum() > 20
    assert (np.diff(np.asarray(found[3]), axis=1) <= 0).all()


@pytest.mark.slow
@ways
def test_each_copy_has_its_own_dropout(together: bool) -> None:
    # No files hold such a model: of it nothing is seen but the dropout of the embeddings.
    model = LanguageModel(dataclasses.replace(parse(recipes.CONFIGS["gpt2"]), layers=0))
    assert model.config.dropout == Dropout(0.1, 0.2, 0.3)
    params = model.init(jax.random.key(0))
    copies = Copies(model.with_dropout(jax.random.key(1)), together)
    states, _ = copies.prefill(copies.join([params, params]), TOKENS, VALID)
    left_out = np.asarray(states.before == 0)
    assert 0.05 < left_out.mean() < 0.2
    assert (left_out[0] != left_out[1]).any()


@pytest.mark.slow
def test_a_position_may_be_given_for_each_token_of_a_row(trunks: Any) -> None:
    model, trees = trunks
    params = trees["policy"]
    _, prompt = model.prefill(params, TOKENS, VALID)
    words, good = TOKENS[:, None, :2], jnp.ones((3, 1, 2), bool)
    plain, _ = model.extend(params, prompt, words, good)
    places = prompt.length[:, None, None] + jnp.arange(2)
    same, _ = model.extend(params, prompt, words, good, positions=places)
    later, _ = model.extend(params, prompt, words, good, positions=places.at[1].add(1))
    np.testing.assert_array_equal(plain.after, same.after)
    np.testing.assert_array_equal(later.after[0], same.after[0])
    assert (np.asarray(later.after[1]) != np.asarray(same.after[1])).any()
