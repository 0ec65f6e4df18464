"""The published workflow from nothing, on comments and on pictures: imitate, learn values, evaluate; with a server that fails in every way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from motif_jax.reports import evaluation_files
from motif_jax.stages import evaluate_text, train_text
from motif_jax.trainers import agent_folder
from tests.reward_fixtures import load_config

pytestmark = pytest.mark.usefixtures("compiled_quickly")

SMALL = {
    "network.width": 16, "network.layers": 1, "network.heads": 2, "network.max_length": 256, "batch_size": 4, "max_steps": 2,
    "evaluate_every": 2, "chunk_steps": 1, "evaluation_batches": 1, "num_devices": 1, "held_out.share": 0.25, "length_buckets": False,
    "max_len": 32, "candidates.count": 2, "candidates.max_tokens": 4,
}  # fmt: skip
EVALUATED = {"episodes": 4, "lanes": 2, "show": 1, "resamples": 50, "decode.max_tokens": 4}


def train(workdir: Path, variant: str, **values: Any) -> Path:
    config = load_config("train_text", variant)
    config.update_from_flattened_dict({**SMALL, **values})
    train_text.check(config, workdir)
    assert train_text.run(config, workdir) == 0
    return workdir


def evaluate(workdir: Path, variant: str, **values: Any) -> list[dict[str, Any]]:
    config = load_config("evaluate_text", variant)
    config.update_from_flattened_dict({**EVALUATED, **values})
    evaluate_text.check(config, workdir)
    assert evaluate_text.run(config, workdir) is None
    return evaluation_files.read_evaluation(workdir)["rows"]


@pytest.mark.extra
def test_comments_from_nothing(tmp_path: Path) -> None:
    """As docs/ilql.md prints it: data, scores and tokenizer are made where they are missing, and the second run speaks as the first."""
    options = f'{{"num_comments": 60, "vocab_size": 600, "store": "{tmp_path}/store"}}'
    bc = train(tmp_path / "bc", "reddit_bc", options=options)
    more = {"initial.policy": str(bc), "loss.policy": 0.0, "options": options}
    ilql = train(tmp_path / "ilql", "reddit_ilql", **more)
    agent = agent_folder.load(ilql)
    assert (agent.method, agent.settings["expectile"], agent.options["reward_scale"]) == ("ilql", 0.6, -5.0)
    # Both speak with the tokenizer that the first has learned, and go where they are moved.
    moved = (tmp_path / "ilql").rename(tmp_path / "moved")
    rows = evaluate(tmp_path / "eval", "reddit", agent=str(moved), **{"decode.advantage_weight": 8.0, "options": f'{{"folder": "{tmp_path}/moved/comments", "scores": ""}}'})  # fmt: skip
    assert len(rows) == 4
    assert {row["return"] for row in rows} <= {0.0, -5.0, -10.0}
    assert all(row["length"] == 1 for row in rows)
