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
    """Counts of this run's questions; `store_hits` were answered before, the last verdict of pairs is the tie.

    `notes`: reason -> unknown answers not due to the text; `cut`: turns that ended before the model had answered; `mass`: sum of verdicts' probability; tokens: (prompt, completion, cached).
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
    tokens: tuple[int, int, int] = (0, 0, 0)
    seconds: float = 0.0
    _since: float = dataclasses.field(default_factory=time.monotonic)

    def begin(self) -> None:
        self._since = time.monotonic() - self.seconds

    def answered(self, answer: Answer) -> None:
        self.seconds = time.monotonic() - self._since
        self.asked += 1
        self.last_verdict += answer.label == len(self.form.verdicts) - 1
        self.unknown += answer.label == UNKNOWN
        self.retried += answer.retried
        self.cut += answer.cut
        self.mass += answer.mass or 0.0
        self.notes[answer.note] += bool(answer.note)
        prompt, completion, cached = map(sum, zip(self.tokens, answer.tokens, strict=True))
        self.tokens = prompt, completion, cached

    def live(self) -> dict[str, float]:
        figures = self._figures()
        fields = {name: figures[f"{name}_share"] for name in (self.form.verdicts[-1], "unknown")}
        prompt, _, cached = self.tokens
        if prompt:
            fields |= {"tokens_per_second": figures["tokens_per_second"], "prefix_cached": cached / prompt}
        return {**fields, **self._cost()}

    def _cost(self) -> dict[str, float]:
        return {} if self.prices is None else {"cost": self.prices.of(*self.tokens)}

    def _figures(self) -> dict[str, float]:
        asked, seconds = max(1, self.asked), max(self.seconds, 1e-9)
        return {
            f"{self.form.verdicts[-1]}_share": self.last_verdict / asked,
            "unknown_share": self.unknown / asked,
            "retried_share": self.retried / asked,
            "questions_per_second": self.asked / seconds,
            "tokens_per_second": sum(self.tokens[:2]) / seconds,
            **({"mean_verdict_mass": self.mass / asked} if self.mass else {}),
        }

    def summary(self) -> dict[str, Any]:
        """All figures, for summary.json. Rates count from the start of asking to the last answer."""
        names = ("prompt_tokens", "completion_tokens", "cached_tokens")
        return {
            "questions": self.questions,
            "store_hits": self.store_hits,
            "asked": self.asked,
            **self._figures(),
            "unknown_notes": dict(+self.notes),
            "cut_answers": self.cut,
            "seconds": round(self.seconds, 3),
            **dict(zip(names, self.tokens, strict=True)),
            **self._cost(),
        }
