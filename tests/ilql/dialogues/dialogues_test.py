import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from motif_jax.ilql.dialogues import items, json_lines, parquet, token_columns, token_rewards
from motif_jax.ilql.dialogues.dialogue import Dialogue, Dialogues
from motif_jax.lm.token_data.dataset import TokensDataset
from motif_jax.lm.token_data.writer import TokensWriter
from tests.golden_ilql import dialogue_text
from tests.recorded_outputs import assert_matches_packed_recording, outcome_text
from tests.toy_text import Letters

DIALOGUES = [
    Dialogue(("hello?", "yes", "no"), (None, -1.5, None), True, {"kind": "a", "n": 1}),
    Dialogue((), (), False),
    Dialogue(("\u00e9\U0001f7e9 \n", "b"), (0.0, 2.0), False, {"x": [1, 2]}),
]


def test_columns_there_and_back():
    columns = Dialogues.of(DIALOGUES)
    assert list(columns) == [columns[place - 3] for place in range(3)] == DIALOGUES
    assert list(columns[::2]) == DIALOGUES[::2]
    assert columns.returns().tolist() == [-1.5, 0.0, 2.0]
    assert columns.turns().tolist() == [1, 0, 2]
    assert list(Dialogues.joined([columns, columns])) == DIALOGUES * 2
    for place in (3, -4):
        with pytest.raises(IndexError, match=f"^{place}$"):
            columns[place]


def test_parquet_there_and_back(tmp_path):
    columns = Dialogues.of(DIALOGUES)
    parquet.write(tmp_path / "d.parquet", iter([columns, columns]), {"origin": "here"})
    assert list(parquet.read(tmp_path / "d.parquet")) == DIALOGUES * 2
    assert parquet.about(tmp_path / "d.parquet") == {"origin": "here"}
    assert [path.name for path in tmp_path.iterdir()] == ["d.parquet"]
    parquet.write(tmp_path / "d.parquet", [columns[1:]], {})
    assert list(parquet.read(tmp_path / "d.parquet")) == DIALOGUES[1:]
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


def test_json_lines_are_read_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(json_lines, "_TOGETHER", 2)
    rows = [
        {"messages": [{"role": "assistant", "content": "abcde"[n]}], "reward": n + 1e18 * (n == 0), "n": n}
        for n in range(5)
    ]
    for count, sizes in ((5, [2, 2, 1]), (4, [2, 2])):
        (tmp_path / "d.jsonl").write_text("\n\n".join(map(json.dumps, rows[:count])))
        parts = list(json_lines.read(tmp_path / "d.jsonl"))
        assert [len(part) for part in parts] == sizes
        wanted = [Dialogue(("abcde"[n],), (float(n or 1e18),), True, {"n": n}) for n in range(count)]
        assert list(Dialogues.joined(parts)) == wanted


def test_files_that_are_no_dialogues(tmp_path, record):
    path, found = tmp_path / "d.parquet", []
    path.write_text("nothing")
    found += [outcome_text(read, path, folder=tmp_path) for read in (parquet.read, parquet.about)]
    whole = {"texts": [[], ["a", "b"]], "rewards": [[], [None, 1.0]], "terminal": [True, False]}
    whole["meta"] = ["{}"] * 2
    changes = [{"rewards": [[], [None]]}, {"rewards": [[], [None, np.nan]]}, {"texts": [[], ["a", None]]}]
    changes += [{"terminal": [True, None], "meta": [None, "{}"]}, {"texts": [3, 4]}]
    changes += [{"meta": ["{}", "no"]}, {"meta": ["[1]", "{}"]}, {"rewards": None, "meta": None}]
    for change in changes:
        table = {name: values for name, values in {**whole, **change}.items() if values is not None}
        pq.write_table(pa.table(table), path)
        found.append(outcome_text(parquet.read, path, folder=tmp_path))
    assert parquet.about(path) == {}
    pq.write_table(pa.table({"texts": [["a"]]}).replace_schema_metadata({"about": "["}), path)
    found.append(outcome_text(parquet.about, path, folder=tmp_path))
    path = tmp_path / "t.json"
    for content in ('{"a": 1}', '{"1": "x"}', '{"1": NaN}', f'{{"1": {10**400}}}', '{"\u0663": 1}', "[1]"):
        path.write_text(content)
        found.append(outcome_text(token_rewards.from_file, path, folder=tmp_path))
    assert_matches_packed_recording("dialogues_refused", {"found": "\n".join(found)}, record)


