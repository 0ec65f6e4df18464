"""Dialogues as columns, as parquet, as tokens."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from motif_jax.datasets.dialogues import items, parquet, token_rewards
from motif_jax.datasets.dialogues.dialogue import Dialogue, Dialogues
from motif_jax.support.errors import UserError
from tests.golden_ilql import dialogue_text
from tests.toy_text import Letters

DIALOGUES = [
    Dialogue(("hello?", "yes", "no"), (None, -1.5, None), True, {"kind": "a", "n": 1}),
    Dialogue((), (), False),
    Dialogue(("\u00e9\U0001f7e9 \n", "b"), (0.0, 2.0), False, {"x": [1, 2]}),
]


def test_columns_there_and_back():
    columns = Dialogues.of(DIALOGUES)
    assert list(columns) == DIALOGUES
    assert columns[-1] == DIALOGUES[2]
    assert list(columns[1:]) == DIALOGUES[1:]
    assert columns.returns().tolist() == [-1.5, 0.0, 2.0]
    assert columns.turns().tolist() == [1, 0, 2]
    assert list(Dialogues.joined([columns, columns])) == DIALOGUES * 2
    with pytest.raises(IndexError):
        columns[3]


def test_parquet_there_and_back(tmp_path):
    columns = Dialogues.of(DIALOGUES)
    parquet.write(tmp_path / "d.parquet", iter([columns, columns]), {"origin": "here"})
    assert list(parquet.read(tmp_path / "d.parquet")) == DIALOGUES * 2
    assert parquet.about(tmp_path / "d.parquet") == {"origin": "here"}
    assert [path.name for path in tmp_path.iterdir()] == ["d.parquet"]
    parquet.write(tmp_path / "none.parquet", [], {})
    assert len(parquet.read(tmp_path / "none.parquet")) == 0


def test_parquet_of_others(tmp_path):
    """Integers as rewards, sliced columns and another order of columns are fine."""
    table = pa.table({
        "meta": ["{}"] * 2, "terminal": [True, False], "rewards": [[None, 1], [2]], "texts": [["a", "b"], ["c"]],
    })  # fmt: skip
    pq.write_table(table, tmp_path / "d.parquet")
    read = parquet.read(tmp_path / "d.parquet")
    assert list(read) == [Dialogue(("a", "b"), (None, 1.0), True), Dialogue(("c",), (2.0,), False)]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"rewards": [[None]]}, "as many rewards as texts"),
        ({"rewards": [[None, float("nan")]]}, "not finite"),
        ({"texts": [["a", None]]}, "1 texts are missing"),
        ({"terminal": [None]}, "values of terminal are missing"),
        ({"texts": [3]}, "another type than in files of dialogues"),
        ({"meta": ["none"]}, "meta of row 0 must be a JSON object.*no JSON"),
        ({"meta": ["[1]"]}, "meta of row 0 must be a JSON object.*list"),
    ],
)
def test_damaged_files(tmp_path, change, why):
    table = {"texts": [["a", "b"]], "rewards": [[None, 1.0]], "terminal": [True], "meta": ["{}"]}
    pq.write_table(pa.table({**table, **change}), tmp_path / "d.parquet")
    with pytest.raises(UserError, match=why):
        parquet.read(tmp_path / "d.parquet")


def test_files_that_are_no_dialogues(tmp_path):
    path = tmp_path / "d.parquet"
    path.write_text("nothing")
    for read in (parquet.read, parquet.about):
        with pytest.raises(UserError, match="cannot be read as parquet"):
            read(path)
    pq.write_table(pa.table({"texts": [["a"]]}), path)
    with pytest.raises(UserError, match="no column rewards, terminal, meta"):
        parquet.read(path)
    assert parquet.about(path) == {}
    pq.write_table(pa.table({"texts": [["a"]]}).replace_schema_metadata({"about": "["}), path)
    with pytest.raises(UserError, match="metadata about its origin cannot be read"):
        parquet.about(path)


def test_tokens_of_a_dialogue_that_begins_with_the_environment():
    tokenizer = Letters()
    marks = tokenizer.delimiters
    dialogue = Dialogue(("ab", "c", "", "d"), (None, -1.0, 3.0, None), True)
    item = items.tokenise(dialogue, tokenizer, token_rewards.constant(0.5))
    a, b, c, d = tokenizer.encode("abcd")
    end, said = marks.state_end, marks.action_end
    assert item.tokens.tolist() == [marks.state_start, a, b, end, c, said, said, d, end, marks.dialogue_end]
    assert item.action_indices.tolist() == [3, 4, 5]
    assert item.state_indices.tolist() == [3, 4, 5, 9]
    assert item.tokens[item.action_indices + 1].tolist() == [c, said, said]
    assert item.rewards.tolist() == [0.5, -0.5, 3.5]
    assert item.terminals.tolist() == [0, 0, 0, 1]
    assert item.utterance_state_indices.tolist() == [3, 5, 9]
    assert item.utterance_action_indices.tolist() == [5, 6]
    assert item.utterance_rewards.tolist() == [0.0, 3.5]
    assert dialogue_text(dialogue) == "<s>ab</s>c</a></a>d</s></eod>"


def test_token_rewards_of_a_file(tmp_path):
    (tmp_path / "t.json").write_text('{"3": 0.25, "7": -1}')
    reward = token_rewards.from_file(tmp_path / "t.json", scale=2.0, shift=0.5)
    assert reward(np.array([3, 7, 1])).tolist() == [1.0, -1.5, 0.5]
    for content in ('{"a": 1}', '{"1": "x"}', '{"1": NaN}', f'{{"1": {10**400}}}', "[1]"):
        (tmp_path / "t.json").write_text(content)
        with pytest.raises(UserError, match=r"t\.json"):
            token_rewards.from_file(tmp_path / "t.json")
