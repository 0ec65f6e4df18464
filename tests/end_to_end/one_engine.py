"""Several runs with one vLLM engine, which takes longest to start: what the test beside it starts in vLLM's environment.

    .venv-vllm/bin/python -m tests.end_to_end.one_engine FOLDER MODEL FLAG...

FOLDER holds the datasets `verdict` and `soft`, and gets a run folder of each. At its end it becomes the command line with the
flags, to which it leaves vLLM as it was.
"""

from __future__ import annotations

import contextlib
import random
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from motif_jax.datasets.verdicts import SINGLE
from motif_jax.labels.annotator import check_annotator, make_annotator
from motif_jax.labels.session import AnnotationSession
from tests import tiny_judge
from tests.end_to_end.annotate_datasets import get_config, run_stage, single_question

# Verdicts with seeds first: the engine is the first one's, and theirs needs the longest steps.
STAGES: dict[str, dict[str, Any]] = {
    "verdict": {"answer__mode": "verdict", "orders": "both"},
    "soft": {"answer__mode": "soft"},
}


@contextlib.contextmanager
def one_engine() -> Iterator[None]:
    """The caller for an engine in the block gets the same one, which ends with the block."""
    import vllm

    load = vllm.LLM
    engines: list[Any] = []
    shut_down: list[Callable[[], None]] = []

    def shared(**options: Any) -> Any:
        if not engines:
            engines.append(load(**options))
            core = engines[0].llm_engine.engine_core
            shut_down.append(core.shutdown)
            core.shutdown = lambda: None
        return engines[0]

    vllm.LLM = shared
    try:
        yield
    finally:
        vllm.LLM = load
        for end in shut_down:
            end()


def about_one(model: str, store: Path, mode: str) -> float:
    """The share of right answers to questions about single messages."""
    rng = random.Random(8)
    texts = list({tiny_judge.pair(rng)[0] for _ in range(200)})
    config = get_config()
    config.annotator, config.answer.mode = "vllm", mode
    config.vllm.update({"model": model, **tiny_judge.OPTIONS})
    check_annotator(config, SINGLE)
    with AnnotationSession(make_annotator(config, SINGLE), store, SINGLE) as session:
        questions = {text: single_question(session.annotator, text) for text in texts}
        answers = session.ask(list(questions.values()))
    right = [answers[question.id].label == tiny_judge.good(text) for text, question in questions.items()]
    return sum(right) / len(right)


def main() -> None:
    """Runs them all."""
    folder, model, *flags = sys.argv[1:]
    options = {f"vllm__{name}": value for name, value in tiny_judge.OPTIONS.items()}
    options |= {"annotator": "vllm", "vllm__model": model}
    with one_engine():
        for name, values in STAGES.items():
            code = run_stage(
                Path(folder, name), Path(folder, f"{name}_run"), Path(folder, "store"), **options, **values
            )
            print("ended", name, code, flush=True)
        for mode in ("analysis", "verdict", "soft"):
            print("right", mode, about_one(model, Path(folder, "about_one", mode), mode), flush=True)
    sys.argv = ["launch", *flags]
    runpy.run_module("motif_jax.launch", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