PAID = token_rewards.by_token({2: 0.25, 3: 1.0}, scale=2.0, shift=0.5)
PLAYED = (
    Dialogue(("ab", "c", "", "d"), (None, -1.0, 3.0, None), True),
    Dialogue(("dc", "b", "abd"), (2.5, None, -1.5), False),
    Dialogue(("a",), (None,), True),
)
MADE = [items.tokenise(each, Letters(), PAID) for each in PLAYED]


def test_tokens_of_dialogues_and_the_same_from_a_disk(tmp_path):
    first, second, silent = ([array.tolist() for array in each] for each in MADE)
    assert first[:4] == [[27, 0, 1, 29, 2, 30, 30, 3, 29, 31], [3, 4, 5, 9], [3, 4, 5], [1.0, -0.5, 3.5]]
    assert first[4:] == [[0, 0, 0, 1], [3, 5, 9], [5, 6], [0.5, 3.5], [0, 0, 1]]
    assert second[:3] == [[28, 3, 2, 30, 1, 29, 0, 1, 3, 30], [0, 1, 2, 5, 6, 7, 8, 9], [0, 1, 2, 5, 6, 7, 8]]
    assert second[3:5] == [[2.5, 1.0, 3.0, 0.5, 0.5, 2.5, -1.0], [0] * 8]
    assert second[5:] == [[0, 5, 9], [3, 9], [6.5, 2.5], [0, 0, 0]]
    assert silent == [[27, 0, 29, 31], [3], [], [], [1], [3], [], [], [1]]
    assert dialogue_text(PLAYED[0]) == "<s>ab</s>c</a></a>d</s></eod>"
    # The last action was cut off, the one before it is the tokenizer's and no action.
    cut = [array.tolist() for array in items.tokenise(PLAYED[1], Letters(), PAID, [np.array([7, 8])])]
    assert cut[:4] == [[28, 3, 2, 30, 1, 29, 7, 8, 30], [5, 6, 8], [5, 6], [0.5, -1.0]]
    assert cut[4:] == [[0] * 3, [5, 8], [7], [-0.5], [0, 0]]
    for number, (order, longest) in enumerate((([2], 0), ([2, 0], 2), ([1, 2, 0], 4), ([0, 1], 4))):
        columns = token_columns.TOKEN_COLUMNS, token_columns.ITEM_COLUMNS
        with TokensWriter(tmp_path / str(number), 32, "letters", *columns) as writer:
            for place in order:
                token_columns.add(writer, MADE[place], place + 0.5)
            writer.commit()
        found = TokensDataset(tmp_path / str(number))
        assert token_columns.longest_action(found) == longest
        assert found.item_columns["return"].tolist() == [place + 0.5 for place in order]
        for index, place in enumerate(order):
            for array, wanted in zip(token_columns.item_of(found, index), MADE[place], strict=True):
                np.testing.assert_array_equal(array, wanted, strict=True)


def test_token_rewards_of_a_file(tmp_path):
    path, tokens = tmp_path / "t.json", np.array([3, 7, 1])
    path.write_text('{"3": 0.25, "7": -1}')
    assert token_rewards.from_file(path, scale=2.0, shift=0.5)(tokens).tolist() == [1.0, -1.5, 0.5]
    assert token_rewards.from_file(path)(tokens).tolist() == [0.25, -1.0, 0.0]
