"""Which tokens the batches of a language model's training have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.lm import text_batches
from motif_jax.lm.text_batches import ItemBatches, TextRows, Tokens, WindowBatches
from motif_jax.lm.token_data import TokensDataset, TokensWriter

LENGTHS = (7, 1, 12, 3, 5, 9, 2, 12, 4, 6, 8)
SPECIAL = Tokens(start=90, end=91, pad=92, mask=93, sentinels=tuple(range(94, 100)), size=100)


def write(folder: Path, with_prompts: bool) -> TokensDataset:
    """Items that begin with eight times their number."""
    with TokensWriter(folder, SPECIAL.size, "numbers", {}, {"prompt": "int32"}) as writer:
        for number, length in enumerate(LENGTHS):
            prompt = min(number % 4, length - 1) if with_prompts else 0
            writer.add(range(8 * number, 8 * number + length), item_columns={"prompt": prompt})
        writer.commit()
    return TokensDataset(folder)


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> TokensDataset:
    return write(tmp_path_factory.mktemp("texts") / "tokens", with_prompts=False)


@pytest.fixture(scope="module")
def prompted(tmp_path_factory: pytest.TempPathFactory) -> TokensDataset:
    return write(tmp_path_factory.mktemp("prompted") / "tokens", with_prompts=True)


def windows(texts: TokensDataset, objective: str, length: int = 12) -> WindowBatches:
    return WindowBatches(texts, TextRows(objective, "windows", length, SPECIAL), 3, seed=5)


@pytest.mark.parametrize(
    ("objective", "width"), [("causal", 13), ("masked", 11), ("spans", 12), ("prefix", 12)]
)
def test_a_window_leaves_room_for_what_its_objective_adds(
    texts: TokensDataset, objective: str, width: int
) -> None:
    assert windows(texts, objective).width == width


def test_measured_windows_are_the_text_from_its_beginning(texts: TokensDataset) -> None:
    tokens = []
    for batch in windows(texts, "causal").all_batches(99):
        for row, targets, weights in zip(batch.tokens, batch.targets, batch.weights, strict=True):
            if weights.any():
                tokens += [int(row[0]), *targets.tolist()]

    assert tokens == texts.tokens[: len(tokens)].tolist()
    # Less than a window is left.
    assert texts.num_tokens - len(tokens) < 13


def test_a_causal_window_predicts_the_next_token(texts: TokensDataset) -> None:
    batch = windows(texts, "causal").batches(0, 2)

    np.testing.assert_array_equal(batch.tokens[..., 1:], batch.targets[..., :-1])
    assert (batch.weights == 1).all()


@pytest.mark.parametrize("objective", ["causal", "masked", "spans", "prefix"])
def test_a_batch_of_windows_depends_on_seed_and_step_alone(
    texts: TokensDataset, objective: str
) -> None:
    one, other = (windows(texts, objective) for _ in range(2))
    one.batches(3, 2)

    for leaf, expected in zip(one.batches(1, 2), other.batches(1, 2), strict=True):
        np.testing.assert_array_equal(leaf, expected)


def test_windows_over_prompts_are_refused(prompted: TokensDataset) -> None:
    text_batches.check_prompts("items", prompted)

    with pytest.raises(UserError, match=r"config\.packing=windows: must be 'items' .* has prompts"):
        text_batches.check_prompts("windows", prompted)


def rows_of(batch: Any, step: int = 0) -> list[tuple[list[int], np.ndarray]]:
    """The tokens and weights of the rows that have tokens."""
    rows = zip(batch.tokens[step], batch.valid[step], batch.weights[step], strict=True)
    return [(tokens[valid].tolist(), weights) for tokens, valid, weights in rows if valid.any()]


def test_every_item_comes_once_a_pass(prompted: TokensDataset) -> None:
    batches = ItemBatches(prompted, TextRows("masked", "items", 12, SPECIAL), 2, seed=5, group=2)

    lengths = [
        len(tokens) - 1
        for step in range(batches.steps_per_pass)
        for tokens, _ in rows_of(batches.batches(step, 1))
    ]

    assert sorted(lengths) == sorted(LENGTHS)


def test_tokens_of_a_prompt_are_not_predicted(prompted: TokensDataset) -> None:
    batches = ItemBatches(prompted, TextRows("causal", "items", 12, SPECIAL), 2, seed=5, group=2)

    for step in range(batches.steps_per_pass):
        for tokens, weights in rows_of(batches.batches(step, 1)):
            number = tokens[0] // 8
            prompt = min(number % 4, LENGTHS[number] - 1)
            # The first token has nothing before it.
            assert weights.sum() == LENGTHS[number] - max(1, prompt)


def test_all_items_are_measured_in_as_many_batches_as_allowed(prompted: TokensDataset) -> None:
    batches = ItemBatches(prompted, TextRows("causal", "items", 12, SPECIAL), 2, seed=5, group=2)

    assert len(batches.all_batches(99)) == -(-len(LENGTHS) // 2)
    assert len(batches.all_batches(2)) == 2
