"""Scores candidate texts after prompts with a language model; one line of scores.jsonl for each prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ml_collections import ConfigDict

from motif_jax.support import config as checks
from motif_jax.support import interruption, run_folder
from motif_jax.support.errors import UserError
from motif_jax.support.files import atomic_write_text
from motif_jax.support.progress import Progress

if TYPE_CHECKING:
    from motif_jax.language import TextModel
    from motif_jax.language.config import ModelConfig
    from motif_jax.language.tokens import Tokenizer

IDENTITY = ("model", "file", "candidates", "by_length", "dtype")
OUTPUT = "scores.jsonl"
PAGE = "tokens.html"


def check(config: ConfigDict, workdir: Path) -> None:
    """Raises UserError for values that cannot work, or missing files."""
    from motif_jax.language import prompt_length, text_files

    run_folder.check_identity(workdir, config, IDENTITY)
    tokenizer, settings = check_model(config, "scores")
    questions = text_files.read_questions(config.file, "file")
    without = any(question.get("candidates") is None for question in questions)
    allowed = f"texts with | between them: prompts of {config.file} have none of their own"
    checks.require_key(config, "candidates", bool(config.candidates) or not without, allowed)
    prompts = [question["prompt"] for question in questions]
    prompt_length.require(tokenizer, settings, prompts, _candidates(config, questions))


def _candidates(config: ConfigDict, questions: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    shared = config.candidates.split("|") if config.candidates else []
    return [question.get("candidates") or shared for question in questions]


def check_model(config: ConfigDict, does: str) -> tuple[Tokenizer, ModelConfig]:
    """The tokenizer and config of the model; UserError if `config.model` cannot be read or `does` no text, or the dtype is another."""
    from motif_jax.language import config as configs
    from motif_jax.language import weights
    from motif_jax.language.text import fetch
    from motif_jax.language.tokens import Tokenizer

    if not config.model:
        raise UserError("config.model must name a folder with config.json, safetensors and tokenizer.json")
    folder = fetch(config.model, "model")
    settings = configs.read(folder)
    configs.require_decoder(settings, does)
    weights.Tensors(folder)
    return Tokenizer.read(folder, settings.vocab_size), settings


def run(config: ConfigDict, workdir: Path) -> int | None:
    """Scores the missing prompts; returns 75 after a request to stop."""
    import numpy as np

    from motif_jax import language
    from motif_jax.language import text_files
    from motif_jax.language.text import fetch

    questions = text_files.read_questions(config.file, "file")
    named = _candidates(config, questions)
    with interruption.Interruption() as stop, run_folder.opened(workdir, config, IDENTITY):
        text_files.pin(workdir, fetch(config.model, "model"), config.model)
        model = language.load(config.model, dtype=config.dtype, batch=config.batch)
        asked = [
            {"prompt": question["prompt"], "candidates": names}
            for question, names in zip(questions, named, strict=True)
        ]
        with text_files.AnswerFile(workdir / OUTPUT, asked, config.batch) as answers:
            progress = Progress(len(questions), "prompts", "score", answers.done)
            with progress:
                while answers.done < len(questions) and not stop.requested:
                    part = questions[answers.done : answers.done + config.batch]
                    candidates = named[answers.done : answers.done + config.batch]
                    prompts = [question["prompt"] for question in part]
                    scores = model.score(prompts, candidates, config.by_length)
                    answers.add(
                        {
                            "prompt": prompt,
                            "candidates": names,
                            "log_probs": row.tolist(),
                            "best": names[int(np.argmax(row))],
                        }
                        for prompt, names, row in zip(prompts, candidates, scores, strict=True)
                    )
                    progress.update(answers.done)
            if answers.done < len(questions):
                return interruption.EXIT_CODE
        print(f"written: {workdir / OUTPUT}")
        if config.page:
            prompts = [question["prompt"] for question in questions[: config.page]]
            page = token_page(model, prompts, named, f"{config.model} · {config.file}")
            atomic_write_text(workdir / PAGE, page)
            print(f"written: {workdir / PAGE}")
    return None


def token_page(
    model: TextModel, prompts: Sequence[str], candidates: Sequence[Sequence[str]], subtitle: str
) -> str:
    """The page of all candidates of prompts, token by token, the likeliest of each prompt first."""
    from motif_jax.reports import token_page as pages

    texts = []
    for number, (prompt, names) in enumerate(zip(prompts, candidates, strict=False), start=1):
        looks = model.look([prompt] * len(names), names)
        totals = [float(look.log_probs[look.start :].sum()) for look in looks]
        for place in sorted(range(len(names)), key=lambda i: -totals[i]):
            look = looks[place]
            rows = {"log-probability (nats)": look.log_probs, "entropy (nats)": look.entropies}
            title = f"{number}: {names[place]}"
            note = f"log-probability {totals[place]:.3f} after: {prompt}"
            texts.append(pages.TokenText(title, look.pieces, rows, look.start, note))
    return pages.render(texts, "Candidates token by token", subtitle)
