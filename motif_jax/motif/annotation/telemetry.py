"""Counts, rates and cost of an annotation run."""

from __future__ import annotations

import collections
import dataclasses
import time
from typing import Any

from motif_jax.core.verdicts import PAIR, UNKNOWN, Form
from motif_jax.motif.annotation.annotator import Answer, Prices


@dataclasses.dataclass
class Telemetry:
    """Counts of this run's questions.

    Attributes:
      questions: distinct questions of the run.
      store_hits: those that were answered before.
      asked: answers of this run; a question that is asked twice counts twice.
      last_verdict: answers with the form's last verdict, the tie of pairs.
      cut: turns that ended before the model had answered.
      notes: reason -> unknown answers for which the text is not the cause.
      mass: sum of the verdicts' probability together, over answers that have it.
      masses: answers that have it.
      tokens: of prompts, of answers, of the cached part of prompts.
      seconds: from the start of asking to the last answer.
    """

    form: Form = PAIR
    prices: Prices | None = None
    questions: int = 0
    store_hits: int = 0
    asked: int = 0
    last_verdict: int = 0
    unknown: int = 0
    retried: int = 0
    cut: int = 0
    notes: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    mass: float = 0.0
    masses: int = 0
    tokens: tuple[int, int, int] = (0, 0, 0)
    seconds: float = 0.0
    _since: float = dataclasses.field(default_factory=time.monotonic)

    def begin(self) -> None:
        """Starts the clock, or continues it: pauses between two calls of `annotate` do not
        count.
        """
        self._since = time.monotonic() - self.seconds

    def answered(self, answer: Answer) -> None:
        """Counts an answer."""
        # The clock stops at the newest answer, so that what follows it does not lower the rates.
        self.seconds = time.monotonic() - self._since
        self.asked += 1
        if answer.label == len(self.form.verdicts) - 1:
            self.last_verdict += 1
        if answer.label == UNKNOWN:
            self.unknown += 1
        if answer.retried:
            self.retried += 1
        if answer.note:
            self.notes[answer.note] += 1
        self.cut += answer.cut
        if answer.mass is not None:
            self.mass += answer.mass
            self.masses += 1
        prompt, completion, cached = answer.tokens
        self.tokens = (
            self.tokens[0] + prompt,
            self.tokens[1] + completion,
            self.tokens[2] + cached,
        )

    def live(self) -> dict[str, float]:
        """Figures for the progress line."""
        figures = self._figures()
        fields = {name: figures[f"{name}_share"] for name in (self.form.verdicts[-1], "unknown")}
        prompt, _, cached = self.tokens
        if prompt:
            fields |= {
                "tokens_per_second": figures["tokens_per_second"],
                "prefix_cached": cached / prompt,
            }
        return {**fields, **self._cost()}

    def _cost(self) -> dict[str, float]:
        return {} if self.prices is None else {"cost": self.prices.of(*self.tokens)}

    def _figures(self) -> dict[str, float]:
        """Shares and rates, 0 before the first answer; the mass only where log-probabilities are
        read.
        """
        asked = max(1, self.asked)
        seconds = max(self.seconds, 1e-9)
        figures = {
            f"{self.form.verdicts[-1]}_share": self.last_verdict / asked,
            "unknown_share": self.unknown / asked,
            "retried_share": self.retried / asked,
            "questions_per_second": self.asked / seconds,
            "tokens_per_second": sum(self.tokens[:2]) / seconds,
        }
        if self.masses:
            figures["mean_verdict_mass"] = self.mass / self.masses
        return figures

    def summary(self) -> dict[str, Any]:
        """All figures, for summary.json. Rates count from the start of asking to the last
        answer.
        """
        prompt, completion, cached = self.tokens
        return {
            "questions": self.questions,
            "store_hits": self.store_hits,
            "asked": self.asked,
            **self._figures(),
            "unknown_notes": dict(self.notes),
            "cut_answers": self.cut,
            "seconds": round(self.seconds, 3),
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "cached_tokens": cached,
            **self._cost(),
        }
