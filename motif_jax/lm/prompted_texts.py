"""Scores candidate texts after prompts, or continues prompts, with a language model; one line for
each prompt.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from ml_collections import ConfigDict

from motif_jax import lm as language
from motif_jax.core import config as checks
from motif_jax.core import interruption, run_folder, seeds
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_text
from motif_jax.core.progress import Progress
from motif_jax.display import token_page
from motif_jax.display.token_page import TokenText
from motif_jax.lm import (
    TextModel,
    chat_prompts,
    chat_template,
    generation_config,
    prompt_length,
    stops,
    text_files,
    weights,
)
from motif_jax.lm import config as configs
from motif_jax.lm.chat_prompts import Prompt
from motif_jax.lm.chat_template import ChatTemplate
from motif_jax.lm.config import ModelConfig
from motif_jax.lm.prompts_config import (
    ContinuationSampling,
    GenerateTextConfig,
    PromptedTextsConfig,
    ScoreTextConfig,
)
from motif_jax.lm.sampling import Sampling
from motif_jax.lm.text import fetch
from motif_jax.lm.tokens import Tokenizer
from motif_jax.schema import read_section

PAGE = "tokens.html"
# Objects with `prompt`, and what else belongs to a line of the file of answers.
Questions = Sequence[Mapping[str, Any]]
Answers = list[dict[str, Any]]


def _check_scores(config: ScoreTextConfig, tokenizer: Tokenizer, settings: ModelConfig) -> None:
    rows = text_files.read_questions(config.file, "file")
    all_have_candidates = all(row.get("candidates") is not None for row in rows)
    allowed = f"texts with | between them: prompts of {config.file} have none of their own"
    checks.require_key(
        config, "candidates", bool(config.candidates) or all_have_candidates, allowed
    )
    # All prompts are tokenised here: one that does not fit is refused before the first is answered.
    questions = _with_candidates(config, rows)
    prompts, special = _written(config, questions)
    candidates = [question["candidates"] for question in questions]
    with _naming_file(config, "give other prompts or candidates"):
        prompt_length.require(tokenizer, settings, prompts, candidates, special=special)


@contextlib.contextmanager
def _naming_file(config: PromptedTextsConfig, remedy: str) -> Iterator[None]:
    """Puts the file of prompts before an error of its texts, and the remedy after it."""
    try:
        yield
    except UserError as error:
        raise UserError(f"config.file={config.file}: {error}; {remedy}") from None


def _prompts(
    config: PromptedTextsConfig, template: ChatTemplate | None, questions: Questions
) -> list[Prompt]:
    """The prompts of a file as the model gets them: texts, or turns (`config.chat`)."""
    return chat_prompts.chosen(
        config.chat, template, [question["prompt"] for question in questions]
    )


def _written(config: PromptedTextsConfig, questions: Questions) -> chat_prompts.WrittenPrompts:
    """The prompts of a file as texts."""
    template = chat_template.read(fetch(config.model_name, "model"))
    return chat_prompts.write(_prompts(config, template, questions), template)


def _with_candidates(config: ScoreTextConfig, rows: Questions) -> Answers:
    """Prompts with their candidates, by default those of config.candidates."""
    shared = config.candidates.split("|") if config.candidates else []
    return [
        {"prompt": row["prompt"], "candidates": row.get("candidates") or shared} for row in rows
    ]


def _score(config: ScoreTextConfig, model: TextModel, questions: Questions, start: int) -> Answers:
    del start  # nothing is drawn
    prompts = _prompts(config, model.template, questions)
    candidates = [question["candidates"] for question in questions]
    answers = []
    for question, log_probs in zip(
        questions, model.score(prompts, candidates, config.by_length), strict=True
    ):
        best = question["candidates"][int(log_probs.argmax())]
        answers.append({**question, "log_probs": log_probs.tolist(), "best": best})
    return answers


def _check_continuations(
    config: GenerateTextConfig, tokenizer: Tokenizer, settings: ModelConfig
) -> None:
    try:
        Sampling(**vars(config.sampling))
    except UserError as error:
        raise UserError(f"config.sampling.{error}") from None
    # Settings of drawing that would have no effect are refused, not ignored.
    if config.beams or config.sampling.greedy:
        for key, default in vars(ContinuationSampling()).items():
            is_default = getattr(config.sampling, key) == default
            allowed = f"{default} with config.beams or config.sampling.greedy: nothing is drawn"
            checks.require_key(config, f"sampling.{key}", is_default, allowed)
        allowed = "1 with config.sampling.greedy: every continuation would be the same"
        checks.require_key(config, "count", config.beams or config.count == 1, allowed)
    allowed = "texts with | between them, none of them empty"
    checks.require_key(config, "stops", "" not in _stops(config), allowed)
    if config.beams:
        stops.require_tokens(tokenizer, _stops(config), f"config.stops={config.stops!r}")
    prompts, special = _written(config, text_files.read_questions(config.file, "file"))
    new_tokens = config.max_new_tokens
    with _naming_file(
        config, f"give other prompts, or less than config.max_new_tokens={new_tokens}"
    ):
        prompt_length.require(
            tokenizer, settings, prompts, max_new_tokens=new_tokens, special=special
        )


def _stops(config: GenerateTextConfig) -> tuple[str, ...]:
    return tuple(config.stops.split("|")) if config.stops else ()


def _prompts_alone(config: GenerateTextConfig, rows: Questions) -> Answers:
    del config
    return [{"prompt": row["prompt"]} for row in rows]


def _continue(
    config: GenerateTextConfig, model: TextModel, questions: Questions, start: int
) -> Answers:
    texts = model.generate(
        _prompts(config, model.template, questions),
        max_new_tokens=config.max_new_tokens,
        sampling=None if config.beams else Sampling(**vars(config.sampling)),
        count=config.count,
        search=config.beams,
        stops=_stops(config),
        # A run that is resumed draws as one that was not stopped would.
        seed=seeds.derive(config.seed, "generate", start) % 2**31,
    )
    return [
        {**question, "texts": written} for question, written in zip(questions, texts, strict=True)
    ]


C = TypeVar("C", bound=PromptedTextsConfig)


@dataclasses.dataclass(frozen=True)
class _PromptStage(Generic[C]):
    """What a stage does with prompts.

    Attributes:
      section: the class of its config.
      title: of the progress.
      verb: what the model must be able to do, for errors.
      output: the file of answers.
      identity: keys that a resumed run may not change.
      check: raises UserError for values that do not fit the tokenizer or the model.
      ask: makes the questions of the file's rows; each is the beginning of a line of answers.
      answer: completes the questions from an index on.
    """

    section: type[C]
    title: str
    verb: str
    output: str
    identity: Sequence[str]
    check: Callable[[C, Tokenizer, ModelConfig], None]
    ask: Callable[[C, Questions], Answers]
    answer: Callable[[C, TextModel, Questions, int], Answers]


_STAGES: dict[str, _PromptStage[Any]] = {
    "score_text": _PromptStage(
        section=ScoreTextConfig,
        title="score",
        verb="scores",
        output="scores.jsonl",
        identity=("model", "file", "chat", "candidates", "by_length", "dtype"),
        check=_check_scores,
        ask=_with_candidates,
        answer=_score,
    ),
    "generate_text": _PromptStage(
        section=GenerateTextConfig,
        title="generate",
        verb="writes",
        output="generated.jsonl",
        # `batch` too: draws depend on it.
        identity=(
            "model",
            "file",
            "chat",
            "seed",
            "max_new_tokens",
            "count",
            "beams",
            "sampling",
            "stops",
            "batch",
            "dtype",
        ),
        check=_check_continuations,
        ask=_prompts_alone,
        answer=_continue,
    ),
}


def check(config_tree: ConfigDict, workdir: Path) -> None:
    stage = _STAGES[config_tree.stage]
    run_folder.check_identity(workdir, config_tree, stage.identity)
    config = read_section(stage.section, config_tree)
    if not config.model:
        raise UserError(
            "config.model must name a folder with config.json, safetensors and tokenizer.json"
        )
    # No weights are read: config, shapes of tensors, tokenizer, and the file of prompts.
    folder = fetch(config.model, "model")
    settings = weights.read_config(folder)
    configs.require_decoder(settings, stage.verb)
    weights.check(folder, settings)
    stage.check(config, Tokenizer.read(folder, settings.vocab_size), settings)


def run(config_tree: ConfigDict, workdir: Path) -> int | None:
    stage = _STAGES[config_tree.stage]
    config: PromptedTextsConfig = read_section(stage.section, config_tree)
    folder = fetch(config.model_name, "model")
    questions = stage.ask(config, text_files.read_questions(config.file, "file"))
    with (
        interruption.Interruption() as stop,
        run_folder.opened(workdir, config_tree, stage.identity),
    ):
        # Before the model is loaded: a resumed run with another model stops at once.
        text_files.pin(workdir, folder, config.model_name)
        not_applied = generation_config.unused(folder)
        if not_applied is not None and isinstance(config, GenerateTextConfig):
            print(f"note: {not_applied}", file=sys.stderr, flush=True)

        model = language.load(config.model_name, dtype=config.dtype, batch=config.batch)
        print(chat_prompts.in_words(config.chat, model.template), flush=True)
        with (
            text_files.AnswerFile(workdir / stage.output, questions, config.batch) as answers,
            Progress(len(questions), "prompts", stage.title, answers.done) as progress,
        ):
            # Batches begin at multiples of `batch`, also after a kill (`AnswerFile`), as draws
            # depend on them.
            while answers.done < len(questions) and not stop.requested:
                batch = questions[answers.done : answers.done + config.batch]
                answers.add(stage.answer(config, model, batch, answers.done))
                progress.update(answers.done)
        # Stopped: no page, which is of a whole file of answers.
        if answers.done < len(questions):
            return interruption.EXIT_CODE
        print(f"written: {workdir / stage.output}")

        if isinstance(config, ScoreTextConfig) and config.page:
            page = _token_page(config, model, questions[: config.page])
            atomic_write_text(workdir / PAGE, page)
            print(f"written: {workdir / PAGE}")
    return None


def _token_page(config: ScoreTextConfig, model: TextModel, questions: Questions) -> str:
    """The page of all candidates of prompts, token by token, the likeliest of each prompt first."""
    texts: list[TokenText] = []
    prompts = _prompts(config, model.template, questions)
    for number, (prompt, question) in enumerate(zip(prompts, questions, strict=True), start=1):
        texts += _candidate_texts(model, number, prompt, question["candidates"])
    return token_page.render(texts, "Candidates token by token", f"{config.model} · {config.file}")


def _candidate_texts(
    model: TextModel, number: int, prompt: Prompt, candidates: Sequence[str]
) -> list[TokenText]:
    ((written,), _) = chat_prompts.write([prompt], model.template)
    scored = model.token_log_probs([prompt] * len(candidates), candidates)
    totals = [float(candidate.log_probs[candidate.start :].sum()) for candidate in scored]
    texts = []
    for index in sorted(range(len(candidates)), key=lambda index: -totals[index]):
        candidate = scored[index]
        text = TokenText(
            title=f"{number}: {candidates[index]}",
            pieces=candidate.pieces,
            rows={
                "log-probability (nats)": candidate.log_probs,
                "entropy (nats)": candidate.entropies,
            },
            start=candidate.start,
            note=f"log-probability {totals[index]:.3f} after: {written}",
        )
        texts.append(text)
    return texts
