"""The answer store: all answers of all runs, shared by datasets, runs and shard counts.

A folder of append-only files in the format of `core/checked_lines.py`, one for each concurrent
writer. The key of a line is the hash of the whole question (`questions.QuestionHasher`), so the
same question finds its answer again. The line's object has

    label           index of the verdict in the question's form, or 3: unknown
    p, mass         the verdicts' probabilities, and what they had together, where the judge says
    attempts        how often the question was asked so far, where more often than once
    items           the texts that were asked about
    text            what a language model said
    judge           who said it, the same for all of its questions (`QuestionHasher.judge`)
    tokens, note, cut   what the answer cost, why it is unknown, and how many turns were cut

Lines of earlier versions have no items, text and judge. Labels and probabilities of a dataset, and
those that an agent learns from while it plays, are made of the first three rows alone.
"""

from __future__ import annotations

import collections
import contextlib
import hashlib
import math
import os
import re
import secrets
import socket
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from motif_jax.core.checked_lines import LineWriter, decode_line, read_lines
from motif_jax.core.verdicts import FORMS, UNKNOWN
from motif_jax.motif.annotation.annotator import Answer, Question


class StoredAnswer(NamedTuple):
    """What labels are made of in an answer of the store or of a shard; `attempts` counts how often
    the question was asked so far.

    `mass` is the verdicts' probability together, None where it was not read from log-probabilities,
    or by an older version, whose answers were paid for.
    """

    label: int
    probabilities: tuple[float, ...] | None = None
    attempts: int = 1
    mass: float | None = None

    def to_json(self) -> dict[str, Any]:
        """An object for a line of the store; values that most answers share are left out."""
        value: dict[str, Any] = {"label": self.label}
        if self.probabilities is not None:
            value["p"] = list(self.probabilities)
        if self.attempts != 1:
            value["attempts"] = self.attempts
        if self.mass is not None:
            value["mass"] = self.mass
        return value

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> StoredAnswer | None:
        """The inverse of `to_json`; None if the object is not an answer of any form."""
        label = value.get("label")
        attempts = value.get("attempts", 1)
        if not isinstance(label, int) or not isinstance(attempts, int):
            return None

        mass = value.get("mass")
        mass = float(mass) if isinstance(mass, float | int) and 0 <= mass <= 1 else None

        # The line does not say the question's form: any that knows the label may be it.
        sizes = [len(form.verdicts) for form in FORMS if label in form.labels]
        probabilities = value.get("p")
        if probabilities is None and sizes:
            return cls(label, None, attempts, mass)
        if not isinstance(probabilities, list) or len(probabilities) not in sizes:
            return None
        if not all(isinstance(share, float | int) for share in probabilities):
            return None
        return cls(label, tuple(map(float, probabilities)), attempts, mass)

    @classmethod
    def of(cls, question: Question, answer: Answer) -> StoredAnswer:
        """The stored form of an answer."""
        # Annotators from outside the package may give numpy's numbers, which JSON does not take.
        shares = answer.probabilities
        if shares is not None:
            shares = tuple(map(float, shares))
        mass = None if answer.mass is None else float(answer.mass)
        return cls(int(answer.label), shares, question.attempt + 1, mass)


def is_settled(answer: StoredAnswer | None, attempts: int) -> bool:
    """Whether a question is not asked again: its answer is known, or it was asked `attempts`
    times.
    """
    return answer is not None and (answer.label != UNKNOWN or answer.attempts >= attempts)


def better(old: StoredAnswer | None, new: StoredAnswer) -> StoredAnswer:
    """Which of two answers to one question counts: a known label before an unknown one, else the
    first.

    Of two unknown ones that with more attempts counts, so that the question is not asked more often
    than it may be.
    """
    if old is None:
        return new
    if old.label != UNKNOWN:
        return old
    return new if new.label != UNKNOWN or new.attempts > old.attempts else old


def read_answers(
    path: Path, answers: dict[str, StoredAnswer], ids: Collection[str] | None = None
) -> None:
    """Adds a file's answers, by question id, to `answers` where they are better; only those of
    `ids`, None for all.
    """
    for key, value in read_lines(path, ids):
        answer = StoredAnswer.from_json(value)
        if answer is not None:
            answers[key] = better(answers.get(key), answer)


