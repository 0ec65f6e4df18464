"""Reads files of prompts, and writes files of answers, which a resumed run continues."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from motif_jax.core import digests, files
from motif_jax.core.errors import UserError
from motif_jax.lm import chat_template, generation_config, tokens, weights
from motif_jax.lm import config as configs

PLAN = "plan.json"


def read_questions(path: str | Path | None, key: str) -> list[dict[str, Any]]:
    """Reads an object for each prompt of a .jsonl file of objects with `prompt` (and `candidates`,
    a list of texts), or of a text file.

    A prompt is a text, or turns {"role": ..., "content": ...} of a conversation. A text file has a
    prompt a line.

    Raises:
      UserError: no file is named, it is missing or has no prompt, or a line is invalid; the error
          names `key` of the config.
    """
    if not path:
        raise UserError(
            f"config.{key} must name a file of prompts: .jsonl, or a text file with one a line"
        )
    path = Path(path)
    try:
        # Not splitlines, which also splits at characters that may be part of a text.
        lines = path.read_text(encoding="utf-8-sig").removesuffix("\n").split("\n")
    except FileNotFoundError:
        raise UserError(
            f"config.{key}={path}: there is no such file; give one that exists"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"config.{key}={path} cannot be read: {error}") from None
    questions: list[dict[str, Any]]
    if path.suffix != ".jsonl" or lines == [""]:
        questions = [{"prompt": line} for line in lines if line.strip()]
    else:
        questions = [
            _question(line, f"{path} line {number}") for number, line in enumerate(lines, start=1)
        ]
    if not questions:
        raise UserError(f"config.{key}={path}: holds no prompt")
    return questions


def _question(line: str, where: str) -> dict[str, Any]:
    try:
        row = files.parse_json(line)
    except ValueError as error:
        raise UserError(f"{where} cannot be read: {error}") from None
    prompt = row.get("prompt") if isinstance(row, dict) else None
    if not isinstance(prompt, str) and not _are_turns(prompt):
        raise UserError(
            f'{where}: must be an object with a text under "prompt", or with turns {{"role": ..., "content": ...}}'
        )
    texts = [prompt] if isinstance(prompt, str) else [turn["content"] for turn in row["prompt"]]
    candidates = row.get("candidates")
    if candidates is not None:
        are_texts = isinstance(candidates, list) and all(
            isinstance(text, str) for text in candidates
        )
        if not candidates or not are_texts:
            raise UserError(f'{where}: "candidates" must be a list of texts')
    files.require_whole_characters("".join((*texts, *(candidates or ()))), where)
    return row


def _are_turns(value: Any) -> bool:
    """Whether a value of a file is a list of turns of a conversation."""
    if not isinstance(value, list) or not value:
        return False
    return all(
        isinstance(turn, dict)
        and set(turn) == {"role", "content"}
        and all(isinstance(text, str) for text in turn.values())
        for turn in value
    )


def pin(workdir: Path, folder: Path, name: str) -> None:
    """Records digests of the model, so that all answers of a resumed run are of one model;
    UserError where it started with another.
    """
    path = workdir / PLAN
    remedy = "restore a copy of it, or choose another --workdir"
    # Everything that an answer depends on besides the config, each by its own name for the error.
    file_digests = {
        "weights": weights.digest(folder),
        configs.FILE: digests.of_file(folder / configs.FILE),
        tokens.FILE: digests.of_file(folder / tokens.FILE),
    }
    for name_of_file in (
        generation_config.FILE,
        chat_template.CONFIG_FILE,
        chat_template.TEMPLATE_FILE,
    ):
        if (folder / name_of_file).is_file():
            file_digests[name_of_file] = digests.of_file(folder / name_of_file)

    if path.exists():
        before = files.read_json(path, remedy, keys=("read",))["read"]
        # A damaged plan is as one of another model: every file has changed.
        if not isinstance(before, dict):
            before = {}
        # A file that is gone, a chat template for one, changes the answers, too.
        names = {**file_digests, **before}
        changed = [key for key in names if file_digests.get(key) != before.get(key)]
        if changed:
            raise UserError(
                f"config.model={name}: has another {' and another '.join(changed)} than when {workdir} started: restore the previous one, "
                "or choose another --workdir"
            )
    files.atomic_write_json(path, {"model": name, "read": file_digests})


class AnswerFile:
    """A .jsonl file with a line for each question, whose fields it repeats, in order; `done` is the
    number of its lines.

    A batch of answers that a kill cut off is written again.

    Raises:
      UserError: a line answers another question.
    """

    def __init__(self, path: Path, questions: Sequence[Mapping[str, Any]], batch: int) -> None:
        # A line that a kill cut off is no row.
        rows = list(files.read_json_lines(path, remedy="remove the file, it is written again"))
        for number, row in enumerate(rows, start=1):
            if number > len(questions) or {**row, **questions[number - 1]} != row:
                raise UserError(
                    f"{path} line {number} answers another question: choose another --workdir"
                )
        self.done = len(rows)
        if len(rows) < len(questions):
            # Draws depend on the batch, so a resumed run starts with a whole one.
            self.done = len(rows) // batch * batch
        if path.exists():
            done_lines = path.read_bytes().split(b"\n")[: self.done]
            files.atomic_write_bytes(path, b"".join(line + b"\n" for line in done_lines))
        self._file = open(path, "a", encoding="utf-8", opener=files.regular_file)  # noqa: SIM115 - closed by __exit__

    def __enter__(self) -> AnswerFile:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        for row in rows:
            self._file.write(json.dumps(row, ensure_ascii=False) + "\n")
            self.done += 1
        self._file.flush()
        os.fsync(self._file.fileno())
