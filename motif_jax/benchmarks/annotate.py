"""Measures annotation: questions a pair on a collected dataset, and questions a second against bare `LLM.chat`.

It needs vLLM: start it with the python of .venv-vllm (launch/setup_vllm_cpu.sh) or of an environment with vLLM for a GPU.
Both sides ask one engine the same first turns with the same sampling; the stage also lists, parses, retries and stores.
"""

from __future__ import annotations

import importlib.util
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from motif_jax import benchmarks
from motif_jax.core import config as checks
from motif_jax.core.errors import UserError
from motif_jax.core.verdicts import UNKNOWN
from motif_jax.motif.annotation import shards
from motif_jax.motif.annotation.annotator import Question, make_annotator
from motif_jax.motif.annotation.captions import pair_captions
from motif_jax.motif.annotation.config import AnnotatorConfig, AnswerSampling, VllmEngine
from motif_jax.motif.annotation.parsing import AnswerParser
from motif_jax.motif.annotation.questions import ORDERS, QuestionHasher, caption_questions
from motif_jax.motif.annotation.session import AnnotationSession
from motif_jax.motif.pairs.dataset import PairsDataset


def options() -> ConfigDict:
    """A pairs dataset of `collect`, a chat model (a name or a folder), options of vLLM's engine as JSON, and how many questions."""
    # `python -m tests.tiny_judge FOLDER` in .venv-vllm trains a tiny model.
    return ConfigDict({"dataset_dir": "runs/dataset", "model": "", "engine": "{}", "questions": 1500})


def run(config: ConfigDict) -> dict[str, Any]:
    if importlib.util.find_spec("vllm") is None:
        raise UserError(
            "benchmark annotate: vLLM is not installed here; start it with .venv-vllm/bin/python (bash "
            "launch/setup_vllm_cpu.sh makes it) or the python of another environment that has it"
        )
    chosen = config.options
    checks.require(bool(chosen.model), "options.model", chosen.model, "a chat model, its name or its folder")
    dataset = PairsDataset.open(chosen.dataset_dir)
    captions = list(pair_captions(dataset.data["message"], None))
    asking = AnnotatorConfig(
        annotator="vllm",
        sampling=AnswerSampling(temperature=0.0),
        vllm=VllmEngine(engine=chosen.engine, model=chosen.model),
    )
    annotator = make_annotator(asking, dataset=dataset)
    hasher = QuestionHasher(annotator.identity)
    listed = {orders: caption_questions(captions, len(captions), hasher, orders) for orders in ORDERS}
    questions = listed["once"].questions
    asked = questions[:: max(1, len(questions) // chosen.questions)][: chosen.questions]
    with (
        tempfile.TemporaryDirectory() as folder,
        AnnotationSession(annotator, Path(folder) / "store") as session,
    ):
        session.start()
        stage, bare, labels, said = _alternate(session, asked, config.repeats)
    known = said != UNKNOWN
    return benchmarks.result(
        config,
        "questions/s",
        stage,
        "LLM.chat with the same conversations and sampling on the same engine",
        bare,
        settings={**chosen.to_dict(), "repeats": config.repeats, "asked": len(asked)},
        pairs=dataset.num_pairs,
        questions_per_pair={orders: len(one.questions) / len(captions) for orders, one in listed.items()},
        labels_equal_to_bare=float((labels == said)[known].mean()),
    )


def _alternate(
    session: AnnotationSession, asked: list[Question], repeats: int
) -> tuple[list[float], list[float], np.ndarray, np.ndarray]:
    """Questions a second of the stage and of the bare engine, and the labels of both (the bare one's first answers)."""
    stage, bare = [], []
    labels = said = np.empty(0)
    annotator: Any = session.annotator
    _stage_seconds(session, asked[:64])  # warm-up of both sides
    for _ in range(repeats):
        annotator.engine.reset_prefix_cache()
        seconds, labels = _stage_seconds(session, asked)
        stage.append(len(asked) / seconds)
        annotator.engine.reset_prefix_cache()
        seconds, said = _bare_seconds(annotator, asked)
        bare.append(len(asked) / seconds)
    return stage, bare, labels, said


def _stage_seconds(session: AnnotationSession, asked: list[Question]) -> tuple[float, np.ndarray]:
    with tempfile.TemporaryDirectory() as folder:
        shard = shards.Annotation(Path(folder), "measured").open_shard(0, 1, {"versions": {}})
        start = time.perf_counter()
        answers = session.ask(asked, {}, keep=shard.add)  # {}: ask all again, although the store has answers
        seconds = time.perf_counter() - start
        shard.close()
    return seconds, np.array([answers[question.id].label for question in asked])


def _bare_seconds(annotator: Any, asked: list[Question]) -> tuple[float, np.ndarray]:
    from vllm import SamplingParams

    sampling = SamplingParams(temperature=0, max_tokens=annotator.max_tokens)
    conversations = [annotator.prompt.conversation(*question.items) for question in asked]
    start = time.perf_counter()
    outputs = annotator.engine.chat(conversations, sampling, use_tqdm=False)
    seconds = time.perf_counter() - start
    parse = AnswerParser(annotator.prompt.answer)
    return seconds, np.array([parse(output.outputs[0].text) for output in outputs])
