from __future__ import annotations

import json
import os
from dataclasses import replace

import numpy as np
import pyarrow.parquet
import pytest

from motif_jax.core.errors import UserError
from motif_jax.envs.episode import PlayedEpisode
from motif_jax.envs.spec import TERMINATED, TRUNCATED
from motif_jax.play import evaluation_files, messages
from motif_jax.play.messages import MessageTally
from tests.made_up_runs import HOSTILE, evaluation_rows, write_evaluation


def test_actions_of_large_environments_are_kept(tmp_path):
    rows = [{"index": 0, "actions": [1, 2]}, {"index": 1, "actions": [256, 0, 70_000]}]
    packed = [row | {"actions": evaluation_files.encode_actions(row["actions"])} for row in rows]
    (tmp_path / "episodes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in packed))
    read = evaluation_files.read_rows(tmp_path / "episodes.jsonl")
    actions = [evaluation_files.decode_actions(row["actions"]).tolist() for row in read]
    assert actions == [row["actions"] for row in rows]
    evaluation_files.write_parquet(tmp_path / "table.parquet", packed)
    assert pyarrow.parquet.read_table(tmp_path / "table.parquet").to_pylist() == rows
    assert ":" not in evaluation_files.encode_actions([255]), "a byte is enough"
    with pytest.raises(ValueError, match="actions of at least 0 can be packed, not -1"):
        evaluation_files.encode_actions([0, -1])


def test_a_cut_journal_loses_at_most_its_last_row(tmp_path):
    row = {"session": 0, "session_seconds": 1.0, "x": float("nan"), "text": HOSTILE}
    with evaluation_files.Journal(tmp_path) as rows:
        for index in range(3):
            rows.append({"index": index, **row})
    content = (tmp_path / evaluation_files.JOURNAL).read_bytes()
    ends = [i + 1 for i, byte in enumerate(content) if byte == ord("\n")]
    sizes = {0, len(content), *ends, *(end - 1 for end in ends), *range(0, len(content), 17)}
    for size in sorted(sizes):
        (tmp_path / evaluation_files.JOURNAL).write_bytes(content[:size])
        complete = sum(end <= size for end in ends)
        with evaluation_files.Journal(tmp_path) as rows:
            assert rows.done == set(range(complete))
            rows.append({"index": complete, "session": rows.session, "session_seconds": 0.5})
        with evaluation_files.Journal(tmp_path) as rows:
            played = [{"index": index, **row, "x": None} for index in range(complete)]
            later = {"index": complete, "session": int(complete > 0), "session_seconds": 0.5}
            assert rows.rows == [*played, later]
            assert (rows.done, rows.session) == (set(range(complete + 1)), later["session"] + 1)


def test_speed_adds_up_sessions():
    rows = [
        {"length": 100, "session": 0, "session_seconds": 1.0},
        {"length": 100, "session": 0, "session_seconds": 2.0},
        {"length": 300, "session": 1, "session_seconds": 3.0},
    ]
    assert evaluation_files.speed(rows) == evaluation_files.speed(rows[::-1]) == (100.0, 5.0)
    assert evaluation_files.speed([]) == (0.0, 0.0)


def test_read_evaluation(tmp_path):
    summary = write_evaluation(tmp_path, "random", evaluation_rows(6, 0.0, 1))
    read = evaluation_files.read_evaluation(tmp_path)
    rows = read.pop("rows")
    assert rows == evaluation_rows(6, 0.0, 1)
    assert read == json.loads(json.dumps(summary)) | {"digest": read["digest"]}
    read["rows"] = rows
    with open(tmp_path / evaluation_files.JOURNAL, "a") as file:
        file.write('{"index": 6}\n')
    assert evaluation_files.read_evaluation(tmp_path) == read, (
        "not of one with more episodes that was killed"
    )


def test_a_success_that_fell_in_one_game_is_none_in_all(tmp_path):
    rows = evaluation_rows(6, 0.0, 1)
    rows[2]["info_success"] = rows[2].pop("success")
    write_evaluation(tmp_path, "random", rows)

    read = evaluation_files.read_evaluation(tmp_path)

    assert not any("success" in row for row in read["rows"])
    assert [row["info_success"] for row in read["rows"]] == [
        row.get("success", row.get("info_success")) for row in rows
    ]
    always = evaluation_files.comparable_rows({"success_falls": True}, [{"success": 1.0}])
    assert always == [{"info_success": 1.0}]


def test_a_row_says_how_an_episode_ended():
    played = PlayedEpisode(
        4, 77, np.array([3, 0, 2]), np.ones(3), TERMINATED, {"end": 1.0, "score": 5.0}
    )
    row = {
        "index": 4,
        "seed": 77,
        "length": 3,
        "actions": evaluation_files.encode_actions(played.actions),
    }
    dead = {**row, **played.info, "deaths": 1.0, "end_reason": "death"}
    assert evaluation_files.episode_row(played) == dead
    assert evaluation_files.episode_row(replace(played, end=TRUNCATED)) == dead | {
        "deaths": 0.0,
        "end_reason": "step limit",
    }
    assert evaluation_files.episode_row(replace(played, info={})) == row | {"end_reason": "end"}
    others = [evaluation_files.end_reason(False, end) for end in (2.0, -1.0, 7.0)]
    assert others == ["success", "step limit", "end"]


def test_returns_of_different_rewards_are_not_compared():
    rewards = ({"dir": "runs/a"}, {"dir": os.path.abspath("runs/a"), "quantile": 0.5}, None)
    first, second, unrated = ({"plan": {"reward": reward}} for reward in rewards)
    assert evaluation_files.reward_differences(unrated, second | first) == "dir None and runs/a"
    evaluation_files.require_comparable({"a": first, "b": second}, "return", "of")
    for key in ("intrinsic_return", "intrinsic_return_uncounted"):
        evaluation_files.require_comparable({"a": first, "b": first}, key, "of")
        line = rf"^config\.of={key}: a and b were rated by different rewards \(quantile None and 0\.5\): evaluate both"
        with pytest.raises(UserError, match=line):
            evaluation_files.require_comparable({"a": first, "b": second}, key, "of")


def test_tallies_of_messages(tmp_path):
    assert evaluation_files.read_messages(tmp_path) == []
    texts = np.zeros((2, 8), np.uint8)
    texts[0, :3] = list(b"abc")
    texts[1, :2] = [1, 200]
    shown, paid, counted = np.array([[0, 1, 0, 0], [2, 1, 2, 2], [2, 1, 0.25, 0.1]])
    tallies = messages.tally_episode(texts, shown.astype(int), paid, counted)
    assert tallies == [
        MessageTally("abc", 3, 1, 2.0, 2.35),
        MessageTally("\\x01\\xc8", 1, 1, 1.0, 1.0),
    ]
    merged = messages.merge([tallies, messages.unpack(messages.pack(tallies))])
    assert merged == [
        MessageTally("abc", 6, 2, 2.0, 4.7),
        MessageTally("\\x01\\xc8", 2, 2, 1.0, 2.0),
    ]
    assert tallies[0].count == 3, "what is merged stays as it was"
    alike = [MessageTally("b", 1, total=1.0), MessageTally("a", 1), MessageTally("c", 2)]
    assert [one.text for one in messages.merge([alike])] == ["c", "a", "b"]
    assert messages.merge([alike[:1], [MessageTally("b", 1)]]) == [
        MessageTally("b", 2, 2, None, 1.0)
    ]
    without = messages.tally_episode(texts, np.array([1, 1]))
    assert without == [MessageTally("\\x01\\xc8", 2)]


@pytest.mark.parametrize("steps", [0, 1, 40])
def test_real_actions_are_packed_and_kept_in_parquet(tmp_path, steps):
    actions = np.random.default_rng(0).uniform(-1, 1, (steps, 3)).astype(np.float32)
    text = evaluation_files.encode_actions(actions)

    unpacked = evaluation_files.decode_actions(text)

    assert unpacked.dtype == np.float32
    np.testing.assert_array_equal(unpacked, actions)
    evaluation_files.write_parquet(tmp_path / "rows.parquet", [{"index": 0, "actions": text}])
    (row,) = pyarrow.parquet.read_table(tmp_path / "rows.parquet").to_pylist()
    np.testing.assert_array_equal(np.float32(row["actions"]).reshape(-1, 3), actions)


def test_numbers_that_some_episodes_lack_are_columns_too(tmp_path):
    rows = [{"index": 0, "return": 1.0}, {"index": 1, "return": 2.0, "success": 1.0}]

    evaluation_files.write_parquet(tmp_path / "rows.parquet", rows)

    table = pyarrow.parquet.read_table(tmp_path / "rows.parquet")
    assert table.to_pylist() == [{"index": 0, "return": 1.0, "success": None}, rows[1]]
