"""Measures the memory of a language model in this process as the judge, beside plain torch.

Each side answers the questions of `judge` in a process of its own. Values are peaks of resident
memory, libraries and weights included; the ratio is better where it is lower.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from motif_jax import lm
from motif_jax.benchmarks import _memory, _torch_judge, judge
from motif_jax.core import config as checks
from motif_jax.nets import products

_OF_JUDGE = (
    "dtype", "shared_tokens", "message_tokens", "end_tokens", "questions_of_message", "batch",
)  # fmt: skip


def options() -> ConfigDict:
    """A model's file, folder or hub name, the dtype of weights and computation, the tokens of a
    question's parts, questions, questions at a time: those of `judge`.
    """
    of_judge = judge.options()
    return ConfigDict(
        {
            "model": "",
            "questions": 64,
            "torch": True,
            **{name: of_judge[name] for name in _OF_JUDGE},
        }
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
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "input.json").write_text(json.dumps(questions))
        if chosen.torch:
            # In this process, whose memory nobody measures.
            _write_for_torch(folder, chosen)
        other = "torch_judge" if chosen.torch else None
        return _memory.line(config, folder, "judge", "plain torch with the same weights", other)


def _write_for_torch(folder: Path, chosen: ConfigDict) -> None:
    """Writes the decoder so that a process without jax can read it."""
    loaded = lm.load(
        chosen.model, jnp.dtype(chosen.dtype), output_major=products.prefers_output_major()
    )
    shape = _torch_judge.decoder_shape(loaded.model)
    _torch_judge.write(folder, shape, _torch_judge.tensors(loaded.params))
