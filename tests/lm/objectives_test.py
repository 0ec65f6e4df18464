"""Objectives of language models: which tokens of which rows are predicted; and tokenizers made of
texts.
"""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from tokenizers import Tokenizer

from motif_jax.core import resources
from motif_jax.lm import byte_pairs, text_batches
from motif_jax.lm.text_batches import ObjectiveRows, TokenBatch, Tokens
from motif_jax.published import exports

TOKENS = Tokens(start=2, end=1, pad=3, mask=4, sentinels=tuple(range(90, 100)), size=100)


def rows(lengths: list[int], width: int, prompts: list[int] | None = None) -> ObjectiveRows:
    """Rows of random tokens that are not special, padded to `width`."""
    tokens = np.random.default_rng(1).integers(5, 90, (len(lengths), width)).astype(np.int32)
    valid = np.arange(width) < np.array(lengths)[:, None]
    return ObjectiveRows(
        np.where(valid, tokens, TOKENS.pad), valid, np.array(prompts or [0] * len(lengths))
    )


def masked(objective_rows: ObjectiveRows, seed: int = 0) -> TokenBatch:
    return text_batches.masked(objective_rows, TOKENS, np.random.default_rng(seed))


def prefix(objective_rows: ObjectiveRows, widths: tuple[int, int], seed: int) -> TokenBatch:
    return text_batches.prefix(objective_rows, widths, TOKENS, np.random.default_rng(seed))


def test_of_chosen_tokens_most_are_masked_some_changed_some_left() -> None:
    full_rows = rows([400] * 40, 400)

    batch = masked(full_rows)

    chosen = batch.weights > 0
    assert chosen.mean() == pytest.approx(0.15, abs=0.01)
    inputs = batch.tokens[chosen]
    assert (inputs == TOKENS.mask).mean() == pytest.approx(0.8, abs=0.03)
    # A hundredth of them by chance.
    assert (inputs == batch.targets[chosen]).mean() == pytest.approx(0.11, abs=0.03)
    # Changed ones are of the whole vocabulary, special tokens included.
    assert inputs.min() < TOKENS.mask
    assert 90 <= inputs.max() < TOKENS.size


def test_tokens_that_are_not_chosen_stay_behind_a_start_token() -> None:
    full_rows = rows([400] * 40, 400)

    batch = masked(full_rows)

    np.testing.assert_array_equal(batch.targets[:, 1:], full_rows.tokens)
    others = batch.weights == 0
    np.testing.assert_array_equal(batch.tokens[others], batch.targets[others])
    assert others[:, 0].all()


def test_the_only_token_of_a_row_is_chosen() -> None:
    batch = masked(rows([1, 0], 400))

    assert batch.weights.sum(axis=1).tolist() == [1, 0]
    assert not batch.valid[1].any()


def test_a_seventh_of_a_text_is_noise_in_spans() -> None:
    assert [*map(text_batches.span_counts, (2, 10, 40, 100))] == [(1, 1), (2, 1), (6, 2), (15, 5)]


def test_a_span_window_fills_the_encoders_input() -> None:
    assert [*map(text_batches.span_window, (3, 4, 10, 60, 100))] == [2, 3, 10, 66, 110]


def span_batch(length: int) -> tuple[np.ndarray, TokenBatch]:
    """Six texts int32 [6, width] and their batch, whose inputs have `length` tokens."""
    width = text_batches.span_window(length)
    texts = rows([width] * 6, width).tokens
    return texts, text_batches.spans(texts, TOKENS, np.random.default_rng(3))


@pytest.mark.parametrize("length", [4, 24, 60])
def test_inputs_and_targets_of_spans_together_are_the_text(length: int) -> None:
    texts, batch = span_batch(length)

    _, count = text_batches.span_counts(texts.shape[1])
    for text, inputs, targets in zip(
        texts, batch.prompt.tolist(), batch.targets.tolist(), strict=True
    ):
        assert inputs.pop() == targets.pop() == TOKENS.end
        spans: dict[int, list[int]] = {}
        for token in targets:
            if token in TOKENS.sentinels:
                sentinel = token
                spans[sentinel] = []
            else:
                spans[sentinel].append(token)
        assert list(spans) == list(TOKENS.sentinels[:count])
        assert all(spans.values())
        joined = [
            token for input_token in inputs for token in spans.get(input_token, [input_token])
        ]
        assert joined == text.tolist()


