"""Which dialogues and comments the batches of a training have."""

from __future__ import annotations

import numpy as np
import pytest

from motif_jax.ilql.dialogues import dialogue_tokens
from motif_jax.ilql.dialogues.dialogue import Dialogue
from motif_jax.ilql.dialogues.dialogue_batches import ItemLayout, ListBatches
from motif_jax.ilql.methods import TextBatch
from motif_jax.ilql.tasks.reddit.upvote import CommentBatches
from motif_jax.lm.token_data import TokensDataset, TokensWriter
from tests.toy_text import Letters

PAD = Letters.delimiters.pad
CHOSEN = np.array([0, 2, 3, 5, 6, 7, 8])


@pytest.fixture(scope="module")
def dialogues(tmp_path_factory: pytest.TempPathFactory) -> TokensDataset:
    """Nine dialogues of one to four utterances."""
    folder = tmp_path_factory.mktemp("dialogues") / "tokens"
    draws = np.random.default_rng(0)
    columns = (dialogue_tokens.TOKEN_COLUMNS, dialogue_tokens.ITEM_COLUMNS)
    with TokensWriter(folder, Letters.size, "letters", *columns) as writer:
        for number in range(9):
            texts = [
                "".join(draws.choice([*"abcd"], draws.integers(0, 5)))
                for _ in range(1 + number % 4)
            ]
            rewards = [
                None if (index + number) % 2 else float(number) for index in range(len(texts))
            ]
            dialogue = Dialogue(tuple(texts), tuple(rewards), number % 3 > 0)
            item = dialogue_tokens.tokenise(
                dialogue, Letters(), dialogue_tokens.constant_reward(0.25)
            )
            dialogue_tokens.add_item(writer, item, number)
        writer.commit()
    return TokensDataset(folder)


def batches_of(dialogues: TokensDataset, layout: ItemLayout, by_length: bool = True) -> ListBatches:
    return ListBatches(
        dialogues, CHOSEN, layout, batch_size=2, seed=7, group=2, by_length=by_length
    )


def rows_of(batch: TextBatch) -> list[tuple[int, ...]]:
    """The tokens of each row that has any, without padding."""
    tokens = batch.tokens.reshape(-1, batch.tokens.shape[-1])
    valid = batch.valid.reshape(tokens.shape)
    return [
        tuple(row[mask].tolist()) for row, mask in zip(tokens, valid, strict=True) if mask.any()
    ]


@pytest.mark.parametrize("max_len", [None, 9, 4])
def test_every_chosen_dialogue_comes_once_a_pass(
    dialogues: TokensDataset, max_len: int | None
) -> None:
    batches = batches_of(dialogues, ItemLayout(PAD, max_len=max_len))

    rows = [
        row for step in range(batches.steps_per_pass) for row in rows_of(batches.batches(step, 1))
    ]

    expected = [tuple(dialogues.item(number)[:max_len].tolist()) for number in CHOSEN]
    assert sorted(rows) == sorted(expected)


@pytest.mark.parametrize("by_utterance", [False, True])
def test_all_chosen_dialogues_are_measured(dialogues: TokensDataset, by_utterance: bool) -> None:
    all_batches = batches_of(dialogues, ItemLayout(PAD, by_utterance)).all_batches(99)

    rows = [row for batch in all_batches for row in rows_of(batch)]
    assert sorted(rows) == sorted(tuple(dialogues.item(number).tolist()) for number in CHOSEN)


def test_a_measurement_may_be_limited(dialogues: TokensDataset) -> None:
    assert len(batches_of(dialogues, ItemLayout(PAD)).all_batches(2)) == 2


@pytest.mark.parametrize("by_utterance", [False, True])
def test_a_batch_has_the_rewards_of_its_dialogues(
    dialogues: TokensDataset, by_utterance: bool
) -> None:
    for batch in batches_of(dialogues, ItemLayout(PAD, by_utterance)).all_batches(99):
        paid = np.where(batch.action_mask, batch.rewards, 0).sum(axis=1)
        np.testing.assert_allclose(paid, batch.returns, rtol=1e-6)


def test_an_action_token_points_at_its_utterance(dialogues: TokensDataset) -> None:
    for batch in batches_of(dialogues, ItemLayout(PAD, by_utterance=True)).all_batches(99):
        masks = zip(batch.action_of_token, batch.policy_mask, batch.action_mask, strict=True)
        for action_of_token, policy_mask, action_mask in masks:
            actions = action_of_token[policy_mask]
            assert sorted(actions) == actions.tolist()
            assert set(actions.tolist()) == set(range(action_mask.sum()))


@pytest.mark.parametrize("by_utterance", [False, True])
def test_action_columns_suffice_and_are_at_most_the_token_columns(
    dialogues: TokensDataset, by_utterance: bool
) -> None:
    batches = batches_of(dialogues, ItemLayout(PAD, by_utterance))
    steps = [batches.batches(step, 1) for step in range(batches.steps_per_pass)]

    most_actions = 1
    for batch in sorted(steps, key=lambda batch: batch.tokens.shape[-1]):
        most_actions = max(most_actions, int(batch.action_mask.sum(axis=-1).max()))
        assert most_actions <= batch.action_mask.shape[-1] <= batch.tokens.shape[-1]


def test_an_empty_row_has_no_action_that_counts(dialogues: TokensDataset) -> None:
    last = batches_of(dialogues, ItemLayout(PAD)).all_batches(99)[-1]

    empty = ~last.valid.any(axis=1)
    assert empty.sum() == 1
    assert not last.action_mask[empty].any()
    assert not last.policy_mask[empty].any()
    assert (last.tokens[empty] == PAD).all()


def test_rows_of_any_length_may_be_padded_alike(dialogues: TokensDataset) -> None:
    batches = batches_of(dialogues, ItemLayout(PAD), by_length=False)

    widths = {batches.batches(step, 1).tokens.shape[-1] for step in range(batches.steps_per_pass)}

    assert widths == {int(dialogues.lengths[CHOSEN].max())}


def test_a_batch_depends_on_seed_and_step_alone(dialogues: TokensDataset) -> None:
    one, other = (batches_of(dialogues, ItemLayout(PAD)) for _ in range(2))
    one.batches(5, 2)

    assert rows_of(one.batches(2, 2)) == rows_of(other.batches(2, 2))


LENGTHS = (7, 1, 12, 3, 5, 9, 2, 12, 4, 6, 8)


@pytest.fixture(scope="module")
def comments(tmp_path_factory: pytest.TempPathFactory) -> TokensDataset:
    """Comments of unequal lengths, every third of which is liked; the first token tells which it
    is.
    """
    folder = tmp_path_factory.mktemp("comments") / "tokens"
    with TokensWriter(folder, 100, "numbers", {}, {"liked": "bool"}) as writer:
        for number, length in enumerate(LENGTHS):
            writer.add(
                range(8 * number, 8 * number + length), item_columns={"liked": number % 3 == 0}
            )
        writer.commit()
    return TokensDataset(folder)


def test_comments_keep_their_votes(comments: TokensDataset) -> None:
    batches = CommentBatches(comments, batch_size=2, pad=92, seed=5, group=1)

    votes = {}
    for step in range(batches.steps_per_pass):
        batch = batches.batches(step, 1)
        for tokens, is_liked, is_row in zip(
            batch.tokens[0], batch.liked[0], batch.exists[0], strict=True
        ):
            if is_row:
                votes[int(tokens[0]) // 8] = bool(is_liked)
            else:
                assert not is_liked
                assert (tokens == 92).all()

    assert votes == {number: number % 3 == 0 for number in range(len(LENGTHS))}
