"""The published workflow from nothing, on comments: imitate, learn values, evaluate."""

from __future__ import annotations

from pathlib import Path

import pytest

from motif_jax.reports import evaluation_files
from motif_jax.trainers import agent_folder
from tests.reward_fixtures import run_stage

SMALL = {
    "network.width": 16, "network.layers": 1, "network.heads": 2, "network.max_length": 256, "batch_size": 4, "max_steps": 2,
    "evaluate_every": 2, "chunk_steps": 1, "evaluation_batches": 1, "num_devices": 1, "held_out.share": 0.25, "length_buckets": False,
    "max_len": 32, "candidates.count": 2, "candidates.max_tokens": 4,
}  # fmt: skip
EVALUATED = {"episodes": 4, "lanes": 2, "show": 1, "resamples": 50, "decode.max_tokens": 4}


@pytest.mark.extra
@pytest.mark.usefixtures("compiled_quickly")
def test_comments_from_nothing(tmp_path: Path) -> None:
    """As docs/ilql.md prints it: data, scores and tokenizer are made where they are missing, and the second run speaks as the first."""
    made = f'{{"num_comments": 60, "vocab_size": 600, "store": "{tmp_path}/store"}}'
    bc = run_stage("train_text", tmp_path / "bc", "reddit_bc", **SMALL, options=made)
    more = {"initial.policy": str(bc), "loss.policy": 0.0, "options": made}
    ilql = run_stage("train_text", tmp_path / "ilql", "reddit_ilql", **SMALL, **more)
    agent = agent_folder.load(ilql)
    assert (agent.method, agent.settings["expectile"], agent.options["reward_scale"]) == ("ilql", 0.6, -5.0)
    # Both speak with the tokenizer that the first has learned, and go where they are moved.
    moved = ilql.rename(tmp_path / "moved")
    options = f'{{"folder": "{moved}/comments", "scores": ""}}'
    values = {"agent": str(moved), "decode.advantage_weight": 8.0, "options": options}
    run_stage("evaluate_text", tmp_path / "eval", "reddit", **EVALUATED, **values)
    rows = evaluation_files.read_evaluation(tmp_path / "eval")["rows"]
    assert len(rows) == 4
    assert {row["return"] for row in rows} <= {0.0, -5.0, -10.0}
    assert all(row["length"] == 1 for row in rows)