@pytest.mark.parametrize("length", [4, 24, 60])
def test_batches_of_spans_have_no_padding(length: int) -> None:
    texts, batch = span_batch(length)

    noise, count = text_batches.span_counts(texts.shape[1])
    assert batch.prompt.shape[1] == length
    assert batch.targets.shape[1] == noise + count + 1
    assert batch.prompt_valid.all()
    assert batch.valid.all()
    assert (batch.weights == 1).all()
    assert (batch.tokens[:, 0] == TOKENS.start).all()
    np.testing.assert_array_equal(batch.tokens[:, 1:], batch.targets[:, :-1])


def test_tokens_are_masked_behind_the_prompt_alone() -> None:
    prompted = rows([40] * 8, 40)._replace(prompt=np.arange(8) * 4)

    batch = masked(prompted, seed=1)

    for row, prompt in enumerate(prompted.prompt):
        # A start token stands in front of every row.
        assert not batch.weights[row, : prompt + 1].any()
        assert batch.weights[row].any()


def test_every_token_behind_the_first_and_the_prompt_is_predicted() -> None:
    prompted = rows([8, 6, 8, 0], 8, [1, 5, 0, 0])

    batch = text_batches.causal(prompted)

    np.testing.assert_array_equal(batch.tokens, prompted.tokens[:, :-1])
    np.testing.assert_array_equal(batch.targets, prompted.tokens[:, 1:])
    expected = [[1] * 7, [0, 0, 0, 0, 1, 0, 0], [1] * 7, [0] * 7]
    assert batch.weights.tolist() == expected


@pytest.mark.parametrize("seed", range(5))
def test_the_decoder_writes_what_follows_the_prompt(seed: int) -> None:
    prompted = rows([8, 6, 8], 8, [1, 5, 0])

    batch = prefix(prompted, (7, 7), seed)

    assert batch.prompt_valid.sum(axis=1)[:2].tolist() == [1, 5]
    for row, length in enumerate([8, 6, 8]):
        prompt = batch.prompt[row][batch.prompt_valid[row]]
        targets = batch.targets[row][batch.weights[row] > 0]
        assert [*prompt, *targets] == prompted.tokens[row, :length].tolist()
        inputs = batch.tokens[row][batch.valid[row]]
        assert inputs.tolist() == [TOKENS.start, *targets][:7]
    # What is not the prompt's is padding, of a row without a prompt too.
    assert (batch.prompt[~batch.prompt_valid] == TOKENS.pad).all()


def test_nothing_is_predicted_of_an_empty_row() -> None:
    batch = prefix(rows([0], 8), (7, 7), seed=0)

    assert batch.prompt_valid.sum() == 1
    assert batch.weights.sum() == 0


def test_a_text_without_prompt_is_cut_in_its_middle_half() -> None:
    cuts = {int(prefix(rows([8], 8), (6, 6), seed).prompt_valid.sum()) for seed in range(40)}

    assert cuts == {2, 3, 4, 5}


@pytest.mark.parametrize("length", [8, 11])
def test_widths_of_prompt_and_target_suffice_for_every_cut(length: int) -> None:
    widths = text_batches.prefix_widths(length)
    for seed in range(20):
        batch = prefix(rows([length], length), widths, seed)

        assert batch.prompt_valid.sum() + batch.weights.sum() == length


DOORS = [f"You see a {color} door.\nYou open the {color} door." for color in ("red", "blue")] * 4
DOORS_SIZE = byte_pairs.smallest("gpt2") + 60


@pytest.mark.parametrize("phrase", ["", byte_pairs.SENTENCES], ids=["words", "sentences"])
def test_byte_pairs_keep_every_text_in_a_vocabulary(phrase: str) -> None:
    text = "You see \u00e9\U0001f600 a  red\tdoor.\n\n"

    tokenizer = byte_pairs.train(DOORS, "gpt2", DOORS_SIZE, phrase)

    assert tokenizer.decode(tokenizer.encode(text).ids) == text
    assert tokenizer.get_vocab_size() <= DOORS_SIZE


