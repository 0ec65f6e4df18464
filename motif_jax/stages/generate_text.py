"""Continues prompts with a language model; one line of generated.jsonl for each prompt."""

from __future__ import annotations

from pathlib import Path

from ml_collections import ConfigDict

from motif_jax.stages.score_text import check_model
from motif_jax.support import config as checks
from motif_jax.support import interruption, resources, run_folder, seeds
from motif_jax.support.errors import UserError
from motif_jax.support.progress import Progress

IDENTITY = ("model", "file", "seed", "most", "count", "beams", "sampling", "stops", "batch", "dtype")
OUTPUT = "generated.jsonl"


def check(config: ConfigDict, workdir: Path) -> None:
    """Raises UserError for values that cannot work, or missing files."""
    from motif_jax.language import prompt_length, text_files
    from motif_jax.language.sampling import Sampling

    run_folder.check_identity(workdir, config, IDENTITY)
    tokenizer, settings = check_model(config, "writes")
    try:
        Sampling(**config.sampling.to_dict())
    except UserError as error:
        raise UserError(f"config.sampling.{error}") from None
    _require_draws(config)
    checks.require_key(
        config, "stops", "" not in stops(config), "texts with | between them, none of them empty"
    )
    questions = text_files.read_questions(config.file, "file")
    prompt_length.require(
        tokenizer, settings, [question["prompt"] for question in questions], most=config.most
    )


def _require_draws(config: ConfigDict) -> None:
    if not (config.beams or config.sampling.greedy):
        return
    for key, usual in resources.config("generate_text").sampling.items():
        allowed = f"{usual} with config.beams or config.sampling.greedy: nothing is drawn"
        checks.require(config.sampling[key] == usual, f"sampling.{key}", config.sampling[key], allowed)
    allowed = "1 with config.sampling.greedy: every continuation would be the same"
    checks.require_key(config, "count", config.beams or config.count == 1, allowed)


def stops(config: ConfigDict) -> tuple[str, ...]:
    """The texts that end a continuation."""
    return tuple(config.stops.split("|")) if config.stops else ()


def run(config: ConfigDict, workdir: Path) -> int | None:
    """Writes the missing lines; returns 75 after a request to stop."""
    from motif_jax import language
    from motif_jax.language import text_files
    from motif_jax.language.sampling import Sampling
    from motif_jax.language.text import fetch

    questions = text_files.read_questions(config.file, "file")
    with interruption.Interruption() as stop, run_folder.opened(workdir, config, IDENTITY):
        text_files.pin(workdir, fetch(config.model, "model"), config.model)
        model = language.load(config.model, dtype=config.dtype, batch=config.batch)
        asked = [{"prompt": question["prompt"]} for question in questions]
        with text_files.AnswerFile(workdir / OUTPUT, asked, config.batch) as answers:
            with Progress(len(questions), "prompts", "generate", answers.done) as progress:
                while answers.done < len(questions) and not stop.requested:
                    part = questions[answers.done : answers.done + config.batch]
                    prompts = [question["prompt"] for question in part]
                    texts = model.generate(
                        prompts,
                        most=config.most,
                        sampling=Sampling(**config.sampling.to_dict()),
                        count=config.count,
                        search=config.beams,
                        stops=stops(config),
                        # A run that is resumed draws as one that was not stopped would.
                        seed=seeds.derive(config.seed, "generate", answers.done) % 2**31,
                    )
                    answers.add(
                        {"prompt": prompt, "texts": found}
                        for prompt, found in zip(prompts, texts, strict=True)
                    )
                    progress.update(answers.done)
            if answers.done < len(questions):
                return interruption.EXIT_CODE
    print(f"written: {workdir / OUTPUT}")
    return None
