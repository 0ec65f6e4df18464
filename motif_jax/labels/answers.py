"""An annotator's stored answers: reads them, and writes new ones while others write too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from motif_jax.datasets.verdicts import UNKNOWN, Form
from motif_jax.labels.annotator import Question
from motif_jax.labels.answer_index import AnswerIndex
from motif_jax.labels.conversations import ConversationLog
from motif_jax.labels.messages import Answered, Asked, Reply
from motif_jax.labels.questions import QuestionHasher
from motif_jax.labels.store import AnswerStore, StoredAnswer, cost_fields


class Answers:
    """The answers of one annotator in the store; for one thread."""

    def __init__(
        self,
        identity: Mapping[str, Any],
        form: Form,
        store_dir: str | Path,
        attempts: int,
        again: bool = False,
        conversations: ConversationLog | None = None,
    ) -> None:
        """Opens nothing yet.

        Args:
          identity: of the annotator.
          form: of the questions.
          store_dir: the answer store.
          attempts: how often a question is asked at most while its answers are unknown.
          again: everything is asked, whatever the store has (compat.oni_requeue).
          conversations: where to keep them, if anywhere.
        """
        self._conversations = conversations
        self._form, self._attempts, self._again = form, attempts, again
        self._hasher = QuestionHasher(identity)
        self._store = AnswerStore(store_dir)
        self._index = AnswerIndex(store_dir)

    @classmethod
    def of(cls, identity: Mapping[str, Any], form: Form, config: ConfigDict) -> Answers:
        """As the sections `annotator` and `queue` say, after `online.in_run`."""
        folder = config.annotator.get("conversations_dir", "")
        conversations = ConversationLog(Path(folder), "online") if folder else None
        again, section = bool(config.compat.get("oni_requeue", False)), config.annotator
        return cls(identity, form, section.store_dir, section.attempts, again, conversations)

    def find(self, items: tuple[str, ...]) -> StoredAnswer | None:
        """The stored answer to the question about the texts."""
        return self._index.get(self._hasher.items(items, self._form))

    def open(self, asked: Asked) -> Question | Reply:
        """The question to be asked, or the answer where there is one already."""
        key = self._hasher.items(asked.items, self._form)
        found = None if self._again else self._index.get(key)
        if found is not None and (found.label != UNKNOWN or found.attempts >= self._attempts):
            return Reply(asked.number, found.label, found.probabilities, found.attempts, asked=False)
        attempt = asked.attempt if found is None else max(asked.attempt, found.attempts)
        return Question(key, asked.items, self._form, attempt=attempt)

    def keep(self, answered: Sequence[Answered]) -> list[Reply]:
        """Writes answers to the store and waits until they are on the disk; returns what to report of them.

        Raises:
          UserError: the store cannot be written.
          ValueError: an answer is none of its question's form.
        """
        stored = [(entry, StoredAnswer.of(entry.question, entry.answer)) for entry in answered]
        self._store.add((entry.question.id, kept, cost_fields(entry.answer)) for entry, kept in stored)
        self._index.refresh()
        if self._conversations is not None:
            self._conversations.add([(entry.question, entry.answer) for entry in answered])
        return [
            Reply(
                entry.number,
                kept.label,
                kept.probabilities,
                kept.attempts,
                entry.latency_seconds,
                (entry.answer.prompt_tokens, entry.answer.completion_tokens, entry.answer.cached_tokens),
            )
            for entry, kept in stored
        ]

    def close(self) -> None:
        """Lets go of the store."""
        self._store.close()
        self._index.close()
