"""Measures annotation: questions a pair on a collected dataset, and questions a second against bare
`LLM.chat`.

It needs vLLM: start it with the python of .venv-vllm (launch/setup_vllm_cpu.sh) or of an
environment with vLLM for a GPU. Both sides ask one engine the same first turns with the same
sampling; the stage also lists, parses, retries and stores.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from motif_jax import benchmarks
from motif_jax.core.verdicts import UNKNOWN
from motif_jax.motif.annotation.annotator import Question, make_annotator
from motif_jax.motif.annotation.captions import pair_captions
from motif_jax.motif.annotation.config import AnnotatorConfig, AnswerSampling, VllmEngine
from motif_jax.motif.annotation.parsing import AnswerParser
from motif_jax.motif.annotation.questions import ORDERS, QuestionHasher, caption_questions
from motif_jax.motif.annotation.session import AnnotationSession
from motif_jax.motif.pairs.dataset import PairsDataset


def options() -> ConfigDict:
    """A pairs dataset of `collect`, a chat model (a name or a folder), options of vLLM's engine as
    JSON, and how many questions.
    """
    # `python -m tests.tiny_judge FOLDER` in .venv-vllm trains a tiny model.
    return ConfigDict(
        {"dataset_dir": "runs/dataset", "model": "", "engine": "{}", "questions": 1500}
    )


def run(config: ConfigDict) -> dict[str, Any]:
    chosen = config.options
    dataset = PairsDataset.open(chosen.dataset_dir)
    captions = list(pair_captions(dataset.data["message"], None))
    annotator_config = AnnotatorConfig(
        annotator="vllm",
        sampling=AnswerSampling(temperature=0.0),
        vllm=VllmEngine(engine=chosen.engine, model=chosen.model),
    )
    annotator = make_annotator(annotator_config, dataset=dataset)
    hasher = QuestionHasher(annotator.identity)
    questions_by_orders = {
        orders: caption_questions(captions, len(captions), hasher, orders).questions
        for orders in ORDERS
    }
    all_questions = questions_by_orders["once"]
    # Spread over the dataset.
    questions = all_questions[:: max(1, len(all_questions) // chosen.questions)][: chosen.questions]
    with (
        tempfile.TemporaryDirectory() as folder,
        AnnotationSession(annotator, Path(folder) / "store") as session,
    ):
        session.start()
        max_tokens = annotator_config.sampling.max_tokens
        stage_rates, bare_rates, labels, bare_labels = _alternate(
            session, questions, config.repeats, max_tokens
        )
    is_known = bare_labels != UNKNOWN
    return benchmarks.result(
        config,
        "questions/s",
        stage_rates,
        "LLM.chat with the same conversations and sampling on the same engine",
        bare_rates,
        settings={**chosen.to_dict(), "repeats": config.repeats, "asked": len(questions)},
        pairs=dataset.num_pairs,
        questions_per_pair={
            orders: len(listed) / len(captions) for orders, listed in questions_by_orders.items()
        },
        labels_equal_to_bare=float((labels == bare_labels)[is_known].mean()),
    )


def _alternate(
    session: AnnotationSession, questions: list[Question], repeats: int, max_tokens: int
) -> tuple[list[float], list[float], np.ndarray, np.ndarray]:
    """Questions a second of the stage and of the bare engine, and the labels of both (the bare
    one's first answers).
    """
    stage_rates = []
    bare_rates = []
    labels = np.empty(0)
    bare_labels = np.empty(0)
    annotator: Any = session.annotator
    time_stage(session, questions[:64])  # warm-up of both sides
    for _ in range(repeats):
        # Both sides ask the same prompts, so that each begins with an empty cache.
        annotator.engine.reset_prefix_cache()
        seconds, labels = time_stage(session, questions)
        stage_rates.append(len(questions) / seconds)
        annotator.engine.reset_prefix_cache()
        seconds, bare_labels = time_bare_engine(annotator, questions, max_tokens)
        bare_rates.append(len(questions) / seconds)
    return stage_rates, bare_rates, labels, bare_labels


def time_stage(session: AnnotationSession, questions: list[Question]) -> tuple[float, np.ndarray]:
    """Seconds in which the stage answers and stores, and its labels [questions]."""
    start = time.perf_counter()
    answers = session.ask(questions, {})  # {}: ask all again, although the store has answers
    seconds = time.perf_counter() - start
    return seconds, np.array([answers[question.id].label for question in questions])


def time_bare_engine(
    annotator: Any, questions: list[Question], max_tokens: int
) -> tuple[float, np.ndarray]:
    """Seconds in which the bare engine answers, in at most `max_tokens` each, and its labels
    [questions].
    """
    from vllm import SamplingParams

    sampling = SamplingParams(temperature=0, max_tokens=max_tokens)
    conversations = [annotator.prompt.conversation(*question.items) for question in questions]
    start = time.perf_counter()
    outputs = annotator.engine.chat(conversations, sampling, use_tqdm=False)
    seconds = time.perf_counter() - start
    parse = AnswerParser(annotator.prompt.answer)
    return seconds, np.array([parse(output.outputs[0].text) for output in outputs])
