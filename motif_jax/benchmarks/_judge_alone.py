"""One side of `judge_memory`, in a process of its own: answers questions and prints its memory.

    python -m motif_jax.benchmarks._judge_alone jax|torch FOLDER

The folder has questions.json (model, dtype, groups, shared, rows, batch) and, for torch,
decoder.pt. The last line printed is JSON: peaks of resident memory in GB, `from_start` of the
process and `answering` once programs are compiled.
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

# Module-level imports of jax or torch would count for both sides.


def main(side: str, folder: Path) -> None:
    questions = json.loads((folder / "questions.json").read_text())
    answer = answering_here(questions) if side == "jax" else answering_with_torch(questions, folder)
    answer()
    from_start = _peak()
    gc.collect()
    return_freed_memory()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew; see proc(5)
    answer()
    print(json.dumps({"from_start": from_start, "answering": _peak()}))


def answering_here(questions: dict[str, Any]) -> Callable[[], Any]:
    """A call that answers the questions in this package."""
    import jax.numpy as jnp

    from motif_jax import lm
    from motif_jax.lm.next_token import NextToken
    from motif_jax.nets import products

    loaded = lm.load(
        questions["model"],
        jnp.dtype(questions["dtype"]),
        output_major=products.prefers_output_major(),
    )
    scorer = NextToken(
        loaded.model, loaded.params, questions["groups"], questions["shared"], questions["batch"]
    )
    return lambda: list(scorer(questions["rows"]))


def answering_with_torch(questions: dict[str, Any], folder: Path) -> Callable[[], Any]:
    """A call that answers the questions in torch."""
    import torch

    from motif_jax.benchmarks import _torch_judge

    decoder = torch.load(folder / "decoder.pt")
    judge = _torch_judge.TorchJudge(
        _torch_judge.DecoderShape(**decoder["shape"]),
        decoder["params"],
        questions["groups"],
        questions["shared"],
        questions["batch"],
    )
    return judge.answering(questions["rows"])


def _peak() -> float:
    """The peak of this process's resident memory, in GB."""
    kilobytes = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert kilobytes is not None
    return int(kilobytes[1]) * 1024 / 1e9


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
