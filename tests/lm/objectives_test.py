"""What is predicted of which rows, tokenizers made of texts, and texts read from files."""

from __future__ import annotations

import json
import re

import chex
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer

from motif_jax.core import resources
from motif_jax.core.errors import UserError
from motif_jax.ilql.agent import exported
from motif_jax.lm import byte_pairs, corpus, objectives
from motif_jax.lm.objectives import ObjectiveRows, Tokens
from motif_jax.lm.training import TokenBatch

TOKENS = Tokens(start=2, end=1, pad=3, mask=4, sentinels=tuple(range(90, 100)), size=100)
DRAWS = np.random.default_rng


def rows(lengths: list[int], width: int, prompts: list[int] | None = None) -> ObjectiveRows:
    tokens = DRAWS(1).integers(5, 90, (len(lengths), width)).astype(np.int32)
    valid = np.arange(width) < np.array(lengths)[:, None]
    return ObjectiveRows(np.where(valid, tokens, TOKENS.pad), valid, np.array(prompts or [0] * len(lengths)))


def test_a_share_of_the_tokens_is_masked_changed_or_left() -> None:
    given = rows([400] * 40 + [1, 0], 400)
    batch = objectives.masked(given, TOKENS, DRAWS(0))
    np.testing.assert_array_equal(batch.targets[:, 1:], given.tokens)
    chosen = batch.weights[:40] > 0
    np.testing.assert_array_equal(batch.tokens[:40][~chosen], batch.targets[:40][~chosen])
    assert chosen.mean() == pytest.approx(0.15, abs=0.01)
    shown = batch.tokens[:40][chosen]
    assert (shown == TOKENS.mask).mean() == pytest.approx(0.8, abs=0.03)
    assert (shown == batch.targets[:40][chosen]).mean() == pytest.approx(0.11, abs=0.03)
    # Whatever a row has, one of it is chosen; of nothing there is nothing.
    assert batch.weights[40:].sum(axis=1).tolist() == [1, 0]
    assert not chosen[:, 0].any()
    assert not batch.valid[41].any()
    assert (shown.min(), shown.max()) == (0, TOKENS.size - 1)


def test_a_seventh_of_a_text_is_noise_in_spans_of_three() -> None:
    assert [*map(objectives.span_counts, (2, 10, 40, 100))] == [(1, 1), (2, 1), (6, 2), (15, 5)]
    assert [*map(objectives.span_window, (3, 4, 10, 60, 100))] == [2, 3, 10, 66, 110]


@pytest.mark.parametrize("length", [4, 24, 60])
def test_inputs_and_targets_of_spans_together_are_the_text(length: int) -> None:
    width = objectives.span_window(length)
    given = rows([width] * 6, width).tokens
    batch = objectives.spans(given, TOKENS, DRAWS(3))
    assert batch.prompt.shape[1] == length
    noise, count = objectives.span_counts(width)
    assert batch.targets.shape[1] == noise + count + 1
    for row, read, written in zip(given, batch.prompt.tolist(), batch.targets.tolist(), strict=True):
        assert read.pop() == written.pop() == TOKENS.end
        spans: dict[int, list[int]] = {}
        for token in written:
            if token in TOKENS.sentinels:
                spans[token] = []
            else:
                spans[list(spans)[-1]].append(token)
        assert list(spans) == list(TOKENS.sentinels[:count])
        assert all(spans.values())
        assert [x for token in read for x in spans.get(token, [token])] == row.tolist()
    before = np.pad(batch.targets[:, :-1], ((0, 0), (1, 0)), constant_values=TOKENS.start)
    all_there, weights = batch.targets >= 0, np.ones(batch.targets.shape, np.float32)
    expected = TokenBatch(before, all_there, batch.targets, weights, batch.prompt, batch.prompt >= 0)
    chex.assert_trees_all_equal(batch, expected)
    said = "^rows of 400 tokens have 20 spans, the tokenizer has 10 sentinels: a smaller config.length is needed$"
    with pytest.raises(UserError, match=said):
        objectives.spans(rows([400], 400).tokens, TOKENS, DRAWS(0))