class AnswerStore:
    """Reads all files of a store and appends to its own, opened on first use; for one thread."""

    def __init__(self, folder: str | Path, judge: str = "", refresh_seconds: float = 0.2) -> None:
        """`judge` stands in the lines of the answers that are kept here."""
        self.folder = Path(folder)
        self._judge = judge
        self._writer: LineWriter | None = None
        self._refresh_seconds = refresh_seconds
        self._last_refresh = -math.inf
        # Bytes read so far of each file, by name.
        self._positions: collections.Counter[str] = collections.Counter()
        # Question id -> answer, for `get`; about 300 bytes each.
        self._answers: dict[bytes, StoredAnswer] = {}

    def find(self, ids: Collection[str]) -> dict[str, StoredAnswer]:
        """The stored answers to these questions (a set or a dict of ids), reading the store
        once.
        """
        answers: dict[str, StoredAnswer] = {}
        for path in sorted(self.folder.glob("*.jsonl")):
            read_answers(path, answers, ids)
        return answers

    def get(self, key: str) -> StoredAnswer | None:
        """The answer to question id `key`, or None; reads what was appended since the last call."""
        if time.monotonic() - self._last_refresh >= self._refresh_seconds:
            for path in sorted(self.folder.glob("*.jsonl")):
                self._read_new_lines(path)
            self._last_refresh = time.monotonic()
        return self._answers.get(bytes.fromhex(key))

    def _read_new_lines(self, path: Path) -> None:
        for line_key, value in self._new_lines(path):
            answer = StoredAnswer.from_json(value)
            if answer is not None:
                # 16 bytes in place of a text of 32 characters, as a training holds all answers of
                # the store.
                packed = bytes.fromhex(line_key)
                self._answers[packed] = better(self._answers.get(packed), answer)

    def _new_lines(self, path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
        """(key, object) of the valid lines since the last call; leaves an incomplete line for the
        next.
        """
        with open(path, "rb") as file:
            file.seek(self._positions[path.name])
            for line in file:
                # Its writer is in the middle of it, or was killed there.
                if not line.endswith(b"\n"):
                    return
                self._positions[path.name] += len(line)
                record = decode_line(line)
                if record is not None:
                    yield record

    def keep(self, answered: Sequence[tuple[Question, Answer]]) -> list[StoredAnswer]:
        """Appends answers that `annotator.check_answer` has seen, and waits until they are on the
        disk.
        """
        if self._writer is None:
            # Only now: a run that finds all answers makes no file.
            self._writer = _free_writer(self.folder)
        stored = []
        lines = []
        for question, answer in answered:
            stored_answer = StoredAnswer.of(question, answer)
            stored.append(stored_answer)
            lines.append(
                (question.id, {**stored_answer.to_json(), **self._record(question, answer)})
            )
        self._writer.append(lines)
        # The next `get` reads what this call has written.
        self._last_refresh = -math.inf
        return stored

    def _record(self, question: Question, answer: Answer) -> dict[str, Any]:
        """Fields of a line that no label is made of; those without a content are left out."""
        fields: dict[str, Any] = {
            "items": list(question.items),
            "text": answer.text,
            "judge": self._judge,
            "tokens": list(map(int, answer.tokens)) if answer.tokens[0] else [],
            "note": answer.note,
            "cut": int(answer.cut),
        }
        return {name: value for name, value in fields.items() if value}

    def close(self) -> None:
        """Closes the file that this store writes, so that another process may append to it."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _free_writer(folder: Path) -> LineWriter:
    """A file that this host began in this folder and that no process writes now, or a new one.

    Names are unique (host, folder, a random part): stores can be merged by copying, and copies are
    never appended to.
    """
    host = re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname()) or "host"
    folder_digest = hashlib.blake2b(os.fsencode(folder.resolve()), digest_size=4).hexdigest()
    for path in sorted(folder.glob(f"{host}-{folder_digest}-*.jsonl")):
        if not os.access(path, os.W_OK):  # another user's
            continue
        with contextlib.suppress(BlockingIOError):
            return LineWriter(path)
    return LineWriter(folder / f"{host}-{folder_digest}-{secrets.token_hex(6)}.jsonl")
