"""Conversations with a language model, kept as compressed JSON lines."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from motif_jax.core.files import naming, regular_file
from motif_jax.motif.annotation.annotator import Answer, Question
from motif_jax.motif.annotation.store import StoredAnswer


class ConversationLog:
    """Appends to its own file, one gzip member for each call, so that a kill damages only the last
    member.
    """

    def __init__(self, folder: Path, stem: str) -> None:
        # A file for each command, behind those that are there: the last member of an earlier one
        # may be torn, and what is written behind it is lost.
        run = -1
        for path in folder.glob(f"{stem}.*.jsonl.gz"):
            number = path.name.removeprefix(f"{stem}.").removesuffix(".jsonl.gz")
            if number.isdecimal():
                run = max(run, int(number))
        self.path = folder / f"{stem}.{run + 1:04d}.jsonl.gz"

    def add(self, answers: Sequence[tuple[Question, Answer]]) -> None:
        """Appends one line for each answer. Raises OSError with the file's name: the disk is
        full.
        """
        lines = []
        for question, answer in answers:
            stored = StoredAnswer.of(question, answer)
            line: dict[str, Any] = {
                "id": question.id,
                "attempt": question.attempt,
                "items": list(question.items),
                "label": question.form.labels[answer.label],
                "probabilities": stored.probabilities,
                "mass": stored.mass,
                "prompt_tokens": int(answer.tokens[0]),
                "completion_tokens": int(answer.tokens[1]),
                "note": answer.note,
                "turns": list(answer.turns)
                # An annotator without a conversation leaves what it was asked about.
                or [{"role": "captions", "content": list(question.items)}],
            }
            lines.append(json.dumps(line) + "\n")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with naming(self.path), open(self.path, "ab", opener=regular_file) as file:
            file.write(gzip.compress("".join(lines).encode()))