def test_phrases_need_fewer_tokens_than_words() -> None:
    words = byte_pairs.train(DOORS, "gpt2", DOORS_SIZE)
    sentences = byte_pairs.train(DOORS, "gpt2", DOORS_SIZE, byte_pairs.SENTENCES)

    assert len(sentences.encode(DOORS[0]).ids) < len(words.encode(DOORS[0]).ids)


def test_the_same_texts_make_the_same_tokenizer() -> None:
    tokenizers = [byte_pairs.train(DOORS, "gpt2", DOORS_SIZE).to_str() for _ in range(2)]

    assert tokenizers[0] == tokenizers[1]


def test_texts_of_a_t5_end_with_its_end_token() -> None:
    tokenizer = byte_pairs.train(DOORS, "t5", 500)

    assert (
        tokenizer.decode(tokenizer.encode("a door").ids, skip_special_tokens=False) == "a door</s>"
    )


@pytest.mark.parametrize("kind", ["gpt2", "t5", "roberta"])
def test_a_saved_tokenizer_is_read_as_it_was_learned(tmp_path, kind) -> None:
    texts = ["You see a red door.", "You open the blue door."] * 4
    smallest = byte_pairs.smallest(kind)
    learned = byte_pairs.train(texts, kind, smallest + 3)
    byte_pairs.save(tmp_path / kind, learned, kind)
    read = Tokenizer.from_file(str(tmp_path / kind / "tokenizer.json"))
    assert read.encode(texts[0]).ids == learned.encode(texts[0]).ids
    assert read.get_vocab_size() == smallest + 3


def test_a_text_after_a_special_token_begins_as_any(tmp_path) -> None:
    first = {"type": "Metaspace", "prepend_scheme": "first"}
    never = {"type": "Metaspace", "prepend_scheme": "never"}
    for pre_tokenizer in (first, never, {"pretokenizers": [never, first]}, None):
        path = tmp_path / "tokenizer.json"
        path.write_text(
            json.dumps(
                {"pre_tokenizer": pre_tokenizer, "model": "é", "padding": 1, "truncation": 2}
            )
        )

        exports.split_at_special_tokens(path)

        assert json.loads(path.read_text()) == {
            "pre_tokenizer": json.loads(json.dumps(pre_tokenizer).replace("first", "always")),
            "model": "é",
            "post_processor": None,
            "padding": None,
            "truncation": None,
        }


def test_endless_words_and_blanks_are_learned_from_in_pieces() -> None:
    texts = ["a b", "", "x" * 2500, "a" + " " * 1000]

    pieces = list(byte_pairs.cut_long_words(texts))

    assert [len(piece) for piece in pieces] == [3, 1000, 1000, 500, 1000, 1]
    assert "".join(pieces) == "".join(texts)


def test_an_object_has_one_token_in_mission_and_sight() -> None:
    prompts = [
        f"Goal of the agent: go to {article} {color} {kind} \n Observation 0: You see a {color} {kind} {number} steps left, You see a wall 1 step "
        f"forward, You see a red ball {number} steps right, \n Action 0: "
        for color in ("red", "grey", "blue") for kind in ("ball", "key") for article in ("a", "the") for number in range(2, 5)
    ]  # fmt: skip
    phrase = resources.config_file("pretrain_language_model")["PHRASE"]

    tokenizer = byte_pairs.train(prompts, "gpt2", byte_pairs.smallest("gpt2") + 200, phrase)

    for prompt in prompts:
        tokens = [tokenizer.decode([token]) for token in tokenizer.encode(prompt).ids]
        match = re.search(r"go to \w+ (.*? )\n.*?You see a \1(.*?, )", prompt, re.DOTALL)
        mission_object, distance = match.groups()
        # Every prompt has a red ball besides.
        assert tokens.count(mission_object) == (3 if mission_object == "red ball " else 2)
        assert distance in tokens
        assert "".join(tokens) == prompt
