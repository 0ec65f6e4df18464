"""Measures the memory of a language model in this process as the judge, beside plain torch.

Each side answers the questions of `judge` in a process of its own, which imports no more than it
needs: ours jax and `motif_jax.lm`, the other torch. Values are peaks of resident memory, libraries
and weights included; the ratio is better where it is lower.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from motif_jax import lm
from motif_jax.benchmarks import _torch_judge, judge, result
from motif_jax.core import config as checks
from motif_jax.core.errors import UserError
from motif_jax.nets import products


def options() -> ConfigDict:
    """A model's file, folder or hub name, the dtype of weights and computation, the tokens of a
    question's parts, questions, questions at a time: those of `judge`.
    """
    of_judge = judge.options()
    names = (
        "dtype", "shared_tokens", "message_tokens", "end_tokens", "questions_of_message", "batch",
    )  # fmt: skip
    return ConfigDict(
        {"model": "", "questions": 64, **{name: of_judge[name] for name in names}, "torch": True}
    )


def check(config: ConfigDict) -> None:
    """Raises UserError without a model, or where torch's side is wanted and not installed."""
    allowed = "a model's file, folder or hub name"
    checks.require(bool(config.options.model), "options.model", config.options.model, allowed)
    judge.check_questions(config)
    if config.options.torch:
        _torch_judge.torch()


def run(config: ConfigDict) -> dict[str, Any]:
    chosen = config.options
    rng = np.random.default_rng(config.seed)
    shared = rng.integers(6, 64, chosen.shared_tokens).tolist()
    questions = {
        "model": chosen.model,
        "dtype": chosen.dtype,
        "groups": [list(group) for group in judge.VERDICTS],
        "shared": shared,
        "rows": judge.prompts(chosen, shared, rng),
        "batch": chosen.batch,
    }
    ours: list[dict[str, float]] = []
    other: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "questions.json").write_text(json.dumps(questions))
        if chosen.torch:
            _write_for_torch(folder / "decoder.pt", chosen)
        for _ in range(config.repeats):
            ours.append(memory_of_process("jax", folder))
            if chosen.torch:
                other.append(memory_of_process("torch", folder))
    line = result(
        config,
        "GB",
        [memory["answering"] for memory in ours],
        "plain torch with the same weights, in a process of its own",
        [memory["answering"] for memory in other] if other else None,
        peak_with_start=max(memory["from_start"] for memory in ours),
    )
    if other:
        line["baseline"]["peak_with_start"] = max(memory["from_start"] for memory in other)
    return line


def _write_for_torch(path: Path, chosen: ConfigDict) -> None:
    """Writes the decoder so that a process without jax can read it."""
    loaded = lm.load(
        chosen.model, jnp.dtype(chosen.dtype), output_major=products.prefers_output_major()
    )
    shape = _torch_judge.decoder_shape(loaded.model)
    params = _torch_judge.tensors(loaded.params)
    _torch_judge.torch().save({"shape": shape._asdict(), "params": params}, path)


def memory_of_process(side: str, folder: Path) -> dict[str, float]:
    """Peaks of resident memory in GB of a process that answers the folder's questions."""
    command = [sys.executable, "-m", "motif_jax.benchmarks._judge_alone", side, str(folder)]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode != 0:
        raise UserError(f"the process of {side}'s side failed: {ended.stderr.strip()[-2000:]}")
    return json.loads(ended.stdout.splitlines()[-1])