def test_tokens_are_masked_behind_the_prompt_alone() -> None:
    given = rows([40] * 8, 40)._replace(prompt=np.arange(8) * 4)
    batch = objectives.masked(given, TOKENS, DRAWS(1))
    # A start token stands in front of every row.
    for row, prompt in enumerate(given.prompt):
        assert not batch.weights[row, : prompt + 1].any()
        assert batch.weights[row].any()


def test_every_token_behind_the_first_and_the_prompt_is_predicted() -> None:
    given = rows([8, 6, 8, 0], 8, [1, 5, 0, 0])
    batch = objectives.causal(given)
    np.testing.assert_array_equal(batch.tokens, given.tokens[:, :-1])
    np.testing.assert_array_equal(batch.targets, given.tokens[:, 1:])
    expected = [[1] * 7, [0, 0, 0, 0, 1, 0, 0], [1] * 7, [0] * 7]
    assert batch.weights.tolist() == expected


@pytest.mark.parametrize("seed", range(5))
def test_a_text_is_read_up_to_its_prompt_and_written_behind_it(seed: int) -> None:
    given = rows([8, 6, 8, 0], 8, [1, 5, 0, 0])
    batch = objectives.prefix(given, (7, 7), TOKENS, DRAWS(seed))
    for row, length in enumerate([8, 6, 8]):
        read = batch.prompt[row][batch.prompt_valid[row]]
        written = batch.targets[row][batch.weights[row] > 0]
        assert [*read, *written] == given.tokens[row, :length].tolist()
        before = [TOKENS.start, *written][:7]
        assert batch.tokens[row][batch.valid[row]].tolist() == before
    assert batch.prompt_valid.sum(axis=1)[:2].tolist() == [1, 5]
    # Of nothing an encoder reads one token, and nothing is written.
    assert (batch.prompt_valid[3].sum(), batch.weights[3].sum()) == (1, 0)


def test_a_text_without_a_prompt_is_cut_from_a_quarter_to_three_quarters() -> None:
    given = rows([8], 8)
    cuts = {
        int(objectives.prefix(given, (6, 6), TOKENS, DRAWS(seed)).prompt_valid.sum()) for seed in range(40)
    }
    assert cuts == {2, 3, 4, 5}


@pytest.mark.parametrize("length", [8, 11])
def test_widths_of_prompt_and_target_suffice_for_every_cut(length: int) -> None:
    given, widths = rows([length], length), objectives.prefix_widths(length)
    for seed in range(20):
        batch = objectives.prefix(given, widths, TOKENS, DRAWS(seed))
        assert batch.prompt_valid.sum() + batch.weights.sum() == length


def test_byte_pairs_keep_every_text_and_phrases_need_fewer_tokens() -> None:
    said = [f"You see a {color} door.\nYou open the {color} door." for color in ("red", "blue")] * 4
    size = byte_pairs.smallest("gpt2") + 60
    words, phrases = (byte_pairs.train(said, "gpt2", size, how) for how in ("", byte_pairs.SENTENCES))
    odd = "You see \u00e9\U0001f600 a  red\tdoor.\n\n"
    for tokenizer in (words, phrases):
        assert tokenizer.decode(tokenizer.encode(odd).ids) == odd
        assert tokenizer.get_vocab_size() <= size
    assert len(phrases.encode(said[0]).ids) < len(words.encode(said[0]).ids)
    assert words.to_str() == byte_pairs.train(said, "gpt2", size).to_str()
    t5 = byte_pairs.train(said, "t5", 500)
    assert t5.decode(t5.encode("a door").ids, skip_special_tokens=False) == "a door</s>"


@pytest.mark.parametrize("kind", ["gpt2", "t5", "roberta"])
def test_a_saved_tokenizer_is_read_as_it_was_learned(tmp_path, kind) -> None:
    texts = ["You see a red door.", "You open the blue door."] * 4
    smallest = byte_pairs.smallest(kind)
    learned = byte_pairs.train(texts, kind, smallest + 3)
    byte_pairs.save(tmp_path / kind, learned, kind)
    read = Tokenizer.from_file(str(tmp_path / kind / "tokenizer.json"))
    assert read.encode(texts[0]).ids == learned.encode(texts[0]).ids
    assert read.get_vocab_size() == smallest + 3


