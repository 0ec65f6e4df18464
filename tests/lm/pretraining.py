"""A language model that is trained in seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.reward_fixtures import load_config, run_config

TINY = {
    "model.width": 16, "model.layers": 1, "model.heads": 2, "tokenizer.vocab_size": 300, "length": 16, "batch_size": 4,
    "steps": 6, "evaluate_every": 4, "chunk_steps": 2, "evaluation_batches": 2, "num_devices": 1, "optimizer.warmup_steps": 1,
    "held_out.share": 0.1,
}  # fmt: skip


def config_of(path: Path, **overrides: Any) -> Any:
    return load_config(
        "pretrain_language_model", "smoke", {**TINY, "texts": str(path), **overrides}
    )


def train(path: Path, workdir: Path, **overrides: Any) -> Path:
    return run_config(config_of(path, **overrides), workdir)
