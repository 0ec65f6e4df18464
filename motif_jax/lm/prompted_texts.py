"""Scores candidate texts after prompts, or continues prompts, with a language model; one line for each prompt."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from motif_jax import lm as language
from motif_jax.core import config as checks
from motif_jax.core import interruption, resources, run_folder, seeds
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_text
from motif_jax.core.progress import Progress
from motif_jax.display import token_page as pages
from motif_jax.lm import TextModel, generation_config, prompt_length, text_files, weights
from motif_jax.lm import config as configs
from motif_jax.lm.config import ModelConfig
from motif_jax.lm.sampling import Sampling
from motif_jax.lm.text import fetch
from motif_jax.lm.tokens import Tokenizer

PAGE = "tokens.html"
Rows = Sequence[Mapping[str, Any]]


def _check_scores(config: ConfigDict, tokenizer: Tokenizer, settings: ModelConfig) -> None:
    questions = text_files.read_questions(config.file, "file")
    without = any(question.get("candidates") is None for question in questions)
    allowed = f"texts with | between them: prompts of {config.file} have none of their own"
    checks.require_key(config, "candidates", bool(config.candidates) or not without, allowed)
    asked = _scored(config, questions)
    candidates = [row["candidates"] for row in asked]
    prompt_length.require(tokenizer, settings, [row["prompt"] for row in asked], candidates)


def _scored(config: ConfigDict, questions: Rows) -> list[dict[str, Any]]:
    shared = config.candidates.split("|") if config.candidates else []
    return [{"prompt": row["prompt"], "candidates": row.get("candidates") or shared} for row in questions]


def _score(config: ConfigDict, model: TextModel, part: Rows, start: int) -> list[dict[str, Any]]:
    del start
    prompts, candidates = [row["prompt"] for row in part], [row["candidates"] for row in part]
    scores = model.score(prompts, candidates, config.by_length)
    return [
        {**row, "log_probs": log_probs.tolist(), "best": row["candidates"][int(log_probs.argmax())]}
        for row, log_probs in zip(part, scores, strict=True)
    ]


def _check_continuations(config: ConfigDict, tokenizer: Tokenizer, settings: ModelConfig) -> None:
    try:
        Sampling(**config.sampling.to_dict())
    except UserError as error:
        raise UserError(f"config.sampling.{error}") from None
    if config.beams or config.sampling.greedy:
        for key, usual in resources.config("generate_text").sampling.items():
            allowed = f"{usual} with config.beams or config.sampling.greedy: nothing is drawn"
            checks.require(config.sampling[key] == usual, f"sampling.{key}", config.sampling[key], allowed)
        allowed = "1 with config.sampling.greedy: every continuation would be the same"
        checks.require_key(config, "count", config.beams or config.count == 1, allowed)
    allowed = "texts with | between them, none of them empty"
    checks.require_key(config, "stops", "" not in _stops(config), allowed)
    prompts = [question["prompt"] for question in text_files.read_questions(config.file, "file")]
    prompt_length.require(tokenizer, settings, prompts, most=config.most)


def _stops(config: ConfigDict) -> tuple[str, ...]:
    return tuple(config.stops.split("|")) if config.stops else ()


def _continue(config: ConfigDict, model: TextModel, part: Rows, start: int) -> list[dict[str, Any]]:
    texts = model.generate(
        [row["prompt"] for row in part],
        most=config.most,
        sampling=Sampling(**config.sampling.to_dict()),
        count=config.count,
        search=config.beams,
        stops=_stops(config),
        # A run that is resumed draws as one that was not stopped would.
        seed=seeds.derive(config.seed, "generate", start) % 2**31,
    )
    return [{**row, "texts": written} for row, written in zip(part, texts, strict=True)]


class _PromptStage(NamedTuple):
    """What a stage does with prompts: `asked` makes the beginnings of its lines, `answer` (from index) completes them."""

    title: str
    does: str
    output: str
    identity: Sequence[str]
    check: Callable[[ConfigDict, Tokenizer, ModelConfig], None]
    asked: Callable[[ConfigDict, Rows], list[dict[str, Any]]]
    answer: Callable[[ConfigDict, TextModel, Rows, int], list[dict[str, Any]]]


_STAGES = {
    "score_text": _PromptStage(
        "score", "scores", "scores.jsonl", "model file candidates by_length dtype".split(),
        _check_scores, _scored, _score,
    ),
    "generate_text": _PromptStage(
        "generate", "writes", "generated.jsonl", "model file seed most count beams sampling stops batch dtype".split(),
        _check_continuations, lambda _, questions: [{"prompt": row["prompt"]} for row in questions], _continue,
    ),
}  # fmt: skip


def check(config: ConfigDict, workdir: Path) -> None:
    stage = _STAGES[config.stage]
    run_folder.check_identity(workdir, config, stage.identity)
    if not config.model:
        raise UserError("config.model must name a folder with config.json, safetensors and tokenizer.json")
    folder = fetch(config.model, "model")
    settings = weights.read_config(folder)
    configs.require_decoder(settings, stage.does)
    weights.check(folder, settings)
    stage.check(config, Tokenizer.read(folder, settings.vocab_size), settings)


def run(config: ConfigDict, workdir: Path) -> int | None:
    stage = _STAGES[config.stage]
    asked = stage.asked(config, text_files.read_questions(config.file, "file"))
    with interruption.Interruption() as stop, run_folder.opened(workdir, config, stage.identity):
        text_files.pin(workdir, fetch(config.model, "model"), config.model)
        not_applied = generation_config.unused(fetch(config.model, "model"))
        if not_applied is not None and config.stage == "generate_text":
            print(f"note: {not_applied}", file=sys.stderr, flush=True)
        model = language.load(config.model, dtype=config.dtype, batch=config.batch)
        with (
            text_files.AnswerFile(workdir / stage.output, asked, config.batch) as answers,
            Progress(len(asked), "prompts", stage.title, answers.done) as progress,
        ):
            while answers.done < len(asked) and not stop.requested:
                part = asked[answers.done : answers.done + config.batch]
                answers.add(stage.answer(config, model, part, answers.done))
                progress.update(answers.done)
        if answers.done < len(asked):
            return interruption.EXIT_CODE
        print(f"written: {workdir / stage.output}")
        if config.get("page"):
            page = _token_page(model, asked[: config.page], f"{config.model} · {config.file}")
            atomic_write_text(workdir / PAGE, page)
            print(f"written: {workdir / PAGE}")
    return None


def _token_page(model: TextModel, asked: Rows, subtitle: str) -> str:
    """The page of all candidates of prompts, token by token, the likeliest of each prompt first."""
    texts = []
    for number, row in enumerate(asked, start=1):
        prompt, names = row["prompt"], row["candidates"]
        looks = model.look([prompt] * len(names), names)
        totals = [float(look.log_probs[look.start :].sum()) for look in looks]
        for index in sorted(range(len(names)), key=lambda i: -totals[i]):
            look = looks[index]
            rows = {"log-probability (nats)": look.log_probs, "entropy (nats)": look.entropies}
            title = f"{number}: {names[index]}"
            note = f"log-probability {totals[index]:.3f} after: {prompt}"
            texts.append(pages.TokenText(title, look.pieces, rows, look.start, note))
    return pages.render(texts, "Candidates token by token", subtitle)