def test_in_dialogues_a_text_behind_a_special_token_begins_as_any(tmp_path) -> None:
    first, other = ({"type": "Metaspace", "prepend_scheme": scheme} for scheme in ("first", "never"))
    for given in (first, other, {"pretokenizers": [other, first]}, None):
        path, wanted = tmp_path / "tokenizer.json", json.dumps(given).replace("first", "always")
        path.write_text(json.dumps({"pre_tokenizer": given, "model": "é", "padding": 1, "truncation": 2}))
        exported.split_at_special_tokens(path)
        nothing = dict.fromkeys(("post_processor", "padding", "truncation"))
        assert json.loads(path.read_text()) == {"pre_tokenizer": json.loads(wanted), "model": "é", **nothing}


def test_a_text_with_an_endless_word_or_blank_is_learned_from_in_pieces() -> None:
    texts = ["a b", "", "x" * 2500, "a" + " " * 1000]
    pieces = list(byte_pairs._short_words(texts))
    assert [len(piece) for piece in pieces] == [3, 1000, 1000, 500, 1000, 1]
    assert "".join(pieces) == "".join(texts)


def test_a_thing_of_a_mission_has_the_tokens_that_it_has_where_it_is_seen() -> None:
    said = [
        f"Goal of the agent: go to {article} {color} {kind} \n Observation 0: You see a {color} {kind} {number} steps left, You see a wall 1 step "
        f"forward, You see a red ball {number} steps right, \n Action 0: "
        for color in ("red", "grey", "blue") for kind in ("ball", "key") for article in ("a", "the") for number in range(2, 5)
    ]  # fmt: skip
    phrase = resources.config_file("pretrain_language_model")["PHRASE"]
    tokenizer = byte_pairs.train(said, "gpt2", byte_pairs.smallest("gpt2") + 200, phrase)
    for text in said:
        tokens = [tokenizer.decode([token]) for token in tokenizer.encode(text).ids]
        thing, place = re.search(r"go to \w+ (.*? )\n.*?You see a \1(.*?, )", text, re.DOTALL).groups()
        assert tokens.count(thing) == 2 + (thing == "red ball ")
        assert place in tokens
        assert "".join(tokens) == text


def test_texts_of_all_kinds_are_read_in_order_and_bad_ones_named(tmp_path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n\n\n  \nthree\n")
    (tmp_path / "b.jsonl").write_text(json.dumps({"text": "four", "prompt": "p"}) + "\n")
    pq.write_table(pa.table({"text": ["five"], "other": [1]}), tmp_path / "c.parquet")
    paths = corpus.find(str(tmp_path))
    size = paths[2].stat().st_size
    found = [(item.prompt, item.text, item.place) for item in corpus.read(paths, "paragraph")]
    assert found == [("", "one\ntwo", 9), ("", "three", 7), ("p", "four", 32), ("", "five", size)]
    lines = [(item.text, item.place) for item in corpus.read(paths[:1], "line")]
    assert lines == [("one", 4), ("two", 4), ("three", 6)]
    assert [item.place for item in corpus.read(paths[:1], "file")] == [19]
    for name, content, said in (
        ("c.parquet", b"PAR1", r"c\.parquet cannot be read"),
        ("b.jsonl", b'{"text": "four"}\n{"words": 3}\n', r"b\.jsonl line 2: must be an object"),
        ("b.jsonl", b'{"text": "four"}\n{\n', r"b\.jsonl line 2 cannot be read"),
        ("b.jsonl", b'{"text": "four", "prompt": 3}\n', r'b\.jsonl line 1: "prompt" must be a text'),
        ("a.txt", b"\xff\xfe", r"a\.txt cannot be read"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match=said):
            list(corpus.read(paths, "line"))
    talk = pa.table({"texts": [["a", "b", "c", "d"], ["e"]], "rewards": [[None, 1.0, None, 2.0], [None]]})
    pq.write_table(talk, tmp_path / "d.parquet")
    turn = (tmp_path / "d.parquet").stat().st_size // 2 // 2
    expected = [corpus.Item("bc", "a", turn, ["b", "c"]), corpus.Item("d", "abc", turn, ["d"])]
    paths = corpus.find(f"{tmp_path}/d.parquet, ,{tmp_path}/a.txt")
    assert [path.name for path in paths] == ["d.parquet", "a.txt"]
    assert list(corpus.read(paths[:1], "line")) == expected
