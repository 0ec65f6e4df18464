import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from motif_jax.core.errors import UserError
from motif_jax.ilql.dialogues import dialogue_files, dialogue_tokens
from motif_jax.ilql.dialogues.dialogue import Dialogue, Dialogues
from motif_jax.lm.token_data import TokensDataset, TokensWriter
from tests.golden_ilql import dialogue_text
from tests.toy_text import Letters

DIALOGUES = [
    Dialogue(("hello?", "yes", "no"), (None, -1.5, None), True, {"kind": "a", "n": 1}),
    Dialogue((), (), False),
    Dialogue(("\u00e9\U0001f7e9 \n", "b"), (0.0, 2.0), False, {"x": [1, 2]}),
]


def test_columns_there_and_back():
    columns = Dialogues.of(DIALOGUES)
    assert list(columns) == [columns[index - 3] for index in range(3)] == DIALOGUES
    assert list(columns[::2]) == DIALOGUES[::2]
    assert columns.returns().tolist() == [-1.5, 0.0, 2.0]
    assert columns.action_counts().tolist() == [1, 0, 2]
    assert list(Dialogues.joined([columns, columns])) == DIALOGUES * 2
    for index in (3, -4):
        with pytest.raises(IndexError, match=f"^{index}$"):
            columns[index]


def test_parquet_there_and_back(tmp_path):
    columns = Dialogues.of(DIALOGUES)
    dialogue_files.write(tmp_path / "d.parquet", iter([columns, columns]), {"origin": "here"})
    assert list(dialogue_files.read_parquet(tmp_path / "d.parquet")) == DIALOGUES * 2
    assert dialogue_files.about(tmp_path / "d.parquet") == {"origin": "here"}
    assert [path.name for path in tmp_path.iterdir()] == ["d.parquet"]
    dialogue_files.write(tmp_path / "d.parquet", [columns[1:]], {})
    assert list(dialogue_files.read_parquet(tmp_path / "d.parquet")) == DIALOGUES[1:]
    dialogue_files.write(tmp_path / "none.parquet", [], {})
    assert len(dialogue_files.read_parquet(tmp_path / "none.parquet")) == 0


def test_parquet_of_others(tmp_path):
    """Integers as rewards, sliced columns and another order of columns are fine."""
    table = pa.table({
        "meta": ["{}"] * 2, "terminal": [True, False], "rewards": [[None, 1], [2]], "texts": [["a", "b"], ["c"]],
    })  # fmt: skip
    pq.write_table(table, tmp_path / "d.parquet")
    read = dialogue_files.read_parquet(tmp_path / "d.parquet")
    assert list(read) == [Dialogue(("a", "b"), (None, 1.0), True), Dialogue(("c",), (2.0,), False)]


def test_json_lines_are_read_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(dialogue_files, "PART_DIALOGUES", 2)
    rewards = [1e18, 1.0, 2.0, 3.0, 4.0]
    rows = [
        {"messages": [{"role": "assistant", "content": "abcde"[n]}], "reward": rewards[n], "n": n}
        for n in range(5)
    ]
    for count, sizes in ((5, [2, 2, 1]), (4, [2, 2])):
        (tmp_path / "d.jsonl").write_text("\n\n".join(map(json.dumps, rows[:count])))
        parts = list(dialogue_files.read_json_lines(tmp_path / "d.jsonl"))
        assert [len(part) for part in parts] == sizes
        wanted = [Dialogue(("abcde"[n],), (rewards[n],), True, {"n": n}) for n in range(count)]
        assert list(Dialogues.joined(parts)) == wanted


WHOLE_TABLE = {
    "texts": [[], ["a", "b"]],
    "rewards": [[], [None, 1.0]],
    "terminal": [True, False],
    "meta": ["{}", "{}"],
}


def test_a_file_of_others_has_no_origin(tmp_path):
    pq.write_table(pa.table(WHOLE_TABLE), tmp_path / "d.parquet")
    assert dialogue_files.about(tmp_path / "d.parquet") == {}


PAID = dialogue_tokens.rewards_by_token({2: 0.25, 3: 1.0}, scale=2.0, shift=0.5)
PLAYED = (
    Dialogue(("ab", "c", "", "d"), (None, -1.0, 3.0, None), True),
    Dialogue(("dc", "b", "abd"), (2.5, None, -1.5), False),
    Dialogue(("a",), (None,), True),
)
ITEMS = [dialogue_tokens.tokenise(dialogue, Letters(), PAID) for dialogue in PLAYED]


def test_tokens_of_dialogues_and_the_same_from_a_disk(tmp_path):
    first, second, silent = ([array.tolist() for array in item] for item in ITEMS)
    assert first[:4] == [
        [27, 0, 1, 29, 2, 30, 30, 3, 29, 31],
        [3, 4, 5, 9],
        [3, 4, 5],
        [1.0, -0.5, 3.5],
    ]
    assert first[4:] == [[0, 0, 0, 1], [3, 5, 9], [5, 6], [0.5, 3.5], [0, 0, 1]]
    assert second[:3] == [
        [28, 3, 2, 30, 1, 29, 0, 1, 3, 30],
        [0, 1, 2, 5, 6, 7, 8, 9],
        [0, 1, 2, 5, 6, 7, 8],
    ]
    assert second[3:5] == [[2.5, 1.0, 3.0, 0.5, 0.5, 2.5, -1.0], [0] * 8]
    assert second[5:] == [[0, 5, 9], [3, 9], [6.5, 2.5], [0, 0, 0]]
    assert silent == [[27, 0, 29, 31], [3], [], [], [1], [3], [], [], [1]]
    assert dialogue_text(PLAYED[0]) == "<s>ab</s>c</a></a>d</s></eod>"
    for number, (order, longest) in enumerate((([2], 0), ([2, 0], 2), ([1, 2, 0], 4), ([0, 1], 4))):
        columns = dialogue_tokens.TOKEN_COLUMNS, dialogue_tokens.ITEM_COLUMNS
        with TokensWriter(tmp_path / str(number), 32, "letters", *columns) as writer:
            for item_number in order:
                dialogue_tokens.add_item(writer, ITEMS[item_number], item_number + 0.5)
            writer.commit()
        dataset = TokensDataset(tmp_path / str(number))
        assert dialogue_tokens.longest_action(dataset) == longest
        assert dataset.item_columns["return"].tolist() == [
            item_number + 0.5 for item_number in order
        ]
        for index, item_number in enumerate(order):
            for array, wanted in zip(
                dialogue_tokens.item_of(dataset, index), ITEMS[item_number], strict=True
            ):
                np.testing.assert_array_equal(array, wanted, strict=True)


def test_token_rewards_of_a_file(tmp_path):
    path = tmp_path / "t.json"
    tokens = np.array([3, 7, 1])
    path.write_text('{"3": 0.25, "7": -1}')
    assert dialogue_tokens.rewards_from_file(path, scale=2.0, shift=0.5)(tokens).tolist() == [
        1.0,
        -1.5,
        0.5,
    ]
    assert dialogue_tokens.rewards_from_file(path)(tokens).tolist() == [0.25, -1.0, 0.0]


def test_rewards_of_messages_and_of_the_line_exclude_each_other():
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    line = {"messages": messages, "rewards": [1.0]}
    assert dialogue_files.parsed(line, "line 1").rewards == (None, 1.0)
    messages[1]["reward"] = 2.0
    with pytest.raises(UserError, match=r"not a dialogue \(both messages with a reward"):
        dialogue_files.parsed(line, "line 1")
