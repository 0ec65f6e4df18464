"""The task `dialogues`: a file of one's own, with learned tokens or those of a model, from its
first line to an agent that speaks.
"""

from __future__ import annotations

import datetime
import itertools
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from motif_jax import text_agents
from motif_jax.core.errors import UserError
from motif_jax.ilql import evaluate_text, train_text
from motif_jax.ilql.agent import agent_folder
from motif_jax.ilql.dialogues import files, parquet
from motif_jax.ilql.dialogues.dialogue import Dialogue
from tests.reward_fixtures import load_config, run_config

ASKS = ("my parcel is late", "i want my money back", "the lamp does not work")
ANSWERS = {
    "i am sorry, i will look at once": 1.0,
    "no": -1.0,
    "please send me the number of the order": 0.5,
}


@pytest.mark.extra
def test_a_file_of_messages_becomes_an_agent_that_speaks(tmp_path: Path) -> None:
    # as collect_text names its description
    path = tmp_path / "support.json"
    run = tmp_path / "ilql"
    lines = [
        {
            "messages": [
                {"role": "user", "content": asks},
                {"role": "assistant", "content": answer},
            ],
            "reward": reward,
        }
        for asks, (answer, reward) in itertools.product(ASKS, ANSWERS.items())
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines * 14))
    small = {
        "network.width": 16, "network.layers": 1, "network.heads": 2, "network.max_length": 128, "max_steps": 4, "evaluate_every": 2,
        "batch_size": 8, "chunk_steps": 2, "evaluation_batches": 1, "task": "dialogues", "data": str(path), "options": '{"vocab_size": 300}',
    }  # fmt: skip
    run_config(load_config("train_text", "ilql", small), run)
    agent = text_agents.load(run)
    tokenizer = agent_folder.load(run).tokenizer
    # The longest answer, in the tokens that were learned, with its end.
    longest = max(len(tokenizer.encode(text)) + 1 for text in ANSWERS)
    assert agent.decoding.max_tokens == longest > 6
    begun = [{"role": "user", "content": ASKS[0]}]
    assert isinstance(agent.say(begun, seed=1), str)
    assert {ranked.text for ranked in agent.rank(begun, list(ANSWERS))} == set(ANSWERS)
    # Without an environment its evaluation is of the dialogues that were held out.
    evaluation = load_config("evaluate_text", "", {"agent": str(run), "resamples": 20, "show": 1})
    run_config(evaluation, tmp_path / "evaluation")
    results = json.loads((tmp_path / "evaluation" / "evaluation.json").read_text())
    assert {"policy_loss", "q", "v", "advantage", "return"} <= set(results["measures"])
    assert 0 <= results["ranking"]["accuracy"] <= 1 <= results["ranking"]["pairs"]
    assert results["episodes"] == results["plan"]["dialogues"] < 126
    played = parquet.read(tmp_path / "evaluation" / "dialogues.parquet")
    assert {(one.texts[1], one.rewards[1]) for one in played} <= set(ANSWERS.items())
    evaluation.task = "dialogues"
    evaluation.policy = "expert"
    evaluation.agent = None
    with pytest.raises(UserError, match="has no environment to play in"):
        evaluate_text.check(evaluation, tmp_path / "policy")
    # A model's own tokens: those of a folder that is named.
    other = load_config(
        "train_text", "bc", small | {"options": json.dumps({"tokenizer": str(run)})}
    )
    train_text.check(other, tmp_path / "bc")


def test_messages_and_sequences_are_read_alike_from_lines_and_parquet(tmp_path: Path) -> None:
    turns = [("hello", False), ("hi", True), ("bye", False), ("see you", True)]
    roles = [
        {"role": "assistant" if is_action else "user", "content": text} for text, is_action in turns
    ]
    rows: list[dict[str, Any]] = [
        {"sequence": turns, "reward": [0, 0.5, 0, 2], "done": True},
        {"messages": roles, "rewards": [0.5, 2]},
        {"messages": [{**roles[0]}, {**roles[1], "reward": 0.5}, roles[2], roles[3]], "reward": 2},
    ]
    wanted = Dialogue(tuple(text for text, _ in turns), (None, 0.5, None, 2.0), True)
    (tmp_path / "a").mkdir()
    # As Windows begins a file.
    (tmp_path / "a" / "x.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8-sig")
    assert list(files.read(files.find(str(tmp_path / "a"), "data"))) == [wanted] * 3
    pq.write_table(pa.Table.from_pylist(rows[1:2] * 2), tmp_path / "x.parquet")
    assert list(files.read(tmp_path / "x.parquet")) == [wanted] * 2
    timed = [{**row, "made": datetime.datetime(2020, 1, 1)} for row in rows[1:2]]
    pq.write_table(pa.Table.from_pylist(timed), tmp_path / "x.parquet")
    assert files.read(tmp_path / "x.parquet")[0].meta == {"made": "2020-01-01 00:00:00"}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"messages": [{"role": "bot", "content": "x"}]}, "the role 'bot' is not one of"),
        (
            {"sequence": [["a", 1]], "reward": [float("nan")], "done": True},
            "a reward is not a number",
        ),
        ({"sequence": [["cut \ud83d", 1]], "reward": [1], "done": True}, "surrogates not allowed"),
        ({"sequence": [["x", "no"]], "reward": [1], "done": True}, "is_action is neither"),
        (
            {"messages": [{"role": "assistant", "content": "x"}], "reward": 1e300},
            r"number from -1e\+18",
        ),
        (
            {"messages": [{"role": "assistant", "content": "x"}], "rewards": [1, 2]},
            "2 rewards for 1 actions",
        ),
        ({"messages": [{"role": "user", "content": "x", "reward": 1}]}, "environment is paid"),
        ([], "a list"),
        ({"sequence": [["a", 1]], "reward": [1]}, "no 'done'"),
        ({"sequence": [["a", 1]], "reward": [1], "done": 1}, "done is neither true nor false"),
        ({"sequence": [[3, 1]], "reward": [1], "done": True}, "a text is not a string"),
        (
            {"sequence": [["a", 1], ["b", 1]], "reward": [1], "done": True},
            "1 rewards for 2 utterances",
        ),
        ({"messages": ["hi"]}, "messages is not a list of objects"),
        ({"messages": [{"role": "user", "content": "x"}], "reward": 1}, "a reward and no action"),
    ],
)
def test_what_is_no_dialogue_is_named_with_its_line(row: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(f'{{"messages": []}}\n{json.dumps(row)}\n')
    with pytest.raises(UserError, match=f"line 2 is not a dialogue .*{message}"):
        files.read(path)


def test_files_without_dialogues(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="must be a file of dialogues"):
        files.find(str(tmp_path), "data")
    told_of = {
        b"\n \n": "holds no dialogues",
        b"\xff": "cannot be read: 'utf-8'",
        b"[": "line 1 is",
    }
    for content, message in told_of.items():
        (tmp_path / "x.jsonl").write_bytes(content)
        with pytest.raises(UserError, match=rf"x\.jsonl:? {message}"):
            files.read(files.find(str(tmp_path), "data"))
