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
from motif_jax.ilql.dialogues import dialogue_files
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
    evaluation = load_config("evaluate_text", "", {"agent": str(run), "show": 1})
    run_config(evaluation, tmp_path / "evaluation")
    results = json.loads((tmp_path / "evaluation" / "evaluation.json").read_text())
    assert {"policy_loss", "q", "v", "advantage", "return"} <= set(results["measures"])
    assert 0 <= results["ranking"]["accuracy"] <= 1 <= results["ranking"]["pairs"]
    assert results["episodes"] == results["plan"]["dialogues"] < 126
    played = dialogue_files.read_parquet(tmp_path / "evaluation" / "dialogues.parquet")
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
    assert (
        list(dialogue_files.read(dialogue_files.find(str(tmp_path / "a"), "data"))) == [wanted] * 3
    )
    pq.write_table(pa.Table.from_pylist(rows[1:2] * 2), tmp_path / "x.parquet")
    assert list(dialogue_files.read(tmp_path / "x.parquet")) == [wanted] * 2
    timed = [{**row, "made": datetime.datetime(2020, 1, 1)} for row in rows[1:2]]
    pq.write_table(pa.Table.from_pylist(timed), tmp_path / "x.parquet")
    assert dialogue_files.read(tmp_path / "x.parquet")[0].meta == {"made": "2020-01-01 00:00:00"}
