"""Scores candidate texts after prompts with a language model; one line of scores.jsonl for each prompt."""

from __future__ import annotations

from pathlib import Path

from ml_collections import ConfigDict

from motif_jax.support import config as checks
from motif_jax.support import interruption, run_folder
from motif_jax.support.errors import UserError
from motif_jax.support.files import FolderLock
from motif_jax.support.progress import Progress

IDENTITY = ("model", "file", "candidates", "by_length", "dtype")
OUTPUT = "scores.jsonl"


def check(config: ConfigDict, workdir: Path) -> None:
    """Raises UserError for values that cannot work, or files that are not there."""
    from motif_jax.language import text_files

    run_folder.check_identity(workdir, config, IDENTITY)
    checks.positive(config, "batch")
    check_model(config, "scores")
    questions = text_files.read_questions(config.file, "file")
    without = any(question.get("candidates") is None for question in questions)
    allowed = f"texts with | between them: prompts of {config.file} have none of their own"
    checks.require(bool(config.candidates) or not without, "candidates", config.candidates, allowed)


def check_model(config: ConfigDict, does: str) -> None:
    """Raises UserError when `config.model` cannot be read or is none that `does` text, or another dtype is asked for."""
    from motif_jax.language import config as configs
    from motif_jax.language.text import fetch
    from motif_jax.language.tokens import Tokenizer

    checks.choice(config, "dtype", ("float32", "bfloat16"))
    if not config.model:
        raise UserError("config.model must name a folder with config.json, safetensors and tokenizer.json")
    folder = fetch(config.model)
    settings = configs.read(folder)
    configs.require_decoder(settings, does)
    Tokenizer.read(folder, settings.vocab_size)


def run(config: ConfigDict, workdir: Path) -> int | None:
    """Scores what is not scored yet; returns 75 when it was asked to stop before the end."""
    import numpy as np

    from motif_jax import language
    from motif_jax.language import text_files

    questions = text_files.read_questions(config.file, "file")
    shared = config.candidates.split("|") if config.candidates else []
    with FolderLock(workdir), interruption.Interruption() as stop:
        run_folder.prepare(workdir, config, IDENTITY)
        model = language.load(config.model, dtype=config.dtype, batch=config.batch)
        with text_files.Answers(workdir / OUTPUT, questions, config.batch) as answers:
            progress = Progress(len(questions), "prompts", "score", answers.done)
            with progress:
                while answers.done < len(questions) and not stop.requested:
                    part = questions[answers.done : answers.done + config.batch]
                    candidates = [question.get("candidates") or shared for question in part]
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
    return None
