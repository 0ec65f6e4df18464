"""One side of a benchmark of memory, in a process of its own: works twice and prints its memory.

    python -m motif_jax.benchmarks._alone SIDE FOLDER

The folder has input.json and what the side reads besides. The last line printed is JSON: peaks of
resident memory in GB, `from_start` of the process and `working` once programs are compiled.
"""

from __future__ import annotations

import gc
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from motif_jax.core.devices.memory import return_freed_memory

# jax and torch are imported by the side that needs them: else they would count for all.


def main(side: str, folder: Path) -> None:
    values = json.loads((folder / "input.json").read_text())
    work = SIDES[side](values, folder)
    work()
    # Loading and compiling are behind it: later calls take less.
    from_start = _peak()
    # What only the start needed goes back to the system, or it would count again below.
    gc.collect()
    return_freed_memory()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew; see proc(5)
    work()
    print(json.dumps({"from_start": from_start, "working": _peak()}))


def judge(values: dict[str, Any], folder: Path) -> Callable[[], Any]:
    """A call that answers the questions of `judge_memory` by this package."""
    del folder
    import jax.numpy as jnp

    from motif_jax import lm
    from motif_jax.lm.next_token import NextToken
    from motif_jax.nets import products

    loaded = lm.load(
        values["model"], jnp.dtype(values["dtype"]), output_major=products.prefers_output_major()
    )
    scorer = NextToken(
        loaded.model, loaded.params, values["groups"], values["shared"], values["batch"]
    )
    return lambda: list(scorer(values["rows"]))


def torch_judge(values: dict[str, Any], folder: Path) -> Callable[[], Any]:
    """The same by plain torch."""
    from motif_jax.benchmarks import _torch_judge

    shape, params = _torch_judge.read(folder)
    side = _torch_judge.TorchJudge(
        shape, params, values["groups"], values["shared"], values["batch"]
    )
    return side.answering(values["rows"])


def scores(values: dict[str, Any], folder: Path) -> Callable[[], Any]:
    """A call that scores the candidates of `score_memory` by this package."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from motif_jax.lm import scoring, weights
    from motif_jax.lm.model import LanguageModel
    from motif_jax.nets import products

    dtype = jnp.dtype(values["dtype"])
    shape = weights.read_config(folder)
    output_major = products.prefers_output_major()
    model = LanguageModel(shape, dtype, output_major=output_major)
    params = weights.load(folder, shape, dtype, jax.device_put, output_major)

    @jax.jit
    def score(params: Any, prompt: jax.Array, valid: jax.Array, candidates: jax.Array) -> jax.Array:
        is_token = jnp.ones(candidates.shape, bool)
        return scoring.score(model, params, prompt, valid, candidates, is_token).total

    prompt = np.array(values["prompt"], np.int32)
    candidates = np.array(values["candidates"], np.int32)
    return lambda: np.asarray(score(params, prompt, np.ones(prompt.shape, bool), candidates))


def transformers_scores(values: dict[str, Any], folder: Path) -> Callable[[], Any]:
    """The same by transformers' T5."""
    import numpy as np

    from motif_jax.benchmarks import _transformers_score

    prompt = np.array(values["prompt"])
    scorer = _transformers_score.TransformersScorer(folder)
    return scorer.scoring(prompt, np.ones(prompt.shape, bool), np.array(values["candidates"]))


SIDES = {
    "judge": judge,
    "torch_judge": torch_judge,
    "scores": scores,
    "transformers_scores": transformers_scores,
}


def _peak() -> float:
    """The peak of this process's resident memory, in GB."""
    kilobytes = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert kilobytes is not None
    return int(kilobytes[1]) * 1024 / 1e9


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
