"""Counts and rates of an annotation run."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from motif_jax.annotation.annotator import TIE, UNKNOWN, Answer


@dataclasses.dataclass
class Telemetry:
    """What was asked in this run.

    Attributes:
      questions: questions of this shard.
      store_hits: questions that the store or the shard had answered before.
      asked, ties, unknown, retried: answers of this run, and those that took more than one turn.
      notes: reason -> number of unknown answers that have nothing to do with the text.
      mass: sum over answers of the probability of the verdicts together (answer.mode=soft).
      prompt_tokens, completion_tokens, cached_tokens: cost of this run; cached ones are part of the prompt's.
    """

    questions: int = 0
    store_hits: int = 0
    asked: int = 0
    ties: int = 0
    unknown: int = 0
    retried: int = 0
    notes: dict[str, int] = dataclasses.field(default_factory=dict)
    mass: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    first_seconds: float = 0.0
    last_seconds: float = 0.0
    started: float = dataclasses.field(default_factory=time.monotonic)

    def answered(self, answer: Answer) -> None:
        """Counts an answer."""
        self.last_seconds = time.monotonic() - self.started
        if not self.asked:
            self.first_seconds = self.last_seconds
        self.asked += 1
        self.ties += answer.label == TIE
        self.unknown += answer.label == UNKNOWN
        self.retried += sum(turn["role"] == "assistant" for turn in answer.turns) > 1
        self.mass += answer.mass or 0.0
        if answer.note:
            self.notes[answer.note] = self.notes.get(answer.note, 0) + 1
        self.prompt_tokens += answer.prompt_tokens
        self.completion_tokens += answer.completion_tokens
        self.cached_tokens += answer.cached_tokens

    def live(self) -> dict[str, float]:
        """The few figures of the progress line."""
        fields = {"tie": self.ties / max(1, self.asked), "unknown": self.unknown / max(1, self.asked)}
        if self.prompt_tokens:
            fields["tokens_per_second"] = (self.prompt_tokens + self.completion_tokens) / max(
                1e-9, self.last_seconds
            )
            fields["prefix_cached"] = self.cached_tokens / self.prompt_tokens
        return fields

    def summary(self) -> dict[str, Any]:
        """All figures, for summary.json. Rates count from the start of asking to the last answer."""
        seconds = max(self.last_seconds, 1e-9)
        asked = max(1, self.asked)
        return {
            "questions": self.questions,
            "store_hits": self.store_hits,
            "asked": self.asked,
            "tie_share": self.ties / asked,
            "unknown_share": self.unknown / asked,
            "retried_share": self.retried / asked,
            "unknown_notes": self.notes,
            **({"mean_verdict_mass": self.mass / asked} if self.mass else {}),
            "seconds": round(self.last_seconds, 3),
            "questions_per_second": self.asked / seconds if self.asked else 0.0,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "cached_tokens": self.cached_tokens,
            "tokens_per_second": (self.prompt_tokens + self.completion_tokens) / seconds
            if self.asked
            else 0.0,
        }
