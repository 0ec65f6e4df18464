"""The losses of ILQL against what the published code gave."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.ilql import methods
from motif_jax.ilql.config import IlqlCompat
from motif_jax.ilql.dialogues import dialogue_batches
from motif_jax.ilql.dialogues.dialogue_batches import ItemLayout
from motif_jax.ilql.methods import ActionQ, Estimates, Rule
from motif_jax.ilql.tasks.wordle.environment import WordleTokenizer
from tests import golden_ilql
from tests.golden_ilql import Case, batch_of, cases, inputs, method_of

RULE = Rule()
LOSSES = ("v_loss", "q_loss", "cql_loss", "dm_loss", "token_loss")
NAMES = dict(zip(LOSSES, ("v", "q", "conservative", "margin", "policy"), strict=True))


def estimates_of(case, arrays, batch, method):
    """What the published model makes of what its heads say, by the functions that are tested."""
    names = ("1", "2") if case.config["double_q"] else ("1",)
    qs = [arrays[f"q{n}"] for n in names]
    targets = [arrays[f"tq{n}"] for n in names]
    target = methods.target_of(targets, method)
    next_values = arrays["v"][:, 1:]
    if case.utterance:
        estimates = [ActionQ(q, jnp.zeros_like(q), jnp.zeros_like(q)) for q in qs]
    else:
        tokens = methods.action_tokens(batch)
        estimates = [RULE.action_q(q, tokens, method, True, "dm_loss" in case.loss) for q in qs]
        if case.kind == "CQLModel":
            next_values = methods.values_of_next_action(methods.next_value(target, "best"))
        target = methods.chosen(target, tokens)
    log_probs = methods.chosen(jax.nn.log_softmax(arrays["logits"][:, :-1]), batch.tokens[:, 1:])
    positions = jnp.minimum(batch.action_token_positions, log_probs.shape[1] - 1)
    action_log_probs = jnp.take_along_axis(log_probs, positions, axis=1)
    advantages = target - arrays["v"][:, :-1]
    return Estimates(
        arrays["v"], estimates, target, next_values, action_log_probs, log_probs, advantages
    )


def terms_of(case, arrays):
    batch = batch_of(case)
    method = method_of(case)
    sums = RULE.losses(batch, estimates_of(case, arrays, batch, method), method)
    counts = methods.counts(batch, method.policy, all_tokens=True)
    actions, policy = (jnp.maximum(count, 1.0) for count in counts)
    return methods.LossSums(*(total / actions for total in sums[:-1]), sums.policy / policy)


by_case = pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)


@by_case
def test_batches_are_the_published_ones(case: Case) -> None:
    batch = batch_of(case)
    golden = case.group("batch")
    np.testing.assert_array_equal(batch.tokens, golden["tokens"])
    np.testing.assert_array_equal(batch.valid, golden["attn_mask"] > 0)
    np.testing.assert_array_equal(batch.action_token_positions, golden["action_idxs"])
    used = case.group("used") or golden
    for name, ours in (
        ("state_idxs", batch.state_positions),
        ("action_idxs", batch.action_positions),
    ):
        np.testing.assert_array_equal(ours, used[name])
    np.testing.assert_array_equal(batch.terminals, used["terminals"])
    np.testing.assert_allclose(batch.rewards, used["rewards"], rtol=1e-7)
    if case.n is not None:
        assert batch.action_mask.sum() == case.n


@by_case
def test_utterances_are_the_published_ones(case: Case) -> None:
    """Published, a cut dialogue keeps states behind its last action and behind its last token,
    where nothing can be read.
    """
    batch = batch_of(case, utterance=True)
    for name, ours in (
        ("u_state_idxs", batch.state_positions),
        ("u_action_idxs", batch.action_positions),
        ("u_terminals", batch.terminals),
        ("u_rewards", batch.rewards),
    ):
        golden = case.arrays[f"batch/{name}"]
        assert golden.shape[1] == ours.shape[1] or case.name == "10_max_len_20"
        if name == "u_state_idxs":
            golden = np.minimum(golden, batch.tokens.shape[1] - 1)
        np.testing.assert_allclose(ours, golden[:, : ours.shape[1]], rtol=1e-7)


@pytest.mark.slow
@by_case
def test_losses_gradients_and_weights_are_the_published_ones(case: Case) -> None:
    arrays = inputs(case)

    def computed(arrays):
        batch = batch_of(case)
        method = method_of(case)
        estimates = estimates_of(case, arrays, batch, method)
        weights = methods.policy_token_weights(batch, estimates.advantages, method.policy)
        return terms_of(case, arrays), (weights, estimates.target_q)

    terms, back, (weights, target_q) = jax.vjp(computed, arrays, has_aux=True)
    np.testing.assert_allclose(weights, case.arrays["out/weights"], rtol=1e-4, atol=1e-6)
    live = batch_of(case).action_mask
    if "out/selected_target_q" in case.arrays:
        np.testing.assert_allclose(
            target_q[live], case.arrays["out/selected_target_q"][live], rtol=1e-6
        )
    if "total" in case.loss:
        total = terms.v + terms.q + terms.policy + 1e-4 * terms.conservative
        np.testing.assert_allclose(total, case.loss["total"], rtol=1e-5)
    for name, ours in NAMES.items():
        if name not in case.loss:
            continue
        np.testing.assert_allclose(getattr(terms, ours), case.loss[name], rtol=1e-5, err_msg=name)
        one = jax.tree.map(jnp.zeros_like, terms)._replace(**{ours: jnp.ones(())})
        for key, gradient in back(one)[0].items():
            wanted = case.arrays.get(f"grad/{name}/{key}", np.zeros(gradient.shape)).reshape(
                gradient.shape
            )
            assert np.linalg.norm(gradient - wanted) <= 1e-4 * np.linalg.norm(wanted), (name, key)


def test_returns_to_go_are_the_published_ones() -> None:
    case = next(case for case in cases() if "out/downstream_rewards" in case.arrays)
    returns = methods.returns_to_go(jnp.asarray(batch_of(case).rewards), method_of(case).discount)
    np.testing.assert_allclose(returns, case.arrays["out/downstream_rewards"], rtol=1e-5)


@by_case
def test_published_positions_do_not_depend_on_padding(case: Case) -> None:
    """The longest unfinished game of its own micro-batch has no more than its actions, as in the
    golden arrays.
    """
    golden = batch_of(case)
    compat = golden_ilql.PUBLISHED
    items = golden_ilql.items_of(case, compat)
    other = [golden_ilql.item_of("<a>" + "aaaaa</a><b><b><b><b><b></s>" * 6, 0.0)] * len(items)
    plan = ItemLayout(
        WordleTokenizer.delimiters.pad, case.utterance, compat=compat, micro_batches=2
    )
    batch = plan.batch([*other, *items], 100, 40, 8)
    width = golden.action_mask.shape[1]
    np.testing.assert_array_equal(batch.action_mask[len(items) :, :width], golden.action_mask)
    assert not batch.action_mask[len(items) :, width:].any()


def test_states_of_utterances_are_cut_at_the_longest_text() -> None:
    """24 tokens are two whole guesses and their colours; those behind are left out, or published
    stand at the last token.
    """
    text = "".join(f"{word}</a><b><b><b><b><b></s>" for word in ("aaaaa", "bbbbb", "ccccc"))
    item = golden_ilql.item_of("<a>" + text, 0.0)
    for compat, states, actions in (
        (IlqlCompat(), [0, 12], [6]),
        (golden_ilql.PUBLISHED, [0, 12, 19, 19], [6, 18]),
    ):
        cut = dialogue_batches.truncated(item, 20, compat)
        assert cut.utterance_state_indices.tolist() == states
        assert cut.utterance_action_indices.tolist() == actions
